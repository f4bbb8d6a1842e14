"""Part files of PGLBox: lines of nodes with slots, and of edges, sharded or not.

::

    node    type TAB id { TAB slot ":" value { "," value } }     author  9905123492  11:1  21:30,31
    node    type TAB id TAB "s " slot ":" value { "," ... }      u  1127  s 1:583,2:697     (Graph4Rec)
    edge    source TAB target [ TAB weight ]                     9905123492  2451413511  0.4
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import DataError, did_you_mean
from graphbox.graph.source.formats import FileOptions
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.parts import PartsTable
from graphbox.graph.source.pglbox_nodes import parse_nodes, slots_of
from graphbox.graph.source.pglbox_shards import CopyFilter, recognise_copies
from graphbox.graph.source.table import Batch, Table, check_columns
from graphbox.graph.source.text import ParsedBlock, TextTable
from graphbox.graph.source.text_file import TextBlock

_DELIMITER = "\t"
_EDGE_COLUMNS = ("source", "target", "weight")
_ID = "id"
_SLOT = re.compile(r"slot_[0-9]+|float_slot_[0-9]+_[1-9][0-9]{0,4}")
_LARGEST_BLOCK_BYTES = 4 << 20
_BLOCKS_PER_BATCH = 20  # what parsing holds for each value takes many times the bytes of its text
_SAMPLED_PARTS = 16
_SAMPLE_BYTES = 1 << 16


def open_pglbox_file(file: InputFile, options: FileOptions) -> Table:
    """Open one file of nodes (``options.node_type`` says of which type) or of edges."""
    return open_pglbox_parts(file.name, [file], options)


def open_pglbox_parts(name: str, files: Sequence[InputFile], options: FileOptions) -> Table:
    """Open the part files of a folder as one table of nodes or of edges."""
    if options.node_type is not None:
        return PglboxNodes(name, files, options)
    return PglboxEdges(name, files, options)


class _PglboxParts(PartsTable):
    """Part files; values in a cell are separated as PGLBox does."""

    @property
    def column_separator(self) -> None:
        """None: how values in a cell are separated cannot be chosen."""
        return

    def blocks(
        self, columns: Sequence[str], places: Sequence[float], *, block_bytes: int
    ) -> Iterator[Mapping[str, pa.Array]]:
        """Yield nothing: what a block's rows are can depend on the lines before it."""
        del columns, places, block_bytes
        return iter(())


# Nodes


