"""Keys of values, computed without the native core, are those that the core and tables compute."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox import _core
from graphbox.fields.keys import digest_number, salt, text_hash
from graphbox.table import hashed_keys, salted_keys


@pytest.mark.parametrize("seed", range(3))
def test_texts_of_any_length_have_the_number_that_an_import_gives_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    texts = [random.bytes(length) for length in [*range(70), 100, 255, 1000]]
    offsets = np.cumsum([0, *map(len, texts)])
    hashed = np.empty(len(texts), np.int64)
    _core.hash_strings(offsets, np.frombuffer(b"".join(texts), np.uint8), hashed)
    assert [text_hash(text) for text in texts] == hashed.tolist()


def test_keys_are_those_of_tables() -> None:
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 100)
    assert salt(keys, digest_number("städte".encode())).tolist() == salted_keys(keys, "städte").tolist()
    assert hashed_keys(["Rome"])[0] == digest_number(b"Rome").view(np.int64)
