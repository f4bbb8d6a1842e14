"""Division of an import's memory budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from graphbox.errors import DoesNotFitError
from graphbox.graph.ingest.demand import Demand
from graphbox.memory import available_bytes, resident_bytes
from graphbox.words import counted_bytes

_MEBIBYTE = 1 << 20
PROGRAM_BYTES = 192 * _MEBIBYTE
"""Part of the budget set aside for the program: a `graphbox import` starts with 145 to 165 MiB. What a
process, such as a notebook, holds beyond that before the import is outside the budget."""
_LEAST_BATCH_BYTES = _MEBIBYTE // 4
_MOST_BATCH_BYTES = 4 * _MEBIBYTE
_BATCH_SHARE = 48
"""A batch takes at most this share (1/48) of what is left beside the least that everything else needs."""
_BATCHES = 12
"""Batches that stand about at once: four in a table's reader, four converted ones, and their temporaries."""
_SLACK_BYTES = 40 * _MEBIBYTE
"""Stacks of threads, and what allocators hold beside what is asked of them."""
_FREE_COLUMNS = 8
_COLUMN_BYTES = 2 * _MEBIBYTE
"""Memory of a reader for each column beyond the first ones: a page, packed and unpacked."""
_LEAST_EDGES_BYTES = 32 * _MEBIBYTE
_LEAST_IDS_BYTES = 22 * _MEBIBYTE
_LEAST_CATEGORIES_BYTES = 2 * _MEBIBYTE
"""Least memory of sorting edges, of the ids of one node type, and of all categories."""
_COLUMN_CATEGORIES_BYTES = _MEBIBYTE // 2
_FREE_EDGE_COLUMNS = 2
_EDGE_COLUMN_BYTES = 2 * _MEBIBYTE
"""Each column of edges begins a huge page; two are in the least for edges."""
_SORTED_ROWS = 8192
"""Edges that can be sorted at once, at least."""
_MERGED_ROWS = 64
"""Rows of each sorted run that are held while runs are merged, at least; see csrc/graph/run_merge.h."""
_SORTED_BYTES = 10 * _MEBIBYTE
_KEY_BYTES = 24
"""Part of the least for edges in which they are sorted, and bytes of an edge in it beside its columns."""
_EXPANSION = 8
"""Ratio of the bytes of edges while they are sorted to those of their table, at most about."""
_STEP_BYTES = 16 * _MEBIBYTE
_CATEGORIES_SHARE = 0.1
_IDS_SHARE = 0.7