class _NodeFile(TextTable):
    """One file of nodes, of which those of one type are rows."""

    delimiter = _DELIMITER
    quote = ""

    def __init__(self, file: InputFile, options: FileOptions) -> None:
        super().__init__(file, options)
        self._node_type = str(options.node_type)
        self._wanted: tuple[str, ...] = (_ID,)

    @property
    def _has_header(self) -> bool:
        return False

    def slots(self) -> set[str]:
        """Return the slots met at the beginning."""
        first = next(self._text.blocks(_SAMPLE_BYTES), None)
        return set() if first is None else slots_of(first.text, self._node_type)

    def column_names(self) -> tuple[str, ...]:
        """Return what :meth:`batches` was asked for; every slot may be."""
        return self._wanted

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        self._wanted = tuple(dict.fromkeys(columns))
        block_bytes = max(1, min(batch_bytes // (_BLOCKS_PER_BATCH * self._threads), _LARGEST_BLOCK_BYTES))
        return self._read(self._wanted, [], 0, block_bytes)

    def _parse(self, block: TextBlock, positions: list[int], cells: int) -> ParsedBlock:
        del positions, cells
        return parse_nodes(block.text, self._node_type, self._wanted)


class PglboxNodes(_PglboxParts):
    """The nodes of one type; lines of other types are passed over.

    Columns: ``id``; ``slot_<n>``, the values of a slot as a list of 64-bit integers, empty where the line
    has none (values from 2^63 on keep their bits); ``float_slot_<n>_<length>``, a slot of so many numbers as
    a list, zeros where the line has none. Every slot may be asked for, whether or not a line has it.
    """

    def __init__(self, name: str, files: Sequence[InputFile], options: FileOptions) -> None:
        self._node_files = [_NodeFile(file, options) for file in files]
        super().__init__(name, self._node_files)

    def column_names(self) -> tuple[str, ...]:
        """Return ``id`` and the slots met at the beginning of some part files."""
        step = max(1, len(self._node_files) // _SAMPLED_PARTS)
        sampled = self._node_files[::step][:_SAMPLED_PARTS]
        slots = set().union(*(file.slots() for file in sampled))
        numbers = sorted((int(slot), slot) for slot in slots)
        return (_ID, *(f"slot_{slot}" for _, slot in numbers))

    def has_column(self, name: str) -> bool:
        """Return whether a column may be asked for: the id, and every slot."""
        return name == _ID or _SLOT.fullmatch(name) is not None

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        for column in columns:
            if not self.has_column(column):
                present = self.column_names()
                raise DataError(
                    f"expected `id`, `slot_<number>` or `float_slot_<number>_<length>`, received `{column}`",
                    where=self.name,
                    hint=did_you_mean(column, present) or f"there are: {', '.join(present)}",
                )
        return super().batches(columns, batch_bytes=batch_bytes)


# Edges


class _EdgeFile(TextTable):
    """One file of edges, all lines with a weight or all without, without second copies.

    Args:
        file: the file.
        options: how it is read.
        copies: gives what finds second copies, from the first row on; None where there are none.
    """

    delimiter = _DELIMITER
    quote = ""

    def __init__(
        self, file: InputFile, options: FileOptions, copies: Callable[[], CopyFilter | None]
    ) -> None:
        super().__init__(file, options)
        self._copies = copies
        self._again: tuple[Sequence[str], int] = ((), 0)
        self._kept: tuple[int, npt.NDArray[np.int64]] = (0, np.zeros(0, np.int64))

    @property
    def _has_header(self) -> bool:
        return False

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        cells = len(self._read_header().cells) if self.size_bytes != 0 else 0
        # A line of another length than 2 or 3 cells is then reported like any other malformed one.
        return _EDGE_COLUMNS if cells == len(_EDGE_COLUMNS) else _EDGE_COLUMNS[:2]

    def column_names(self) -> tuple[str, ...]:
        """Return the columns that the first line has."""
        return self._columns

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; a file without weights has ones."""
        self._again = (columns, batch_bytes)
        copies = self._copies()
        present = [name for name in columns if name in self.column_names()]
        ends = _EDGE_COLUMNS[:2] if copies is not None else ()
        asked = tuple(dict.fromkeys((*present, *ends))) or _EDGE_COLUMNS[:1]
        row = 0
        for batch in super().batches(asked, batch_bytes=batch_bytes):
            kept = np.arange(batch.num_rows) if copies is None else copies.kept(batch)
            self._kept = (row, kept + batch.first_row)
            found = {name: batch.columns[name] for name in present}
            if len(kept) < batch.num_rows:
                found = {name: column.take(pa.array(kept)) for name, column in found.items()}
            if "weight" in columns and "weight" not in found:
                found["weight"] = pa.array(["1"], pa.large_string()).take(pa.array(np.zeros_like(kept)))
            yield replace(
                batch,
                columns=found,
                num_rows=len(kept),
                first_row=row,
                stored_again=batch.num_rows - len(kept),
            )
            row += len(kept)

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell: ``file:line, column `x```."""
        if not 0 <= row - self._kept[0] < len(self._kept[1]):
            # Only the latest batch is kept; for an earlier row the file is read again up to it.
            columns, batch_bytes = self._again
            for batch in self.batches(columns, batch_bytes=batch_bytes):
                if row < batch.first_row + batch.num_rows:
                    break
        first_row, kept = self._kept
        return super().where(int(kept[row - first_row]), column)


class PglboxEdges(_PglboxParts):
    """The edges of one type.

    Columns: ``source``, ``target``, and ``weight``, which is 1 in files without weights.

    PGLBox's sharding tool with ``--symmetry`` writes each edge into the part of its source and into the part
    of its target. A folder whose parts are numbered 0 to n-1 and whose edges all stand in one of these two
    parts, n being the number of parts, is recognised as such: each edge is read once.
    """

    def __init__(self, name: str, files: Sequence[InputFile], options: FileOptions) -> None:
        self._files = tuple(files)
        parts = [_EdgeFile(file, options, partial(self._copies, part)) for part, file in enumerate(files)]
        super().__init__(name, parts)

    @cached_property
    def stored_twice(self) -> bool:
        """Whether each edge stands in two parts, of which one is read."""
        return recognise_copies(self._files)

    def _copies(self, part: int) -> CopyFilter | None:
        return CopyFilter(part, len(self._files)) if self.stored_twice else None

    def column_names(self) -> tuple[str, ...]:
        """Return ``source``, ``target`` and ``weight``."""
        return _EDGE_COLUMNS

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        wanted = check_columns(self.name, columns, _EDGE_COLUMNS)
        return super().batches(wanted, batch_bytes=batch_bytes)
