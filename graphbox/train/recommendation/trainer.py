"""Trains LightGCN and matrix factorization for a recommend task.

A batch is some queries with all their answers. Their logits are cosines by a temperature, plus a share of the
logarithm of a candidate's popularity: so the loss need not bend vectors to say what is popular, and ranking
has the same sum. Negatives are drawn once for the batch; the softmax over all candidates is estimated from
them, by the probability with which each was drawn.
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

from graphbox.config import LightGCNConfig, MatrixFactorizationConfig, RecommendTaskConfig
from graphbox.errors import DataError
from graphbox.graph.live_rows import LiveRows
from graphbox.metrics import RankingQueries
from graphbox.models.lightgcn import LightGCN, MatrixFactorization
from graphbox.sample import permutation
from graphbox.table import EmbeddingTable, TableEmbedding, TableOptimizer
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.losses import bpr, hinge, info_nce, nce, perturbed, sigmoid, simgcl
from graphbox.train.memory import TrainingMemory, table_below
from graphbox.train.optimization import find_gradients, set_table_learning_rates
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.recommendation.candidates import CandidateColumns, Candidates, Cells, no_negatives
from graphbox.train.recommendation.queries import known_answers, ranking_queries
from graphbox.train.recommendation.validation import validation_figures
from graphbox.train.registry import Assignment
from graphbox.train.scores import product_scores
from graphbox.train.seeded import seed_of
from graphbox.train.stage_clock import StageClock
from graphbox.train.tasks import RecommendSplit
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Trainer
from graphbox.train.transfer import CPU, tensor_on
from graphbox.train.view import GraphView

__all__ = ["RecommendationTrainer", "make_recommendation_trainer"]

_VALIDATION_QUERIES = 4096
"""Queries of the validation part that are ranked for after some epochs, at most."""

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
    """What one process learns of a batch: all of it alone.

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