@dataclass(frozen=True)
class Budget:
    """The memory of an import, in bytes, and who may hold how much of it.

    Attributes:
        total_bytes: all of it, :data:`PROGRAM_BYTES` included.
        batch_bytes: one batch of a table.
        categories_bytes: the categories of all features that are read at one time.
        parts_bytes: all ids, and the edges that are sorted.
        least_edges_bytes: of these, what edges cannot do without.
    """

    total_bytes: int
    batch_bytes: int
    categories_bytes: int
    parts_bytes: int
    least_edges_bytes: int = _LEAST_EDGES_BYTES

    @classmethod
    def divide(cls, memory_bytes: int | None, demand: Demand) -> Self:
        """Divide the memory of an import.

        The same memory and demand give the same budget in every process, so that a plan made in one holds in
        another.

        Args:
            memory_bytes: the memory; None: about half of what is available.
            demand: what the source needs.

        Raises:
            DoesNotFitError: it is less than an import needs; the message says how much that is.
        """
        total = memory_bytes
        if total is None:
            total = _in_eighths((resident_bytes() - held_before_bytes() + available_bytes()) // 2)
        budget = cls.of(total, demand)
        if budget is not None:
            return budget
        least = least_bytes(demand)
        raise DoesNotFitError(
            f"expected at least {counted_bytes(least)} of memory for an import, received "
            f"{counted_bytes(total)}, of which {counted_bytes(PROGRAM_BYTES)} are set aside for the program",
            where="memory",
            hint=f"give it {least // _MEBIBYTE} MiB or more"
            if memory_bytes is not None
            else "free some memory",
        )

    @classmethod
    def of(cls, total_bytes: int, demand: Demand) -> Self | None:
        """Return the budget of so much memory, None when it is too little."""
        room = total_bytes - PROGRAM_BYTES - _SLACK_BYTES - _column_bytes(demand)
        least_categories = _least_categories_bytes(demand)
        least_edges = _least_edges_bytes(demand)
        least_parts = _least_parts_bytes(demand)
        batch = max(_LEAST_BATCH_BYTES, min(_MOST_BATCH_BYTES, (room - least_parts) // _BATCH_SHARE))
        parts = room - _BATCHES * batch
        if parts < least_parts:
            return None
        spare = parts - least_parts
        for_categories = least_categories + int(spare * _CATEGORIES_SHARE) if least_categories else 0
        return cls(total_bytes, batch, for_categories, parts - for_categories, least_edges)


def held_before_bytes() -> int:
    """Return the resident memory of this process beyond :data:`PROGRAM_BYTES`: outside an import's budget."""
    pa.array(np.zeros(1))  # PyArrow's first conversion imports pandas, if installed: part of the program
    return max(0, resident_bytes() - PROGRAM_BYTES)


def least_bytes(demand: Demand) -> int:
    """Return the least memory that an import can do with, in steps of 16 MiB."""
    beside = _SLACK_BYTES + _column_bytes(demand) + _BATCHES * _LEAST_BATCH_BYTES
    return _rounded_up(PROGRAM_BYTES + beside + _least_parts_bytes(demand), _STEP_BYTES)


def _rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


def _in_eighths(size: int) -> int:
    """Return a size rounded down to an eighth of a power of two: what is available changes all the time."""
    step = 1 << max(0, size.bit_length() - 4)
    return size - size % step


def _column_bytes(demand: Demand) -> int:
    return _COLUMN_BYTES * max(0, demand.table_columns - _FREE_COLUMNS)


def _least_categories_bytes(demand: Demand) -> int:
    if not demand.categorical_columns:
        return 0
    return max(_LEAST_CATEGORIES_BYTES, _COLUMN_CATEGORIES_BYTES * demand.categorical_columns)


def _least_parts_bytes(demand: Demand) -> int:
    ids = _LEAST_IDS_BYTES * demand.node_types
    return _least_edges_bytes(demand) + ids + _least_categories_bytes(demand)


def _least_edges_bytes(demand: Demand) -> int:
    """Return what edges need to be sorted in runs, and the runs to be merged, be they as many as they are."""
    row_bytes = _KEY_BYTES + demand.edge_row_bytes
    merged = math.isqrt(_MERGED_ROWS * row_bytes * _EXPANSION * demand.edge_input_bytes)
    more_rows = max(0, _SORTED_ROWS * row_bytes - _SORTED_BYTES, merged - _SORTED_BYTES)
    more_columns = _EDGE_COLUMN_BYTES * max(0, demand.edge_columns - _FREE_EDGE_COLUMNS)
    return _LEAST_EDGES_BYTES + more_columns + more_rows


class Shares:
    """Shares of the memory for the ids of each node type and for the edges.

    Args:
        budget: the memory.
        weights: bytes of input that the ids of each node type come from, None where that is not known.
    """

    def __init__(self, budget: Budget, weights: Mapping[str, int | None]) -> None:
        known = [weight for weight in weights.values() if weight is not None]
        usual = sum(known) // len(known) if known else 1
        self._parts_bytes = budget.parts_bytes
        self._least_edges_bytes = budget.least_edges_bytes
        spare = budget.parts_bytes - budget.least_edges_bytes - _LEAST_IDS_BYTES * len(weights)
        self._spare_bytes = int(spare * _IDS_SHARE)
        self._waiting = {name: max(1, usual if each is None else each) for name, each in weights.items()}
        self._held: dict[str, int] = {}
        self._kept_edges_bytes = 0

    def of_ids(self, node_type: str) -> int:
        """Return what the ids of a node type may hold; what those before left over is shared out again."""
        weight = self._waiting.pop(node_type)
        share = self._spare_bytes * weight // (weight + sum(self._waiting.values()))
        self._spare_bytes -= share
        self._held[node_type] = share + _LEAST_IDS_BYTES
        return self._held[node_type]

    def settle(self, node_type: str, held_bytes: int) -> None:
        """Say what the ids of a node type hold, now that all of them are there."""
        self._spare_bytes += max(0, self._held[node_type] - held_bytes)
        self._held[node_type] = min(held_bytes, self._held[node_type])

    def of_edges(self) -> int:
        """Return what the edges that are read now may hold."""
        kept_for_others = self._spare_bytes + _LEAST_IDS_BYTES * len(self._waiting) if self._waiting else 0
        return self._parts_bytes - sum(self._held.values()) - kept_for_others - self._kept_edges_bytes

    def most_kept_edges(self) -> int:
        """Return what edges that were read may keep while others are read: those get half at least."""
        half = (self.of_edges() + self._kept_edges_bytes) // 2
        return max(0, half - self._kept_edges_bytes) if half >= self._least_edges_bytes else 0

    def keep_edges(self, kept_bytes: int) -> None:
        """Say what the edges that were read last keep until all edges have been read."""
        self._kept_edges_bytes += kept_bytes
