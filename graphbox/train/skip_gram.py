"""Trains skip-gram embeddings on metapath walks (Dong et al., KDD 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import Metapath2VecConfig, SkipGramSection
from graphbox.graph.schema import EdgeType
from graphbox.models.skip_gram import NodeKeys, SkipGram
from graphbox.sample import NegativeSampler, keep_probability, permutation, random_walk, walk_pairs
from graphbox.table import EmbeddingTable
from graphbox.train.registry import Assignment
from graphbox.train.stage_clock import StageClock
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import EmbeddingTrainer
from graphbox.train.view import GraphView

__all__ = ["SkipGramTrainer", "make_skip_gram_trainer"]

_CENTER, _CONTEXT = "center", "context"
_VISITS_EPOCH = 2**31
"""Epoch number of the walks that count visits, which is no training epoch's."""


class SkipGramTrainer(EmbeddingTrainer):
    """See the module.

    Reads edges only, no feature.

    Args:
        view: the graph as training sees it.
        config: how to walk and to learn.
        dim: length of an embedding.
        seed: seed of every random choice.
        task: name of the task the embeddings are for, or None.
        node_type: node type of the task; None: the first that walks visit.
        threads: threads of walks and tables; those of torch are set elsewhere.
        clock: measures the stages.

    Raises:
        UsageError: the graph lacks an edge type of a metapath, or the steps do not meet.
    """

    def __init__(
        self,
        view: GraphView,
        config: SkipGramSection,
        *,
        dim: int,
        seed: int,
        task: str | None = None,
        node_type: str | None = None,
        threads: int | None = None,
        clock: StageClock | None = None,
    ) -> None:
        self._view = view
        self._clock = clock or StageClock()
        self._task = task
        self._node_type = node_type
        self._dim = dim
        self._config = config
        self._seed = seed
        self._threads = threads
        self._keys = NodeKeys({name: view.num_nodes(name) for name in view.node_types})
        self._metapaths: list[Sequence[EdgeType]] = list(config.metapaths)
        self._starts = [view.num_nodes(path[0][0]) for path in self._metapaths]
        self._first_key = {name: self._keys.start(name) for name in view.node_types}
        visits = self._visits()
        self._keep = keep_probability(visits, config.subsample) if config.subsample else np.ones(len(visits))
        self._negatives = NegativeSampler(visits * self._keep, config.negative_exponent, seed)
        self._orders: list[NDArray[np.int64]] = []
        self._model = SkipGram(self._new_table(_CENTER), self._new_table(_CONTEXT))

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self._config.epochs

    def begin_epoch(self, epoch: int) -> int:
        """Put the starts of each metapath in a new order and return the number of batches."""
        walks = [self._config.walks_per_node * nodes for nodes in self._starts]
        self._orders = [
            permutation(count, self._seed + number, epoch) % nodes
            for number, (count, nodes) in enumerate(zip(walks, self._starts, strict=True))
        ]
        return max(math.ceil(count / self._config.batch_size) for count in walks)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on the walks from the next starts of every metapath."""
        with self._clock.stage("sample"):
            centers, contexts = self._pairs(epoch, batch)
            if not len(centers):
                return 0.0, 0
            changes = np.concatenate([[True], centers[1:] != centers[:-1]])
            negatives = self._negatives.sample(self._config.negatives, epoch, batch, self._threads)
        with self._clock.stage("compute"):
            self._model.train()
            loss = self._model(
                torch.from_numpy(centers[changes]),
                torch.from_numpy(np.cumsum(changes) - 1),
                torch.from_numpy(contexts),
                torch.from_numpy(negatives),
                self._config.negative_weight,
            )
            value = float(loss.item())
            if math.isfinite(value):  # the loop stops at any other, before the rows take it up
                loss.backward()
        return value, len(contexts)

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the pairs of a batch."""
        centers, contexts = self._pairs(epoch, batch)
        return {"centers": centers, "contexts": contexts}

    def dense(self) -> dict[str, Tensor]:
        """Return no parameters: the model has rows alone."""
        return {}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the tables of centres and contexts."""
        return {_CENTER: self._model.center.table, _CONTEXT: self._model.context.table}

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:  # noqa: ARG002
        """Take up the state that :meth:`tables` returned."""
        self._model = SkipGram(tables[_CENTER], tables[_CONTEXT])

    def embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Return the embeddings of the node types that the metapaths visit: float32 [nodes, dim] each."""
        visited = dict.fromkeys(edge[end] for path in self._metapaths for edge in path for end in (0, 2))
        table = self._model.center.table
        return {
            name: np.asarray(table.pull(self._keys.keys(name), create=False), dtype=np.float32)
            for name in self._view.node_types
            if name in visited
        }

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - rows know their nodes alone
        """Return the embeddings as a trained model."""
        embeddings = self.embeddings()
        node_type = self._node_type or next(iter(embeddings))
        return TrainedModel(name, "embedding", self._task, node_type, embeddings)

    def _pairs(self, epoch: int, batch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return centres and contexts of a batch as keys, pairs of one centre next to each other."""
        size = self._config.batch_size
        starts = [order[batch * size : (batch + 1) * size] for order in self._orders]
        chunks = walk_pairs(
            self._view,
            np.concatenate(starts),
            self._config.walk_length,
            self._config.window,
            metapaths=self._metapaths,
            metapath_of=np.repeat(np.arange(len(starts)), [len(each) for each in starts]),
            type_offsets=self._first_key,
            subsample=self._keep,
            seed=self._seed,
            epoch=epoch,
            batch=batch,
            threads=self._threads,
        )
        pairs = np.concatenate([np.zeros((2, 0), np.int64), *chunks], axis=1)
        center, context = pairs[:, pairs[0] != pairs[1]]  # a walk may come back
        return center, context

    def _visits(self) -> NDArray[np.float64]:
        """Return how often one walk from each start visits each key: float64 [keys]."""
        visits = np.zeros(self._keys.total)
        length = self._config.walk_length
        for path, nodes in zip(self._metapaths, self._starts, strict=True):
            walks = random_walk(
                self._view,
                np.arange(nodes),
                length,
                metapath=path,
                seed=self._seed,
                epoch=_VISITS_EPOCH,
                threads=self._threads,
            )
            types = [path[0][0], *(path[step % len(path)][2] for step in range(length))]
            keys = (walks + [self._first_key[name] for name in types])[walks >= 0]
            visits += np.bincount(keys, minlength=self._keys.total)
        return visits

    def _new_table(self, name: str) -> EmbeddingTable:
        # Contexts start at nothing, as in word2vec: then centres are apart only where the walks say so.
        context = name == _CONTEXT
        return EmbeddingTable(
            self._dim,
            "rowwise_adagrad",
            self._config.learning_rate,
            init_scale=0.0 if context else 0.5 / self._dim**0.5,
            seed=self._seed + context,
            threads=self._threads,
        )


def make_skip_gram_trainer(config: Metapath2VecConfig, assignment: Assignment) -> SkipGramTrainer:
    """Return the trainer of a section of kind ``metapath2vec``."""
    return SkipGramTrainer(
        assignment.view,
        config,
        dim=config.dim,
        seed=assignment.seed,
        task=config.task,
        node_type=None if assignment.split is None else assignment.split.node_type,
        threads=assignment.threads,
        clock=assignment.clock,
    )
