"""What the native core holds in memory, and from where on it spills: the rules of csrc/graph, in Python."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphbox.graph.build import ids_bytes

ROWS_AT_ONCE = 1 << 16
"""Rows that ids or edges are added by: for so many more there must be room (node_ids.cpp, edge_builder.h)."""
_HUGE_PAGE_BYTES = 2 << 20
_NODES_PER_PARTITION = 1 << 16
_MOST_NARROW_NODES = 1 << 31
_LOG_BYTES = 129 * (16 << 10)
_STREAMS_BYTES = 3 * _LOG_BYTES
"""What is held for streams while ids are spilled (spilled_ids.h)."""
_FEWEST_SPILLED_BYTES = _STREAMS_BYTES + (5 << 20)
_BUILDER_BYTES, _SORTER_BYTES = 4 << 20, 4 << 20
LEAST_KEPT_BYTES = 28 << 20
"""What the edges of a type that wait in memory count for at least (edge_builder.h)."""
_KEY_BYTES, _ROW_BYTES = 8, 4
_BLOCK_BYTES = 2048
_STEP_BITS = 6
_FEWEST_EDGES, _MOST_AT_ONCE = 1 << 11, 1 << 20


# Ids


def index_slots(count: int) -> int:
    """Return the slots of the hash index of ids: see docs/formats/graph.md, Ids."""
    bits = 0
    while count >> bits > _NODES_PER_PARTITION:
        bits += 1
    partitions = 1 << bits
    return 2 * max(1, -(-count // partitions)) * partitions


def index_width(count: int) -> int:
    """Return the bytes of a node index, or of an entry of the hash index."""
    return 8 if count > _MOST_NARROW_NODES else 4


def most_ids(memory_bytes: int, text_bytes: float) -> int:
    """Return how many ids fit, when the rows that are added next are counted as new ids.

    Args:
        memory_bytes: what the ids may hold.
        text_bytes: mean bytes of the text of an id; 0 of integers.
    """
    if memory_bytes > 2 * _FEWEST_SPILLED_BYTES:
        memory_bytes -= _STREAMS_BYTES
    fitting, beyond = 0, memory_bytes // 8 + 2
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        if ids_bytes(middle, int(middle * text_bytes), tight=True) <= memory_bytes:
            fitting = middle
        else:
            beyond = middle
    return fitting


def ids_held_bytes(count: int, memory_bytes: int, text_bytes: float) -> int:
    """Return what ids that fit hold: in a table of regular size, or where that does not fit the largest."""
    held = ids_bytes(count, int(count * text_bytes))
    return min(held, memory_bytes) + count // 8


# Edges


@dataclass(frozen=True)
class EdgeRow:
    """What goes along with an edge.

    Attributes:
        columns: arrays of weights, timestamps and features.
        payload_bytes: bytes of a row of all of them.
    """

    columns: int
    payload_bytes: float

    @property
    def record_bytes(self) -> int:
        """Bytes of what is sorted: both ends, and the row in the columns where there are some."""
        return _KEY_BYTES + (_ROW_BYTES if self.columns else 0)

    @property
    def spilled_bytes(self) -> float:
        """Bytes of an edge in a sorted run on the disk."""
        return _KEY_BYTES + self.payload_bytes


@dataclass(frozen=True)
class SortedEdges:
    """Edges that are held until they are sorted, as `EdgeSorter` does.

    Attributes:
        count: how many.
        row: what goes along with each.
        largest_share: the share of them that is in the largest bucket.
        targets: how many targets they have.
    """

    count: int
    row: EdgeRow
    largest_share: float
    targets: int

    def dealt_bytes(self) -> int:
        """Return what edges hold in buckets, which are chains of blocks, and what goes along with them."""
        in_block = (_BLOCK_BYTES - _KEY_BYTES) // self.row.record_bytes
        half_empty = min(self.count, used_buckets(self.targets)) * _BLOCK_BYTES // 2
        blocks = self.count * _BLOCK_BYTES / in_block + half_empty
        return round(blocks + self.count * self.row.payload_bytes)

    def held_bytes(self, memory_bytes: int) -> int:
        """Return what they hold when they are sorted, part by part.

        Args:
            memory_bytes: what the edges of a type may hold.
        """
        fixed = _SORTER_BYTES + (3 + self.row.columns) * _HUGE_PAGE_BYTES
        wave = (memory_bytes - _BUILDER_BYTES - fixed) // 16 // self.row.record_bytes
        at_once = max(
            self.count * self.largest_share, min(self.count, max(_FEWEST_EDGES, min(wave, _MOST_AT_ONCE)))
        )
        return _BUILDER_BYTES + fixed + self.dealt_bytes() + round(2 * at_once * self.row.record_bytes)

    def fit(self, memory_bytes: int, *, replaying: bool = False) -> bool:
        """Return whether none of them must be spilled.

        Args:
            memory_bytes: what the edges of a type may hold.
            replaying: whether their ends are read from logs meanwhile.
        """
        if replaying:
            memory_bytes -= _STREAMS_BYTES
        return self.held_bytes(memory_bytes) <= memory_bytes


def bucket_of(targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bucket that edges are dealt into by their target (edge_buckets.h)."""
    octaves = np.zeros(len(targets), np.int64)
    above = targets >> (_STEP_BITS + 1)
    while above.any():
        octaves += above > 0
        above >>= 1
    return (octaves << _STEP_BITS) + (targets >> octaves)


def used_buckets(targets: int) -> int:
    """Return how many buckets the edges of so many targets are in."""
    return int(bucket_of(np.array([max(targets - 1, 0)]))[0]) + 1
