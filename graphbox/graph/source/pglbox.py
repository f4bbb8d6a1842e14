"""Part files of PGLBox: lines of nodes with slots, and of edges, sharded or not.

::

    node    type TAB id { TAB slot ":" value { "," value } }     author  9905123492  11:1  21:30,31
    node    type TAB id TAB "s " slot ":" value { "," ... }      u  1127  s 1:583,2:697     (Graph4Rec)
    edge    source TAB target [ TAB weight ]                     9905123492  2451413511  0.4
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import DataError, did_you_mean
from graphbox.graph.source.formats import FileOptions
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.pglbox_nodes import ParsedNodes, parse_nodes, slots_of
from graphbox.graph.source.pglbox_shards import CopyFilter, recognise_copies
from graphbox.graph.source.read_ahead import map_in_order, read_ahead
from graphbox.graph.source.table import Batch, Table, check_columns
from graphbox.graph.source.text import TextTable
from graphbox.graph.source.text_file import TextBlock, TextFile

_DELIMITER = "\t"
_EDGE_COLUMNS = ("source", "target", "weight")
_ID = "id"
_SLOT = re.compile(r"slot_[0-9]+|float_slot_[0-9]+_[1-9][0-9]{0,4}")
_LARGEST_BLOCK_BYTES = 4 << 20
_MOST_THREADS = 8
_BLOCKS_PER_BATCH = 20  # what parsing holds for each value takes many times the bytes of its text
_SAMPLED_PARTS = 16
_SAMPLE_BYTES = 1 << 16


def open_pglbox_file(file: InputFile, options: FileOptions) -> Table:
    """Open one file of nodes (``options.node_type`` says of which type) or of edges."""
    return open_pglbox_parts(file.name, [file], options)


def open_pglbox_parts(name: str, files: Sequence[InputFile], options: FileOptions) -> Table:
    """Open the part files of a folder as one table of nodes or of edges."""
    if options.node_type is not None:
        return PglboxNodes(name, files, options.node_type, options.threads)
    return PglboxEdges(name, files, options)


def _size(files: Sequence[InputFile]) -> int | None:
    sizes = [file.size_bytes for file in files]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


# Nodes


@dataclass(frozen=True)
class _BlockPlace:
    first_row: int
    first_line: int
    file: int
    offset: int


class PglboxNodes(Table):
    """The nodes of one type; lines of other types are passed over.

    Columns: ``id``; ``slot_<n>``, the values of a slot as a list of 64-bit integers, empty where the line
    has none (values from 2^63 on keep their bits); ``float_slot_<n>_<length>``, a slot of so many numbers as
    a list, zeros where the line has none. Every slot may be asked for, whether or not a line has it.
    """

    is_text = True

    def __init__(self, name: str, files: Sequence[InputFile], node_type: str, threads: int) -> None:
        self.name = name
        self.size_bytes = _size(files)
        self._texts = [TextFile(file, _DELIMITER, "") for file in files]
        self._node_type = node_type
        self._threads = min(threads, _MOST_THREADS)
        self._wanted: tuple[str, ...] = (_ID,)
        self._places: list[_BlockPlace] = []
        self._latest: tuple[_BlockPlace, ParsedNodes] | None = None

    def column_names(self) -> tuple[str, ...]:
        """Return ``id`` and the slots met at the beginning of some part files."""
        slots: set[str] = set()
        for text in _spread(self._texts):
            for block in text.blocks(_SAMPLE_BYTES):
                slots.update(slots_of(block.text, self._node_type))
                break
        numbers = sorted((int(slot), slot) for slot in slots)
        return (_ID, *(f"slot_{slot}" for _, slot in numbers))

    def has_column(self, name: str) -> bool:
        """Return whether a column may be asked for: the id, and every slot."""
        return name == _ID or _SLOT.fullmatch(name) is not None

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        wanted = tuple(dict.fromkeys(columns))
        for column in wanted:
            if not self.has_column(column):
                present = self.column_names()
                raise DataError(
                    f"expected `id`, `slot_<number>` or `float_slot_<number>_<length>`, received `{column}`",
                    where=self.name,
                    hint=did_you_mean(column, present) or f"there are: {', '.join(present)}",
                )
        block_bytes = max(1, min(batch_bytes // (_BLOCKS_PER_BATCH * self._threads), _LARGEST_BLOCK_BYTES))
        return self._read(wanted, block_bytes)

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell: ``file:line, column `x```."""
        if self._latest is not None:
            place, parsed = self._latest
            if 0 <= row - place.first_row < parsed.num_rows:
                return self._place_of(place.file, place.first_line, parsed, row - place.first_row, column)
        known = bisect.bisect_right(self._places, row, key=lambda place: place.first_row) - 1
        place = self._places[known]
        first_row, first_line = place.first_row, place.first_line
        # The same lines are malformed only if the same slots are read.
        for block in self._texts[place.file].blocks(_SAMPLE_BYTES, place.offset):
            parsed = parse_nodes(block.text, self._node_type, self._wanted)
            if row - first_row < parsed.num_rows:
                return self._place_of(place.file, first_line, parsed, row - first_row, column)
            first_row += parsed.num_rows
            first_line += parsed.num_lines
        raise IndexError(f"row {row} of {first_row}")

    def _place_of(self, file: int, first_line: int, parsed: ParsedNodes, row: int, column: str) -> str:
        return f"{self._texts[file].file.name}:{first_line + int(parsed.lines[row])}, column `{column}`"

    def _read(self, wanted: tuple[str, ...], block_bytes: int) -> Iterator[Batch]:
        self._places, self._latest, self._wanted = [], None, wanted
        blocks = read_ahead(self._blocks(block_bytes), depth=1)
        row, line, current = 0, 1, 0
        for file, read_bytes, offset, parsed in map_in_order(
            lambda item: (
                item[0],
                item[1],
                item[2].offset,
                parse_nodes(item[2].text, self._node_type, wanted),
            ),
            blocks,
            self._threads,
        ):
            if file != current:
                line, current = 1, file
            place = _BlockPlace(row, line, file, offset)
            self._latest = (place, parsed)
            if self._places and row == self._places[-1].first_row:
                self._places.pop()  # the block before had no row of this type
            self._places.append(place)
            name = self._texts[file].file.name
            yield Batch(
                parsed.columns,
                num_rows=parsed.num_rows,
                first_row=row,
                read_bytes=read_bytes,
                malformed=[example.at(name, line) for example in parsed.examples],
                malformed_counts=parsed.counts,
            )
            row += parsed.num_rows
            line += parsed.num_lines

    def _blocks(self, block_bytes: int) -> Iterator[tuple[int, int, TextBlock]]:
        before = 0
        for number, text in enumerate(self._texts):
            read_bytes = 0
            for block in text.blocks(block_bytes):
                read_bytes = block.read_bytes
                yield number, before + read_bytes, block
            before += read_bytes if text.file.size_bytes is None else text.file.size_bytes


