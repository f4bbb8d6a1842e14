"""Trains LightGCN and matrix factorization for a recommend task.

A batch is some queries with all their answers. Their logits are cosines by a temperature, plus a share of the
logarithm of a candidate's popularity: so the loss need not bend vectors to say what is popular, and ranking
has the same sum. Negatives are drawn once for the batch; the softmax over all candidates is estimated from
them, by the probability with which each was drawn. With teachers it learns what these rank first, too, see
:mod:`graphbox.train.recommendation.distillation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import (
    LightGCNConfig,
    MatrixFactorizationConfig,
    RankingDistillationSection,
    RecommendTaskConfig,
)
from graphbox.errors import DataError
from graphbox.graph.live_rows import LiveRows
from graphbox.models.lightgcn import LightGCN, MatrixFactorization
from graphbox.sample import permutation
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.losses import bpr, hinge, info_nce, nce, perturbed, sigmoid, simgcl
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.recommendation.candidates import Candidates, Cells, columns_among, no_negatives
from graphbox.train.recommendation.distillation import RankingDistillation, Vectors
from graphbox.train.recommendation.queries import known_answers
from graphbox.train.recommendation.validation import TowerValidation
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seed_of
from graphbox.train.tasks import RecommendSplit
from graphbox.train.torch_trainer import TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import tensor_on
from graphbox.train.view import GraphView

_LEAST_TEMPERATURE, _LARGEST_TEMPERATURE = 0.08, 0.25
_TEMPERATURE_BY_DENSITY = 1.25

_PAIR_LOSSES = {"bpr": bpr, "hinge": hinge, "sigmoid": sigmoid}
"""Losses of an answer and a drawn candidate, by their logits alone."""

_CONTRAST_STREAM = 1
"""Tells the noise of views from the draws of candidates, which have the same seed."""

_QUERIES, _TARGETS = "queries", "targets"

Drawn: TypeAlias = tuple[NDArray[np.int64], sp.csr_array, NDArray[np.int64]]
"""Queries of a batch, their answers, and the candidates drawn for it."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Part of a batch that one process learns: all of it alone.

    Attributes:
        queries: int64 [queries].
        of_queries: which of the batch's queries these are.
        num_queries: how many the batch has.
        row: int64 [answers], the query of each answer.
        answers: int64 [answers].
        of_answers: which of the batch's answers these are.
        num_answers: how many the batch has.
        candidates: int64 [candidates], of the whole batch, ascending.
        excluded: rows and columns of candidates that are no negatives of a query: its answers, and itself.
        listed: int64 [queries, k], candidates that teachers rank first, -1 for none; without teachers k is 0.
    """

    queries: NDArray[np.int64]
    of_queries: slice
    num_queries: int
    row: NDArray[np.int64]
    answers: NDArray[np.int64]
    of_answers: slice
    num_answers: int
    candidates: NDArray[np.int64]
    excluded: Cells
    listed: NDArray[np.int64]


class RecommendationTrainer(TorchTrainer[_Part]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``recommend``.

    Raises:
        UsageError: the task is of another kind.
        DataError: there are no answers to learn from.
    """

    def __init__(self, config: LightGCNConfig | MatrixFactorizationConfig, assignment: Assignment) -> None:
        split, task, view = assignment.split, assignment.task, assignment.view
        if not isinstance(split, RecommendSplit) or not isinstance(task, RecommendTaskConfig):
            raise assignment.wrong_task(config)
        super().__init__(
            assignment,
            OptimizerSettings(config, config.learning_rate),
            epochs=config.epochs,
            validate_every=config.validate_every,
        )
        self._view, self._split, self._config = view, split, config
        self.answers = known_answers(view, split)
        if not self.answers.nnz:
            raise DataError(
                f"expected edges of {', '.join(split.relations)} to learn from, received none",
                where=f"{split.node_type} to {split.target_type}",
            )
        self._degree = np.bincount(self.answers.indices, minlength=self.answers.shape[1])
        exponent = config.popularity_exponent
        live = LiveRows.of_graph(view, split.target_type)
        self._candidates = Candidates(
            self._degree, live, config.candidates, exponent, self._seed, self._device
        )
        log_degree = np.log(np.maximum(self._degree, 0.5))
        bias = config.popularity * (log_degree - live.select(log_degree).mean())
        self._bias = self._tensor(bias.astype(np.float32))
        self.temperature = config.temperature or _temperature(self.answers)
        self._active = np.flatnonzero(np.diff(self.answers.indptr))
        self._order = self._active
        self._distillation: RankingDistillation | None = None
        if config.distil is not None:
            self._distillation = self._new_distillation(config.distil, assignment.earlier.rankers)
        self._validation = TowerValidation(
            split, task, seed=self._seed, threads=self._threads, processes=self._processes
        )
        sides = (_QUERIES,) if split.within_one_type else (_QUERIES, _TARGETS)
        tables = self._new_tables(sides)
        self._rows = {name: TableEmbedding(table) for name, table in self._memory.near(tables).items()}
        self._batches = BatchesAhead(self._draw, self._keys, tables)
        queries = self._rows[_QUERIES]
        targets = self._rows.get(_TARGETS, queries)
        network: LightGCN | MatrixFactorization = MatrixFactorization(
            queries, targets, self.answers.shape, self._device
        )
        if isinstance(config, LightGCNConfig):
            network = LightGCN(queries, targets, self.answers, config.layers, self._device)
        self.network: LightGCN | MatrixFactorization = network
        self.set_network(network)

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Shuffle the queries and return the number of batches."""
        self._order = self._active[permutation(len(self._active), self._seed, epoch)]
        self._batches.close()
        return math.ceil(len(self._order) / self._config.batch_size)

    def draw(self, epoch: int, batch: int) -> _Part:
        """Return this process's part of a batch of queries with all their answers."""
        return self._part(self._batches.take(epoch, batch, self._num_batches))

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return the queries, their answers and the drawn candidates of a batch."""
        queries, known, drawn = self._draw(epoch, batch)
        listed = {} if self._distillation is None else {"listed": self._listed(queries)}
        return {
            "queries": queries,
            "offsets": known.indptr,
            "answers": known.indices,
            "candidates": drawn,
            **listed,
        }

    def measures(self) -> bool:
        """Return whether the validation part is held out."""
        return not self._config.sees_validation

    def measured(self) -> Mapping[str, float]:
        """Return recall and ndcg on the validation part."""
        return self._validation.figures(self._view, self._degree, *self._vectors())

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of queries and candidates."""
        return self._rows

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, module in self._rows.items():
            module.set_table(tables[name])
        self._batches = BatchesAhead(self._draw, self._keys, self.tables())

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of queries and candidates."""
        types = {_QUERIES: self._split.node_type, _TARGETS: self._split.target_type}
        return {name: RowKeys.of_nodes({types[name]: 0}) for name in self._rows}

    def close(self) -> None:
        """End the reading of rows ahead."""
        self._batches.close()

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - the loop's interface
        """Return the vectors of queries and candidates, ranked by their inner product.

        They come from the graph that the model was trained on, whatever else ``view`` shows.
        """
        query, target = self._vectors()
        ends = (self._split.node_type, self._split.target_type)
        return TrainedModel.of_towers(name, self._config.task, ends, query, target)

    # ----------------------------------------------------------------------------- details

    def _draw(self, epoch: int, batch: int) -> Drawn:
        """Return the queries of a batch, their answers, and the candidates drawn for it, ascending."""
        size = self._config.batch_size
        queries = self._order[batch * size : (batch + 1) * size]
        drawn = self._candidates.draw(epoch, batch, self._threads)
        return queries, sp.csr_array(self.answers[queries]), drawn

    def _keys(self, drawn: Drawn) -> dict[str, NDArray[np.int64]]:
        """Return the keys of the rows that a batch reads, by table."""
        queries, known, candidates = drawn
        listed = np.maximum(self._listed(queries), 0).ravel()
        targets = np.concatenate([known.indices.astype(np.int64), listed, candidates])
        if _TARGETS in self._rows:
            return {_QUERIES: queries, _TARGETS: targets}
        return {_QUERIES: np.concatenate([queries, targets])}

    @torch.no_grad()
    def _vectors(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of all queries and of all candidates, where they are computed."""
        self.network.eval()
        query, target = (functional.normalize(each, dim=1) for each in self.network.all_vectors())
        if self._config.popularity:
            query = torch.cat([query, torch.ones(len(query), 1, device=query.device)], dim=1)
            target = torch.cat([target, self.temperature * self._bias[:, None]], dim=1)
        return query, target

    def _part(self, drawn: Drawn) -> _Part:
        """Return what this process learns of a batch: a slice of its queries."""
        queries, known, candidates = drawn
        of_queries = self._processes.slice_of(len(queries))
        of_answers = slice(*known.indptr[[of_queries.start, of_queries.stop]].tolist())
        row = np.repeat(np.arange(len(queries)), np.diff(known.indptr))[of_answers] - of_queries.start
        answers = known.indices[of_answers].astype(np.int64)
        excluded = columns_among(candidates, row, answers)
        if self._split.within_one_type:
            own = queries[of_queries]
            itself = columns_among(candidates, np.arange(len(own)), own)
            excluded = (np.append(excluded[0], itself[0]), np.append(excluded[1], itself[1]))
        return _Part(
            queries[of_queries],
            of_queries,
            len(queries),
            row,
            answers,
            of_answers,
            len(known.indices),
            candidates,
            excluded,
            self._listed(queries[of_queries]),
        )

    def _listed(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the candidates that teachers rank first: int64 [queries, k], -1 for none."""
        if self._distillation is None:
            return np.empty((len(queries), 0), np.int64)
        return self._distillation.listed(queries)

    def _new_distillation(
        self, section: RankingDistillationSection, teachers: Sequence[Vectors]
    ) -> RankingDistillation:
        known = self.answers
        if self._split.within_one_type:
            known = sp.csr_array(known + sp.eye_array(known.shape[0], dtype=np.float32, format="csr"))
        return RankingDistillation(
            section,
            teachers,
            self._active,
            known,
            self._view.removed_nodes(self._split.target_type),
            self.temperature,
            self._device,
        )

    def loss(self, drawn: _Part, epoch: int, batch: int) -> tuple[Tensor, int]:
        """Return the loss of a batch, or this process's share of it.

        Each process looks up a slice of the candidates, and all processes get their vectors.
        """
        part, processes = drawn, self._processes
        row, positive, candidates = (self._tensor(each) for each in (part.row, part.answers, part.candidates))
        of_candidates = processes.slice_of(len(candidates))
        listed = self._tensor(np.maximum(part.listed, 0))
        query, answer, best, some = (
            functional.normalize(each, dim=1)
            for each in self.network(
                self._tensor(part.queries), positive, listed.ravel(), candidates[of_candidates]
            )
        )
        negative = processes.gather_slices("candidates", some, len(candidates))
        found = (query[row] * answer).sum(dim=1) / self.temperature + self._bias[positive]
        against = torch.addmm(self._bias[candidates], query, negative.T, alpha=1.0 / self.temperature)
        shape = (len(part.queries), len(part.candidates))
        against = against.masked_fill(no_negatives(shape, part.excluded, self._device), -torch.inf)
        distil = self._config.distil
        loss = query.new_zeros(())
        if distil is None or distil.answer_weight:
            loss = self._answer_loss(found, against, part, epoch, batch)
        if distil is not None:
            cosine = torch.einsum("qd,qkd->qk", query, best.view(*listed.shape, -1))
            taught = self._taught_loss(cosine / self.temperature + self._bias[listed], against, part)
            loss = distil.answer_weight * loss + (1.0 - distil.answer_weight) * taught
        if self._config.contrast:
            loss = loss + self._config.contrast * self._contrast(query, negative, part, epoch, batch)
        return loss, part.num_answers

    def _answer_loss(self, found: Tensor, against: Tensor, part: _Part, epoch: int, batch: int) -> Tensor:
        """Return the loss of answers.

        Args:
            found: float32 [answers], their logits.
            against: float32 [queries, candidates], logits of drawn candidates; -inf for what is no negative.
            part: what is learnt.
            epoch: number of the epoch.
            batch: number of the batch.
        """
        candidates = self._tensor(part.candidates)
        if self._config.loss == "sampled_softmax":
            log_probability = self._candidates.log_probability[candidates]
            loss = info_nce(found, against, self._tensor(part.row), log_probability=log_probability)
            return self._processes.share(loss, len(found), part.num_answers)
        generator = np.random.default_rng([self._seed, epoch, batch])
        place = generator.integers(0, len(candidates), part.num_answers)[part.of_answers]
        # Where an answer was drawn there is no pair, and none to divide by.
        excluded = part.excluded[0] * len(candidates) + part.excluded[1]
        paired = np.flatnonzero(~np.isin(part.row * len(candidates) + place, excluded))
        pairs = int(self._processes.sum("pairs of a batch", len(paired)))
        row, column = self._tensor(part.row[paired]), self._tensor(place[paired])
        found, drawn = found[self._tensor(paired)], against[row, column][:, None]
        if self._config.loss == "nce":
            noise, positive = self._candidates.log_noise, self._tensor(part.answers[paired])
            loss = nce(found, drawn, noise[positive], noise[candidates[column], None])
        else:
            loss = _PAIR_LOSSES[self._config.loss](found, drawn)
        return self._processes.share(loss, len(paired), pairs)

    def _taught_loss(self, ranked: Tensor, against: Tensor, part: _Part) -> Tensor:
        """Return the loss of what teachers say.

        Args:
            ranked: float32 [queries, k], logits of the candidates that teachers rank first.
            against: as of :meth:`_answer_loss`.
            part: what is learnt.
        """
        assert self._distillation is not None  # noqa: S101 - for the type checker
        row, place = np.nonzero(part.listed >= 0)
        listed = columns_among(part.candidates, row, part.listed[row, place])
        shape = (len(part.queries), len(part.candidates))
        others = against.masked_fill(no_negatives(shape, listed, self._device), -torch.inf)
        log_probability = self._candidates.log_probability[self._tensor(part.candidates)]
        loss = self._distillation.loss(part.queries, ranked, others, log_probability)
        return self._processes.share(loss, len(part.queries), part.num_queries)

    def _contrast(self, query: Tensor, negative: Tensor, part: _Part, epoch: int, batch: int) -> Tensor:
        """Return the loss of telling queries, and as many candidates, apart by two noisy views of each."""
        generator = torch.Generator()
        generator.manual_seed(seed_of(self._seed, epoch, batch, _CONTRAST_STREAM))

        def view(vectors: Tensor, of_all: slice, count: int) -> Tensor:
            # Drawn for all, so that a part has the noise that it has in the whole.
            drawn = torch.rand(count, vectors.shape[1], generator=generator)[of_all]
            return perturbed(vectors, self._config.contrast_noise, drawn.to(vectors.device))

        processes, queries = self._processes, part.num_queries
        first, second = (view(query, part.of_queries, queries) for _ in range(2))
        second = processes.gather_slices("views of queries", second, queries)
        of_queries = simgcl(first, second, start=part.of_queries.start)
        some = negative[:: max(1, len(negative) // queries)]
        first, second = (view(some, slice(None), len(some)) for _ in range(2))
        own = processes.slice_of(len(some))
        of_candidates = simgcl(first[own], second, start=own.start)
        return processes.share(of_queries, len(query), queries) + processes.share(
            of_candidates, own.stop - own.start, len(some)
        )

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return tensor_on(array, self._device)

    def _new_tables(self, sides: Sequence[str]) -> dict[str, Table]:
        config = self._config
        return self._memory.new_tables(
            dict(zip(sides, self.answers.shape, strict=False)),
            config.dim - (config.popularity > 0),
            "adam",
            config.learning_rate,
            seeds={name: self._seed + number for number, name in enumerate(sides)},
            init_scale=config.initial_row_scale,
            threads=self._threads,
        )


def _temperature(answers: sp.csr_array) -> float:
    """Return the temperature for answers of a density: the fewer there are, the softer the softmax.

    Chosen on validation parts: 0.1 was best with 11 answers for each node, 0.2 with 6, and more with 4.
    """
    nodes = np.count_nonzero(np.diff(answers.indptr)) + len(np.unique(answers.indices))
    by_density = _TEMPERATURE_BY_DENSITY * nodes / answers.nnz
    return float(np.clip(by_density, _LEAST_TEMPERATURE, _LARGEST_TEMPERATURE))
