"""Optimizer steps over parameters and table rows: schedules, clipping and averages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphbox.config.models.optimization import LearningRateSchedule, OptimizationSection
from graphbox.table import TableOptimizer
from graphbox.table.module import TableModule
from graphbox.table.protocol import Table
from graphbox.train.checkpoint import optimizer_tensors, restore_optimizer
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.transfer import LossOnItsWay

_OPTIMIZER, _AVERAGE, _COUNT = "optimizer.", "average.", "count"

_LEAST_TABLE_LEARNING_RATE = 1e-12
"""Table learning rates must be positive; the first step of a warm-up would set 0."""


@dataclass(frozen=True)
class OptimizerSettings:
    """Learning rates, their schedule, clipping and averaging.

    Attributes:
        schedule: how both learning rates change during the training.
        table_learning_rate: initial learning rate of the tables.
        learning_rate: initial learning rate of the parameters (Adam).
        clip_norm: longest gradient of all parameters together, or None.
        average_decay: decay of the moving average of the parameters, or None for no average.
    """

    schedule: LearningRateSchedule
    table_learning_rate: float
    learning_rate: float = 0.0
    clip_norm: float | None = None
    average_decay: float | None = None

    @classmethod
    def of(cls, section: OptimizationSection) -> OptimizerSettings:
        """Return the settings of a model's section."""
        return cls(
            section,
            section.table_learning_rate,
            section.learning_rate,
            section.clip_norm,
            section.average_decay,
        )


def learning_rate_share(schedule: LearningRateSchedule, done: float) -> float:
    """Return the factor of the initial learning rate after the share ``done`` of the training."""
    if done < schedule.warmup:
        return done / schedule.warmup
    if schedule.schedule == "constant":
        return 1.0
    fallen = (done - schedule.warmup) / (1.0 - schedule.warmup)
    lost = fallen if schedule.schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * fallen))
    return 1.0 - lost * (1.0 - schedule.final_learning_rate)


