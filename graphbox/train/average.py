"""The average of a model over the ends of epochs.

Rows and parameters that still move at a high learning rate scatter around a point that generalizes better
than each of them (Polyak and Juditsky, 1992; Izmailov et al., "Averaging weights leads to wider optima and
better generalization", UAI 2018).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["RunningAverage"]

_COUNT = "count"


class RunningAverage:
    """The mean of tensors by name, of as many sets of them as were added."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: dict[str, Tensor] = {}

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Take another set of tensors into the mean; each set has the same names and shapes."""
        self.count += 1
        for name, value in tensors.items():
            if self.count == 1:
                self.mean[name] = value.detach().clone()
            else:
                self.mean[name] += (value.detach() - self.mean[name]) / self.count

    def state(self) -> dict[str, Tensor]:
        """Return the state as tensors by name."""
        return {**self.mean, _COUNT: torch.tensor(self.count)} if self.count else {}

    @classmethod
    def restore(cls, state: Mapping[str, Tensor]) -> RunningAverage:
        """Return the average whose :meth:`state` is given."""
        average = cls()
        if state:
            average.mean = {name: value for name, value in state.items() if name != _COUNT}
            average.count = int(state[_COUNT])
        return average
