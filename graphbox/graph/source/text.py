"""CSV and TSV: parsed by the native core on several threads, with the line of every row."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core
from graphbox.errors import DataError
from graphbox.graph.source.formats import FileOptions
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.read_ahead import map_in_order, read_ahead
from graphbox.graph.source.table import Batch, MalformedLine, Table, check_columns
from graphbox.graph.source.text_file import TextBlock, TextFile, TextHeader, TextOpening

_MALFORMED_KINDS = ("wrong number of cells", "bad encoding", "unbalanced quote")
_COMMENT = re.compile(rb"#+(\s|$)")  # not `#tag`, which may be an id
_EXAMPLES = 5
_LARGEST_BLOCK_BYTES = 4 << 20
_MOST_THREADS = 8
_BLOCKS_PER_BATCH = 3  # cells take up to about as many times the bytes of their text


@dataclass(frozen=True)
class MalformedRecord:
    """A malformed record of a block: what is wrong, its line from 0 in the block, and its text."""

    kind: str
    line: int
    text: str


@dataclass(frozen=True, eq=False)
class ParsedBlock:
    """The rows of a block, and the lines they are from.

    Attributes:
        columns: the wanted columns.
        rows: number of rows.
        lines: number of lines.
        jump_rows: int64, ascending: the rows before which lines are no rows, from 0 ...
        jump_lines: int64, ... and the line of each, from 0.
        malformed: the first malformed records of each kind.
        malformed_counts: number of malformed records by kind.
    """

    columns: list[pa.Array]
    rows: int
    lines: int
    jump_rows: npt.NDArray[np.int64]
    jump_lines: npt.NDArray[np.int64]
    malformed: Sequence[MalformedRecord]
    malformed_counts: Mapping[str, int]

    def line_of(self, row: int) -> int:
        """Return the line of a row, both counted from 0 in this block."""
        jump = int(np.searchsorted(self.jump_rows, row, side="right")) - 1
        return row if jump < 0 else int(self.jump_lines[jump]) + row - int(self.jump_rows[jump])


@dataclass(frozen=True)
class _BlockPlace:
    first_row: int
    first_line: int
    offset: int


class TextTable(Table):
    """One file of delimited text in UTF-8.

    Records end in LF or CRLF; blank lines are skipped; cells are quoted as RFC 4180 says, where the format
    has a quote. A line with another number of cells than the header, with bytes that are not UTF-8, or with
    a quote that is not closed where the cell ends (within 1 MiB) is malformed: it is reported and skipped.

    Where the names of the columns are given, lines that begin as ``comment`` says and stand before the first
    record are passed over; :attr:`comment_lines` counts them.

    A further format is a subclass with another delimiter, quote, comment, or :meth:`names_of_header`.
    """

    is_text = True
    delimiter: ClassVar[str]
    quote: ClassVar[str] = '"'
    comment: ClassVar[re.Pattern[bytes] | None] = None

    def __init__(self, file: InputFile, options: FileOptions) -> None:
        self.name = file.name
        self.size_bytes = file.size_bytes
        self._file = file
        self._given_names = options.names
        self._threads = min(options.threads, _MOST_THREADS)
        self._header: TextHeader | None = None
        self._places: list[_BlockPlace] = []
        self._latest: tuple[_BlockPlace, ParsedBlock] | None = None

    @cached_property
    def _text(self) -> TextFile:
        return TextFile(self._file, self.delimiter, self.quote)

    @property
    def _has_header(self) -> bool:
        return self._given_names is None

    @cached_property
    def _opening(self) -> TextOpening:
        """First lines of the file, where it has no header line and its format has comments."""
        assert self.comment is not None  # noqa: S101 - asked for only by formats that have comments
        return self._text.opening(self.comment)

    @property
    def column_separator(self) -> str:
        """Character between the cells of a line."""
        return self._text.delimiter.decode()

    @property
    def comment_lines(self) -> int:
        """Number of comment lines before the first record; see :attr:`Table.comment_lines`."""
        return 0 if self._has_header or self.comment is None else self._opening.comment_lines

    def names_of_header(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the columns, given the cells of the first line."""
        return cells

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns: as given, or as the header line says."""
        if self._given_names is not None:
            return self._given_names
        header = self._read_header()
        if not header.cells:
            raise DataError(
                "expected a header line, received an empty file",
                where=self.name,
                hint="the first line names the columns",
            )
        return self.names_of_header(header.cells)

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        present = self.column_names()
        wanted = self._check_columns(columns, present)
        positions = [present.index(name) for name in wanted]
        block_bytes = max(1, min(batch_bytes // (_BLOCKS_PER_BATCH * self._threads), _LARGEST_BLOCK_BYTES))
        return self._read(wanted, positions, len(present), block_bytes)

    def blocks(
        self, columns: Sequence[str], places: Sequence[float], *, block_bytes: int
    ) -> Iterator[Mapping[str, pa.Array]]:
        """Yield the lines at places all over a plain file; see :meth:`Table.blocks`.

        A block begins after the first end of a line, which in rare cases is one within quotes.
        """
        present = self.column_names()
        wanted = self._check_columns(columns, present)
        positions = [present.index(name) for name in wanted]
        for block in self._text.lines_at(places, block_bytes, self._start().offset):
            yield dict(zip(wanted, self._parse(block, positions, len(present)).columns, strict=True))

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell: ``file:line, column `x```."""
        return f"{self.name}:{self._line_of(row)}, column `{column}`"

    # Reading

    def _read_header(self) -> TextHeader:
        if self._header is None:
            self._header = self._text.header()
        return self._header

    def _check_columns(self, columns: Sequence[str], present: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return check_columns(self.name, columns, present)
        except DataError as error:
            if self._given_names is None and all(_is_number(name) for name in present):
                error.hint = (
                    "the first line looks like data: give the names of the columns if there is no header"
                )
            raise

    def _start(self) -> _BlockPlace:
        if not self._has_header and self.comment is not None:
            return _BlockPlace(first_row=0, first_line=self._opening.line, offset=self._opening.offset)
        if not self._has_header:
            return _BlockPlace(first_row=0, first_line=1, offset=0)
        header = self._read_header()
        return _BlockPlace(first_row=0, first_line=header.next_line, offset=header.next_offset)

    def _read(
        self, wanted: tuple[str, ...], positions: list[int], cells: int, block_bytes: int
    ) -> Iterator[Batch]:
        start = self._start()
        row, line = start.first_row, start.first_line
        blocks = read_ahead(self._text.blocks(block_bytes, start.offset), depth=1)
        for block, parsed in map_in_order(
            lambda block: (block, self._parse(block, positions, cells)), blocks, self._threads
        ):
            self._remember(_BlockPlace(row, line, block.offset), parsed)
            yield Batch(
                dict(zip(wanted, parsed.columns, strict=True)),
                num_rows=parsed.rows,
                first_row=row,
                read_bytes=block.read_bytes,
                malformed=[
                    MalformedLine(record.kind, f"{self.name}:{line + record.line}", record.text)
                    for record in parsed.malformed
                ],
                malformed_counts=parsed.malformed_counts,
            )
            row += parsed.rows
            line += parsed.lines

    def _parse(self, block: TextBlock, positions: list[int], cells: int) -> ParsedBlock:
        rows, lines, columns, jump_rows, jump_lines, malformed, counts = _core.split_text(
            block.text, self._text.delimiter, self._text.quote, cells, positions, _EXAMPLES
        )
        return ParsedBlock(
            [_string_array(rows, *column) for column in columns],
            rows=rows,
            lines=lines,
            jump_rows=jump_rows,
            jump_lines=jump_lines,
            malformed=[_malformed(kind, line, found, start, cells) for kind, line, found, start in malformed],
            malformed_counts={
                kind: count for kind, count in zip(_MALFORMED_KINDS, counts, strict=True) if count
            },
        )

    # Places

    def _remember(self, place: _BlockPlace, parsed: ParsedBlock) -> None:
        self._latest = (place, parsed)
        if not self._places or place.first_row > self._places[-1].first_row:
            self._places.append(place)

    def _line_of(self, row: int) -> int:
        """Return the line of a row: known for the latest batch, else read again from the block it is in."""
        if self._latest is not None:
            place, parsed = self._latest
            if 0 <= row - place.first_row < parsed.rows:
                return place.first_line + parsed.line_of(row - place.first_row)
        known = bisect.bisect_right(self._places, row, key=lambda place: place.first_row) - 1
        place = self._places[known] if known >= 0 else self._start()
        first_row, first_line = place.first_row, place.first_line
        cells = len(self.column_names())
        for block in self._text.blocks(_LARGEST_BLOCK_BYTES, place.offset):
            parsed = self._parse(block, [], cells)
            if row - first_row < parsed.rows:
                return first_line + parsed.line_of(row - first_row)
            first_row += parsed.rows
            first_line += parsed.lines
        raise IndexError(f"row {row} of {first_row}")


class CsvTable(TextTable):
    """Comma-separated values; separated by semicolons, tabs or bars where the header line has no comma."""

    delimiter = ","
    comment = _COMMENT

    @cached_property
    def _text(self) -> TextFile:
        by_comma = TextFile(self._file, self.delimiter, self.quote)
        if self._given_names is not None:
            return by_comma
        for delimiter in ",;\t|":
            text = TextFile(self._file, delimiter, self.quote)
            if len(text.header().cells) > 1:
                return text
        return by_comma


class TsvTable(TextTable):
    """Tab-separated values."""

    delimiter = "\t"
    comment = _COMMENT


def _string_array(
    rows: int,
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    validity: npt.NDArray[np.uint8] | None,
    missing: int,
) -> pa.Array:
    bitmap = None if validity is None else pa.py_buffer(validity)
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data), bitmap, missing)


def _malformed(kind: int, line: int, found: int, start: bytes, cells: int) -> MalformedRecord:
    text = start.decode("utf-8", "backslashreplace").rstrip("\r")
    if kind == 0:
        text += f" (expected {cells:,} cells, received {found:,})"
    return MalformedRecord(_MALFORMED_KINDS[kind], line, text)


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdecimal()
