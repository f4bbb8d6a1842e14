"""Steps of parameters and table rows together: schedules, clipping, and moving averages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from graphbox.config.models.optimization import OptimizationSection
from graphbox.table import TableOptimizer
from graphbox.table.module import TableModule
from graphbox.train.checkpoint import optimizer_tensors, restore_optimizer

__all__ = ["Optimization", "learning_rate_share"]

_OPTIMIZER, _AVERAGE = "optimizer.", "average."


def learning_rate_share(config: OptimizationSection, done: float) -> float:
    """Return by what the learning rates are multiplied when the share ``done`` of the training is over."""
    if done < config.warmup:
        return done / config.warmup
    if config.schedule == "constant":
        return 1.0
    fallen = (done - config.warmup) / (1.0 - config.warmup)
    left = 1.0 - fallen if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * fallen))
    return config.final_learning_rate + (1.0 - config.final_learning_rate) * left


class Optimization:
    """Lets a model learn: its parameters by Adam, the rows of its tables by the tables' own optimizer.

    Args:
        model: the model.
        config: how it learns.
        groups: its parameters in groups, each with its weight decay.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizationSection,
        groups: Sequence[tuple[Sequence[nn.Parameter], float]],
    ) -> None:
        self._model = model
        self._config = config
        self._optimizer = torch.optim.Adam(
            [{"params": list(parameters), "weight_decay": decay} for parameters, decay in groups],
            lr=config.learning_rate,
        )
        self._average: dict[str, Tensor] = {}
        self._rows: TableOptimizer | None = None
        self.reset_tables()

    def reset_tables(self) -> None:
        """Take up the tables that the model has now."""
        if self._rows is not None:
            self._rows.close()
        modules = [each for each in self._model.modules() if isinstance(each, TableModule)]
        self._tables = [table for module in modules for table in module.tables]
        self._rows = TableOptimizer(*modules) if modules else None

    def step(self, done: float) -> None:
        """Apply the gradients, when the share ``done`` of the training is over."""
        share = learning_rate_share(self._config, done)
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.learning_rate * share
        for table in self._tables:
            # A table has no learning rate of nothing, which the first step of a warm-up would be.
            table.lr = max(self._config.table_learning_rate * share, 1e-12)
        if self._config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._config.clip_norm)
        self._optimizer.step()
        if self._rows is not None:
            self._rows.step()
        self._take_average()

    def zero_grad(self) -> None:
        """Forget gradients."""
        self._optimizer.zero_grad()
        if self._rows is not None:
            self._rows.zero_grad()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the parameters their moving average while the block runs; without one they stay."""
        if not self._average:
            yield
            return
        own = {name: value.detach().clone() for name, value in self._model.named_parameters()}
        self._set_parameters(self._average)
        try:
            yield
        finally:
            self._set_parameters(own)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name."""
        state = {_OPTIMIZER + name: value for name, value in optimizer_tensors(self._optimizer).items()}
        return state | {_AVERAGE + name: value for name, value in self._average.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the state that :meth:`tensors` returned."""
        parts: dict[str, dict[str, Tensor]] = {_OPTIMIZER: {}, _AVERAGE: {}}
        for name, value in tensors.items():
            for prefix, part in parts.items():
                if name.startswith(prefix):
                    part[name.removeprefix(prefix)] = value
        restore_optimizer(self._optimizer, parts[_OPTIMIZER])
        self._average = parts[_AVERAGE]
        self.reset_tables()

    def _take_average(self) -> None:
        decay = self._config.average_decay
        if decay is None:
            return
        for name, value in self._model.named_parameters():
            if name in self._average:
                self._average[name].lerp_(value.detach(), 1.0 - decay)
            else:
                self._average[name] = value.detach().clone()

    def _set_parameters(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(values[name])
