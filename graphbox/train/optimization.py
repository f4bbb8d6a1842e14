"""How parameters and table rows learn: steps of both together, schedules, clipping, and averages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from graphbox.config.models.optimization import LearningRateSchedule, OptimizationSection
from graphbox.table import EmbeddingTable, TableOptimizer
from graphbox.table.module import TableModule
from graphbox.train.checkpoint import optimizer_tensors, restore_optimizer
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.transfer import LossOnItsWay

__all__ = [
    "Optimization",
    "RunningAverage",
    "find_gradients",
    "learning_rate_share",
    "set_learning_rates",
    "set_table_learning_rates",
]

_OPTIMIZER, _AVERAGE, _COUNT = "optimizer.", "average.", "count"

_LEAST_TABLE_LEARNING_RATE = 1e-12
"""A table has no learning rate of nothing, which the first step of a warm-up would be."""


def learning_rate_share(config: LearningRateSchedule, done: float) -> float:
    """Return by what the learning rates are multiplied when the share ``done`` of the training is over."""
    if done < config.warmup:
        return done / config.warmup
    if config.schedule == "constant":
        return 1.0
    fallen = (done - config.warmup) / (1.0 - config.warmup)
    lost = fallen if config.schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * fallen))
    return 1.0 - lost * (1.0 - config.final_learning_rate)


def set_learning_rates(
    optimizer: torch.optim.Optimizer, config: LearningRateSchedule, learning_rate: float, done: float
) -> None:
    """Give all parameters of an optimizer their learning rate when the share ``done`` is over.

    Args:
        optimizer: what has the parameters.
        config: the schedule.
        learning_rate: that of the start.
        done: share of the training that is over.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * learning_rate_share(config, done)


def set_table_learning_rates(
    tables: Iterable[EmbeddingTable], config: LearningRateSchedule, learning_rate: float, done: float
) -> None:
    """Give tables their learning rate when the share ``done`` of the training is over.

    Args:
        tables: the tables.
        config: the schedule.
        learning_rate: that of the start.
        done: share of the training that is over.
    """
    for table in tables:
        table.lr = max(learning_rate * learning_rate_share(config, done), _LEAST_TABLE_LEARNING_RATE)


def find_gradients(
    loss: Tensor, optimizers: Iterable[torch.optim.Optimizer], processes: TrainingProcesses = ALONE
) -> float:
    """Find the gradients of a loss in the place of those before; return its value, in all processes.

    A GPU is not waited for in between. The gradients of a loss that is no finite number are to be forgotten:
    no step must follow. It is found in all processes alike, so that they come to the same collectives.

    Args:
        loss: of this process's part of a batch, its share of that of the batch.
        optimizers: what has the gradients.
        processes: which learn together.
    """
    on_its_way = LossOnItsWay(loss)
    for each in optimizers:
        each.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return processes.sum("loss", on_its_way.value())


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
    """Lets a model learn: its parameters by Adam, the rows of its tables by the tables' own optimizer.

    Args:
        model: the model.
        config: how it learns.
        groups: its parameters in groups, each with its weight decay.
        processes: which learn together, each from its part of a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizationSection,
        groups: Sequence[tuple[Sequence[nn.Parameter], float]],
        processes: TrainingProcesses = ALONE,
    ) -> None:
        self._model = model
        self._processes = processes
        self._config = config
        self._optimizer = torch.optim.Adam(
            [{"params": list(parameters), "weight_decay": decay} for parameters, decay in groups],
            lr=config.learning_rate,
        )
        self._average = RunningAverage(config.average_decay)
        self._rows: TableOptimizer | None = None
        self.reset_tables()

    def reset_tables(self) -> None:
        """Take up the tables that the model has now."""
        if self._rows is not None:
            self._rows.close()
        modules = [each for each in self._model.modules() if isinstance(each, TableModule)]
        self._tables = [table for module in modules for table in module.tables]
        self._rows = TableOptimizer(*modules) if modules else None

    def backward(self, loss: Tensor) -> float:
        """Find the gradients of a loss; return its value in all processes: see :func:`find_gradients`."""
        return find_gradients(loss, self._optimizers(), self._processes)

    def step(self, done: float) -> None:
        """Apply the gradients, when the share ``done`` of the training is over."""
        config = self._config
        set_learning_rates(self._optimizer, config, config.learning_rate, done)
        set_table_learning_rates(self._tables, config, config.table_learning_rate, done)
        self._processes.add_gradients(self._model.parameters())
        if config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), config.clip_norm)
        self._optimizer.step()
        if self._rows is not None:
            self._rows.step()
        if config.average_decay is not None:
            self._average.add(dict(self._model.named_parameters()))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the parameters their moving average while the block runs; without one they stay."""
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
        state = {_OPTIMIZER + name: value for name, value in optimizer_tensors(self._optimizer).items()}
        return state | {_AVERAGE + name: value for name, value in self._average.state().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the state that :meth:`tensors` returned."""
        parts: dict[str, dict[str, Tensor]] = {_OPTIMIZER: {}, _AVERAGE: {}}
        for name, value in tensors.items():
            for prefix, part in parts.items():
                if name.startswith(prefix):
                    part[name.removeprefix(prefix)] = value
        restore_optimizer(self._optimizer, parts[_OPTIMIZER])
        self._average.restore(parts[_AVERAGE], next(self._model.parameters()).device)
        self.reset_tables()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [self._optimizer] if self._rows is None else [self._optimizer, self._rows]

    def _set_parameters(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(values[name])
