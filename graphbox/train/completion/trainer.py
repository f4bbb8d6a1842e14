"""Trains models of knowledge graphs for a complete task.

A batch is some distinct queries, (head, relation) or (tail, relation backwards), each with all its answers
that are known. They share candidates: all entities of the answers' type, or some that are drawn once for the
batch and the batch's answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import CompleteTaskConfig, ComplExConfig, DistMultConfig, RotatEConfig, TransEConfig
from graphbox.config.models.knowledge_graph import TranslationSection
from graphbox.graph.live_rows import LiveRows
from graphbox.models.knowledge_graph import KnowledgeGraphModel
from graphbox.sample import NegativeSampler, permutation
from graphbox.table import EmbeddingTable, TableEmbedding, TableOptimizer
from graphbox.train.completion.evaluation import TripleScores, rank_triples, sampled_triples
from graphbox.train.completion.queries import DirectedQueries, answer_types
from graphbox.train.completion.triple_rows import DeviceTriples, TripleRows, score_of
from graphbox.train.losses import info_nce, self_adversarial
from graphbox.train.memory import TrainingMemory, table_below
from graphbox.train.optimization import find_gradients, set_table_learning_rates
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.registry import Assignment
from graphbox.train.seeded import seed_of
from graphbox.train.stage_clock import StageClock
from graphbox.train.tasks import CompleteSplit
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection, Trainer
from graphbox.train.transfer import CPU, place_of, tensor_on
from graphbox.train.view import GraphView

__all__ = ["CompletionTrainer", "KnowledgeGraphConfig", "make_completion_trainer"]

KnowledgeGraphConfig = DistMultConfig | ComplExConfig | TransEConfig | RotatEConfig

_ENTITIES, _RELATIONS = "entities", "relations"

_VALIDATION_TRIPLES = 2048
"""Triples of the validation part that are asked for after some epochs, at most."""

_QUERY_STREAM, _BATCH_STREAM, _CANDIDATE_STREAM, _DROPOUT_STREAM, _ROW_STREAM, _VALIDATION_STREAM = range(
    1, 7
)


class CompletionTrainer(Trainer):
    """See the module.

    Args:
        view: the graph as training sees it.
        split: the split of the task.
        config: the model's section of the run file.
        seed: seed of every random choice.
        threads: threads of samplers, tables and validation; those of torch are set elsewhere.
        clock: measures the stages.
        memory: where rows are computed with; all of them are in memory.
        device: where scores are computed.
        processes: which train together, each on a slice of the queries of every batch.
    """

    def __init__(
        self,
        view: GraphView,
        split: CompleteSplit,
        config: KnowledgeGraphConfig,
        *,
        seed: int,
        threads: int | None = None,
        clock: StageClock | None = None,
        memory: TrainingMemory | None = None,
        device: torch.device = CPU,
        processes: TrainingProcesses = ALONE,
    ) -> None:
        self._processes = processes
        self._device, self._memory = device, memory or TrainingMemory()
        self._clock = clock or StageClock()
        self._split, self._config = split, config
        self._seed, self._threads = seed, threads
        self._num_nodes = [view.num_nodes(node_type) for node_type in split.node_types]
        self._offsets = np.cumsum([0, *self._num_nodes])
        self._removed = {node_type: view.removed_nodes(node_type) for node_type in split.node_types}
        self._live = [LiveRows.of_graph(view, node_type) for node_type in split.node_types]
        self._asked_types = np.concatenate([split.relation_ends[:, 0], split.relation_ends[:, 1]])
        self._answer_types = answer_types(split)
        self.queries = DirectedQueries.of(split.known(view.fold), len(split.relations))
        type_of_query = self._answer_types[self.queries.relations]
        self._queries_by_type = [
            np.flatnonzero(type_of_query == number) for number in range(len(split.node_types))
        ]
        self._samplers = [
            NegativeSampler.uniform(len(live), seed_of(seed, _CANDIDATE_STREAM, number))
            for number, live in enumerate(self._live)
        ]
        self._log_probability = self._inclusion()
        self._score = score_of(config, config.kind)
        self._batches: list[tuple[int, NDArray[np.int64]]] = []
        directions = 2 if config.reciprocal else 1
        self._relation_keys = np.arange(directions * len(split.relations))
        self._set_tables({_ENTITIES: self._new_table(_ENTITIES), _RELATIONS: self._new_table(_RELATIONS)})

    @property
    def device(self) -> torch.device:
        """Where scores are computed."""
        return self._device

    # ---------------------------------------------------------------------------- training

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self._config.epochs

    @property
    def selection(self) -> Selection | None:
        """The state of the best validation MRR; the last one where nothing is measured."""
        if self._config.sees_validation:
            return None
        return Selection("validation_mrr", self._config.patience)

    def begin_epoch(self, epoch: int) -> int:
        """Put the queries in a new order, and in batches whose answers are of one type."""
        size = self._config.batch_size
        batches = []
        for number, queries in enumerate(self._queries_by_type):
            order = queries[permutation(len(queries), seed_of(self._seed, _QUERY_STREAM, number), epoch)]
            batches += [(number, order[start : start + size]) for start in range(0, len(order), size)]
        places = permutation(len(batches), seed_of(self._seed, _BATCH_STREAM), epoch)
        self._batches = [batches[place] for place in places]
        return len(batches)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch of queries with all their answers."""
        self._set_learning_rate(epoch, batch)
        with self._clock.stage("sample"):
            queries, row, answers, candidates = self._draw(epoch, batch)
        with self._clock.stage("compute"):
            loss = self._loss(queries, row, answers, candidates, epoch, batch)
            value = find_gradients(loss, [self._optimizer], self._processes)
        if math.isfinite(value):  # the loop stops at any other, before rows take it up
            with self._clock.stage("push"):
                self._optimizer.step()
        return value, len(answers)

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return the entities and directed relations of a batch, its answers, and its candidates."""
        queries, row, answers, candidates = self._draw(epoch, batch)
        return {
            "entities": self.queries.entities[queries],
            "relations": self.queries.relations[queries],
            "rows": row,
            "answers": answers,
            "candidates": candidates,
        }

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return MRR and hits on the validation fold, every few epochs and after the last."""
        if self._config.sees_validation:
            return {}
        if (epoch + 1) % self._config.validate_every and epoch + 1 != self.epochs:
            return {}
        trained = self.trained("", None)
        triples = sampled_triples(
            self._split.validation, _VALIDATION_TRIPLES, seed_of(self._seed, _VALIDATION_STREAM)
        )
        part = triples[self._processes.slice_of(len(triples))]
        report: Mapping[str, float] = {}
        if len(part) or not len(triples):  # which is refused
            report = rank_triples(
                self._split,
                "validation",
                dict(zip(self._split.node_types, self._num_nodes, strict=True)),
                self._scores_of(trained),
                removed=self._removed,
                triples=part,
                threads=self._threads,
            )
        names = ("mrr", "hits@1", "hits@10")
        figures = {f"validation_{name}": float(report.get(name, 0.0)) for name in names}
        return self._processes.mean("validation figures", figures, len(part))

    def dense(self) -> dict[str, Tensor]:
        """Return no parameters: the model has rows alone."""
        return {}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding tables of entities and relations."""
        tables = {_ENTITIES: self.model.entities.table, _RELATIONS: self.model.relations.table}
        return {name: table_below(each) for name, each in tables.items()}

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:  # noqa: ARG002
        """Take up the state that :meth:`tables` returned."""
        self._set_tables(dict(tables))

    def trained(self, name: str, view: GraphView | None) -> TrainedModel:  # noqa: ARG002 - the loop's interface
        """Return the rows of entities and relations; they ask nothing of the graph."""
        split, config = self._split, self._config
        tables = self.tables()
        entities = tables[_ENTITIES]
        embeddings = {
            node_type: entities.pull(np.arange(start, start + count), create=False)
            for node_type, start, count in zip(split.node_types, self._offsets, self._num_nodes, strict=False)
        }
        triples = TripleRows(
            kind=config.kind,
            distance=config.distance if isinstance(config, TranslationSection) else None,
            reciprocal=config.reciprocal,
            relations=split.relations,
            node_types=split.node_types,
            relation_ends=split.relation_ends,
            rows=tables[_RELATIONS].pull(self._relation_keys, create=False),
        )
        return TrainedModel(
            name, "knowledge_graph", config.task, split.node_type, embeddings, triples=triples
        )

    # ----------------------------------------------------------------------------- details

    def _scores_of(self, trained: TrainedModel) -> TripleScores | DeviceTriples:
        """Return what scores triples: on the device, if it has room for all rows."""
        assert trained.triples is not None  # noqa: S101 - for the type checker
        rows = [trained.triples.rows, *trained.embeddings.values()]
        if place_of(sum(each.nbytes for each in rows), self._device) == CPU:
            return trained.score_triples
        return DeviceTriples(trained.triples, trained.embeddings, self._device)

    def _draw(
        self, epoch: int, batch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the queries of a batch, the row and node of each answer, and the candidates, ascending."""
        number, queries = self._batches[batch]
        row, answers = self.queries.of_queries(queries)
        live = self._live[number]
        if self._config.loss == "softmax":
            return queries, row, answers, live.nodes(np.arange(len(live)))
        drawn = live.nodes(
            self._samplers[number].sample(self._config.candidates, epoch, batch, self._threads)
        )
        return queries, row, answers, np.unique(np.concatenate([drawn, answers]))

    def _loss(
        self,
        queries: NDArray[np.int64],
        row: NDArray[np.int64],
        answers: NDArray[np.int64],
        candidates: NDArray[np.int64],
        epoch: int,
        batch: int,
    ) -> Tensor:
        """Return the loss of a batch, or of several processes the share of this one's queries.

        Candidates are those of all queries: each process looks a slice of them up, and all get their rows.
        """
        config, processes = self._config, self._processes
        number, _ = self._batches[batch]
        num_queries, num_answers = len(queries), len(answers)
        part, some = processes.slice_of(num_queries), processes.slice_of(len(candidates))
        of_part = slice(*np.searchsorted(row, (part.start, part.stop)))
        queries, row, answers = queries[part], row[of_part] - part.start, answers[of_part]
        relations = self.queries.relations[queries]
        asked = self.queries.entities[queries] + self._offsets[self._asked_types[relations]]
        self.model.train()
        vectors, entity_rows, relation_rows, some_rows = self.model(
            *(self._tensor(each) for each in (asked, relations, candidates[some] + self._offsets[number]))
        )
        candidate_rows = processes.gather_slices("candidates", some_rows, len(candidates))
        if config.dropout:
            vectors = vectors * self._kept(num_queries, part, epoch, batch)
        scores = self._score(vectors, candidate_rows)
        of_query = self._tensor(row)
        column = self._tensor(np.searchsorted(candidates, answers))
        found = scores[of_query, column]
        excluded = torch.zeros(scores.shape, dtype=torch.bool, device=self._device)
        excluded[of_query, column] = True
        against = scores.masked_fill(excluded, -torch.inf)
        if config.loss == "self_adversarial":
            loss = self_adversarial(found, against, of_query, config.adversarial_temperature)
        else:
            drawn = config.loss == "sampled_softmax"
            log_probability = self._log_probability[number][candidates] if drawn else None
            loss = info_nce(
                found,
                against,
                of_query,
                log_probability=None if log_probability is None else self._tensor(log_probability),
            )
        loss = processes.share(loss, len(answers), num_answers)
        if config.regularization:
            cubes = self._cubes(entity_rows, of_query) + self._cubes(relation_rows, of_query)
            loss = loss + config.regularization * (cubes + self._cubes(candidate_rows, column)) / num_answers
        return loss

    def _cubes(self, rows: Tensor, used: Tensor) -> Tensor:
        """Return the sum of the cubes of the sizes of the numbers of the rows of all positives: float32 [].

        Args:
            rows: float32 [n, dim].
            used: int64 [positives], the row of each. What stands in several triples counts for each of them.
        """
        times = torch.bincount(used, minlength=len(rows))
        if len(used) < len(rows):  # most candidates are in no triple of the batch
            places = times.nonzero().squeeze(1)
            rows, times = rows.index_select(0, places), times[places]
        cubes = self._score.sizes(rows).pow(3).sum(dim=1)
        return torch.dot(cubes, times.to(cubes.dtype))

    def _kept(self, queries: int, part: slice, epoch: int, batch: int) -> Tensor:
        """Return what the numbers of a part of the queries are multiplied by: float32 [part, dim]."""
        generator = np.random.default_rng([self._seed, _DROPOUT_STREAM, epoch, batch])
        # Drawn for all, so that a part leaves out what it does in the whole.
        drawn = generator.random((queries, self._score.dim), dtype=np.float32)
        kept = drawn[part] >= self._config.dropout
        return self._tensor(kept.astype(np.float32) / np.float32(1.0 - self._config.dropout))

    def _inclusion(self) -> list[NDArray[np.float32]]:
        """Return the logarithm of how likely each entity is a candidate of a batch, by type.

        It is if it is drawn, or the answer of a query of the batch.
        """
        found = []
        for number, queries in enumerate(self._queries_by_type):
            _, answers = self.queries.of_queries(queries)
            queries_of = np.bincount(answers, minlength=self._num_nodes[number])
            share = min(1.0, self._config.batch_size / max(1, len(queries)))
            drawn = -math.expm1(
                self._config.candidates * math.log1p(-min(1.0 / len(self._live[number]), 1 - 1e-9))
            )
            absent = (1.0 - drawn) * (1.0 - min(share, 1 - 1e-9)) ** queries_of
            found.append(np.log1p(-absent).astype(np.float32))
        return found

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return tensor_on(array, self._device)

    def _new_table(self, name: str) -> EmbeddingTable:
        config, of_entities = self._config, name == _ENTITIES
        angles = config.kind == "rotate" and not of_entities
        return self._memory.new_table(
            name,
            self._score.dim if of_entities else self._score.relation_dim,
            "adagrad",
            config.learning_rate,
            rows=sum(self._num_nodes) if of_entities else len(self._relation_keys),
            init_scale=math.pi if angles else config.initial_row_scale,
            seed=seed_of(self._seed, _ROW_STREAM, 0 if of_entities else 1),
            threads=self._threads,
        )

    def _set_tables(self, tables: Mapping[str, EmbeddingTable]) -> None:
        near = self._memory.near(tables)
        self.model = KnowledgeGraphModel(
            TableEmbedding(near[_ENTITIES]),
            TableEmbedding(near[_RELATIONS]),
            self._score,
            len(self._split.relations),
            reciprocal=self._config.reciprocal,
        ).to(self._device)
        self._optimizer = TableOptimizer(self.model)

    def _set_learning_rate(self, epoch: int, batch: int) -> None:
        done = (epoch + batch / len(self._batches)) / self.epochs
        set_table_learning_rates(self.tables().values(), self._config, self._config.learning_rate, done)


def make_completion_trainer(config: KnowledgeGraphConfig, assignment: Assignment) -> CompletionTrainer:
    """Return the trainer of a section of kind ``distmult``, ``complex``, ``transe`` or ``rotate``.

    Raises:
        UsageError: the model has no task of kind complete.
    """
    split, task = assignment.split, assignment.task
    if not isinstance(split, CompleteSplit) or not isinstance(task, CompleteTaskConfig):
        raise assignment.wrong_task(config)
    return CompletionTrainer(
        assignment.view,
        split,
        config,
        seed=assignment.seed,
        threads=assignment.threads,
        clock=assignment.clock,
        memory=assignment.memory,
        device=assignment.device,
        processes=assignment.processes,
    )
