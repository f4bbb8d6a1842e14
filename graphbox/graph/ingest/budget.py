"""How an import divides the memory it may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from graphbox.errors import DoesNotFitError
from graphbox.memory import available_bytes, resident_bytes

__all__ = ["Budget"]

_MEBIBYTE = 1 << 20
_LEAST_BATCH_BYTES = _MEBIBYTE // 4
_MOST_BATCH_BYTES = 8 * _MEBIBYTE
_BATCH_SHARE = 48
"""A batch takes at most this share (1/48) of what is left beside what the process has at the start."""
_BATCHES = 12
"""Batches that stand about at once: four in a table's reader, four converted ones, and their temporaries."""
_SLACK_BYTES = 12 * _MEBIBYTE
"""Stacks of threads, and what allocators hold beside what is asked of them."""
_LEAST_PARTS_BYTES = 24 * _MEBIBYTE
_STEP_BYTES = 16 * _MEBIBYTE
_CATEGORY_SHARE = 0.1
_ID_SHARE = 0.5


@dataclass(frozen=True)
class Budget:
    """The memory of an import, in bytes, and who may hold how much of it.

    Attributes:
        total_bytes: of the whole process.
        baseline_bytes: what the process had at the start.
        batch_bytes: one batch of a table.
        categories_bytes: the categories of one table.
        ids_bytes: the ids of all node types.
        edges_bytes: all edges that are sorted at one time.
    """

    total_bytes: int
    baseline_bytes: int
    batch_bytes: int
    categories_bytes: int
    ids_bytes: int
    edges_bytes: int

    @classmethod
    def divide(cls, memory_bytes: int | None) -> Self:
        """Divide ``memory_bytes``, or half of what is available (and what the process has) when it is None.

        Raises:
            DoesNotFitError: it is less than an import needs; the message says how much that is.
        """
        pa.default_memory_pool().release_unused()
        baseline = resident_bytes()
        total = (baseline + available_bytes()) // 2 if memory_bytes is None else memory_bytes
        room = total - baseline - _SLACK_BYTES
        batch = max(_LEAST_BATCH_BYTES, min(_MOST_BATCH_BYTES, room // _BATCH_SHARE))
        parts = room - _BATCHES * batch
        if parts < _LEAST_PARTS_BYTES:
            least = baseline + _SLACK_BYTES + _LEAST_PARTS_BYTES + _BATCHES * _LEAST_BATCH_BYTES
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
        categories = int(parts * _CATEGORY_SHARE)
        ids = int((parts - categories) * _ID_SHARE)
        return cls(total, baseline, batch, categories, ids, parts - categories - ids)

    def ids_shares(self, weights: Sequence[int | None]) -> list[int]:
        """Return what the ids of each node type may take.

        Args:
            weights: bytes of input that the ids come from, None where that is not known.
        """
        known = [weight for weight in weights if weight is not None]
        usual = sum(known) // len(known) if known else 1
        sizes = [usual if weight is None else weight for weight in weights]
        # Half of it goes by size and half is the same for all: input may be compressed more or less.
        equal = self.ids_bytes // (2 * len(sizes))
        return [equal + self.ids_bytes // 2 * size // max(sum(sizes), 1) for size in sizes]
