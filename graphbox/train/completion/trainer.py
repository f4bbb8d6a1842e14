"""Trains models of knowledge graphs for a complete task.

A batch is some distinct queries, (head, relation) or (tail, relation backwards), each with all its answers
that are known. They share candidates: all entities of the answers' type, or some that are drawn once for the
batch and the batch's answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import CompleteTaskConfig, KnowledgeGraphSection
from graphbox.config.models.knowledge_graph import TranslationSection
from graphbox.graph.live_rows import LiveRows
from graphbox.models.knowledge_graph import KnowledgeGraphModel
from graphbox.sample import NegativeSampler, permutation
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.completion.evaluation import TripleScores, rank_triples, sampled_triples
from graphbox.train.completion.queries import DirectedQueries, answer_types
from graphbox.train.completion.triple_rows import DeviceTriples, TripleRows, score_of
from graphbox.train.losses import info_nce, self_adversarial
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seed_of
from graphbox.train.tasks import CompleteSplit
from graphbox.train.torch_trainer import TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.transfer import CPU, place_of, tensor_on
from graphbox.train.view import GraphView

_ENTITIES, _RELATIONS = "entities", "relations"

VALIDATION_TRIPLES = 2048
"""Triples of the validation part that are asked for after some epochs, at most."""

_QUERY_STREAM, _BATCH_STREAM, _CANDIDATE_STREAM, _DROPOUT_STREAM, _ROW_STREAM, _VALIDATION_STREAM = range(
    1, 7
)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A batch in all processes.

    Attributes:
        queries: int64 [queries], numbers of directed queries.
        row: int64 [answers], the query of each answer.
        answers: int64 [answers], nodes.
        candidates: int64 [candidates], nodes, ascending; the answers are among them.
    """

    queries: NDArray[np.int64]
    row: NDArray[np.int64]
    answers: NDArray[np.int64]
    candidates: NDArray[np.int64]