def _spread(texts: Sequence[TextFile]) -> Sequence[TextFile]:
    """Return at most a few part files, spread evenly over all."""
    step = max(1, len(texts) // _SAMPLED_PARTS)
    return texts[::step][:_SAMPLED_PARTS]


# Edges


class _EdgeFile(TextTable):
    """One file of edges, all lines with a weight or all without."""

    delimiter = _DELIMITER
    quote = ""

    def __init__(self, file: InputFile, options: FileOptions) -> None:
        cells = len(TextFile(file, _DELIMITER, "").header().cells) if file.size_bytes != 0 else 0
        # A line of another length than 2 or 3 cells is then reported like any other malformed one.
        names = _EDGE_COLUMNS if cells == len(_EDGE_COLUMNS) else _EDGE_COLUMNS[:2]
        super().__init__(file, replace(options, names=names))


class PglboxEdges(Table):
    """The edges of one type.

    Columns: ``source``, ``target``, and ``weight``, which is 1 in files without weights.

    PGLBox's sharding tool with ``--symmetry`` writes each edge into the part of its source and into the part
    of its target. A folder whose parts are numbered 0 to n-1 and whose edges all stand in one of these two
    parts, n being the number of parts, is recognised as such: each edge is read once.
    """

    is_text = True

    def __init__(self, name: str, files: Sequence[InputFile], options: FileOptions) -> None:
        self.name = name
        self.size_bytes = _size(files)
        self._files = tuple(files)
        self._options = options
        self._batch_bytes = 0
        self._wanted: tuple[str, ...] = ()
        self._latest: tuple[int, _EdgeFile, npt.NDArray[np.int64]] | None = None
        self._stored_twice: bool | None = None

    @property
    def stored_twice(self) -> bool:
        """Whether each edge stands in two parts, of which one is read."""
        if self._stored_twice is None:
            self._stored_twice = recognise_copies(self._files)
        return self._stored_twice

    def column_names(self) -> tuple[str, ...]:
        """Return ``source``, ``target`` and ``weight``."""
        return _EDGE_COLUMNS

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        self._wanted = check_columns(self.name, columns, _EDGE_COLUMNS)
        self._batch_bytes = batch_bytes
        return self._read(self._wanted)

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell: ``file:line, column `x```."""
        if self._latest is None or not 0 <= row - self._latest[0] < len(self._latest[2]):
            # Only the latest batch is kept; for an earlier row the files are read again up to it.
            for batch in self._read(self._wanted):
                if row < batch.first_row + batch.num_rows:
                    break
        if self._latest is None:
            raise IndexError(f"row {row} of none")
        first_row, table, kept = self._latest
        return table.where(int(kept[row - first_row]), column)

    def _read(self, wanted: tuple[str, ...]) -> Iterator[Batch]:
        row, read_bytes = 0, 0
        self._latest = None
        for number, file in enumerate(self._files):
            table = _EdgeFile(file, self._options)
            copies = CopyFilter(number, len(self._files)) if self.stored_twice else None
            file_bytes = 0
            for batch in self._of_file(table, wanted, copies):
                kept = np.arange(batch.num_rows) if copies is None else copies.kept(batch)
                self._latest = (row, table, kept + batch.first_row)
                file_bytes = batch.read_bytes
                columns = {name: batch.columns[name] for name in wanted}
                if len(kept) < batch.num_rows:
                    columns = {name: column.take(pa.array(kept)) for name, column in columns.items()}
                yield replace(
                    batch,
                    columns=columns,
                    num_rows=len(kept),
                    first_row=row,
                    read_bytes=read_bytes + batch.read_bytes,
                    stored_again=batch.num_rows - len(kept),
                )
                row += len(kept)
            read_bytes += file_bytes if file.size_bytes is None else file.size_bytes

    def _of_file(
        self, table: _EdgeFile, wanted: tuple[str, ...], copies: CopyFilter | None
    ) -> Iterator[Batch]:
        """Yield the rows of one file, with the ids that the filter reads, and weights where it has none."""
        ends = _EDGE_COLUMNS[:2] if copies is not None else ()
        present = table.column_names()
        asked = tuple(dict.fromkeys((*(name for name in wanted if name in present), *ends)))
        for batch in table.batches(asked or _EDGE_COLUMNS[:1], batch_bytes=self._batch_bytes):
            if "weight" in wanted and "weight" not in present:
                ones = pa.array(["1"], pa.large_string()).take(pa.array(np.zeros(batch.num_rows, np.int64)))
                yield replace(batch, columns={**batch.columns, "weight": ones})
            else:
                yield batch
