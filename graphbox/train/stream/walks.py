"""DeepWalk and node2vec from a stream: the nodes that a chunk touches walk over the graph as it is then."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import DeepWalkConfig, Node2VecConfig
from graphbox.errors import UsageError
from graphbox.graph.schema import EdgeType
from graphbox.models.node_keys import NodeKeys
from graphbox.sample import permutation
from graphbox.skip_gram.walkers import WalkBatches, even_offsets
from graphbox.table import EmbeddingTable, Table
from graphbox.table.host_table import host_table
from graphbox.train.assignment import Assignment
from graphbox.train.row_keys import RowKeys
from graphbox.train.stream.chunk import Chunk
from graphbox.train.stream.non_edges import draw_non_edges
from graphbox.train.stream.target_ranks import target_ranks
from graphbox.train.stream.trainer import ChunkScores, StreamingTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.view import GraphView
from graphbox.train.walks.one_type import OneTypeGraph, one_type_graph
from graphbox.train.walks.skip_gram import SkipGramTrainer
from graphbox.train.walks.sources import OneTypeSource


class InterleavedKeys(NodeKeys):
    """A numbering in which a node keeps its key while others come: the types take turns.

    Args:
        num_nodes: number of nodes by type; the types are the same for ever.
    """

    def __init__(self, num_nodes: Mapping[str, int]) -> None:
        super().__init__(num_nodes)
        self._place = {name: place for place, name in enumerate(self.num_nodes)}
        self.total = max(self.num_nodes.values(), default=0) * len(self.num_nodes)

    def of(self, node_type: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys of some nodes of a type: int64 [n]."""
        return index * len(self._place) + self._place[node_type]


class _TouchedSource(OneTypeSource):
    """Walks from some nodes alone."""

    def __init__(self, graph: OneTypeGraph, touched: NDArray[np.int64], **options: Any) -> None:
        super().__init__(graph, **options)
        self._touched = touched

    def batches(self, epoch: int) -> WalkBatches:
        """Return the touched nodes in a new order, each as often as it walks."""
        count = len(self._touched)
        order = permutation(self._walks_per_node * count, self._seed, epoch) % count
        return WalkBatches(self._touched[order], even_offsets(len(order), self._batch_size))


