"""The checksum of our files, as Python sees it."""

import numpy as np

from graphbox import _core


def test_the_check_value_of_the_polynomial() -> None:
    assert _core.crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283


def test_goes_on_from_what_was_before() -> None:
    content = np.random.default_rng(0).integers(0, 256, 10_000, dtype=np.uint8)
    whole = _core.crc32c(content)
    for cut in (0, 1, 4_097, 10_000):
        assert _core.crc32c(content[cut:], before=_core.crc32c(content[:cut])) == whole
