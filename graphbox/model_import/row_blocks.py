"""Blocks of rows, as the readers of files yield them, and the ids that go with rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.artifact.ids import Ids
from graphbox.errors import DataError, FormatError, NotFoundError

__all__ = ["RowBlock", "RowStream", "block_rows", "lines_of_ids"]

_BLOCK_BYTES = 8 << 20
_LARGEST_BLOCK = 65_536
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows of a file, one after the other.

    Attributes:
        rows: float16, float32 or float64 [n, dim].
        ids: their original ids as texts or integers [n]; None: the file has none.
    """

    rows: npt.NDArray[Any]
    ids: pa.Array | None = None


def block_rows(dim: int) -> int:
    """Return how many rows to read at once."""
    return max(1, min(_LARGEST_BLOCK, _BLOCK_BYTES // (8 * dim)))


def lines_of_ids(path: Path) -> pa.Array:
    """Return the ids of a text file, one a line, as large_string.

    Raises:
        NotFoundError: there is no such file.
        DataError: a line is empty or not UTF-8.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise NotFoundError(f"cannot read the ids: {error.strerror or error}", where=str(path)) from error
    if lines and not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, 1):
        try:
            texts.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise DataError(
                f"expected an id in UTF-8, received other bytes ({error})", where=f"{path}:{number}"
            ) from error
        if not texts[-1]:
            raise DataError("expected an id on each line, received an empty one", where=f"{path}:{number}")
    return pa.array(texts, pa.large_string())


class RowStream:
    """Rows on their way into a table: checks them, and collects their ids.

    Args:
        blocks: of a file.
        where: the file, named in messages.
        ids: of all rows; None: those of the blocks, or else positions from 0.

    Attributes:
        num_rows: rows that have passed.
    """

    def __init__(self, blocks: Iterable[RowBlock], where: str, ids: pa.Array | None) -> None:
        self._blocks = blocks
        self._where = where
        self._given = ids
        self._found: list[pa.Array] = []
        self.num_rows = 0

    def rows(self) -> Iterator[npt.NDArray[Any]]:
        """Yield finite rows, float16 or float32 [n, dim].

        Raises:
            DataError: a number is NaN, infinite or too large for float32; there are other than the given ids.
        """
        for block in self._blocks:
            rows = block.rows
            if rows.dtype.itemsize == 8:
                with np.errstate(over="ignore"):
                    rows = rows.astype(np.float32)
            else:
                rows = rows.astype(rows.dtype.newbyteorder("="), copy=False)
            if block.ids is not None and self._given is None:
                self._found.append(block.ids)
            is_finite = np.isfinite(rows).all(axis=1)
            if not is_finite.all():
                row = int(np.flatnonzero(~is_finite)[0])
                name = "" if block.ids is None else f", id `{block.ids[row].as_py()}`"
                raise DataError(
                    f"expected finite numbers of at most {_LARGEST_FLOAT32:.2g}, received "
                    f"{block.rows[row][~np.isfinite(rows[row])][0]}",
                    where=f"{self._where}, row {self.num_rows + row}{name}",
                )
            self.num_rows += len(rows)
            yield rows
        if not self.num_rows:
            raise DataError("expected at least one row, received none", where=self._where)
        if self._given is not None and len(self._given) != self.num_rows:
            raise DataError(
                f"expected an id for each of {self.num_rows} rows, received {len(self._given)}", where="--ids"
            )

    def ids(self) -> pa.Array:
        """Return the ids of the rows that have passed: int64 where all are integers, else large_string.

        Raises:
            DataError: an id occurs twice.
        """
        if self._given is None and not self._found:
            return pa.array(np.arange(self.num_rows))
        values = self._given if self._given is not None else pa.concat_arrays(self._found)
        values = _integers(values)
        try:
            Ids(values, "node", self._where)
        except FormatError as error:
            raise DataError(error.message, where=self._where, hint=_first_duplicate(values)) from error
        return values


def _integers(values: pa.Array) -> pa.Array:
    """Return ids as int64 where each is written as an integer is printed."""
    if pa.types.is_uint64(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    if not len(values) or not pc.all(pc.match_substring_regex(values, _INTEGER)).as_py():
        return values
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:  # beyond 64 bits with a sign
        return values


def _first_duplicate(values: pa.Array) -> str | None:
    counts = pc.value_counts(values)
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if not len(twice):
        return None
    value = twice.field("values")[0]
    rows = np.flatnonzero(pc.equal(values, value).to_numpy(zero_copy_only=False))[:2].tolist()
    return f"`{value.as_py()}` is the id of row {rows[0]} and of row {rows[1]}"
