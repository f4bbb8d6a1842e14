"""Median stopping rule: ends a trial of a search that is worse than the median of what finished trials were.

Golovin et al., "Google Vizier", KDD 2017, section 3.2. There the best figure of a trial so far is compared
with running averages of the finished ones; here with their best figures so far, since a model ends in its
best state. Trials are compared at the same share of their epochs, so that what ends is a function of the log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["Curve", "MedianRule", "Reports", "curve_of"]

Reports = Sequence[tuple[float, float]]
"""Share of a training's epochs and cost after each measured epoch, in order."""
Curve = Sequence[tuple[float, float]]
"""Pairs of a share of a training's epochs and the least cost until then, one for each time that it fell."""

_FINISHED_TRIALS = 3
"""Finished trials with which others are compared, at least."""
_FIRST_REPORTS = 2
"""Reports of a trial before the first that can end it."""
_FIRST_SHARE = 0.1
"""Share of its epochs before which a trial is not ended, however often it is measured."""


def curve_of(reports: Reports) -> Curve:
    """Return the curve of a trial.

    Args:
        reports: share of the epochs and cost after each measured epoch, in order; a cost that is no number
            is none.
    """
    found: list[tuple[float, float]] = []
    for share, cost in reports:
        if not math.isnan(cost) and (not found or cost < found[-1][1]):
            found.append((share, cost))
    return tuple(found)


class MedianRule:
    """Decides after each measured epoch of a trial whether it goes on.

    Args:
        finished: curves of the finished trials that it is compared with.
    """

    def __init__(self, finished: Sequence[Curve]) -> None:
        self._finished = finished

    def exceeded(self, reports: Reports) -> float | None:
        """Return the median that the least cost of a trial exceeds; None: the trial goes on.

        Args:
            reports: of the trial so far. The first few never end it, nor does that of its last epoch.
        """
        if len(reports) <= _FIRST_REPORTS or not _FIRST_SHARE <= reports[-1][0] < 1.0:
            return None
        curve, of_finished = curve_of(reports), self._median(reports[-1][0])
        if not curve or of_finished is None:
            return None
        return of_finished if curve[-1][1] > of_finished else None

    def _median(self, share: float) -> float | None:
        """Return the median of the least costs by a share of the epochs; None: too few trials have one."""
        costs = [_least(curve, share) for curve in self._finished]
        known = [cost for cost in costs if cost is not None]
        return median(known) if len(known) >= _FINISHED_TRIALS else None


def _least(curve: Curve, share: float) -> float | None:
    """Return the least cost by a share of the epochs; None: nothing was measured by then."""
    until = [cost for at, cost in curve if at <= share]
    return until[-1] if until else None
