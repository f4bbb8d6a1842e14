"""Latency histogram with logarithmic buckets, after HdrHistogram."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["PERCENTILES", "LatencyHistogram"]

PERCENTILES: Final[Mapping[str, float]] = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9}

_SUB_BUCKET_BITS = 7
_SUB_BUCKETS = 1 << _SUB_BUCKET_BITS
_HIGHEST_BIT = 42  # 2^42 ns: 73 minutes
_BUCKETS = (_HIGHEST_BIT - _SUB_BUCKET_BITS + 1) * _SUB_BUCKETS
_BUFFERED = 1 << 15


class LatencyHistogram:
    """Counts of durations in nanoseconds.

    Below 256 ns a bucket is 1 ns wide. Each power of two above has 128 buckets, so a percentile is at most
    0.8 % too high. The largest duration and the sum are exact. Durations from 73 minutes on share a bucket.
    """

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.int64] = np.zeros(_BUCKETS, np.int64)
        self._sum_ns = 0
        self._max_ns = 0
        self._buffer = array("q")

    def record(self, duration_ns: int) -> None:
        """Add one duration."""
        self._buffer.append(duration_ns)
        if len(self._buffer) >= _BUFFERED:
            self._flush()

    def add(self, other: LatencyHistogram) -> None:
        """Add all durations of another histogram."""
        other._flush()
        self._flush()
        self._counts += other._counts
        self._sum_ns += other._sum_ns
        self._max_ns = max(self._max_ns, other._max_ns)

    @property
    def count(self) -> int:
        """Number of durations."""
        self._flush()
        return int(self._counts.sum())

    @property
    def max_ms(self) -> float:
        """Longest duration; 0 of an empty histogram."""
        self._flush()
        return self._max_ns / 1e6

    @property
    def mean_ms(self) -> float:
        """Mean duration; 0 of an empty histogram."""
        return self._sum_ns / max(self.count, 1) / 1e6

    def percentile_ms(self, percent: float) -> float:
        """Return the duration that ``percent`` of all durations do not exceed; 0 of an empty histogram."""
        count = self.count
        if not count:
            return 0.0
        rank = max(int(np.ceil(count * percent / 100)), 1)
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(_upper_ns(bucket), self._max_ns) / 1e6

    def buckets(self) -> list[tuple[float, int]]:
        """Return upper bound in milliseconds and count of each bucket that is not empty, ascending."""
        self._flush()
        return [
            (_upper_ns(int(each)) / 1e6, int(self._counts[each])) for each in np.flatnonzero(self._counts)
        ]

    def summary(self) -> dict[str, float]:
        """Return mean, percentiles and maximum in milliseconds, by name (``p99_ms``, ...)."""
        found = {"mean_ms": self.mean_ms}
        found |= {f"{name}_ms": self.percentile_ms(percent) for name, percent in PERCENTILES.items()}
        return found | {"max_ms": self.max_ms}

    def _flush(self) -> None:
        if not self._buffer:
            return
        durations = np.maximum(np.frombuffer(self._buffer, np.int64), 0)
        self._counts += np.bincount(_bucket_of(durations), minlength=_BUCKETS)
        self._sum_ns += int(durations.sum())
        self._max_ns = max(self._max_ns, int(durations.max()))
        del durations  # an array that is exported cannot be emptied
        self._buffer = array("q")


def _bucket_of(durations: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    # Exponents of float64 are exact for these integers.
    bits = np.frexp(durations.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(bits - _SUB_BUCKET_BITS - 1, 0)
    bucket = (shift << _SUB_BUCKET_BITS) + (durations >> shift)
    return np.minimum(bucket, _BUCKETS - 1)


def _upper_ns(bucket: int) -> int:
    """Return the largest duration of a bucket."""
    shift = max((bucket >> _SUB_BUCKET_BITS) - 1, 0)
    return ((bucket - (shift << _SUB_BUCKET_BITS) + 1) << shift) - 1
