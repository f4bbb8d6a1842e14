"""Array files that are written as streams of rows."""

from pathlib import Path

import numpy as np
import pytest

from graphbox import _core
from graphbox.errors import DoesNotFitError, NotFoundError, UsageError


@pytest.mark.parametrize("dtype", ["<f4", "<i4", "<i8", "|b1", "|u1"])
@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (700_000,), (0, 3), (1000, 3)])
def test_numpy_reads_what_was_appended(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    writer = _core.ArrayFileWriter(str(tmp_path / "a.npy"), dtype, list(shape[1:]))
    for part in np.array_split(array, 3):
        writer.append(part)
    written = writer.finish()
    assert written == (shape, _core.crc32c(array.reshape(-1).view(np.uint8)))
    read = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)
    assert (tmp_path / "a.npy").stat().st_size == 128 + array.nbytes


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as missing:
        _core.ArrayFileWriter(str(tmp_path / "absent" / "a.npy"), "<i4")
    assert missing.value.where == str(tmp_path / "absent" / "a.npy")
    full = _core.ArrayFileWriter("/dev/full", "<i8")
    full.append(np.zeros(3, np.int64))
    with pytest.raises(DoesNotFitError, match="cannot write 24 bytes at byte 128: No space left") as no_space:
        full.finish()
    assert no_space.value.where == "/dev/full"
    partial = _core.ArrayFileWriter(str(tmp_path / "a.npy"), "<i8")
    partial.append(np.zeros(1, np.int32))
    with pytest.raises(UsageError, match="whole rows of 8 bytes, received 4"):
        partial.finish()