class RecommendationTrainer(Trainer):
    """See the module.

    Args:
        view: the graph as training sees it.
        split: the split of the task.
        config: the model's section of the run file.
        seed: seed of every random choice.
        k: length of the ranked lists in validation.
        threads: threads of samplers and tables; those of torch are set elsewhere.
        clock: measures the stages.
        memory: where the tables are kept.
        device: where vectors and logits are computed.
        processes: which train together, each on a slice of the queries of every batch.

    Raises:
        DataError: there are no answers to learn from.
    """

    def __init__(
        self,
        view: GraphView,
        split: RecommendSplit,
        config: LightGCNConfig | MatrixFactorizationConfig,
        *,
        seed: int,
        k: int = 20,
        threads: int | None = None,
        clock: StageClock | None = None,
        memory: TrainingMemory | None = None,
        device: torch.device = CPU,
        processes: TrainingProcesses = ALONE,
    ) -> None:
        self._processes = processes
        self._memory = memory or TrainingMemory()
        self._device = device
        self._clock = clock or StageClock()
        self._view, self._split, self._config = view, split, config
        self._seed, self._k, self._threads = seed, k, threads
        self.answers = known_answers(view, split)
        if not self.answers.nnz:
            raise DataError(
                f"expected edges of {', '.join(split.relations)} to learn from, received none",
                where=f"{split.node_type} to {split.target_type}",
            )
        self._degree = np.bincount(self.answers.indices, minlength=self.answers.shape[1])
        exponent = config.popularity_exponent
        live = LiveRows.of_graph(view, split.target_type)
        self._candidates = Candidates(self._degree, live, config.candidates, exponent, seed, device)
        self._columns = CandidateColumns(len(self._degree))
        log_degree = np.log(np.maximum(self._degree, 0.5))
        bias = config.popularity * (log_degree - live.select(log_degree).mean())
        self._bias = self._tensor(bias.astype(np.float32))
        self.temperature = config.temperature or _temperature(self.answers)
        self._active = np.flatnonzero(np.diff(self.answers.indptr))
        self._order = self._active
        self._validation: RankingQueries | None = None
        sides = (_QUERIES,) if split.within_one_type else (_QUERIES, _TARGETS)
        self._set_tables(self._new_tables(sides))

    @property
    def device(self) -> torch.device:
        """Where vectors and logits are computed."""
        return self._device

    # ---------------------------------------------------------------------------- training

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self._config.epochs

    def begin_epoch(self, epoch: int) -> int:
        """Put the queries in a new order and return the number of batches."""
        self._order = self._active[permutation(len(self._active), self._seed, epoch)]
        self._batches.close()
        return self._batches_of_epoch()

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch of queries with all their answers."""
        self._set_learning_rate(epoch, batch)
        with self._clock.stage("sample"):
            drawn = self._batches.take(epoch, batch, self._batches_of_epoch())
            part = self._part(drawn)
        with self._clock.stage("compute"):
            value = find_gradients(self._loss(part, epoch, batch), [self._optimizer], self._processes)
        if math.isfinite(value):  # the loop stops at any other, before rows take it up
            with self._clock.stage("push"):
                self._optimizer.step()
        return value, part.num_answers

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return the queries, their answers and the drawn candidates of a batch."""
        queries, known, drawn = self._draw(epoch, batch)
        return {"queries": queries, "offsets": known.indptr, "answers": known.indices, "candidates": drawn}

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return recall and ndcg on the validation fold, every few epochs and after the last."""
        if self._config.sees_validation:
            return {}
        if (epoch + 1) % self._config.validate_every and epoch + 1 != self.epochs:
            return {}
        if self._validation is None:
            queries = ranking_queries(self._view, self._split, "validation")
            self._validation = queries.sample(_VALIDATION_QUERIES, self._seed)
        score = product_scores(*self._vectors())
        return validation_figures(
            score, self._validation, self._degree, k=self._k, threads=self._threads, processes=self._processes
        )

    def dense(self) -> dict[str, Tensor]:
        """Return no parameters: the model has rows alone."""
        return {}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding tables of queries and candidates."""
        return {name: table_below(module.table) for name, module in self._rows.items()}

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:  # noqa: ARG002
        """Take up the state that :meth:`tables` returned."""
        self._batches.close()
        self._set_tables(dict(tables))

    def close(self) -> None:
        """End the reading of rows ahead."""
        self._batches.close()

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - the loop's interface
        """Return the vectors of queries and candidates, ranked by their inner product.

        They come from the graph that the model was trained on, whatever else ``view`` shows.
        """
        query, target = self._vectors()
        split = self._split
        return TrainedModel(
            name,
            "two_tower",
            self._config.task,
            split.node_type,
            {split.node_type: query.cpu().numpy()},
            target_type=split.target_type,
            target=target.cpu().numpy(),
        )

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
        targets = np.concatenate([known.indices.astype(np.int64), candidates])
        if _TARGETS in self._rows:
            return {_QUERIES: queries, _TARGETS: targets}
        return {_QUERIES: np.concatenate([queries, targets])}

    @torch.no_grad()
    def _vectors(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of all queries and of all candidates, where they are computed."""
        self.model.eval()
        query, target = (functional.normalize(each, dim=1) for each in self.model.all_vectors())
        if self._config.popularity:
            query = torch.cat([query, torch.ones(len(query), 1, device=query.device)], dim=1)
            target = torch.cat([target, self.temperature * self._bias[:, None]], dim=1)
        return query, target

    def _batches_of_epoch(self) -> int:
        return math.ceil(len(self._order) / self._config.batch_size)

    def _part(self, drawn: Drawn) -> _Part:
        """Return what this process learns of a batch: a slice of its queries."""
        queries, known, candidates = drawn
        of_queries = self._processes.slice_of(len(queries))
        of_answers = slice(*known.indptr[[of_queries.start, of_queries.stop]].tolist())
        row = np.repeat(np.arange(len(queries)), np.diff(known.indptr))[of_answers] - of_queries.start
        answers = known.indices[of_answers].astype(np.int64)
        excluded = self._columns.among(candidates, row, answers)
        if self._split.within_one_type:
            own = queries[of_queries]
            itself = self._columns.among(candidates, np.arange(len(own)), own)
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
        )

    def _loss(self, part: _Part, epoch: int, batch: int) -> Tensor:
        """Return the loss of a batch, or of several processes the share of this one's queries.

        Candidates are those of all queries: each process looks a slice of them up, and all get their vectors.
        """
        processes = self._processes
        row, positive, candidates = (self._tensor(each) for each in (part.row, part.answers, part.candidates))
        of_candidates = processes.slice_of(len(candidates))
        self.model.train()
        query, answer, some = (
            functional.normalize(each, dim=1)
            for each in self.model(self._tensor(part.queries), positive, candidates[of_candidates])
        )
        negative = processes.gather_slices("candidates", some, len(candidates))
        found = (query[row] * answer).sum(dim=1) / self.temperature + self._bias[positive]
        against = torch.addmm(self._bias[candidates], query, negative.T, alpha=1.0 / self.temperature)
        shape = (len(part.queries), len(part.candidates))
        against = against.masked_fill(no_negatives(shape, part.excluded, self._device), -torch.inf)
        loss = self._answer_loss(found, against, part, epoch, batch)
        if self._config.contrast:
            loss = loss + self._config.contrast * self._contrast(query, negative, part, epoch, batch)
        return loss

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

    def _new_tables(self, sides: Sequence[str]) -> dict[str, EmbeddingTable]:
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

    def _set_tables(self, tables: Mapping[str, EmbeddingTable]) -> None:
        self._rows = {name: TableEmbedding(table) for name, table in self._memory.near(tables).items()}
        self._batches = BatchesAhead(self._draw, self._keys, tables)
        queries = self._rows[_QUERIES]
        targets = self._rows.get(_TARGETS, queries)
        if isinstance(self._config, LightGCNConfig):
            self.model: LightGCN | MatrixFactorization = LightGCN(
                queries, targets, self.answers, self._config.layers, self._device
            )
        else:
            self.model = MatrixFactorization(queries, targets, self.answers.shape, self._device)
        self._optimizer = TableOptimizer(self.model)

    def _set_learning_rate(self, epoch: int, batch: int) -> None:
        done = (epoch + batch / self._batches_of_epoch()) / self.epochs
        set_table_learning_rates(self.tables().values(), self._config, self._config.learning_rate, done)


def _temperature(answers: sp.csr_array) -> float:
    """Return the temperature for answers of a density: the fewer there are, the softer the softmax.

    Chosen on validation parts: 0.1 was best with 11 answers for each node, 0.2 with 6, and more with 4.
    """
    nodes = np.count_nonzero(np.diff(answers.indptr)) + len(np.unique(answers.indices))
    by_density = _TEMPERATURE_BY_DENSITY * nodes / answers.nnz
    return float(np.clip(by_density, _LEAST_TEMPERATURE, _LARGEST_TEMPERATURE))


def make_recommendation_trainer(
    config: LightGCNConfig | MatrixFactorizationConfig, assignment: Assignment
) -> RecommendationTrainer:
    """Return the trainer of a section of kind ``lightgcn`` or ``matrix_factorization``.

    Raises:
        UsageError: the model has no task of kind recommend.
    """
    split, task = assignment.split, assignment.task
    if not isinstance(split, RecommendSplit) or not isinstance(task, RecommendTaskConfig):
        raise assignment.wrong_task(config)
    return RecommendationTrainer(
        assignment.view,
        split,
        config,
        seed=assignment.seed,
        k=task.k,
        threads=assignment.threads,
        clock=assignment.clock,
        memory=assignment.memory,
        device=assignment.device,
        processes=assignment.processes,
    )
