"""The node lines of PGLBox as columns, parsed a block at a time by array operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.source.text import MalformedRecord, ParsedBlock

_TAB, _NEWLINE, _RETURN = 9, 10, 13
_EXAMPLES = 5
_SHOWN_CHARACTERS = 200
_LARGEST_UINT64 = str(2**64 - 1)
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"

_CELLS = "wrong number of cells"
_ENCODING = "bad encoding"
_NO_SLOT = "no slot:value"
_NO_INTEGER = "slot value that is no unsigned 64-bit integer"
_NO_NUMBER = "slot value that is no number"
_OTHER_LENGTH = "float slot of another length"

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def parse_nodes(text: npt.NDArray[np.uint8], node_type: str, columns: Sequence[str]) -> ParsedBlock:
    """Parse whole lines.

    Args:
        text: uint8, the bytes of the lines.
        node_type: type of the nodes to take.
        columns: ``id``, ``slot_<n>``, ``float_slot_<n>_<length>``.
    """
    problems = _Problems(text)
    block = _split(text, problems)
    lines = block.of_type(node_type, problems)
    slots = [name for name in columns if name != "id"]
    found: dict[str, pa.Array] = {}
    if slots:
        features = _features(block, lines, problems)
        values = {name: _read(features, name, problems) for name in slots}
        lines = lines[~problems.wrong[lines]]
        found = {name: _column(name, each, lines) for name, each in values.items()}
    if "id" in columns:
        ids = block.cells.take(pa.array(block.starts[lines] + 1))
        empty = pc.equal(pc.binary_length(ids), 0)
        if pc.any(empty).as_py():
            ids = pc.if_else(empty, pa.scalar(None, pa.large_string()), ids)
        found["id"] = ids
    return ParsedBlock(
        [found[name] for name in columns],
        rows=len(lines),
        lines=block.num_lines,
        jump_rows=np.arange(len(lines)),
        jump_lines=lines,
        malformed=problems.examples(),
        malformed_counts=problems.counts(),
    )


def slots_of(text: npt.NDArray[np.uint8], node_type: str) -> set[str]:
    """Return the slots that the nodes of a type have in some lines."""
    problems = _Problems(text)
    block = _split(text, problems)
    features = _features(block, block.of_type(node_type, problems), problems)
    return {name for name in features.names if name.isascii() and name.isdigit()}


def _read(features: _Features, column: str, problems: _Problems) -> _Values:
    match column.split("_"):
        case ["slot", slot]:
            return features.integers(slot, problems)
        case ["float", "slot", slot, dim]:
            return features.numbers(slot, int(dim), problems)
    raise ValueError(column)


def _column(column: str, values: _Values, lines: Int64Array) -> pa.Array:
    if column.startswith("float_"):
        return values.vectors(lines, int(column.rpartition("_")[2]))
    return values.lists(lines)


class _Problems:
    """The malformed lines of a block; a line counts once, by the first thing found wrong."""

    def __init__(self, text: npt.NDArray[np.uint8]) -> None:
        self._text = text
        newlines = np.flatnonzero(text == _NEWLINE)
        complete = len(newlines) and newlines[-1] == len(text) - 1
        self.ends: Int64Array = newlines if complete else np.append(newlines, len(text))
        if not len(text):
            self.ends = np.empty(0, np.int64)
        self.wrong: BoolArray = np.zeros(len(self.ends), bool)
        self._kinds: dict[str, Int64Array] = {}

    def add(self, kind: str, lines: Int64Array) -> None:
        """Note malformed lines, in any order, each any number of times."""
        new = np.unique(lines)
        new = new[~self.wrong[new]]
        if len(new):
            self.wrong[new] = True
            self._kinds[kind] = np.union1d(self._kinds.get(kind, np.empty(0, np.int64)), new)

    def counts(self) -> dict[str, int]:
        return {kind: len(lines) for kind, lines in self._kinds.items()}

    def examples(self) -> list[MalformedRecord]:
        shown = sorted((int(line), kind) for kind, lines in self._kinds.items() for line in lines[:_EXAMPLES])
        return [MalformedRecord(kind, line, self._line(line)) for line, kind in shown]

    def _line(self, line: int) -> str:
        start = 0 if line == 0 else int(self.ends[line - 1]) + 1
        text = self._text[start : int(self.ends[line])].tobytes()[:_SHOWN_CHARACTERS]
        return text.decode("utf-8", "backslashreplace").rstrip("\r")


@dataclass(frozen=True, eq=False)
class _Block:
    """The cells of all lines.

    Attributes:
        cells: large_string, the cells of all lines after one another.
        starts: int64 [lines], position of each line's first cell.
        counts: int64 [lines], number of its cells.
    """

    cells: pa.Array
    starts: Int64Array
    counts: Int64Array

    @property
    def num_lines(self) -> int:
        return len(self.starts)

    def of_type(self, node_type: str, problems: _Problems) -> Int64Array:
        """Return the well-formed lines of a type; lines of one cell are malformed, blank ones are none."""
        lengths = pc.binary_length(self.cells).to_numpy()
        single = self.counts == 1
        blank = single & (lengths[self.starts] == 0) if len(lengths) else single
        problems.add(_CELLS, np.flatnonzero(single & ~blank))
        lines = np.flatnonzero(~single & ~problems.wrong)
        types = self.cells.take(pa.array(self.starts[lines]))
        chosen: Int64Array = lines[pc.equal(types, node_type).to_numpy(zero_copy_only=False)]
        return chosen


def _split(text: npt.NDArray[np.uint8], problems: _Problems) -> _Block:
    """Cut lines into cells: the separators leave the text, and where they stood are the offsets."""
    ends = problems.ends
    if len(ends) and ends[-1] == len(text):
        text = np.append(text, np.uint8(_NEWLINE))
    is_separator = (text == _NEWLINE) | (text == _TAB)
    removed = is_separator
    if np.any(text == _RETURN):
        removed = is_separator.copy()
        removed[:-1] |= (text[:-1] == _RETURN) & (text[1:] == _NEWLINE)
    separators = np.flatnonzero(is_separator)
    if removed is is_separator:
        offsets = separators - np.arange(len(separators))
    else:
        offsets = separators + 1 - np.cumsum(removed)[separators]
    line_ends = np.flatnonzero(text[separators] == _NEWLINE) + 1
    starts = np.concatenate([[0], line_ends[:-1]]).astype(np.int64)[: len(line_ends)]
    data = _valid_text(text[~removed], np.concatenate([[0], offsets]).astype(np.int64), line_ends, problems)
    return _Block(data, starts, line_ends - starts)


def _valid_text(
    data: npt.NDArray[np.uint8], offsets: Int64Array, line_ends: Int64Array, problems: _Problems
) -> pa.Array:
    """Return the cells as text; lines that are not UTF-8 are noted, and cells that are not emptied."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    cells = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    if not np.any(data >= 128):
        return cells
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        texts = [_text_or_none(cell) for cell in cells.cast(pa.large_binary()).to_pylist()]
        wrong = np.array([number for number, cell in enumerate(texts) if cell is None], np.int64)
        problems.add(_ENCODING, np.searchsorted(line_ends, wrong, side="right"))
        return pa.array([cell or "" for cell in texts], pa.large_string())
    return cells


