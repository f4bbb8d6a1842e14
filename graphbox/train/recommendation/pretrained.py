"""Two trainings in one: the first finds embeddings, and the rows of the second start from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.device import device_in_words
from graphbox.table import Table
from graphbox.train.row_keys import RowKeys
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import EmbeddingTrainer, PretrainableTrainer, Selection, Trainer
from graphbox.train.view import GraphView


class PretrainedTrainer(Trainer):
    """Runs the epochs of one trainer, then those of the other.

    Args:
        first: trains the embeddings.
        then: takes them up.
    """

    def __init__(self, first: EmbeddingTrainer, then: PretrainableTrainer) -> None:
        self._first = first
        self._then = then
        self._started = False

    @property
    def epochs(self) -> int:
        """Number of epochs of both."""
        return self._first.epochs + self._then.epochs

    @property
    def selection(self) -> Selection | None:
        """Selection of the final state, by the second trainer."""
        return self._then.selection

    @property
    def device(self) -> torch.device:
        """Where the second computes."""
        return self._then.device

    def places(self) -> Mapping[str, str]:
        """Return where the rest of the second is done, and where the first computed."""
        return {"pretraining": device_in_words(self._first.device), **self._then.places()}

    def loss_name(self, epoch: int) -> str:
        """Return what the loss of an epoch is called."""
        return "pretrain_loss" if self._is_first(epoch) else self._then.loss_name(epoch - self._first.epochs)

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""
        if self._is_first(epoch):
            return self._first.begin_epoch(epoch)
        if not self._started:
            embeddings = self._first.embeddings()
            self._first.close()  # what it has of a GPU's memory is for the second
            self._then.use_pretrained(embeddings)
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

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return what a batch is made of by name."""
        if self._is_first(epoch):
            return self._first.batch_arrays(epoch, batch)
        return self._then.batch_arrays(epoch - self._first.epochs, batch)

    def dense(self) -> dict[str, Tensor]:
        """Return parameters and optimizer state by name; none while the first trains."""
        return self._then.dense() if self._started else self._first.dense()

    def tables(self) -> Mapping[str, Table]:
        """Return the embedding tables of the one that trains."""
        return self._then.tables() if self._started else self._first.tables()

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""
        self._started = bool(dense)
        if self._started:
            self._first.close()
        (self._then if self._started else self._first).restore(dense, tables)

    def row_keys(self) -> Mapping[str, RowKeys] | None:
        """Return the keys of the tables of the second, in whose state a training ends."""
        return self._then.row_keys()

    def inputs(self) -> Mapping[str, Sequence[str]]:
        """Return what the weights of the second read."""
        return self._then.inputs()

    def weight_categories(self) -> Mapping[str, Sequence[str]]:
        """Return the names that the rows of weights of the second belong to."""
        return self._then.weight_categories()

    def close(self) -> None:
        """End the threads of both."""
        self._first.close()
        self._then.close()

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return what the second trained."""
        return self._then.trained(name, view)

    def _is_first(self, epoch: int) -> bool:
        return epoch < self._first.epochs
