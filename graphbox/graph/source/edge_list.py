"""Edge lists as SNAP and KONECT publish them: no header line, comments first, blanks or tabs between."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphbox.errors import DataError
from graphbox.graph.source.text import ParsedBlock, TextTable
from graphbox.graph.source.text_file import TextBlock, TextFile, TextOpening

EDGE_LIST_SUFFIXES = (".txt", ".edges", ".edgelist")

_ENDS = ("source", "target")
_BLANKS = re.compile(rb"[ \t]+")
_UNEVEN = re.compile(rb"  |\t| [\r\n]|[\r\n] |^ | $")
_MOST_CELLS_OF_AN_EDGE = 4  # source, target, weight, timestamp
_INTEGER = re.compile(r"[+-]?[0-9]+")


class EdgeListTable(TextTable):
    """One edge list.

    Lines at the beginning that start with ``#`` or ``%`` are comments. The first line after them tells what
    separates cells: tabs, else blanks (any number, and tabs among them), else commas. Nothing is quoted.
    Without given names the columns are ``source``, ``target``, ``column_3`` and so on.
    """

    delimiter = " "
    quote = ""
    comment = re.compile(rb"[#%]")

    @cached_property
    def _opening(self) -> TextOpening:
        return TextFile(self._file, self.delimiter, self.quote).opening(self.comment)

    @cached_property
    def _text(self) -> TextFile:
        first = next(iter(self._opening.records), "")
        return TextFile(self._file, _delimiter_of(first), self.quote)

    @property
    def _has_header(self) -> bool:
        return False

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns: as given, or ``source``, ``target`` and by number.

        Raises:
            DataError: the file is damaged or empty, or begins with a line that names columns.
        """
        if self._given_names is not None:
            return self._given_names
        records = [_cells(record, self._text.delimiter.decode()) for record in self._opening.records]
        if not records:
            raise DataError("expected a line for each edge, received an empty file", where=self.name)
        first = records[0]
        if len({len(record) for record in records}) == 2 and max(map(len, records)) > _MOST_CELLS_OF_AN_EDGE:
            raise DataError(
                "expected a line for each edge, received lines of "
                + " and ".join(f"{len(record):,}" for record in records)
                + " cells",
                where=f"{self.name}:{self._opening.line}",
                hint="if each line is a node with all its neighbours: write a line for each of them",
            )
        if len(records) == 2 and _starts_with_integers(records[1]) and not _starts_with_integers(first):
            raise DataError(
                f"expected an edge list without a header line, received `{' '.join(first)[:80]}`",
                where=f"{self.name}:{self._opening.line}",
                hint="name the format csv or tsv, which have one, or begin the line with `#`",
            )
        return (*_ENDS, *(f"column_{number}" for number in range(3, len(first) + 1)))[: len(first)]

    def _parse(self, block: TextBlock, positions: list[int], cells: int) -> ParsedBlock:
        if self._text.delimiter == b" ":
            block = replace(block, text=_single_blanks(block.text))
        return super()._parse(block, positions, cells)


def _delimiter_of(line: str) -> str:
    cells = line.split("\t")
    if len(cells) > 1 and all(cell and cell == cell.strip() for cell in cells):
        return "\t"
    return "," if len(line.split()) == 1 and "," in line else " "


def _cells(line: str, delimiter: str) -> list[str]:
    return line.split() if delimiter == " " else line.split(delimiter)


def _starts_with_integers(cells: list[str]) -> bool:
    return len(cells) > 1 and all(_INTEGER.fullmatch(cell) for cell in cells[:2])


def _single_blanks(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return lines with one blank between cells, and none before the first and after the last."""
    lines = text.tobytes()
    if _UNEVEN.search(lines) is None:
        return text
    lines = _BLANKS.sub(b" ", lines).replace(b"\n ", b"\n").replace(b" \r\n", b"\r\n").replace(b" \n", b"\n")
    return np.frombuffer(lines.removeprefix(b" ").removesuffix(b" "), np.uint8)
