"""Interface of trainers, between the loop and the kinds of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.table import Table
from graphbox.train.row_keys import RowKeys
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView


@dataclass(frozen=True)
class Selection:
    """Rule that selects the final state of a model.

    Attributes:
        metric: figure of :meth:`Trainer.end_epoch` that decides; larger is better, of equals the first.
        patience: epochs that are measured in a row without a better figure, after which training ends; None:
            all epochs are trained.
        smaller_is_better: the smallest figure is the best instead.
    """

    metric: str
    patience: int | None = None
    smaller_is_better: bool = False


class Trainer(ABC):
    """Trains one model, batch by batch.

    What a batch does depends on the state and on (epoch, batch) alone, never on how the process came there:
    so a training that goes on from a checkpoint ends like one that never stopped. A batch whose loss is no
    finite number changes nothing.
    """

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Number of epochs."""

    @property
    def selection(self) -> Selection | None:
        """Rule that selects the model's final state; None: the last."""
        return None

    @property
    def is_endless(self) -> bool:
        """Whether further epochs may come, in this attempt or a later one; a checkpoint follows each."""
        return False

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return CPU

    @property
    def sums_in_order(self) -> bool:
        """Whether a GPU is to take the kernels that give the same bits each time, though they are slower."""
        return True

    def places(self) -> Mapping[str, str]:
        """Return where the rest is done, for the record of the run: by what, the device and why, in words."""
        return {}

    def has_epoch(self, epoch: int) -> bool:
        """Return whether there is an epoch of this number; may wait for it."""
        return epoch < self.epochs

    def epoch_in_words(self, epoch: int) -> str:
        """Return what an epoch is called in messages."""
        return f"epoch {epoch + 1} of {self.epochs}"

    def loss_name(self, epoch: int) -> str:  # noqa: ARG002 - for those whose losses change
        """Return what the loss of an epoch is called among the figures."""
        return "loss"

    def loss_place(self) -> str:
        """Return where the code of the loss is, for messages; empty: it is graphbox's own."""
        return ""

    @abstractmethod
    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""

    @abstractmethod
    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch; return its mean loss and the number of positives in it."""

    def end_epoch(self, epoch: int) -> Mapping[str, float]:  # noqa: ARG002 - for those that measure
        """Return figures to report after an epoch, such as a validation metric."""
        return {}

    def before_checkpoint(self) -> None:  # noqa: B027 - for those that write elsewhere as well
        """Prepare for a checkpoint, which then takes :meth:`dense` and :meth:`tables`."""

    def after_checkpoint(self) -> None:  # noqa: B027 - for those that write elsewhere as well
        """Do what must not be done before a checkpoint is on disk; it may be done twice."""

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:  # noqa: ARG002
        """Return what a batch is made of by name, for a person who wants to know why it failed."""
        return {}

    @abstractmethod
    def dense(self) -> dict[str, Tensor]:
        """Return parameters and optimizer state by name."""

    @abstractmethod
    def tables(self) -> Mapping[str, Table]:
        """Return the embedding tables by name."""

    @abstractmethod
    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""

    # ------------------------------------------------------- starting from an earlier run

    def row_keys(self) -> Mapping[str, RowKeys] | None:
        """Return what the keys of each table stand for; None: models cannot start from an earlier run."""
        return None

    def inputs(self) -> Mapping[str, Sequence[str]]:
        """Return names of what the weights read, in their order, by what they are, such as features.

        A model starts from an earlier one only if these are the same.
        """
        return {}

    def weight_categories(self) -> Mapping[str, Sequence[str]]:
        """Return the names that the rows of weights belong to, by name of the weight, such as categories."""
        return {}

    def starting_state(
        self,
        earlier: Mapping[str, Tensor],  # noqa: ARG002 - for those with weights
        categories: Mapping[str, Sequence[str]],  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return :meth:`dense` with the weights of an earlier model of the kind; default: without any.

        Args:
            earlier: what :meth:`dense` returned at the end of its training.
            categories: what its :meth:`weight_categories` returned.

        Raises:
            UsageError: the weights have other names or shapes; the message names what differs.
        """
        return self.dense()

    def starting_rows(
        self,
        name: str,  # noqa: ARG002 - for those that keep more than tables
        table: Table,  # noqa: ARG002
        earlier: Mapping[str, Tensor],  # noqa: ARG002
    ) -> NDArray[np.float32] | None:
        """Return the values that rows of an earlier table ended with, if they are not those in the table.

        Args:
            name: of the table.
            table: the earlier table.
            earlier: see :meth:`starting_state`.

        Returns:
            float32 [keys, dim] by key; None: the rows are as they are in the table.
        """
        return None

    def close(self) -> None:  # noqa: B027 - for those with threads
        """End the threads that make batches ahead, and let the tables go: nothing is trained any more."""

    @abstractmethod
    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return what was trained as the model ``name``; vectors come from the graph as ``view`` shows it."""


class EmbeddingTrainer(Trainer):
    """A trainer whose rows are embeddings of nodes."""

    @abstractmethod
    def embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Return the embeddings as they are now: float32 [nodes, dim] by node type."""


class PretrainableTrainer(Trainer):
    """A trainer whose rows can start from embeddings that another trainer of the same run learns first."""

    @abstractmethod
    def use_pretrained(self, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Let rows start from embeddings: float32 [nodes, dim] by node type."""