def averaged_values(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the moving averages of parameters by name; none where none are kept.

    Args:
        state: what :meth:`Optimization.tensors` returned; other names are ignored.
    """
    averages = {
        name.removeprefix(_AVERAGE): value for name, value in state.items() if name.startswith(_AVERAGE)
    }
    averages.pop(_COUNT, None)
    return averages


class RunningAverage:
    """The average of tensors by name, over all sets of them that were added.

    Rows and parameters that still move at a high learning rate scatter around a point that generalizes
    better than each of them (Polyak and Juditsky, 1992; Izmailov et al., "Averaging weights leads to wider
    optima and better generalization", UAI 2018).

    Args:
        decay: how much less each set counts than the next (a moving average); None: all count alike.
    """

    def __init__(self, decay: float | None = None) -> None:
        self._decay = decay
        self.count = 0
        self.mean: dict[str, Tensor] = {}

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Take another set of tensors into the average; each set has the same names and shapes."""
        self.count += 1
        for name, value in tensors.items():
            if self.count == 1:
                self.mean[name] = value.detach().clone()
            elif self._decay is None:
                self.mean[name] += (value.detach() - self.mean[name]) / self.count
            else:
                self.mean[name].lerp_(value.detach(), 1.0 - self._decay)

    def state(self) -> dict[str, Tensor]:
        """Return the state as tensors by name."""
        return {**self.mean, _COUNT: torch.tensor(self.count)} if self.count else {}

    def restore(self, state: Mapping[str, Tensor], device: torch.device | None = None) -> None:
        """Take up the state that :meth:`state` returned.

        Args:
            state: the state.
            device: of the tensors that will be added; None: that of the state.
        """
        self.mean = {name: value.to(device) for name, value in state.items() if name != _COUNT}
        self.count = int(state[_COUNT]) if state else 0


class Optimization:
    """One optimizer step per batch: Adam for the parameters, the tables' own optimizers for their rows.

    Args:
        model: the module; it may have no parameters.
        settings: learning rates, schedule, clipping and averaging.
        groups: its parameters in groups, each with its weight decay; None: all, without weight decay.
        tables: the table modules; None: those found in ``model``.
        processes: the processes that train together, each on its part of a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: OptimizerSettings,
        groups: Sequence[tuple[Sequence[nn.Parameter], float]] | None = None,
        tables: Sequence[TableModule] | None = None,
        processes: TrainingProcesses = ALONE,
    ) -> None:
        self._model = model
        self._processes = processes
        self._settings = settings
        if groups is None:
            groups = [(list(model.parameters()), 0.0)]
        self._optimizer: torch.optim.Adam | None = None
        if any(parameters for parameters, _ in groups):
            self._optimizer = torch.optim.Adam(
                [{"params": list(parameters), "weight_decay": decay} for parameters, decay in groups],
                lr=settings.learning_rate,
                # One pass over a parameter instead of eight, the same for any number of threads.
                fused=True,
            )
        self._average = RunningAverage(settings.average_decay)
        self._rows: TableOptimizer | None = None
        self._tables: list[Table] = []
        self.set_tables(tables)

    def release_tables(self) -> None:
        """Stop applying gradients to table rows, so that modules can get other tables."""
        if self._rows is not None:
            self._rows.close()
        self._rows, self._tables = None, []

    def set_tables(self, modules: Sequence[TableModule] | None = None) -> None:
        """Use other table modules from now on.

        Args:
            modules: the table modules; None: those that the model has now.
        """
        self.release_tables()
        if modules is None:
            modules = [each for each in self._model.modules() if isinstance(each, TableModule)]
        self._tables = [table for module in modules for table in module.tables]
        self._rows = TableOptimizer(*modules) if modules else None

    def backward(self, loss: Tensor) -> float:
        """Compute the gradients of a loss, replacing earlier ones; return its value, summed over processes.

        A GPU is not synchronized in between. Call :meth:`step` only if the value is finite; it is the same in
        all processes, so that all of them do.

        Args:
            loss: this process's share of the loss of the batch.
        """
        pending = LossOnItsWay(loss)
        for each in (self._optimizer, self._rows):
            if each is not None:
                each.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return self._processes.sum("loss", pending.value())

    def step(self, done: float) -> None:
        """Apply the gradients, when the share ``done`` of the training is over."""
        settings = self._settings
        share = learning_rate_share(settings.schedule, done)
        for table in self._tables:
            table.lr = max(settings.table_learning_rate * share, _LEAST_TABLE_LEARNING_RATE)
        if self._optimizer is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = settings.learning_rate * share
            self._processes.add_gradients(self._model.parameters())
            if settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(self._model.parameters(), settings.clip_norm)
            self._optimizer.step()
        if self._rows is not None:
            self._rows.step()
        if settings.average_decay is not None:
            self._average.add(dict(self._model.named_parameters()))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the moving averages of the parameters, if there are any, while the block runs."""
        if not self._average.count:
            yield
            return
        own = {name: value.detach().clone() for name, value in self._model.named_parameters()}
        self._set_parameters(self._average.mean)
        try:
            yield
        finally:
            self._set_parameters(own)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name."""
        state: dict[str, Tensor] = {}
        if self._optimizer is not None:
            state = {_OPTIMIZER + name: value for name, value in optimizer_tensors(self._optimizer).items()}
        return state | {_AVERAGE + name: value for name, value in self._average.state().items()}

    def restore(self, tensors: Mapping[str, Tensor], tables: Sequence[TableModule] | None = None) -> None:
        """Restore the state that :meth:`tensors` returned, for other table modules.

        Args:
            tensors: the state; other names are ignored.
            tables: see :meth:`set_tables`.
        """
        parts: dict[str, dict[str, Tensor]] = {_OPTIMIZER: {}, _AVERAGE: {}}
        for name, value in tensors.items():
            for prefix, part in parts.items():
                if name.startswith(prefix):
                    part[name.removeprefix(prefix)] = value
        if self._optimizer is not None:
            restore_optimizer(self._optimizer, parts[_OPTIMIZER])
            device = next(self._model.parameters()).device
            self._average.restore(parts[_AVERAGE], device)
        self.set_tables(tables)

    def _set_parameters(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(values[name])
