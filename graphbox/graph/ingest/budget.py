"""How an import divides the memory it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from graphbox.errors import DoesNotFitError
from graphbox.memory import available_bytes, resident_bytes

__all__ = ["Budget", "Shares"]

_MEBIBYTE = 1 << 20
_LEAST_BATCH_BYTES = _MEBIBYTE // 4
_MOST_BATCH_BYTES = 8 * _MEBIBYTE
_BATCH_SHARE = 48
"""A batch takes at most this share (1/48) of what is left beside the least that everything else needs."""
_BATCHES = 12
"""Batches that stand about at once: four in a table's reader, four converted ones, and their temporaries."""
_SLACK_BYTES = 40 * _MEBIBYTE
"""Stacks of threads, and what allocators hold beside what is asked of them."""
_LEAST_EDGES_BYTES = 32 * _MEBIBYTE
_LEAST_IDS_BYTES = 22 * _MEBIBYTE
_LEAST_CATEGORIES_BYTES = 2 * _MEBIBYTE
"""What sorting edges, the ids of one node type, and all categories cannot do without."""
_STEP_BYTES = 16 * _MEBIBYTE
_CATEGORIES_SHARE = 0.1
_IDS_SHARE = 0.7


@dataclass(frozen=True)
class Budget:
    """The memory of an import, in bytes, and who may hold how much of it.

    Attributes:
        total_bytes: of the whole process.
        baseline_bytes: what the process had at the start.
        batch_bytes: one batch of a table.
        categories_bytes: the categories of all features that are read at one time.
        parts_bytes: all ids, and the edges that are sorted.
    """

    total_bytes: int
    baseline_bytes: int
    batch_bytes: int
    categories_bytes: int
    parts_bytes: int

    @classmethod
    def divide(cls, memory_bytes: int | None, *, node_types: int, categories: bool) -> Self:
        """Divide the memory of the process.

        Args:
            memory_bytes: the memory; None: half of what is available, and half of what the process has.
            node_types: how many node types there are.
            categories: whether there are features with categories.

        Raises:
            DoesNotFitError: it is less than an import needs; the message says how much that is.
        """
        # With its first conversion PyArrow imports pandas, where that is installed: it is in the baseline.
        pa.array(np.zeros(1))
        pa.default_memory_pool().release_unused()
        baseline = resident_bytes()
        total = (baseline + available_bytes()) // 2 if memory_bytes is None else memory_bytes
        room = total - baseline - _SLACK_BYTES
        least_categories = _LEAST_CATEGORIES_BYTES if categories else 0
        least_parts = _LEAST_EDGES_BYTES + _LEAST_IDS_BYTES * node_types + least_categories
        batch = max(_LEAST_BATCH_BYTES, min(_MOST_BATCH_BYTES, (room - least_parts) // _BATCH_SHARE))
        parts = room - _BATCHES * batch
        if parts < least_parts:
            least = baseline + _SLACK_BYTES + least_parts + _BATCHES * _LEAST_BATCH_BYTES
            # Rounded up: a process that starts a little larger can do with it as well.
            least = -(-least // _STEP_BYTES) * _STEP_BYTES
            raise DoesNotFitError(
                f"expected at least {least:,} bytes of memory for an import, received {total:,} "
                f"({baseline:,} of them are taken before it begins)",
                where="memory",
                hint=f"give it {least // _MEBIBYTE} MiB or more"
                if memory_bytes is not None
                else "free some memory",
            )
        spare = parts - least_parts
        for_categories = least_categories + int(spare * _CATEGORIES_SHARE) if categories else 0
        return cls(total, baseline, batch, for_categories, parts - for_categories)


class Shares:
    """What the ids of each node type may hold, and what they leave to the edges.

    Args:
        budget: the memory.
        weights: bytes of input that the ids of each node type come from, None where that is not known.
    """

    def __init__(self, budget: Budget, weights: Mapping[str, int | None]) -> None:
        known = [weight for weight in weights.values() if weight is not None]
        usual = sum(known) // len(known) if known else 1
        self._parts_bytes = budget.parts_bytes
        spare = budget.parts_bytes - _LEAST_EDGES_BYTES - _LEAST_IDS_BYTES * len(weights)
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
        return max(0, half - self._kept_edges_bytes) if half >= _LEAST_EDGES_BYTES else 0

    def keep_edges(self, kept_bytes: int) -> None:
        """Say what the edges that were read last keep until all edges have been read."""
        self._kept_edges_bytes += kept_bytes
