"""Edges that PGLBox's sharding tool has stored twice, once in the part of each end."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.source.location import InputFile
from graphbox.graph.source.table import Batch
from graphbox.graph.source.text_file import TextFile

_PART = re.compile(r".*?-([0-9]+)(?:\.[A-Za-z]+)*")
_SAMPLED_PARTS = 32
_SAMPLE_BYTES = 1 << 16
_CHANCE = 1e-9
"""Largest probability that parts with edges in any order look as if they were sharded."""

UInt64Array = npt.NDArray[np.uint64]


def recognise_copies(files: Sequence[InputFile]) -> bool:
    """Return whether the part files hold each edge once in the part of its source and once in its target's.

    The beginnings of up to 32 parts are read.

    Args:
        files: the part files, in the order of their names.
    """
    if [_part_number(file) for file in files] != list(range(len(files))) or len(files) < 2:
        return False
    parts = len(files)
    rows, second_copies = 0, 0
    for number in range(0, parts, max(1, parts // _SAMPLED_PARTS)):
        ends = _sample(files[number])
        if ends is None:
            return False
        source, target = ends
        by_source, by_target = _in_part(source, number, parts), _in_part(target, number, parts)
        if not bool(np.all(by_source | by_target)):
            return False
        rows += len(source)
        second_copies += int(np.count_nonzero(~by_source))
    by_chance = 1 - (1 - 1 / parts) ** 2
    return second_copies > 0 and rows * math.log(by_chance) < math.log(_CHANCE)


class CopyFilter:
    """Finds the rows of one part that are no second copy.

    An edge whose ends belong to different parts is kept in the part of its source. One whose ends belong to
    the same part stands twice in a row there, and is kept once; a self loop is stored once.

    Args:
        part: number of the part.
        parts: number of parts.
    """

    def __init__(self, part: int, parts: int) -> None:
        self._part = part
        self._parts = parts
        self._before: tuple[int, int, int] | None = None  # source, target, position in its run

    def kept(self, batch: Batch) -> npt.NDArray[np.int64]:
        """Return the positions of the rows of the next batch to keep: int64, ascending."""
        source, target = _uint64(batch.columns["source"]), _uint64(batch.columns["target"])
        if source is None or target is None or not batch.num_rows:
            return np.arange(batch.num_rows)  # what is no number is reported by who reads the ids
        by_source = _in_part(source, self._part, self._parts)
        by_target = _in_part(target, self._part, self._parts)
        twice_here = by_source & by_target & (source != target)
        again = twice_here & (self._positions(source, target, twice_here) % 2 == 1)
        return np.flatnonzero(~again & (by_source | ~by_target))

    def _positions(
        self, source: UInt64Array, target: UInt64Array, counted: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Return the position of each row in its run of equal rows, which may begin in the batch before."""
        rows = np.arange(len(source))
        begins = np.ones(len(source), bool)
        begins[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
        positions = rows - np.maximum.accumulate(np.where(begins, rows, 0))
        if self._before is not None and self._before[:2] == (int(source[0]), int(target[0])):
            first_run = len(rows) if not begins[1:].any() else 1 + int(np.argmax(begins[1:]))
            positions[:first_run] += self._before[2] + 1
        self._before = (int(source[-1]), int(target[-1]), int(positions[-1])) if counted[-1] else None
        return positions


def _part_number(file: InputFile) -> int | None:
    match = _PART.fullmatch(file.file_name)
    return None if match is None else int(match[1])


def _in_part(ids: UInt64Array, part: int, parts: int) -> npt.NDArray[np.bool_]:
    return np.asarray(ids % np.uint64(parts) == np.uint64(part))


def _sample(file: InputFile) -> tuple[UInt64Array, UInt64Array] | None:
    """Return the ends of the first edges of a file, None when they are no integers."""
    for block in TextFile(file, "\t", "").blocks(_SAMPLE_BYTES):
        lines = [line.split(b"\t")[:2] for line in block.text.tobytes().splitlines() if b"\t" in line]
        source, target = (
            _uint64(pa.array([line[end].decode("latin-1") for line in lines], pa.string())) for end in (0, 1)
        )
        return None if source is None or target is None else (source, target)
    return np.empty(0, np.uint64), np.empty(0, np.uint64)


def _uint64(texts: pa.Array) -> UInt64Array | None:
    """Return texts as unsigned integers; None when one is none."""
    try:
        return np.asarray(pc.cast(texts, pa.uint64()).to_numpy(zero_copy_only=texts.null_count == 0))
    except (pa.ArrowInvalid, ValueError):
        return None
