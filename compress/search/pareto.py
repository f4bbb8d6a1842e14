"""Pareto set of measured models: those that none beats in size, latency and quality at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["pareto_indices", "spread_out"]

Float64 = npt.NDArray[np.float64]


def pareto_indices(costs: Float64) -> list[int]:
    """Return the rows that no other row dominates, in their order; of equal rows the first.

    A row dominates another if it is nowhere larger and somewhere smaller.

    Args:
        costs: float64 [models, objectives], finite; smaller is better.
    """
    kept: list[int] = []
    for place, row in enumerate(costs):
        no_worse = (costs <= row).all(axis=1)
        better = (costs < row).any(axis=1)
        is_repeated = (costs[:place] == row).all(axis=1).any()
        if not (no_worse & better).any() and not is_repeated:
            kept.append(place)
    return kept


def spread_out(costs: Float64, most: int, always: Sequence[int] = ()) -> list[int]:
    """Return at most ``most`` rows that cover the range of all objectives, in ascending order.

    The extremes of each objective come first, after ``always``; then, again and again, the row farthest from
    all that were chosen, with each objective scaled to its range (Gonzalez, "Clustering to minimize the
    maximum intercluster distance", 1985).

    Args:
        costs: float64 [models, objectives].
        most: from 1.
        always: rows that are kept in any case, at most ``most``.
    """
    if len(costs) <= most:
        return list(range(len(costs)))
    low, high = costs.min(axis=0), costs.max(axis=0)
    scaled = (costs - low) / np.where(high > low, high - low, 1.0)
    wanted = [*always, *scaled.argmin(axis=0).tolist()]
    chosen = list(dict.fromkeys(wanted))[:most]
    distance = np.full(len(costs), np.inf)
    for place in chosen:
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[place], axis=1))
    while len(chosen) < most:
        farthest = int(distance.argmax())
        chosen.append(farthest)
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[farthest], axis=1))
    return sorted(chosen)
