"""Trains LINE (Tang et al., WWW 2015): skip-gram on single edges, of first and second order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import LineConfig
from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable, Table
from graphbox.train.assignment import Assignment
from graphbox.train.row_keys import RowKeys
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import EmbeddingTrainer
from graphbox.train.view import GraphView
from graphbox.train.walks.one_type import one_type_graph
from graphbox.train.walks.skip_gram import SkipGramTrainer, row_budget
from graphbox.train.walks.sources import EdgeSource


class LineTrainer(EmbeddingTrainer):
    """Trains the orders one after another.

    Args:
        orders: the trainer of each order, by its name.
        epochs: number of epochs of each.
        task: name of the task the embeddings are for, or None.
        node_type: node type of the task; None: the first that has edges.
    """

    def __init__(
        self,
        orders: Mapping[str, SkipGramTrainer],
        epochs: int,
        task: str | None = None,
        node_type: str | None = None,
    ) -> None:
        self._orders = dict(orders)
        self._epochs = epochs
        self._task = task
        self._node_type = node_type

    @property
    def device(self) -> torch.device:
        """Where rows are trained."""
        return next(iter(self._orders.values())).device

    def places(self) -> Mapping[str, str]:
        """Return where the rest is done: see :class:`graphbox.train.walks.skip_gram.SkipGramTrainer`."""
        if len(self._orders) == 1:
            return next(iter(self._orders.values())).places()
        return {
            f"{what} of {name}": where
            for name, trainer in self._orders.items()
            for what, where in trainer.places().items()
        }

    @property
    def epochs(self) -> int:
        """Number of epochs of all orders."""
        return self._epochs * len(self._orders)

    def loss_name(self, epoch: int) -> str:
        """Return what the loss of an epoch is called: that of an order."""
        return f"{self._name(epoch)}_loss"

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of groups of batches."""
        return self._orders[self._name(epoch)].begin_epoch(epoch)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train the order whose turn it is."""
        return self._orders[self._name(epoch)].train_batch(epoch, batch)

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return where the edges of a group of batches start."""
        return self._orders[self._name(epoch)].batch_arrays(epoch, batch)

    def dense(self) -> dict[str, Tensor]:
        """Return no parameters: the model has rows alone."""
        return {}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the tables of all orders."""
        return {
            f"{name}.{table}": rows
            for name, trainer in self._orders.items()
            for table, rows in trainer.tables().items()
        }

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of the tables of all orders."""
        return {
            f"{name}.{table}": keys
            for name, trainer in self._orders.items()
            for table, keys in trainer.row_keys().items()
        }

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:
        """Take up the state that :meth:`tables` returned."""
        for name, trainer in self._orders.items():
            own = {
                table.removeprefix(f"{name}."): rows
                for table, rows in tables.items()
                if table.startswith(f"{name}.")
            }
            trainer.restore(dense, own)

    def embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Return the embeddings, those of all orders beside each other: float32 [nodes, dim] by node type."""
        parts = [trainer.embeddings() for trainer in self._orders.values()]
        if len(parts) == 1:
            return parts[0]
        return {
            name: np.concatenate([_of_length_1(part[name]) for part in parts], axis=1) for name in parts[0]
        }

    def close(self) -> None:
        """Let the tables go, so that they can be closed."""
        for trainer in self._orders.values():
            trainer.close()

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - rows know their nodes alone
        """Return the embeddings as a trained model."""
        embeddings = self.embeddings()
        node_type = self._node_type or next(iter(embeddings))
        return TrainedModel(name, "embedding", self._task, node_type, embeddings)

    def _name(self, epoch: int) -> str:
        return list(self._orders)[min(epoch // self._epochs, len(self._orders) - 1)]


def make_line_trainer(config: LineConfig, assignment: Assignment) -> LineTrainer:
    """Return the trainer of a section of kind ``line``.

    Raises:
        UsageError: an order twice, or an odd ``dim`` for two.
    """
    orders: Sequence[int] = config.orders
    if len(set(orders)) != len(orders):
        raise UsageError(
            "expected each order once, received one twice", where=f"models.{assignment.name}.orders"
        )
    if config.dim % len(orders):
        raise UsageError(
            f"expected an even dim for two orders, received {config.dim}",
            where=f"models.{assignment.name}.dim",
        )
    graph = one_type_graph(assignment.view, config.edge_types, weighted=config.weighted)
    tables = sum(2 if order == 2 else 1 for order in orders)  # nodes have one row of the first order
    room = row_budget(assignment.memory, assignment.kernel_device)
    shares = {order: (2 if order == 2 else 1) / tables for order in orders}
    trainers = {
        f"order_{order}": SkipGramTrainer(
            EdgeSource(
                graph, batch_size=config.batch_size, seed=assignment.seed + order, threads=assignment.threads
            ),
            config,
            dim=config.dim // len(orders),
            epochs=config.epochs,
            seed=assignment.seed + order,
            one_table=order == 1,
            threads=assignment.threads,
            clock=assignment.clock,
            memory=assignment.memory,
            place=f"order_{order}.",
            share=shares[order],
            device=assignment.kernel_device,
            row_bytes=None if room is None else int(room * shares[order]),
        )
        for order in orders
    }
    node_type = None if assignment.split is None else assignment.split.node_type
    return LineTrainer(trainers, config.epochs, config.task, node_type)


def _of_length_1(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1.0), dtype=np.float32)
