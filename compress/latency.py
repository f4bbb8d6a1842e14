"""Latency of a compressed model beside the original, and the steps in which it counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["LATENCY_STEP", "NOISE", "Latency", "Percentile", "latency_steps"]

Percentile = Literal["p50", "p99"]

LATENCY_STEP: Final = 1.05
"""Ratio of two latencies that counts as a difference: finer ones are noise."""

NOISE: Final = math.sqrt(LATENCY_STEP)
"""Ratio up to which a latency counts as no larger: half a step, 2.5 %."""


@dataclass(frozen=True)
class Latency:
    """Latency of one call on the target, measured in turns with the original model.

    Attributes:
        p50_ms: median.
        p50_min_ms: smallest median of a repeat.
        p50_max_ms: largest median of a repeat.
        p99_ms: 99th percentile, the median over the repeats.
        original_p50_ms: median of the original model in the same turns.
        original_p99_ms: 99th percentile of the original model in the same turns.
    """

    p50_ms: float
    p50_min_ms: float
    p50_max_ms: float
    p99_ms: float
    original_p50_ms: float
    original_p99_ms: float

    def milliseconds(self, percentile: Percentile) -> float:
        """Return a percentile."""
        return self.p50_ms if percentile == "p50" else self.p99_ms

    def ratio(self, percentile: Percentile) -> float:
        """Return a percentile relative to that of the original."""
        if percentile == "p50":
            return self.p50_ms / self.original_p50_ms
        return self.p99_ms / self.original_p99_ms


def latency_steps(ratio: float) -> int:
    """Return the number of whole steps that a ratio of latencies is above 1, negative where it is below."""
    return round(math.log(ratio) / math.log(LATENCY_STEP))
