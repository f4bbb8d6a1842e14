"""Matrix factorization from a stream: the rows of queries and candidates learn the answers of each chunk.

The logit of a pair is the cosine of its rows by a temperature, plus a share of the logarithm of the
candidate's popularity, as in :mod:`graphbox.train.recommendation.trainer`. Vectors are rows, so a chunk
costs in proportion to its own answers, whatever the graph's size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from graphbox.config import MatrixFactorizationConfig, RecommendTaskConfig
from graphbox.config.models.optimization import LearningRateSchedule
from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.sample import permutation
from graphbox.table import EmbeddingTable, Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.losses import bpr, info_nce
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.recommendation.candidates import Candidates
from graphbox.train.row_keys import RowKeys
from graphbox.train.stream.chunk import Chunk
from graphbox.train.stream.non_edges import draw_non_edges
from graphbox.train.stream.target_ranks import Vectors, target_ranks
from graphbox.train.stream.trainer import ChunkScores, StreamingTrainer
from graphbox.train.torch_trainer import TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import tensor_on
from graphbox.train.view import GraphView

_QUERIES, _TARGETS = "queries", "targets"
_TEMPERATURE = 0.1
"""Default divisor of cosines: the scale of scores stays the same."""


class _Open:
    """A chunk that is learnt: its answers by query, and how candidates are drawn beside them."""

    def __init__(
        self,
        answers: sp.csr_array,
        degree: NDArray[np.int64],
        live: LiveRows,
        config: MatrixFactorizationConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        self.answers = answers
        self.active = np.flatnonzero(np.diff(answers.indptr))
        self.bias = _bias(degree, config.popularity).to(device)
        exponent = config.popularity_exponent
        self.candidates = Candidates(degree, live, config.candidates, exponent, seed, device)
        self.batches = math.ceil(len(self.active) / config.batch_size)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A batch of a chunk's queries.

    Attributes:
        queries: int64 [queries].
        known: 0/1 [queries, candidates], their new answers.
        candidates: int64 [candidates], drawn for the batch, ascending.
    """

    queries: NDArray[np.int64]
    known: sp.csr_array
    candidates: NDArray[np.int64]