class StreamingWalks(StreamingTrainer):
    """See the module.

    The nodes at the ends of a chunk's new edges are where walks start; the walks see all edges there are. New
    edges are scored by the cosine of the embeddings. A chunk costs its walks, and one look at all edges.

    Args:
        config: the model's section of the run file; ``epochs`` are passes over each chunk's nodes.
        assignment: what it is trained for.
    """

    def __init__(self, config: DeepWalkConfig, assignment: Assignment) -> None:
        self._config, self._assignment = config, assignment
        self._seed, self._clock = assignment.seed, assignment.clock
        self._types = sorted({edge[end] for edge in config.edge_types for end in (0, 2)})
        self._tables = {name: self._new_table(number) for number, name in enumerate(("center", "context"))}
        self._inner: SkipGramTrainer | None = None
        self._groups, self._epoch = 0, -1

    def score_chunk(self, chunk: Chunk) -> ChunkScores | None:
        """Return the cosines of the chunk's edges and of as many pairs that no edge joins."""
        generator = np.random.default_rng([self._seed, chunk.number])
        labels, scores, ranks = [], [], []
        for edge_type in self._followed(chunk):
            edges = chunk.edges.get(edge_type)
            if edges is None:
                continue
            new = np.stack([edges.source, edges.target], axis=1)
            others = draw_non_edges(chunk.view, [edge_type], edges.source, generator)
            for pairs, label in ((new, True), (others, False)):
                labels.append(np.full(len(pairs), label))
                scores.append(self._cosine(edge_type, pairs))
            towers = tuple(partial(self._unit_rows, edge_type[end]) for end in (0, 2))
            ranks.append(
                target_ranks(chunk.view, edge_type, [edge_type], new, (towers[0], towers[1]), generator)
            )
        if not labels:
            return None
        return ChunkScores(np.concatenate(labels), np.concatenate(scores), ranks=np.concatenate(ranks))

    def _unit_rows(self, node_type: str, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows of nodes, of length 1: float32 [n, dim]."""
        rows = self._rows(InterleavedKeys(dict.fromkeys(self._types, 0)).of(node_type, nodes))
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(length > 0, length, 1.0), np.float32)

    def _cosine(self, edge_type: EdgeType, pairs: NDArray[np.int64]) -> NDArray[np.float32]:
        keys = InterleavedKeys(dict.fromkeys(self._types, 0))
        ends = ((edge_type[0], pairs[:, 0]), (edge_type[2], pairs[:, 1]))
        first, second = (torch.from_numpy(self._rows(keys.of(name, index))) for name, index in ends)
        return np.asarray(functional.cosine_similarity(first, second, dim=1).numpy(), dtype=np.float32)

    def _rows(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = np.asarray(self._tables["center"].pull(keys, create=False), dtype=np.float32)
        if self._config.context_share:
            contexts = np.asarray(self._tables["context"].pull(keys, create=False), dtype=np.float32)
            rows += np.float32(self._config.context_share) * contexts
        return rows

    def open_chunk(self, chunk: Chunk) -> int:
        """Prepare the walks of the nodes that a chunk touches and return the number of groups of them."""
        config, assignment = self._config, self._assignment
        followed = self._followed(chunk)
        view = chunk.view
        known = set(view.node_types)
        keys = InterleavedKeys({name: view.num_nodes(name) if name in known else 0 for name in self._types})
        ends = [
            keys.of(edge_type[end], index)
            for edge_type, edges in chunk.edges.items()
            if edge_type in followed
            for end, index in ((0, edges.source), (2, edges.target))
        ]
        self._inner, self._groups, self._epoch = None, 0, -1
        if not ends:
            return 0
        graph = one_type_graph(view, followed, weighted=config.weighted, keys=keys)
        touched = np.unique(np.concatenate(ends))
        touched = touched[np.diff(graph.indptr)[touched] > 0]
        if not len(touched):
            return 0
        looks_back = {"p": config.p, "q": config.q} if isinstance(config, Node2VecConfig) else {}
        source = _TouchedSource(
            graph,
            touched,
            walks_per_node=config.walks_per_node,
            walk_length=config.walk_length,
            window=config.window,
            batch_size=config.batch_size,
            seed=self._seed,
            threads=assignment.threads,
            **looks_back,
        )
        self._inner = SkipGramTrainer(
            source,
            config,
            dim=config.dim,
            epochs=config.epochs,
            seed=self._seed,
            subsample=config.subsample,
            dynamic_window=config.dynamic_window,
            context_share=config.context_share,
            threads=assignment.threads,
            clock=self._clock,
        )
        self._inner.restore({}, self._tables)
        self._groups = self._inner.begin_epoch(chunk.number * config.epochs)
        self._epoch = chunk.number * config.epochs
        return self._groups * config.epochs

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on the next group of walks."""
        inner = self._at(epoch, batch)
        return inner.train_batch(self._epoch, batch % self._groups)

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return where the walks of a group start."""
        return self._at(epoch, batch).batch_arrays(self._epoch, batch % self._groups)

    def _at(self, number: int, batch: int) -> SkipGramTrainer:
        """Return what trains, in the pass that a batch of a chunk belongs to."""
        if self._inner is None:
            raise RuntimeError("open_chunk comes first")
        in_pass = number * self._config.epochs + batch // self._groups
        if in_pass != self._epoch:
            self._epoch = in_pass
            self._inner.begin_epoch(in_pass)
        return self._inner

    def dense(self) -> dict[str, Tensor]:
        """Return no parameters: the model has rows alone."""
        return {}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the tables of centres and contexts."""
        return dict(self._tables)

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of nodes, see :class:`InterleavedKeys`."""
        first = {name: place for place, name in enumerate(self._types)}
        return dict.fromkeys(self._tables, RowKeys.of_nodes(first, len(self._types)))

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:  # noqa: ARG002
        """Take up the state that :meth:`tables` returned."""
        self._tables = {name: host_table(table, "learning from walks") for name, table in tables.items()}
        self._inner = None

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the embeddings of the nodes of all types that walks visit."""
        keys = InterleavedKeys({node_type: view.num_nodes(node_type) for node_type in self._types})
        embeddings = {node_type: self._rows(keys.keys(node_type)) for node_type in self._types}
        return TrainedModel(name, "embedding", self._config.task, self._types[0], embeddings)

    def _followed(self, chunk: Chunk) -> list[EdgeType]:
        """Return the edge types that walks follow and that there are by now."""
        known = set(chunk.view.edge_types)
        return [edge_type for edge_type in self._config.edge_types if edge_type in known]

    def _new_table(self, number: int) -> EmbeddingTable:
        return EmbeddingTable(
            self._config.dim,
            "rowwise_adagrad",
            self._config.learning_rate,
            init_scale=0.0 if number else None,
            seed=self._seed + number,
            threads=self._assignment.threads,
        )


def make_streaming_walks(config: DeepWalkConfig, assignment: Assignment) -> StreamingWalks:
    """Return the trainer of a section of kind ``deepwalk`` or ``node2vec`` that learns from a stream.

    Raises:
        UsageError: the section names no edge types, or rows are to be dropped.
    """
    where = f"models.{assignment.name}"
    if not config.edge_types:
        raise UsageError(
            "expected the edge types that walks follow, received none",
            where=f"{where}.edge_types",
            hint="a stream may bring new types later, and the numbering of nodes must stay: name them",
        )
    if assignment.expiry is not None:
        raise UsageError(
            f"expected no dropping of rows for a model of kind {config.kind}, whose tables have no policies",
            where="stream.drop_rows_after_chunks",
            hint="leave it out",
        )
    return StreamingWalks(config, assignment)