def _text_or_none(cell: bytes) -> str | None:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, eq=False)
class _Features:
    """Slots and their values, one entry for each value.

    Attributes:
        lines: the lines whose features these are, ascending.
        line_of: int64 [values], the line of each value, ascending.
        names: the slots by code.
        codes: int32 [values], the slot of each value.
        values: large_string [values].
    """

    lines: Int64Array
    line_of: Int64Array
    names: Sequence[str]
    codes: npt.NDArray[np.int32]
    values: pa.Array

    def integers(self, slot: str, problems: _Problems) -> _Values:
        """Return the values of a slot as 64-bit integers; those of lines where one is none are noted."""
        line_of, values = self._of_slot(slot)
        try:
            numbers = values.cast(pa.uint64())
        except pa.ArrowInvalid:
            digits = pc.utf8_ltrim(values, "0")
            length = pc.utf8_length(digits)
            fits = pc.or_(
                pc.less(length, 20), pc.and_(pc.equal(length, 20), pc.less_equal(digits, _LARGEST_UINT64))
            )
            right = pc.and_(pc.match_substring_regex(values, "^[0-9]+$"), fits)
            problems.add(_NO_INTEGER, line_of[~_booleans(right)])
            numbers = pc.if_else(right, values, "0").cast(pa.uint64())
        return _Values(line_of, np.asarray(numbers).view(np.int64))

    def numbers(self, slot: str, dim: int, problems: _Problems) -> _Values:
        """Return the vectors of a slot, ``dim`` numbers each; lines with something else are noted."""
        line_of, values = self._of_slot(slot)
        try:
            numbers = np.asarray(values.cast(pa.float64()))
            right = np.isfinite(numbers)
        except pa.ArrowInvalid:
            matches = pc.match_substring_regex(values, _FLOAT)
            right = _booleans(matches)
            numbers = np.asarray(pc.if_else(matches, values, "0").cast(pa.float64()))
        problems.add(_NO_NUMBER, line_of[~right])
        found, counts = np.unique(line_of, return_counts=True)
        problems.add(_OTHER_LENGTH, found[counts != dim])
        return _Values(line_of, numbers)

    def _of_slot(self, slot: str) -> tuple[Int64Array, pa.Array]:
        code = self.names.index(slot) if slot in self.names else -1
        chosen = np.flatnonzero(self.codes == code)
        return self.line_of[chosen], self.values.take(pa.array(chosen))


