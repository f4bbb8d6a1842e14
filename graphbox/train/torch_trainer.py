"""Trains torch modules over table rows: the steps that all such kinds of models share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from graphbox.table import Table
from graphbox.table.module import TableModule
from graphbox.train.assignment import Assignment
from graphbox.train.matched_weights import matched_weights
from graphbox.train.optimization import Optimization, OptimizerSettings, averaged_values
from graphbox.train.seeded import seeded
from graphbox.train.trainer import Selection, Trainer

__all__ = ["START_STREAM", "TorchTrainer"]

Batch = TypeVar("Batch")

START_STREAM, _BATCH_STREAM = 1, 2
"""Purposes of torch's random draws: the parameters before training, and dropout in a batch."""

_MODEL = "model."

_RELEASE_INTERVAL_S = 1.0
"""Between releases of free pages under budgets: the heap fragments over hundreds of batches."""


class TorchTrainer(Trainer, Generic[Batch]):
    """Trains a torch module and the table rows it looks up, one optimizer step per batch.

    A kind of model provides the module (:meth:`set_network`), its batches (:meth:`open_epoch`, :meth:`draw`),
    their loss (:meth:`loss`) and, to select the best state, figures of the validation part
    (:meth:`measured`). This class provides learning-rate schedules, clipping, averages, the check for
    non-finite losses, the stage clock, training in several processes, and checkpoints.

    Args:
        assignment: what the model is trained for.
        settings: learning rates, schedule, clipping and averaging.
        epochs: most epochs.
        validate_every: epochs between measurements on the validation part.
        selection: which state the model ends as; None: the last.
    """

    network: nn.Module

    def __init__(
        self,
        assignment: Assignment,
        settings: OptimizerSettings,
        *,
        epochs: int,
        validate_every: int = 1,
        selection: Selection | None = None,
    ) -> None:
        self._seed = assignment.seed
        self._threads = assignment.threads
        self._clock = assignment.clock
        self._memory = assignment.memory
        self._device = assignment.device
        self._processes = assignment.processes
        self._settings = settings
        self._epochs = epochs
        self._validate_every = validate_every
        self._selection = selection
        self._num_batches = 0
        self._memory.release_free_pages()

    # ------------------------------------------------------------- given by a kind of model

    @abstractmethod
    def open_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""

    @abstractmethod
    def draw(self, epoch: int, batch: int) -> Batch:
        """Return what a batch is made of; it depends on the numbers alone."""

    @abstractmethod
    def loss(self, drawn: Batch, epoch: int, batch: int) -> tuple[Tensor, int]:
        """Return the loss of a batch, and the number of examples that it is the mean of.

        In several processes: this process's share of the loss (``TrainingProcesses.share``), and the number
        of examples in all of them.
        """

    @abstractmethod
    def table_modules(self) -> Mapping[str, TableModule]:
        """Return the modules of the tables, by the names that checkpoints give these."""

    @abstractmethod
    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Let the modules look rows up in other tables, of the same names."""

    def learnt(self, drawn: Batch) -> None:
        """React to an optimizer step that a batch led to."""

    def epoch_ends(self, epoch: int) -> None:
        """React to the end of an epoch, before it is measured."""

    def measures(self) -> bool:
        """Return whether there is a validation part to measure."""
        return self._selection is not None

    def measured(self) -> Mapping[str, float]:
        """Return figures of the validation part; the network is in evaluation mode, gradients are off."""
        return {}

    def extra_state(self) -> Mapping[str, Tensor]:
        """Return further state by name; no name may begin with ``model.``, ``optimizer.`` or ``average.``."""
        return {}

    def restore_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`extra_state` returned; ``state`` has other entries as well."""

    def done(self, epoch: int, batch: int) -> float:
        """Return the share of the training that is over before a batch."""
        return (epoch + batch / self._num_batches) / self._epochs

    # ----------------------------------------------------------------------- common to all

    def set_network(
        self,
        network: nn.Module,
        groups: Callable[[], Sequence[tuple[Sequence[nn.Parameter], float]]] | None = None,
    ) -> None:
        """Train a module; its tables must be in place.

        Args:
            network: the module, which is moved to the device of the training.
            groups: returns its parameters in groups once it is there, see :class:`Optimization`.
        """
        self.network = network.to(self._device)
        self._optimization = Optimization(
            self.network,
            self._settings,
            None if groups is None else groups(),
            tables=list(self.table_modules().values()),
            processes=self._processes,
        )

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self._device

    @property
    def epochs(self) -> int:
        """Most epochs."""
        return self._epochs

    @property
    def selection(self) -> Selection | None:
        """Rule that selects the model's final state."""
        return self._selection

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""
        self._num_batches = self.open_epoch(epoch)
        self._memory.release_free_pages()
        return self._num_batches

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch; return its mean loss and the number of examples in it."""
        return self._train_on(epoch, batch, self.done(epoch, batch))

    def _train_on(self, epoch: int, batch: int, done: float) -> tuple[float, int]:
        with self._clock.stage("sample"):
            drawn = self.draw(epoch, batch)
        return self._learn(drawn, epoch, batch, done)

    def _learn(self, drawn: Batch, epoch: int, batch: int, done: float) -> tuple[float, int]:
        """Take an optimizer step for a batch, unless its loss is not finite: then nothing changes."""
        self.network.train()
        seeds = (self._seed, _BATCH_STREAM, epoch, batch, *self._processes.seeds())
        with self._clock.stage("compute"), seeded(*seeds, device=self._device):
            loss, count = self.loss(drawn, epoch, batch)
            value = self._optimization.backward(loss)
        if math.isfinite(value):
            with self._clock.stage("push"):
                self._optimization.step(done)
                self.learnt(drawn)
        self._memory.release_free_pages(interval_s=_RELEASE_INTERVAL_S)
        return value, count

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return figures of the validation part, every few epochs and after the last."""
        self.epoch_ends(epoch)
        self._memory.release_free_pages()
        if not self.measures() or ((epoch + 1) % self._validate_every and epoch + 1 != self._epochs):
            return {}
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            return self.measured()

    def dense(self) -> dict[str, Tensor]:
        """Return parameters, buffers, optimizer state, averages and extra state by name."""
        values = {_MODEL + name: value for name, value in self._values().items()}
        return {**values, **self._optimization.tensors(), **self.extra_state()}

    def tables(self) -> dict[str, Table]:
        """Return the embedding tables by name."""
        return self._memory.kept({name: module.tables[0] for name, module in self.table_modules().items()})

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:
        """Restore the state that :meth:`dense` and :meth:`tables` returned."""
        self.close()
        with torch.no_grad():
            for name, value in self._values().items():
                value.copy_(dense[_MODEL + name])
        self._optimization.release_tables()
        self.set_tables(self._memory.near(tables))
        self._optimization.restore(dense, list(self.table_modules().values()))
        self.restore_extra_state(dense)

    def starting_state(
        self, earlier: Mapping[str, Tensor], categories: Mapping[str, Sequence[str]]
    ) -> dict[str, Tensor]:
        """Return the state before training with the weights of an earlier model, without its optimizer state.

        Raises:
            UsageError: the weights have other names or shapes.
        """
        weights = matched_weights(
            self._values(), self.final_weights(earlier), self.weight_categories(), categories
        )
        return {**self.dense(), **{_MODEL + name: value for name, value in weights.items()}}

    def final_weights(self, earlier: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights that an earlier training ended with, by name: averages where it kept them.

        Args:
            earlier: what :meth:`dense` returned then.
        """
        averages = averaged_values(earlier)
        named = ((name.removeprefix(_MODEL), value) for name, value in earlier.items())
        return {name: averages.get(name, value) for name, value in named if _MODEL + name in earlier}

    def _values(self) -> dict[str, Tensor]:
        """Return parameters and persistent buffers by name, without those of table modules."""
        of_tables = tuple(
            name for name, module in self.network.named_modules() if isinstance(module, TableModule)
        )
        named = [*self.network.named_parameters(), *self.network.named_buffers()]
        return {name: value.detach() for name, value in named if name.rpartition(".")[0] not in of_tables}
