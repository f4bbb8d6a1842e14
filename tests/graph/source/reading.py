"""Tools for tests of readers: a table read whole, and a plain reference of the rules of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from graphbox.graph.source import MalformedLine, Table

BATCH_BYTES = (1, 100, 5000, 1 << 24)
"""From one row at a time to all of them at once."""


@dataclass
class Read:
    """All batches of a table together."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=dict)
    num_rows: int = 0
    num_batches: int = 0
    malformed: list[MalformedLine] = field(default_factory=list)
    malformed_counts: dict[str, int] = field(default_factory=dict)
    read_bytes: int = 0


def read(table: Table, columns: Sequence[str], batch_bytes: int = 1 << 20) -> Read:
    """Read a table whole, checking what every batch must hold."""
    result = Read(columns={name: [] for name in columns})
    for batch in table.batches(columns, batch_bytes=batch_bytes):
        assert list(batch.columns) == list(dict.fromkeys(columns))
        assert batch.first_row == result.num_rows
        assert batch.read_bytes >= result.read_bytes
        for name, values in batch.columns.items():
            assert len(values) == batch.num_rows
            values.validate(full=True)
            assert result.types.setdefault(name, values.type) == values.type
            result.columns[name] += values.to_pylist()
        result.num_rows += batch.num_rows
        result.num_batches += 1
        result.read_bytes = batch.read_bytes
        result.malformed += batch.malformed
        for kind, count in batch.malformed_counts.items():
            result.malformed_counts[kind] = result.malformed_counts.get(kind, 0) + count
    return result


@dataclass
class SplitText:
    """Records that the reference splits a text into."""

    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    malformed: list[tuple[str, int]] = field(default_factory=list)


def split_text(text: bytes, delimiter: bytes, num_cells: int) -> SplitText:
    """Split a text into records of ``num_cells`` cells by regular expressions, one record after another."""
    result = SplitText()
    position, line = 0, 1
    while position < len(text):
        if blank := re.compile(rb"\r?\n|\r\Z").match(text, position):
            position, line = blank.end(), line + 1
            continue
        start = position
        cells, position = _cells(text, delimiter, start)
        if cells is None:
            result.malformed.append(("unbalanced quote", line))
            stop = text.find(b"\n", start)
            position, line = (len(text) if stop < 0 else stop + 1), line + 1
            continue
        record = text[start:position]
        try:
            record.decode()
        except UnicodeDecodeError:
            result.malformed.append(("bad encoding", line))
        else:
            if len(cells) == num_cells:
                result.rows.append(tuple(None if cell is None else cell.decode() for cell in cells))
                result.lines.append(line)
            else:
                result.malformed.append(("wrong number of cells", line))
        line += record.count(b"\n") + (not record.endswith(b"\n"))
    return result


def _cells(text: bytes, delimiter: bytes, position: int) -> tuple[list[bytes | None] | None, int]:
    """Return the cells of the record at a position, or None if a quote is unbalanced, and where it ends."""
    quoted = re.compile(rb'"((?:[^"]|"")*+)"(?=' + delimiter + rb"|\r?\n|\r?\Z)")
    plain = re.compile(rb'(?!")([^\n' + delimiter + rb"]*?)(?=" + delimiter + rb"|\r?\n|\r?\Z)")
    cells: list[bytes | None] = []
    while True:
        if found := quoted.match(text, position):
            cells.append(found[1].replace(b'""', b'"'))
        elif found := plain.match(text, position):
            cells.append(found[1] or None)
        else:
            return None, position
        position = found.end()
        if text[position : position + 1] != delimiter:
            end = re.compile(rb"\r?\n|\r?\Z").match(text, position)
            assert end is not None
            return cells, end.end()
        position += 1