class CompletionTrainer(TorchTrainer[_Drawn]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``complete``.

    Raises:
        UsageError: the task is of another kind.
    """

    def __init__(self, config: KnowledgeGraphSection, assignment: Assignment) -> None:
        split, view = assignment.split, assignment.view
        if not isinstance(split, CompleteSplit) or not isinstance(assignment.task, CompleteTaskConfig):
            raise assignment.wrong_task(config)
        super().__init__(
            assignment,
            OptimizerSettings(config, config.learning_rate),
            epochs=config.epochs,
            validate_every=config.validate_every,
            # A model that learns from the validation part ends in its last state.
            selection=None if config.sees_validation else Selection("validation_mrr", config.patience),
        )
        self._split, self._config = split, config
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
            NegativeSampler.uniform(len(live), seed_of(self._seed, _CANDIDATE_STREAM, number))
            for number, live in enumerate(self._live)
        ]
        self._log_probability = self._inclusion()
        self._score = score_of(config, config.kind)
        self._queries_of_batches: list[tuple[int, NDArray[np.int64]]] = []
        directions = 2 if config.reciprocal else 1
        self._relation_keys = np.arange(directions * len(split.relations))
        tables = self._new_tables()
        self._batches = BatchesAhead(self._draw, self._keys, tables)
        near = self._memory.near(tables)
        self.network: KnowledgeGraphModel = KnowledgeGraphModel(
            TableEmbedding(near[_ENTITIES]),
            TableEmbedding(near[_RELATIONS]),
            self._score,
            len(split.relations),
            reciprocal=config.reciprocal,
        )
        self.set_network(self.network)

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Shuffle the queries into batches whose answers are of one type; return how many."""
        size = self._config.batch_size
        batches = []
        for number, queries in enumerate(self._queries_by_type):
            order = queries[permutation(len(queries), seed_of(self._seed, _QUERY_STREAM, number), epoch)]
            batches += [(number, order[start : start + size]) for start in range(0, len(order), size)]
        places = permutation(len(batches), seed_of(self._seed, _BATCH_STREAM), epoch)
        self._batches.close()
        self._queries_of_batches = [batches[place] for place in places]
        return len(batches)

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return the entities and directed relations of a batch, its answers, and its candidates."""
        drawn = self._draw(epoch, batch)
        return {
            "entities": self.queries.entities[drawn.queries],
            "relations": self.queries.relations[drawn.queries],
            "rows": drawn.row,
            "answers": drawn.answers,
            "candidates": drawn.candidates,
        }

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of entities by type, and of relations by name."""
        names, split = list(self._split.relations), self._split
        if self._config.reciprocal:
            names += [f"{name} (backwards)" for name in split.relations]
        first = dict(zip(split.node_types, self._offsets.tolist(), strict=False))
        return {_ENTITIES: RowKeys.of_nodes(first), _RELATIONS: RowKeys.of_names(names)}

    def measures(self) -> bool:
        """Return whether the validation part is held out."""
        return not self._config.sees_validation

    def measured(self) -> Mapping[str, float]:
        """Return MRR and hits on the validation part."""
        trained = self.trained("", None)
        triples = sampled_triples(
            self._split.validation, VALIDATION_TRIPLES, seed_of(self._seed, _VALIDATION_STREAM)
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

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of entities and relations."""
        return {_ENTITIES: self.network.entities, _RELATIONS: self.network.relations}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, module in self.table_modules().items():
            module.set_table(tables[name])
        self._batches = BatchesAhead(self._draw, self._keys, self.tables())

    def close(self) -> None:
        """End the reading of rows ahead."""
        self._batches.close()

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

    def draw(self, epoch: int, batch: int) -> _Drawn:
        """Return a batch of queries, their answers, and the candidates."""
        return self._batches.take(epoch, batch, self._num_batches)

    def _keys(self, drawn: _Drawn) -> dict[str, NDArray[np.int64]]:
        """Return the keys of the rows that a batch reads, by table."""
        relations = self.queries.relations[drawn.queries]
        asked = self.queries.entities[drawn.queries] + self._offsets[self._asked_types[relations]]
        first = self._offsets[self._answer_types[relations[0]]]
        return {
            _ENTITIES: np.concatenate([asked, drawn.candidates + first]),
            _RELATIONS: self._relation_keys[relations % len(self._relation_keys)],
        }

    def _draw(self, epoch: int, batch: int) -> _Drawn:
        number, queries = self._queries_of_batches[batch]
        row, answers = self.queries.of_queries(queries)
        live = self._live[number]
        if self._config.loss == "softmax":
            return _Drawn(queries, row, answers, live.nodes(np.arange(len(live))))
        drawn = live.nodes(
            self._samplers[number].sample(self._config.candidates, epoch, batch, self._threads)
        )
        return _Drawn(queries, row, answers, np.unique(np.concatenate([drawn, answers])))

    def loss(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, int]:
        """Return the loss of a batch, or this process's share of it.

        Each process looks up a slice of the candidates, and all processes get their rows.
        """
        queries, row, answers, candidates = drawn.queries, drawn.row, drawn.answers, drawn.candidates
        config, processes = self._config, self._processes
        number, _ = self._queries_of_batches[batch]
        num_queries, num_answers = len(queries), len(answers)
        part, some = processes.slice_of(num_queries), processes.slice_of(len(candidates))
        of_part = slice(*np.searchsorted(row, (part.start, part.stop)))
        queries, row, answers = queries[part], row[of_part] - part.start, answers[of_part]
        relations = self.queries.relations[queries]
        asked = self.queries.entities[queries] + self._offsets[self._asked_types[relations]]
        vectors, entity_rows, relation_rows, some_rows = self.network(
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
            is_sampled = config.loss == "sampled_softmax"
            log_probability = self._log_probability[number][candidates] if is_sampled else None
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
        return loss, num_answers

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

    def _new_tables(self) -> dict[str, Table]:
        sizes = {
            _ENTITIES: sum(self._num_nodes) * self._score.dim,
            _RELATIONS: len(self._relation_keys) * self._score.relation_dim,
        }
        return {name: self._new_table(name, share) for name, share in self._memory.shares(sizes).items()}

    def _new_table(self, name: str, share: float) -> Table:
        config, of_entities = self._config, name == _ENTITIES
        angles = config.kind == "rotate" and not of_entities
        return self._memory.new_table(
            name,
            self._score.dim if of_entities else self._score.relation_dim,
            "adagrad",
            config.learning_rate,
            share=share,
            rows=sum(self._num_nodes) if of_entities else len(self._relation_keys),
            init_scale=math.pi if angles else config.initial_row_scale,
            seed=seed_of(self._seed, _ROW_STREAM, 0 if of_entities else 1),
            threads=self._threads,
        )