class StreamingFactorization(TorchTrainer[_Drawn], StreamingTrainer):
    """See the module.

    A chunk is scored by its new edges as positives, beside as many non-edges: for each, the same query with a
    candidate drawn from all that are there and that no edge joins to it.

    Args:
        config: the model's section of the run file; ``epochs`` are passes over each chunk.
        assignment: what it is trained for, a task of kind ``recommend``.

    Raises:
        UsageError: the task is of another kind, or the graph lacks its node types.
    """

    def __init__(self, config: MatrixFactorizationConfig, assignment: Assignment) -> None:
        self._task = _checked_task(config, assignment)
        super().__init__(
            assignment, OptimizerSettings(LearningRateSchedule(), config.learning_rate), epochs=0
        )
        self._config, self._assignment = config, assignment
        task = self._task
        self._temperature = config.temperature or _TEMPERATURE
        self._edge_types: list[EdgeType] = [
            (task.node_type, relation, task.candidate_type) for relation in task.relations
        ]
        self._open: _Open | None = None
        sides = (_QUERIES,) if task.node_type == task.candidate_type else (_QUERIES, _TARGETS)
        near = self._memory.near({name: self._new_table(number) for number, name in enumerate(sides)})
        self._rows = {name: TableEmbedding(table) for name, table in near.items()}
        self.set_network(nn.ModuleList(self._rows.values()))

    # Scoring

    def score_chunk(self, chunk: Chunk) -> ChunkScores | None:
        """Return the scores of the chunk's edges and of as many non-edges, by query."""
        pairs = self._pairs(chunk)
        if not len(pairs):
            return None
        generator = np.random.default_rng([self._seed, chunk.number])
        others = draw_non_edges(chunk.view, self._there(chunk.view), pairs[:, 0], generator)
        scored = np.concatenate([pairs, others])
        bias = _bias(self._degree(chunk.before()), self._config.popularity)
        there = self._there(chunk.view)
        return ChunkScores(
            labels=np.arange(len(scored)) < len(pairs),
            scores=self._scores(scored, bias),
            groups=scored[:, 0],
            ranks=target_ranks(chunk.view, there[0], there, pairs, self._towers(bias), generator),
        )

    def _towers(self, bias: Tensor) -> tuple[Vectors, Vectors]:
        """Return what gives vectors of queries and of candidates whose products are scores."""
        of_queries, of_targets = self._sides()

        def queries(nodes: NDArray[np.int64]) -> NDArray[np.float32]:
            rows = functional.normalize(torch.from_numpy(of_queries.pull(nodes, create=False)), dim=1)
            return np.asarray(torch.cat([rows / self._temperature, torch.ones(len(rows), 1)], dim=1).numpy())

        def targets(nodes: NDArray[np.int64]) -> NDArray[np.float32]:
            rows = functional.normalize(torch.from_numpy(of_targets.pull(nodes, create=False)), dim=1)
            return np.asarray(torch.cat([rows, bias[torch.from_numpy(nodes)][:, None]], dim=1).numpy())

        return queries, targets

    def _scores(self, pairs: NDArray[np.int64], bias: Tensor) -> NDArray[np.float32]:
        rows = [
            functional.normalize(torch.from_numpy(table.pull(keys, create=False)), dim=1)
            for table, keys in zip(self._sides(), pairs.T, strict=True)
        ]
        found = (rows[0] * rows[1]).sum(dim=1) / self._temperature + bias[torch.from_numpy(pairs[:, 1])]
        return np.asarray(found.numpy(), dtype=np.float32)

    # Learning

    def open_epoch(self, epoch: int) -> int:
        """Reject an epoch over a whole graph: chunks are learnt."""
        return StreamingTrainer.begin_epoch(self, epoch)

    def done(self, epoch: int, batch: int) -> float:  # noqa: ARG002 - a stream has no end
        """Return no share: the learning rate stays."""
        return 0.0

    def open_chunk(self, chunk: Chunk) -> int:
        """Take the chunk's answers and return the number of batches of all passes over it."""
        pairs = self._pairs(chunk)
        view = chunk.view
        shape = (view.num_nodes(self._task.node_type), view.num_nodes(self._task.candidate_type))
        answers = sp.csr_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=shape)
        answers.sum_duplicates()
        answers.data[:] = 1.0
        if not answers.nnz:
            return 0
        live = LiveRows.of_graph(view, self._task.candidate_type)
        self._open = _Open(answers, self._degree(view), live, self._config, self._seed, self._device)
        return self._open.batches * self._config.epochs

    def loss(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, int]:
        """Return the loss of a batch of the chunk's queries with all their new answers."""
        queries, known = drawn.queries, drawn.known
        chunk = self._opened()
        row = self._tensor(np.repeat(np.arange(len(queries)), np.diff(known.indptr)))
        positive = self._tensor(known.indices.astype(np.int64))
        candidates = self._tensor(drawn.candidates)
        with self._clock.stage("fetch"):
            of_queries = self._rows[_QUERIES]
            of_targets = self._rows.get(_TARGETS, of_queries)
            query = functional.normalize(of_queries(self._tensor(queries)), dim=1)
            answer, negative = (
                functional.normalize(of_targets(each), dim=1) for each in (positive, candidates)
            )
        found = (query[row] * answer).sum(dim=1) / self._temperature + chunk.bias[positive]
        against = torch.addmm(chunk.bias[candidates], query, negative.T, alpha=1.0 / self._temperature)
        against = against.masked_fill(self._excluded(queries, known, drawn.candidates), -torch.inf)
        if self._config.loss == "bpr":
            one = self._generator(epoch, batch).integers(0, len(candidates), len(row))
            return bpr(found, against[row, self._tensor(one)][:, None]), len(positive)
        log_probability = chunk.candidates.log_probability[candidates]
        return info_nce(found, against, row, log_probability=log_probability), len(positive)

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return the queries, their answers and the drawn candidates of a batch."""
        drawn = self.draw(epoch, batch)
        known = drawn.known
        return {
            "queries": drawn.queries,
            "offsets": known.indptr,
            "answers": known.indices,
            "candidates": drawn.candidates,
        }

    def draw(self, epoch: int, batch: int) -> _Drawn:
        """Return the queries of a batch of a chunk, their answers, and the candidates drawn for it."""
        chunk, size = self._opened(), self._config.batch_size
        in_pass = batch // chunk.batches
        order = chunk.active[
            permutation(len(chunk.active), self._seed, epoch * self._config.epochs + in_pass)
        ]
        start = batch % chunk.batches * size
        queries = order[start : start + size]
        drawn = chunk.candidates.draw(epoch, batch, self._threads)
        return _Drawn(queries, sp.csr_array(chunk.answers[queries]), drawn)

    def _excluded(
        self, queries: NDArray[np.int64], known: sp.csr_array, candidates: NDArray[np.int64]
    ) -> Tensor:
        """Return which candidates are no negatives of a query: its answers in this chunk, and itself."""
        excluded = np.zeros((len(queries), len(candidates)), bool)
        place = np.searchsorted(candidates, known.indices)
        is_drawn = candidates[np.minimum(place, len(candidates) - 1)] == known.indices
        row = np.repeat(np.arange(len(queries)), np.diff(known.indptr))
        excluded[row[is_drawn], place[is_drawn]] = True
        if self._task.node_type == self._task.candidate_type:
            excluded |= queries[:, None] == candidates[None, :]
        return self._tensor(excluded)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return tensor_on(array, self._device)

    def _generator(self, number: int, batch: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, number, batch])

    # State

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of queries and candidates."""
        return self._rows

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, module in self._rows.items():
            module.set_table(tables[name])

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of queries and candidates."""
        types = {_QUERIES: self._task.node_type, _TARGETS: self._task.candidate_type}
        return {name: RowKeys.of_nodes({types[name]: 0}) for name in self._rows}

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the vectors of all queries and candidates, ranked by their inner product."""
        types = (self._task.node_type, self._task.candidate_type)
        query, target = (
            functional.normalize(
                torch.from_numpy(table.pull(np.arange(view.num_nodes(node_type)), create=False)), dim=1
            )
            for table, node_type in zip(self._sides(), types, strict=True)
        )
        if self._config.popularity:
            bias = self._temperature * _bias(self._degree(view), self._config.popularity)
            query = torch.cat([query, torch.ones(len(query), 1)], dim=1)
            target = torch.cat([target, bias[:, None]], dim=1)
        return TrainedModel(
            name,
            "two_tower",
            self._config.task,
            types[0],
            {types[0]: query.numpy()},
            target_type=types[1],
            target=target.numpy(),
        )

    def _sides(self) -> tuple[Table, Table]:
        """Return the tables of queries and of candidates, which are one where they are of one type."""
        tables = self.tables()
        queries = tables[_QUERIES]
        return queries, tables.get(_TARGETS, queries)

    def _new_table(self, number: int) -> Table:
        config = self._config
        return EmbeddingTable(
            config.dim - (config.popularity > 0),
            "adam",
            config.learning_rate,
            init_scale=config.initial_row_scale,
            seed=self._seed + number,
            expiry=self._assignment.expiry,
            threads=self._assignment.threads,
        )

    # The graph

    def _there(self, view: GraphView) -> list[EdgeType]:
        """Return the edge types of the task that the graph has; others may come with a later chunk."""
        known = set(view.edge_types)
        return [edge_type for edge_type in self._edge_types if edge_type in known]

    def _pairs(self, chunk: Chunk) -> NDArray[np.int64]:
        """Return query and candidate of the chunk's new edges: int64 [n, 2]."""
        pairs = [np.zeros((0, 2), np.int64)]
        for edge_type in self._edge_types:
            if edge_type in chunk.edges:
                edges = chunk.edges[edge_type]
                pairs.append(np.stack([edges.source, edges.target], axis=1))
        return np.concatenate(pairs)

    def _degree(self, view: GraphView) -> NDArray[np.int64]:
        """Return the number of edges into each candidate: int64 [candidates]."""
        degree = np.zeros(view.num_nodes(self._task.candidate_type), np.int64)
        for edge_type in self._there(view):
            degree += view.in_degree(edge_type)
        return degree

    def _opened(self) -> _Open:
        if self._open is None:
            raise RuntimeError("open_chunk comes first")
        return self._open


