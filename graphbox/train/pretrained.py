"""Two trainings in one: skip-gram finds embeddings, and the rows of a GraphSAGE start from them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from graphbox.table import EmbeddingTable
from graphbox.train.sage import SageTrainer
from graphbox.train.skip_gram import SkipGramTrainer

__all__ = ["PretrainedTrainer"]


class PretrainedTrainer:
    """Runs the epochs of one trainer, then those of the other; see :class:`graphbox.train.loop.Trainer`.

    Args:
        first: trains the embeddings.
        then: takes them up.
    """

    def __init__(self, first: SkipGramTrainer, then: SageTrainer) -> None:
        self._first = first
        self.then = then
        self._started = False

    @property
    def epochs(self) -> int:
        """Number of epochs of both."""
        return self._first.epochs + self.then.epochs

    def loss_name(self, epoch: int) -> str:
        """Return what the loss of an epoch is called."""
        return "pretrain_loss" if self._is_first(epoch) else self.then.loss_name(epoch - self._first.epochs)

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""
        if self._is_first(epoch):
            return self._first.begin_epoch(epoch)
        if not self._started:
            self.then.start_from(self._first.embeddings())
            self._started = True
        return self.then.begin_epoch(epoch - self._first.epochs)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch."""
        if self._is_first(epoch):
            return self._first.train_batch(epoch, batch)
        return self.then.train_batch(epoch - self._first.epochs, batch)

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return figures to report after an epoch."""
        return {} if self._is_first(epoch) else self.then.end_epoch(epoch - self._first.epochs)

    def dense(self) -> dict[str, Tensor]:
        """Return parameters and optimizer state by name; none while the first trains."""
        return self.then.dense() if self._started else self._first.dense()

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding tables of the one that trains."""
        return self.then.tables() if self._started else self._first.tables()

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""
        self._started = bool(dense)
        (self.then if self._started else self._first).restore(dense, tables)

    def _is_first(self, epoch: int) -> bool:
        return epoch < self._first.epochs
