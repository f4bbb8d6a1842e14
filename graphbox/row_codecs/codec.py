"""The protocol of row codecs, and the checks that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.errors import DataError, FormatError
from graphbox.rows import Float32, Int64, StoredRows

__all__ = [
    "ArrayPart",
    "ArrayRows",
    "ArraySpec",
    "Arrays",
    "RowCodec",
    "RowSource",
    "TableShape",
    "check_range",
    "open_rows",
    "row_blocks",
    "select_rows",
]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
"""Arrays of a table by file name."""

BLOCK_ROWS: Final = 65_536
_LARGEST_FLOAT16: Final = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class ArraySpec:
    """Type and shape of a file.

    Attributes:
        dtype: as NumPy writes it, ``<f4``.
        shape: a size of None follows from the content of another file.
    """

    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class ArrayPart:
    """An array, or rows of it.

    Attributes:
        array: may be memory-mapped.
        rows: int64, in their order; None: the whole array.
    """

    array: npt.NDArray[Any]
    rows: Int64 | None = None


@dataclass(frozen=True)
class TableShape:
    """Size of a table.

    Attributes:
        rows: number of rows.
        dim: length of a row.
        noun: name of a row's owner, for messages.
    """

    rows: int
    dim: int
    noun: str = "row"


class RowSource(Protocol):
    """Rows to encode, read as float32 blocks; a `StoredRows` is one."""

    dim: int

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def block(self, start: int, stop: int) -> Float32:
        """Return rows ``start`` to ``stop`` (cut off at the end) as float32."""
        ...


class ArrayRows:
    """Rows of an array as a `RowSource`.

    Args:
        rows: float32 or float16 [n, dim].

    Raises:
        DataError: the array is of another type or shape.
    """

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        if rows.dtype.name not in {"float32", "float16"}:
            raise DataError(f"expected finite rows of type float32 or float16, received {rows.dtype}")
        if rows.ndim != 2:
            raise DataError(f"expected rows [n, dim], received {list(rows.shape)}")
        self.dim = rows.shape[1]
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def block(self, start: int, stop: int) -> Float32:
        """Return rows ``start`` to ``stop`` as float32."""
        return self._rows[start:stop].astype(np.float32, copy=False)


class RowCodec(Protocol):
    """A way to store the rows of a table. Immutable."""

    @property
    def name(self) -> str:
        """Name and parameters, as a manifest has them: enough to find the files and to decode them."""
        ...

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file of a table, by name."""
        ...

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of the arrays of a table as this codec would encode it."""
        ...

    def encode(self, source: RowSource) -> Arrays:
        """Return the arrays of a table, which is read in blocks.

        Raises:
            DataError: the codec cannot hold an element.
        """
        ...

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays whose types and shapes fit `files`; use `open_rows`.

        Raises:
            FormatError: the content of an array does not fit.
        """
        ...

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of a table that has some rows alone, in their order, without encoding anew."""
        ...


def open_rows(codec: RowCodec, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
    """Return a table of arrays after checking every one of them.

    Args:
        codec: of the table.
        arrays: by file name.
        table: its size.

    Raises:
        FormatError: an array is missing, or does not fit the others.
    """
    check_arrays(codec.files(table.rows, table.dim), arrays)
    return codec.open(arrays, table)


def check_arrays(specs: Mapping[str, ArraySpec], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check names, types and shapes of arrays.

    Raises:
        FormatError: they are others.
    """
    if arrays.keys() != specs.keys():
        raise FormatError(f"expected the files {sorted(specs)}, received {sorted(arrays)}")
    for name, spec in specs.items():
        array = arrays[name]
        fits = len(array.shape) == len(spec.shape) and all(
            want in {None, got} for want, got in zip(spec.shape, array.shape, strict=True)
        )
        if array.dtype.str != spec.dtype or not fits:
            expected = ["any" if size is None else size for size in spec.shape]
            raise FormatError(
                f"expected an array of type {spec.dtype} and shape {expected}, received {array.dtype.str} "
                f"{list(array.shape)}",
                where=name,
            )


def row_blocks(source: RowSource) -> Iterator[tuple[slice, Float32]]:
    """Yield blocks of rows, each with its place."""
    for start in range(0, len(source), BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, len(source))
        yield slice(start, stop), source.block(start, stop)


def check_finite(rows: Float32) -> None:
    """Check that no element is infinite or NaN.

    Raises:
        DataError: one is.
    """
    if not np.isfinite(rows).all():
        raise DataError("expected finite rows, received infinity or NaN")


def check_range(rows: Float32) -> None:
    """Check that float16 can hold every element.

    Raises:
        DataError: one is beyond it, or NaN.
    """
    largest = float(np.abs(rows).max(initial=0))
    if not largest <= _LARGEST_FLOAT16:
        raise DataError(
            f"expected elements within {_LARGEST_FLOAT16:g}, received {largest:g}",
            hint="set `tables: float32` for this model",
        )


def select_rows(arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
    """Return the given rows of each array; see `RowCodec.select`."""
    return {name: ArrayPart(array, rows) for name, array in arrays.items()}
