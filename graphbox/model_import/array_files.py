"""Rows of `.npy`, `.npz` and safetensors files, in blocks.

Headers are checked against the sizes of the files before anything is read, and nothing is unpickled.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.model_import.row_blocks import RowBlock, block_rows

__all__ = ["npy_blocks", "npz_blocks", "safetensors_blocks"]

_IDS_MEMBER = "ids"
_MAX_JSON_BYTES = 100 << 20
_BFLOAT16 = "BF16"
# Damaged, encrypted, or compressed by a method that this Python does not have.
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError)
_DTYPES: Mapping[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    _BFLOAT16: np.dtype("<u2"),
}


def npy_blocks(path: Path) -> Iterator[RowBlock]:
    """Yield the rows of a ``.npy`` file of float16, float32 or float64 [n, dim]; see `read_blocks`."""
    with path.open("rb") as stream:
        yield from _npy_blocks(stream, str(path))


def npz_blocks(path: Path, tensor: str | None, *, has_ids: bool) -> Iterator[RowBlock]:
    """Yield the rows of one array of a ``.npz`` file; see `read_blocks`.

    Args:
        path: of the file.
        tensor: name of the array; None: the only one of two dimensions.
        has_ids: whether ids come from elsewhere; else those of its array ``ids`` are taken, if there is one.
    """
    try:
        archive = zipfile.ZipFile(path)
    except _ARCHIVE_ERRORS as error:
        raise DataError(f"expected a .npz archive, could not read one ({error})", where=str(path)) from error
    with archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        shapes = {name: _npz_shape(archive, name, path) for name in names}
        chosen = _chosen({name: shape for name, shape in shapes.items() if len(shape) == 2}, tensor, path)
        ids: pa.Array | None = None
        if not has_ids and len(shapes.get(_IDS_MEMBER, ())) == 1:
            ids = _npz_ids(archive, path)
            if len(ids) != shapes[chosen][0]:
                raise DataError(
                    f"expected {shapes[chosen][0]} ids, received {len(ids)}", where=f"{path}, array `ids`"
                )
        first = 0
        try:
            with archive.open(f"{chosen}.npy") as stream:
                for block in _npy_blocks(stream, f"{path}, array `{chosen}`"):
                    part = None if ids is None else ids.slice(first, len(block.rows))
                    first += len(block.rows)
                    yield RowBlock(block.rows, part)
        except _ARCHIVE_ERRORS as error:
            raise DataError(f"cannot read the archive: {error}", where=str(path)) from error


def safetensors_blocks(path: Path, tensor: str | None) -> Iterator[RowBlock]:
    """Yield the rows of one tensor of a safetensors file; bfloat16 becomes float32. See `read_blocks`.

    Args:
        path: of the file.
        tensor: its name; None: the only one of two dimensions.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(_MAX_JSON_BYTES, size - 8):
            raise DataError(
                "expected a safetensors file, received another or a truncated one", where=str(path)
            )
        try:
            header = json.loads(stream.read(length))
            found = {name: spec for name, spec in header.items() if name != "__metadata__"}
            shapes = {name: tuple(map(int, spec["shape"])) for name, spec in found.items()}
            places = {name: tuple(map(int, spec["data_offsets"])) for name, spec in found.items()}
            kinds = {name: str(spec["dtype"]) for name, spec in found.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"expected the header of a safetensors file, received another ({error})", where=str(path)
            ) from error
        chosen = _chosen({name: shape for name, shape in shapes.items() if len(shape) == 2}, tensor, path)
        where = f"{path}, tensor `{chosen}`"
        dtype, (rows, dim) = _DTYPES.get(kinds[chosen]), shapes[chosen]
        if dtype is None:
            raise _wrong_dtype(kinds[chosen], where)
        start, stop = places[chosen] if len(places[chosen]) == 2 else (-1, -1)
        if rows < 0 or dim < 1 or start < 0 or stop - start != rows * dim * dtype.itemsize:
            raise DataError(f"expected data of a tensor {[rows, dim]}, received other offsets", where=where)
        if 8 + length + stop > size:
            raise DataError(f"expected {8 + length + stop} bytes, the file has {size}", where=where)
        stream.seek(8 + length + start)
        for block in _stream_blocks(stream, dtype, rows, dim, where):
            if kinds[chosen] == _BFLOAT16:
                yield RowBlock((block.astype(np.uint32) << 16).view(np.float32))
            else:
                yield RowBlock(block)


