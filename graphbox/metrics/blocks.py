"""How many queries are scored at once, and by how many threads, so that their scores fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from graphbox.native import thread_count

__all__ = ["made_in_turn", "rows_and_threads"]

Block = TypeVar("Block")
Made = TypeVar("Made")

_BLOCK_BYTES = 64 << 20
_SCORES_BYTES = 256 << 20


def rows_and_threads(block_rows: int, num_candidates: int, threads: int | None) -> tuple[int, int]:
    """Return the queries that are scored at once by a thread, and the number of threads.

    A score may depend on how many are made at once, by its rounding, so the rows depend on no number of
    threads.

    Args:
        block_rows: wanted queries; fewer where their scores would fill more than 64 MiB.
        num_candidates: scores of a query, float32.
        threads: wanted threads, fewer where the scores would fill more than 256 MiB. None: see
            :func:`graphbox.native.thread_count`.
    """
    row_bytes = max(1, num_candidates) * np.dtype(np.float32).itemsize
    rows = max(1, min(block_rows, _BLOCK_BYTES // row_bytes))
    return rows, max(1, min(thread_count(threads), _SCORES_BYTES // (rows * row_bytes)))


def made_in_turn(make: Callable[[Block], Made], blocks: Iterable[Block], threads: int) -> Iterator[Made]:
    """Yield what ``make`` makes of each block, in their order.

    Args:
        make: what is called, side by side in so many threads; in that of the caller where it is one, which
            has the device and the stream of its choice as current ones.
        blocks: what it is called with.
        threads: how many.
    """
    if threads == 1:
        yield from map(make, blocks)
        return
    with ThreadPoolExecutor(threads) as executor:
        yield from executor.map(make, blocks)