def _bias(degree: NDArray[np.int64], popularity: float) -> Tensor:
    """Return what popularity adds to the logit of each candidate: float32 [candidates]."""
    return torch.from_numpy((popularity * np.log(np.maximum(degree, 0.5))).astype(np.float32))


def _checked_task(config: MatrixFactorizationConfig, assignment: Assignment) -> RecommendTaskConfig:
    """Return the task of an assignment.

    Raises:
        UsageError: it is of another kind than recommend, or the graph lacks its node types.
    """
    task = assignment.task
    if not isinstance(task, RecommendTaskConfig):
        raise assignment.wrong_task(config)
    known = assignment.view.node_types
    for node_type in (task.node_type, task.candidate_type):
        if node_type not in known:
            raise UsageError(
                f"expected one of the node types {', '.join(known)}, received `{node_type}`",
                where=f"tasks.{config.task}",
                hint=did_you_mean(node_type, known)
                or f"edges of {edge_type_text((task.node_type, task.relations[0], task.candidate_type))} are "
                "what the model learns from: the first chunk needs some",
            )
    for relation in task.relations:
        edge_type = (task.node_type, relation, task.candidate_type)
        if edge_type in assignment.view.edge_types and assignment.view.is_reverse(edge_type):
            raise UsageError(
                "expected relations with edges of their own, received a reverse one",
                where=f"tasks.{config.task}.relations",
                hint=f"{edge_type_text(edge_type)} holds the edges of another edge type: name that",
            )
    return task
