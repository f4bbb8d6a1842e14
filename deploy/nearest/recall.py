"""Counters of the recall of approximate answers, against exact ones of the same queries."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from graphbox.deploy.lookup_counter import Slots

__all__ = ["RecallCounter", "found_rows"]

_SCORE_TOLERANCE = 1e-5


def found_rows(scores: npt.NDArray[np.float32], exact: npt.NDArray[np.float32]) -> int:
    """Return how many of the ``exact`` best scores an approximate answer has.

    Rows are compared by score: of rows with equal scores any is right. Scores are equal within a share of the
    largest one, whatever its size.

    Args:
        scores: float32 [at most k], of the approximate answer.
        exact: float32 [k], of the exact answer, best first.
    """
    if not len(exact):
        return 0
    least = exact[-1] - _SCORE_TOLERANCE * np.abs(exact).max()
    return min(len(exact), int(np.count_nonzero(scores >= least)))


class RecallCounter:
    """Sampled queries, their nearest rows by exact ranking, and those of them that were found.

    Safe to use from several threads.

    Args:
        slots: three integers to count in, such as shared memory; no other object of this process adds to
            them. None: in this object.
    """

    def __init__(self, slots: Slots | None = None) -> None:
        self._lock = threading.Lock()
        self._slots: Slots = [0, 0, 0] if slots is None else slots

    def add(self, wanted: int, found: int) -> None:
        """Count one query with ``wanted`` nearest rows, of which ``found`` were answered."""
        with self._lock:
            for position, count in enumerate((1, wanted, found)):
                self._slots[position] += count

    def counts(self) -> tuple[int, int, int]:
        """Return queries, nearest rows and found rows, of the same queries."""
        with self._lock:
            return self._slots[0], self._slots[1], self._slots[2]
