"""Blocks of queries: their size and threads within a memory limit, their progress, and how they stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from graphbox.native import thread_count

Block = TypeVar("Block")
Made = TypeVar("Made")

_BLOCK_BYTES = 64 << 20
_SCORES_BYTES = 256 << 20

Check = Callable[[], None]
"""Called in any thread between pieces of work; raises to end the work."""


def _ignore_step(done: int, total: int) -> None:
    """Ignore progress."""


def _never_stop() -> None:
    """Let the work continue."""


@dataclass(frozen=True)
class Watch:
    """Observer of a measurement.

    Attributes:
        step: called in the caller's thread with the number of queries done and the total.
        check: see :data:`Check`; called at least once for each block of queries.
    """

    step: Callable[[int, int], None] = _ignore_step
    check: Check = _never_stop


UNWATCHED = Watch()
"""Reports nothing and never stops."""

Measure = Callable[[Watch], dict[str, float | int]]
"""A measurement that has yet to run: returns metrics."""


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


def made_in_turn(
    make: Callable[[Block], Made], blocks: Iterable[Block], threads: int, check: Check = _never_stop
) -> Iterator[Made]:
    """Yield what ``make`` makes of each block, in their order.

    Args:
        make: what is called, side by side in so many threads; in that of the caller where it is one, which
            has the device and the stream of its choice as current ones.
        blocks: what it is called with.
        threads: how many.
        check: called before each block. When it, or a block, raises, waiting blocks are dropped.
    """

    def checked(block: Block) -> Made:
        check()
        return make(block)

    if threads == 1:
        yield from map(checked, blocks)
        return
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(checked, blocks)
    finally:
        executor.shutdown(cancel_futures=True)
