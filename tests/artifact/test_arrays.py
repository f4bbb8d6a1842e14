"""Arrays of a model version as private copies: in memory, or in an unnamed file where they are large."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.artifact.arrays import private_array, write_array, write_row_blocks
from graphbox.errors import DataError, DoesNotFitError, FormatError

VALUES = np.random.default_rng(3).standard_normal((5000, 7)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "rows.npy"
    path.parent.mkdir()
    np.save(path, VALUES)
    return path


@pytest.mark.parametrize("limit", [1 << 30, 0], ids=["in memory", "in a file"])
@pytest.mark.parametrize("change", ["truncate", "overwrite", "remove"])
def test_later_changes_of_the_file_do_not_matter(file: Path, limit: int, change: str) -> None:
    array = private_array(file, limit)
    assert isinstance(array.base, np.memmap) == (limit == 0)
    if change == "remove":
        file.unlink()
    else:
        with file.open("r+b") as stream:
            if change == "overwrite":
                stream.write(b"\xff" * stream.seek(0, os.SEEK_END))
            else:
                stream.truncate(0)
    np.testing.assert_array_equal(array, VALUES)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    assert [path for path in file.parent.iterdir() if path != file] == []


@pytest.mark.parametrize("limit", [1 << 30, 0])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_rows_begin_at_cache_lines(tmp_path: Path, limit: int, dtype: type[Any]) -> None:
    values = np.arange(3 * 64).reshape(3, 64).astype(dtype)
    np.save(tmp_path / "rows.npy", values)
    array = private_array(tmp_path / "rows.npy", limit)
    assert array.ctypes.data % 64 == 0
    np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_empty_arrays(tmp_path: Path, limit: int) -> None:
    np.save(tmp_path / "empty.npy", np.empty((0, 4), np.int64))
    array = private_array(tmp_path / "empty.npy", limit)
    assert (array.shape, array.dtype) == ((0, 4), np.dtype(np.int64))


@pytest.mark.parametrize("limit", [1 << 30, 0])
@pytest.mark.parametrize("kept_bytes", [0, 20, 1000])
def test_damaged_files_are_refused(file: Path, limit: int, kept_bytes: int) -> None:
    with file.open("r+b") as stream:
        stream.truncate(kept_bytes)
    with pytest.raises(FormatError, match="expected an array, could not read one") as caught:
        private_array(file, limit)
    assert caught.value.where == str(file)


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], np.object_), allow_pickle=True)
    with pytest.raises(FormatError, match="not that of a row-major array of numbers"):
        private_array(tmp_path / "objects.npy")


@pytest.mark.parametrize("limit", [1 << 30, 0])
@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 7), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (5001, 7), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4999, 7), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 7), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 7), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (5000, 7), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 5000 + ")" * 5000 + ", }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (exit(), 7), }",
        "{'descr': '<U1000000', 'fortran_order': False, 'shape': (5000, 7), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5000, 7), }",
        "{" * 3000,
        "",
    ],
)
def test_headers_that_lie_are_refused(file: Path, limit: int, header: str) -> None:
    text = header.encode() + b"\n"
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + VALUES.tobytes())
    with pytest.raises(FormatError, match="expected an array, could not read one"):
        private_array(file, limit)


PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from graphbox.artifact.arrays import private_array
from graphbox.errors import DoesNotFitError
try:
    private_array(Path(sys.argv[1]), 0)
except DoesNotFitError as error:
    sys.exit(error.message)
"""


def test_no_room_for_the_copy(file: Path) -> None:
    """Found before the copy is written: a page without room would end the process when it is used."""

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)],
        preexec_fn=small_files_only,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert (
        f"expected {file.stat().st_size} bytes free in {file.parent} for a copy of rows.npy" in ended.stderr
    )
    assert DoesNotFitError.exit_code == 3


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", "u1", "?"])
@pytest.mark.parametrize("shape", [(0,), (5,), (7, 3), (0, 4), (4, 0), (3, 2, 2)])
def test_written_as_numpy_writes(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    np.save(tmp_path / "expected.npy", array.astype(array.dtype.newbyteorder("<")))
    for given in (array, np.asfortranarray(array)):
        with (tmp_path / "found.npy").open("wb") as stream:
            write_array(stream, given)
        assert (tmp_path / "found.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_chosen_rows_are_written_in_their_order(tmp_path: Path) -> None:
    array = np.arange(3_000_000, dtype=np.float64).reshape(-1, 3)  # more than one block
    rows = np.random.default_rng(0).permutation(len(array))[:900_000]
    with (tmp_path / "found.npy").open("wb") as stream:
        write_array(stream, array, rows)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), array[rows])


def test_a_full_disk_has_its_number() -> None:
    with pytest.raises(OSError, match="No space left") as caught, Path("/dev/full").open("wb") as stream:
        write_array(stream, np.zeros((1000, 100), np.float32))
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("dtype", ["<f4", "<f2", ">f4"])
def test_rows_are_written_as_they_come(tmp_path: Path, dtype: str) -> None:
    rows = VALUES.astype(dtype)
    with (tmp_path / "rows.npy").open("wb") as stream:
        found = write_row_blocks(stream, (rows[start : start + 999] for start in range(0, len(rows), 999)))
    assert found == (rows.shape, rows.dtype)
    loaded = np.load(tmp_path / "rows.npy", allow_pickle=False)
    np.testing.assert_array_equal(loaded, rows)
    with (tmp_path / "whole.npy").open("wb") as stream:
        write_array(stream, rows)
    assert (tmp_path / "rows.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "at least one row, received none"),
        ([VALUES[:0]], "at least one row, received none"),
        ([VALUES, VALUES[:, :3]], "rows of 7 numbers of type float32, received 3"),
        ([VALUES, VALUES.astype(np.float16)], "received 7 of type float16"),
    ],
)
def test_blocks_that_differ_are_refused(tmp_path: Path, blocks: list[npt.NDArray[Any]], message: str) -> None:
    with (tmp_path / "rows.npy").open("wb") as stream, pytest.raises(DataError, match=message):
        write_row_blocks(stream, blocks)
