"""Two trainings in one: the first finds embeddings, and the rows of the second start from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphbox.table import EmbeddingTable
from graphbox.train.loop import Trainer
from graphbox.train.trained import TrainedModel
from graphbox.train.view import GraphView

__all__ = ["PretrainedTrainer"]


class EmbeddingTrainer(Trainer, Protocol):
    """A trainer whose rows are embeddings of nodes."""

    def embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Return the embeddings as they are now: float32 [nodes, dim] by node type."""
        ...


class StartingTrainer(Trainer, Protocol):
    """A trainer whose rows can start from embeddings."""

    def start_from(self, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Let rows start from embeddings: float32 [nodes, dim] by node type."""
        ...


class PretrainedTrainer:
    """Runs the epochs of one trainer, then those of the other; see :class:`graphbox.train.loop.Trainer`.

    Args:
        first: trains the embeddings.
        then: takes them up.
    """

    def __init__(self, first: EmbeddingTrainer, then: StartingTrainer) -> None:
        self._first = first
        self._then = then
        self._started = False

    @property
    def epochs(self) -> int:
        """Number of epochs of both."""
        return self._first.epochs + self._then.epochs

    def loss_name(self, epoch: int) -> str:
        """Return what the loss of an epoch is called."""
        return "pretrain_loss" if self._is_first(epoch) else self._then.loss_name(epoch - self._first.epochs)

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""
        if self._is_first(epoch):
            return self._first.begin_epoch(epoch)
        if not self._started:
            self._then.start_from(self._first.embeddings())
            self._started = True
        return self._then.begin_epoch(epoch - self._first.epochs)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch."""
        if self._is_first(epoch):
            return self._first.train_batch(epoch, batch)
        return self._then.train_batch(epoch - self._first.epochs, batch)

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return figures to report after an epoch."""
        return {} if self._is_first(epoch) else self._then.end_epoch(epoch - self._first.epochs)

    def dense(self) -> dict[str, Tensor]:
        """Return parameters and optimizer state by name; none while the first trains."""
        return self._then.dense() if self._started else self._first.dense()

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding tables of the one that trains."""
        return self._then.tables() if self._started else self._first.tables()

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""
        self._started = bool(dense)
        (self._then if self._started else self._first).restore(dense, tables)

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return what the second trained."""
        return self._then.trained(name, view)

    def _is_first(self, epoch: int) -> bool:
        return epoch < self._first.epochs
