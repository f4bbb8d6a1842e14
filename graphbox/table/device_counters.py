"""Policy counters of rows on a device: the twin of ``csrc/table/counters.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphbox.device import keep_until_used

if TYPE_CHECKING:
    from torch import Tensor


class DeviceCounters:
    """Adds to the counters of rows what a push showed and clicked.

    Args:
        decay: of shows and clicks, for each pass since they were counted.
        device: of the rows.
    """

    def __init__(self, decay: float, device: torch.device) -> None:
        self._decay = float(np.float32(decay))
        self._device = device
        self._factors = torch.ones(1, device=device)  # by passes

    def add(
        self, counters: Tensor, slots: Tensor, shows: Tensor, clicks: Tensor, passes: int, seconds: int
    ) -> None:
        """Count a push, in place.

        Args:
            counters: float32 [slots, 4]: shows, clicks, and as bits of uint32 last seen pass and second.
            slots: int64 [n], of different rows.
            shows: float32 [n].
            clicks: float32 [n].
            passes: that have ended.
            seconds: since 1970.
        """
        known = counters[slots]
        seen = known.view(torch.int32)
        if self._decay != 1:
            elapsed = (passes - seen[:, 2].long()).clamp(min=0)
            known[:, :2] *= self._factors_for(passes)[elapsed].unsqueeze(1)
        known[:, 0] += shows
        known[:, 1] += clicks
        seen[:, 2] = passes
        seen[:, 3] = int(np.uint32(seconds).view(np.int32))
        counters[slots] = known

    def _factors_for(self, passes: int) -> Tensor:
        if len(self._factors) <= passes:
            factors = _whole_powers(self._decay, 2 * passes + 1)
            keep_until_used(self._factors)
            self._factors = torch.from_numpy(factors).to(self._device)
        return self._factors


def _whole_powers(base: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return base^0, base^1 ... as float32, computed as the native core does, in float64."""
    exponents = np.arange(count)
    results = np.ones(count)
    while exponents.any():
        results = np.where(exponents & 1, results * base, results)
        base *= base
        exponents = exponents >> 1
    return results.astype(np.float32)