@dataclass(frozen=True, eq=False)
class _Values:
    """The values of one slot, and the line of each, ascending."""

    line_of: Int64Array
    values: npt.NDArray[np.int64 | np.float64]

    def lists(self, lines: Int64Array) -> pa.Array:
        """Return the values of some lines as a list for each."""
        rows, values = self._of_lines(lines)
        counts = np.bincount(rows, minlength=len(lines))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return pa.LargeListArray.from_arrays(offsets, pa.array(values))

    def vectors(self, lines: Int64Array, dim: int) -> pa.Array:
        """Return the values of some lines as a vector for each, zeros for a line that has none."""
        rows, values = self._of_lines(lines)
        matrix = np.zeros((len(lines), dim))
        matrix[rows[::dim]] = values.reshape(-1, dim)
        return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), dim)

    def _of_lines(self, lines: Int64Array) -> tuple[Int64Array, npt.NDArray[np.int64 | np.float64]]:
        rows = np.searchsorted(lines, self.line_of)
        inside = rows < len(lines)
        kept = np.flatnonzero(inside)[lines[rows[inside]] == self.line_of[inside]]
        return (rows, self.values) if len(kept) == len(rows) else (rows[kept], self.values[kept])


def _features(block: _Block, lines: Int64Array, problems: _Problems) -> _Features:
    """Return the features of some lines; lines with a value that belongs to no slot are noted."""
    counts = block.counts[lines] - 2
    cell_line = np.repeat(lines, counts)
    first = np.repeat(block.starts[lines] + 2 - (np.cumsum(counts) - counts), counts)
    cells = block.cells.take(pa.array(first + np.arange(len(first))))
    if pc.any(pc.starts_with(cells, "s ")).as_py():
        cells = pc.replace_substring_regex(cells, "^s +", "")
    pieces = pc.split_pattern(cells, ",")
    cell_of = pc.list_parent_indices(pieces).to_numpy()
    flat = pieces.flatten()
    is_empty = _booleans(pc.equal(pc.binary_length(flat), 0))
    if is_empty.any():
        # An empty cell, as after a tab at the end of a line, says nothing; one among others is wrong.
        lonely = np.bincount(cell_of, minlength=len(cells))[cell_of] == 1
        problems.add(_NO_SLOT, cell_line[cell_of[is_empty & ~lonely]])
        cell_of, flat = cell_of[~is_empty], flat.filter(pa.array(~is_empty))
    halves = pc.split_pattern(flat, ":", max_splits=1)
    starts = halves.offsets.to_numpy()
    has_slot = np.diff(starts) == 2
    texts = halves.flatten()
    # A value without a slot belongs to the slot named last in its cell: 9109:0.5,0.5
    named = np.maximum.accumulate(np.where(has_slot, np.arange(len(flat)), -1))
    orphan = named < 0
    orphan[~orphan] = cell_of[named[~orphan]] != cell_of[~orphan]
    problems.add(_NO_SLOT, cell_line[cell_of[orphan]])
    slots = texts.take(pa.array(starts[:-1][named], mask=orphan)).dictionary_encode()
    names = slots.dictionary.to_pylist()
    codes = pc.fill_null(slots.indices, -1).to_numpy().astype(np.int32)
    unnamed = [code for code, name in enumerate(names) if not (name.isascii() and name.isdigit())]
    if unnamed:
        problems.add(_NO_SLOT, cell_line[cell_of[np.isin(codes, unnamed)]])
    values = texts.take(pa.array(starts[:-1] + has_slot))
    return _Features(lines, cell_line[cell_of], names, codes, values)


def _booleans(values: pa.Array) -> BoolArray:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)