def _npy_blocks(stream: IO[bytes], where: str) -> Iterator[RowBlock]:
    shape, is_fortran, dtype = _npy_header(stream, where)
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise _wrong_dtype(str(dtype), where)
    if len(shape) != 2 or shape[1] < 1:
        raise DataError(f"expected an array [rows, dim], received {list(shape)}", where=where)
    if is_fortran and min(shape) > 1:
        raise DataError(
            "expected an array whose rows lie one after the other, received one in Fortran order",
            where=where,
            hint="numpy.save(FILE, numpy.ascontiguousarray(array))",
        )
    for block in _stream_blocks(stream, dtype, shape[0], shape[1], where):
        yield RowBlock(block)


def _npy_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, is_fortran, dtype = read(stream)
    except Exception as error:  # NumPy evaluates headers as Python, which raises a dozen kinds
        raise DataError(f"expected an array of NumPy, could not read one ({error})", where=where) from error
    return shape, is_fortran, dtype


def _stream_blocks(
    stream: IO[bytes], dtype: np.dtype[Any], rows: int, dim: int, where: str
) -> Iterator[npt.NDArray[Any]]:
    step = block_rows(dim)
    for start in range(0, rows, step):
        count = min(step, rows - start)
        data = stream.read(count * dim * dtype.itemsize)
        if len(data) != count * dim * dtype.itemsize:
            raise DataError(f"expected {rows} rows, the data ends in row {start}", where=where)
        yield np.frombuffer(data, dtype).reshape(count, dim)


def _npz_shape(archive: zipfile.ZipFile, name: str, path: Path) -> tuple[int, ...]:
    try:
        with archive.open(f"{name}.npy") as stream:
            return _npy_header(stream, f"{path}, array `{name}`")[0]
    except _ARCHIVE_ERRORS as error:
        raise DataError(f"cannot read the archive: {error}", where=str(path)) from error


def _npz_ids(archive: zipfile.ZipFile, path: Path) -> pa.Array:
    where = f"{path}, array `{_IDS_MEMBER}`"
    try:
        with archive.open(f"{_IDS_MEMBER}.npy") as stream:
            values = np.lib.format.read_array(stream, allow_pickle=False)
        return pa.array([str(value) for value in values.tolist()], pa.large_string())
    except (ValueError, *_ARCHIVE_ERRORS) as error:
        raise DataError(f"expected integers or strings ({error})", where=where) from error


def _chosen(matrices: Mapping[str, tuple[int, ...]], wanted: str | None, path: Path) -> str:
    """Return the name of the tensor that holds the rows."""
    if wanted is not None:
        if wanted not in matrices:
            raise UsageError(
                f"expected one of the tensors of two dimensions {sorted(matrices)}, received `{wanted}`",
                where=f"--tensor, of {path}",
                hint=did_you_mean(wanted, matrices),
            )
        return wanted
    if len(matrices) != 1:
        listed = ", ".join(f"`{name}` {list(shape)}" for name, shape in sorted(matrices.items())[:20])
        raise UsageError(
            f"expected one tensor of two dimensions, the file has {len(matrices)}"
            f"{': ' if listed else ''}{listed}",
            where=str(path),
            hint="name the one with the rows: --tensor NAME" if matrices else None,
        )
    return next(iter(matrices))


def _wrong_dtype(received: str, where: str) -> DataError:
    return DataError(f"expected rows of float16, float32 or float64, received {received}", where=where)
