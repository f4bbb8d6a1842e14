"""Several files of the same columns as one table."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from graphbox.errors import UsageError
from graphbox.graph.source.table import Batch, Table


class PartsTable(Table):
    """Tables one after another. Each needs the wanted columns, in whatever order it has them.

    Raises:
        UsageError: some are text and others are not.
    """

    def __init__(self, name: str, parts: Sequence[Table]) -> None:
        if len({part.is_text for part in parts}) > 1:
            kinds = " and ".join(
                next(part.name for part in parts if part.is_text is text) for text in (True, False)
            )
            raise UsageError(
                "expected part files of one kind, received some that are text, others are not", where=kinds
            )
        self.name = name
        self.is_text = parts[0].is_text
        self.reiterable = all(part.reiterable for part in parts)
        sizes = [part.size_bytes for part in parts]
        known = [size for size in sizes if size is not None]
        self.size_bytes = sum(known) if len(known) == len(sizes) else None
        self._parts = tuple(parts)
        self._first_rows: list[int] = []  # of the parts whose reading has begun

    @property
    def column_separator(self) -> str | None:
        """Character between the cells of a line of the first part."""
        return self._parts[0].column_separator

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return self._parts[0].column_names()

    def column_types(self) -> Mapping[str, pa.DataType]:
        """Return the types of the columns of the first part."""
        return self._parts[0].column_types()

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        first_row = 0
        read_bytes = 0
        self._first_rows = []
        for part in self._parts:
            self._first_rows.append(first_row)
            num_rows = 0
            part_bytes = 0
            for batch in part.batches(columns, batch_bytes=batch_bytes):
                num_rows += batch.num_rows
                part_bytes = batch.read_bytes
                yield replace(
                    batch, first_row=first_row + batch.first_row, read_bytes=read_bytes + batch.read_bytes
                )
            first_row += num_rows
            read_bytes += part_bytes if part.size_bytes is None else part.size_bytes

    def blocks(
        self, columns: Sequence[str], places: Sequence[float], *, block_bytes: int
    ) -> Iterator[Mapping[str, pa.Array]]:
        """Yield blocks of rows at places all over the parts; see :meth:`Table.blocks`."""
        if self.size_bytes is None:
            return
        ends = np.cumsum([part.size_bytes or 0 for part in self._parts])
        positions = np.asarray(places) * ends[-1]
        parts_of = np.searchsorted(ends, positions, side="right")
        for number in np.unique(parts_of).tolist():
            size = self._parts[number].size_bytes or 1
            within = (positions[parts_of == number] - (ends[number] - size)) / size
            yield from self._parts[number].blocks(columns, within.tolist(), block_bytes=block_bytes)

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell for a message."""
        part = bisect.bisect_right(self._first_rows, row) - 1
        return self._parts[part].where(row - self._first_rows[part], column)
