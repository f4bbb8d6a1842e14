"""The choice among measured models: the best within the limits, or the limit that none keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphbox.compress.limits import Limits, Violation
from graphbox.compress.search.trials import Trial
from graphbox.errors import GateError

__all__ = ["Infeasible", "choose", "infeasible", "refusal", "standard_error"]


@dataclass(frozen=True)
class Infeasible:
    """Limits that no tried model keeps.

    Attributes:
        nearest: the model with the smallest sum of relative excesses.
        violations: the limits that it exceeds.
        binding: how many models exceed each limit and no other.
    """

    nearest: Trial
    violations: Sequence[Violation]
    binding: dict[str, int]


def choose(trials: Sequence[Trial], limits: Limits, metric: str) -> Trial:
    """Return the best of the models that are within the limits.

    Where quality is limited that is the smallest one, and of equal sizes the fastest; else the one with the
    highest metric, and of equal ones the smallest.

    Args:
        trials: measured, within the limits; at least one.
        limits: that were given.
        metric: the one that decides.
    """

    def latency_ms(trial: Trial) -> float:
        return math.inf if trial.latency is None else trial.latency.p99_ms

    if limits.bounds_quality:
        return min(trials, key=lambda each: (each.size_bytes, latency_ms(each), -each.metrics[metric]))
    return min(trials, key=lambda each: (-each.metrics[metric], each.size_bytes, latency_ms(each)))


def infeasible(trials: Sequence[Trial], limits: Limits, metric: str, original: float) -> Infeasible:
    """Return why no model is within the limits.

    Args:
        trials: measured; at least one.
        limits: that were given.
        metric: the one that decides.
        original: its value for the original model.
    """
    violations = [limits.violations(trial.figures, metric, original) for trial in trials]
    binding: dict[str, int] = {}
    for found in violations:
        if len(found) == 1:
            binding[found[0].limit] = binding.get(found[0].limit, 0) + 1
    nearest = min(range(len(trials)), key=lambda place: sum(each.excess for each in violations[place]))
    return Infeasible(trials[nearest], violations[nearest], binding)


def refusal(found: Infeasible, tried: int) -> GateError:
    """Return the error that no model is within the limits."""
    exceeded = ", ".join(map(str, found.violations))
    binding = "; ".join(f"{count} exceed {limit} alone" for limit, count in sorted(found.binding.items()))
    return GateError(
        f"expected a model within all limits, none of {tried} tried is; the nearest one "
        f"({found.nearest.recipe}) exceeds {exceeded}" + (f"; {binding}" if binding else ""),
        hint="nothing was written; raise that limit, or allow more trials with --trials",
    )


def standard_error(mean: float, count: float) -> float | None:
    """Return an upper bound of the standard error of the mean of ``count`` values in [0, 1].

    Their variance is at most ``mean * (1 - mean)`` (Bhatia and Davis, "A Better Bound on the Variance",
    2000). None where the mean is not in [0, 1] or nothing was counted.
    """
    if not 0 <= mean <= 1 or count < 1:
        return None
    return math.sqrt(mean * (1 - mean) / count)
