"""Decides which edges a predict_links task holds out, and with which pairs they are to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import GivenSplitConfig, PredictLinksTaskConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import CSR, edge_type_text
from graphbox.native import seed_number
from graphbox.sample import NegativeSampler
from graphbox.train.splitting.edges import (
    distinct,
    distinct_pairs,
    edge_column,
    ends_of,
    pair_texts,
    timestamps,
    together,
    why_empty,
)
from graphbox.train.splitting.groups import node_groups
from graphbox.train.splitting.parts import (
    IGNORED,
    TEST,
    TRAIN,
    VALIDATION,
    cut_latest,
    digest_of,
    fold_of,
    given_part,
    latest_parts,
    unit_hash,
)
from graphbox.train.tasks import FOLDS, LinkSplit, distinct_keys, pair_keys

_NO_TIME = np.empty(0, np.int64)
_NO_ORIGIN = np.empty((0, 2), np.int64)


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges of several relations between two types, those of training first.

    Attributes:
        ends: int64 [e, 2], source and target.
        origin: int64 [e, 2], number of the relation and edge id; or empty where the edges are no events.
        time: int64 [e], or empty where the edges are no events.
        part: int8 [e], the part that the data says.
    """

    ends: NDArray[np.int64]
    origin: NDArray[np.int64]
    time: NDArray[np.int64]
    part: NDArray[np.int8]

    def take(self, order: NDArray[np.int64]) -> _Edges:
        time, origin = (each[order] if len(each) else each for each in (self.time, self.origin))
        return _Edges(self.ends[order], origin, time, self.part[order])


def split_links(
    graph: Graph,
    task: PredictLinksTaskConfig,
    seed: int,
    folder: Path | None = None,  # noqa: ARG001 - arrays are in memory
) -> LinkSplit:
    """Hold out edges of a task's relations, and draw or take the negatives of each part.

    Raises:
        UsageError: an edge type or column that the task names is not there; or events are of a reverse edge
            type.
        DataError: a part stays empty.
    """
    one_type = task.node_type == task.candidate_type
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    held_out = () if given is None else (*given.validation_relations, *given.test_relations)
    relations = (*task.relations, *held_out)
    edges = _edges_of(graph, task, relations, events=_are_events(graph, task, relations))
    if len(edges.time):
        _check_own(graph, task, relations)
    if len(edges.time):
        edges = edges.take(np.lexsort((edges.origin[:, 1], edges.origin[:, 0], edges.time)))
    keys = pair_keys(edges.ends[:, 0], edges.ends[:, 1], ordered=not one_type)
    pairs, pair_of_edge = distinct_pairs(keys)
    wanted = _parts(graph, task, edges, pairs, pair_of_edge, seed)
    wanted[(wanted != IGNORED) & np.isin(keys, _linked_pairs(graph, task))] = TRAIN
    # What is known once is known: the earliest part of a pair's edges is the pair's.
    pair_part = np.full(len(pairs), IGNORED, dtype=np.int8)
    np.minimum.at(pair_part, pair_of_edge, wanted)
    later = np.flatnonzero(wanted > pair_part[pair_of_edge])
    if len(edges.time):
        fold, repeated = wanted, 0
        rows = np.concatenate([np.flatnonzero(fold == number) for number in range(len(FOLDS))])
        ends, time, origin = edges.ends[rows], edges.time[rows], edges.origin[rows]
        later_edges = np.column_stack([wanted[later], edges.origin[later]]).astype(np.int64)
    else:
        fold = pair_part[pair_of_edge]
        repeated = int((wanted[later] != IGNORED).sum())
        found = [distinct(edges.ends[fold == number]) for number in range(len(FOLDS))]
        ends, time, origin = np.concatenate(found), _NO_TIME, _NO_ORIGIN
        later_edges = np.empty((0, 3), np.int64)
        rows = np.repeat(np.arange(len(FOLDS)), [len(each) for each in found])
    edge_fold = (fold[rows] if len(edges.time) else rows).astype(np.int8)
    for number, name in enumerate(FOLDS):
        if not (edge_fold == number).any():
            raise DataError(
                f"expected edges of {', '.join(relations)} in each fold, received none in {name}",
                where=f"{task.node_type} to {task.candidate_type}",
                hint=why_empty(task.split.kind),
            )
    negatives = _Negatives(graph, task, ends, edge_fold, time, seed, joined=edges.ends)
    held = pair_part != TRAIN
    return LinkSplit(
        node_type=task.node_type,
        target_type=task.candidate_type,
        relations=relations,
        held_out_relations=held_out,
        negative_relations=task.negative_relations,
        sources=graph.num_nodes(task.node_type),
        targets=graph.num_nodes(task.candidate_type),
        edges=ends,
        fold=edge_fold,
        time=time,
        origin=origin,
        query=negatives.query,
        negatives=negatives.ends,
        negative_fold=negatives.fold,
        negative_time=negatives.time,
        negative_query=negatives.negative_query,
        later_edges=later_edges,
        pairs=pairs[held],
        pair_fold=pair_part[held],
        repeated=repeated,
        unused_negatives=negatives.unused,
        digest=digest_of(task.model_dump_json(), seed, ends, edge_fold, time, negatives.ends),
    )


# ------------------------------------------------------------------------------------ edges


def _are_events(graph: Graph, task: PredictLinksTaskConfig, relations: Iterable[str]) -> bool:
    if task.split.kind in ("time", "leave_last_out"):
        return True
    edge_types = [(task.node_type, relation, task.candidate_type) for relation in relations]
    return task.split.kind == "given" and all(
        graph.csc(edge_type).timestamp is not None for edge_type in edge_types
    )


def _check_own(graph: Graph, task: PredictLinksTaskConfig, relations: Iterable[str]) -> None:
    for relation in relations:
        edge_type = (task.node_type, relation, task.candidate_type)
        if graph.is_reverse(edge_type):
            raise UsageError(
                "expected a relation that has events of its own, received one that is the reverse of another",
                where=f"edge type {edge_type_text(edge_type)}",
                hint="name the other one, with its ends: both are held out together",
            )


def _edges_of(
    graph: Graph, task: PredictLinksTaskConfig, relations: Iterable[str], *, events: bool
) -> _Edges:
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    ends, origin, times, part = [], [_NO_ORIGIN], [_NO_TIME], []
    for number, relation in enumerate(relations):
        edge_type = (task.node_type, relation, task.candidate_type)
        csc = graph.csc(edge_type)
        ends.append(ends_of(csc))
        if events:
            ids = csc.ids_at(np.arange(csc.num_edges))
            origin.append(np.stack([np.full(len(ids), number), ids], axis=1))
            times.append(timestamps(csc, edge_type, task.split.kind))
        if given is not None and given.feature is not None:
            spec = graph.edge_features(edge_type).get(given.feature)
            part_of = given_part(spec, given, f"edge type {edge_type_text(edge_type)}")
            part.append(part_of[edge_column(graph, edge_type, given.feature)])
        else:
            part.append(np.full(csc.num_edges, _part_of_relation(given, relation), dtype=np.int8))
    return _Edges(together(ends), np.concatenate(origin), np.concatenate(times), together(part))


def _part_of_relation(given: GivenSplitConfig | None, relation: str) -> int:
    if given is not None and relation in given.validation_relations:
        return VALIDATION
    return TEST if given is not None and relation in given.test_relations else TRAIN


def _linked_pairs(graph: Graph, task: PredictLinksTaskConfig) -> NDArray[np.uint64]:
    ordered = task.node_type != task.candidate_type
    linked = [pair_keys(ends[:, 0], ends[:, 1], ordered=ordered) for ends in _linked_ends(graph, task)]
    return distinct_keys(np.concatenate([np.empty(0, np.uint64), *linked]))


def _linked_ends(graph: Graph, task: PredictLinksTaskConfig) -> list[NDArray[np.int64]]:
    """Return the pairs that the task's excluded relations join: int64 [edges, 2] of each."""
    edge_types = [(task.node_type, relation, task.candidate_type) for relation in task.exclude_relations]
    return [np.stack(graph.csc(edge_type).coo(), axis=1).astype(np.int64) for edge_type in edge_types]


def _parts(
    graph: Graph,
    task: PredictLinksTaskConfig,
    edges: _Edges,
    pairs: NDArray[np.uint64],
    pair_of_edge: NDArray[np.int64],
    seed: int,
) -> NDArray[np.int8]:
    """Return the part that each edge would be in by itself: int8 [e]."""
    match task.split.kind:
        case "random":
            return fold_of(_hash_of_pairs(graph, task, pairs, seed), task)[pair_of_edge]
        case "time":
            return latest_parts(edges.time, task)
        case "leave_last_out":
            return _last_events(edges.ends[:, 0])
    part = edges.part.copy()
    if not (part == VALIDATION).any():
        part = _cut_validation(graph, task, edges, pairs, pair_of_edge, seed)
    return part


def _cut_validation(
    graph: Graph,
    task: PredictLinksTaskConfig,
    edges: _Edges,
    pairs: NDArray[np.uint64],
    pair_of_edge: NDArray[np.int64],
    seed: int,
) -> NDArray[np.int8]:
    """Cut the share for validation from train: of events the latest, of pairs at random."""
    part = edges.part.copy()
    trained = part == TRAIN
    if len(edges.time):
        return cut_latest(part, edges.time, task.validation_fraction, VALIDATION)
    known = np.zeros(len(pairs), dtype=bool)
    known[pair_of_edge[trained]] = True
    cut = known & (_hash_of_pairs(graph, task, pairs, seed) < task.validation_fraction)
    part[cut[pair_of_edge] & trained] = VALIDATION
    return part


def _hash_of_pairs(
    graph: Graph, task: PredictLinksTaskConfig, pairs: NDArray[np.uint64], seed: int
) -> NDArray[np.float64]:
    sources, targets = (node_groups(graph, each, None) for each in (task.node_type, task.candidate_type))
    ordered = task.node_type != task.candidate_type
    return unit_hash(seed, pair_texts(pairs, sources.texts, targets.texts, ordered=ordered))


def _last_events(source: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the part of each event, which ascend by time: test for the last of a source of three or more."""
    order = np.argsort(source, kind="stable")
    end = np.flatnonzero(np.diff(source[order], append=-1)) + 1
    count = np.diff(end, prepend=0)
    end = end[count >= 3]
    part = np.zeros(len(source), dtype=np.int8)
    part[order[end - 2]] = VALIDATION
    part[order[end - 1]] = TEST
    return part


# -------------------------------------------------------------------------------- negatives


def known_targets(
    edges: NDArray[np.int64], sources: int, targets: int, *, within_one_type: bool
) -> sp.csr_array:
    """Return the known targets of each source, ascending: 1 at each, float32 [sources, targets].

    Args:
        edges: int64 [e, 2], source and target.
        sources: number of source nodes.
        targets: number of target nodes.
        within_one_type: an edge makes its ends known to each other, both ways round.
    """
    keys = pair_keys(edges[:, 0], edges[:, 1], ordered=True)
    if within_one_type:
        keys = np.concatenate([keys, pair_keys(edges[:, 1], edges[:, 0], ordered=True)])
    keys = distinct_keys(keys)
    offsets = np.searchsorted(keys, np.arange(sources + 1, dtype=np.uint64) << np.uint64(32))
    indices = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return sp.csr_array((np.ones(len(keys), np.float32), indices, offsets), shape=(sources, targets))


class NonEdgeTargets:
    """Draws targets that no edge joins to a source, live ones alone; no node is drawn for itself.

    Args:
        joined: int64 [e, 2], source and target of the edges.
        sources: the live nodes of the source type.
        targets: the live nodes of the target type.
        popularity: int64, targets are drawn as often as they are in it; None: all live ones alike.
        seed: of the draws.
        within_one_type: an edge makes its ends known to each other, both ways round.
    """

    def __init__(
        self,
        joined: NDArray[np.int64],
        sources: LiveRows,
        targets: LiveRows,
        popularity: NDArray[np.int64] | None,
        seed: int,
        *,
        within_one_type: bool,
    ) -> None:
        self._sources, self._targets, self._within_one_type = sources, targets, within_one_type
        rows = np.column_stack([sources.rows(joined[:, 0]), targets.rows(joined[:, 1])])
        linked = known_targets(rows, len(sources), len(targets), within_one_type=within_one_type)
        known = CSR(linked.indptr.astype(np.int64), linked.indices, np.arange(linked.nnz), len(targets))
        if popularity is None:
            self._sampler = NegativeSampler.uniform(len(targets), seed, known_positives=known)
        else:
            degree = np.bincount(targets.rows(popularity), minlength=len(targets))
            self._sampler = NegativeSampler(degree, 1.0, seed, known_positives=known)

    def draw(self, sources: NDArray[np.int64], count: int, epoch: int = 0) -> NDArray[np.int64]:
        """Return targets for each source, -1 where it is joined to all: int64 [n, count]."""
        drawn = self._sampler.sample_for(
            self._sources.rows(sources),
            count,
            epoch=epoch,
            exclude_query=self._within_one_type,
            exhausted="fill",
        )
        return self._targets.nodes(drawn)


class _Negatives:
    """Negatives of both held-out parts: ``ends``, ``fold``, ``time``, and the queries of both sides.

    ``unused`` is how many of those given are in neither part.

    Drawn ones are none of ``joined``, the edges of all parts and of none, nor joined by an excluded relation.
    """

    def __init__(
        self,
        graph: Graph,
        task: PredictLinksTaskConfig,
        edges: NDArray[np.int64],
        fold: NDArray[np.int8],
        time: NDArray[np.int64],
        seed: int,
        *,
        joined: NDArray[np.int64],
    ) -> None:
        self._graph, self._task, self._seed = graph, task, seed
        self._joined = joined
        self._edges, self._fold, self._time = edges, fold, time
        self.query = np.full(len(edges), -1, dtype=np.int64)
        given = self._given() if task.negative_relations else None
        ends, folds, times, queries = [], [], [], []
        for number in (VALIDATION, TEST):
            rows = np.flatnonzero(fold == number)
            if given is not None and (given.part == number).any():
                of_part = given.take(np.flatnonzero(given.part == number))
                self._check_given(of_part, rows)
                pairs, when, query = self._take(of_part, rows)
            elif given is not None and number == TEST:
                raise DataError(
                    "expected negatives for the test part, received none",
                    where=f"negative_relations: {', '.join(task.negative_relations)}",
                    hint="the split cuts them where it cuts the edges: by time, by the column, by the hash",
                )
            else:
                pairs, when, query = self._draw(rows, number)
            ends.append(pairs)
            folds.append(np.full(len(pairs), number, dtype=np.int8))
            times.append(when)
            queries.append(query)
        self.ends = np.concatenate(ends)
        measured = () if given is None else np.isin(given.part, (VALIDATION, TEST))
        self.unused = len(measured) - int(np.count_nonzero(measured))
        self.fold = np.concatenate(folds)
        self.time = np.concatenate(times)
        self.negative_query = np.concatenate(queries)

    def _given(self) -> _Edges:
        """Return the given negatives, each with its part."""
        task = self._task
        edges = _edges_of(self._graph, task, task.negative_relations, events=len(self._time) > 0)
        match task.split.kind:
            case "random":
                keys = pair_keys(
                    edges.ends[:, 0], edges.ends[:, 1], ordered=task.node_type != task.candidate_type
                )
                pairs, pair_of_edge = distinct_pairs(keys)
                part = fold_of(_hash_of_pairs(self._graph, task, pairs, self._seed), task)[pair_of_edge]
            case "time":
                begins = [self._time[self._fold == number].min() for number in (VALIDATION, TEST)]
                part = np.searchsorted(begins, edges.time, side="right").astype(np.int8)
            case _:
                # Of splits without a column for them all are for the test.
                is_column = isinstance(task.split, GivenSplitConfig) and task.split.feature is not None
                part = edges.part if is_column else np.full(len(edges.ends), TEST, dtype=np.int8)
        given = _Edges(edges.ends, edges.origin, edges.time, part)
        if len(edges.time):
            given = given.take(np.lexsort((edges.origin[:, 1], edges.origin[:, 0], edges.time)))
        return given

    def _check_given(self, given: _Edges, rows: NDArray[np.int64]) -> None:
        """Refuse pairs that are both to be told and negatives; of events those of other times may be.

        Raises:
            DataError: there are some.
        """
        if len(self._time):
            return
        negatives, edges = given.ends, self._edges[rows]
        keys = pair_keys(negatives[:, 0], negatives[:, 1], ordered=True)
        wrong = np.flatnonzero(np.isin(keys, pair_keys(edges[:, 0], edges[:, 1], ordered=True)))
        if len(wrong):
            task = self._task
            ends = zip((task.node_type, task.candidate_type), given.ends[wrong[0]].tolist(), strict=True)
            first = " to ".join(str(self._graph.ids(node_type, [node])[0]) for node_type, node in ends)
            raise DataError(
                f"expected negatives that are no edges of the part they are in, received {len(wrong)} edges",
                where=f"negative_relations: {', '.join(task.negative_relations)}; first {first}",
                hint="take these rows out of the one table or the other",
            )

    def _take(
        self, given: _Edges, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return given negatives; an edge is ranked among those of its source, and of its time if any."""
        source = np.concatenate([self._edges[rows, 0], given.ends[:, 0]])
        columns = [source]
        if len(self._time):
            columns.append(np.concatenate([self._time[rows], given.time]))
        _, query = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        self.query[rows] = query[: len(rows)]
        return given.ends, given.time, query[len(rows) :]

    def _draw(
        self, rows: NDArray[np.int64], number: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return drawn negatives of each edge; one whose source is joined to every target has none."""
        task, edges = self._task, self._edges
        one_type = task.node_type == task.candidate_type
        live = [LiveRows.of_graph(self._graph, each) for each in (task.node_type, task.candidate_type)]
        sampler = NonEdgeTargets(
            np.concatenate([self._joined, *_linked_ends(self._graph, task)]),
            live[0],
            live[1],
            edges[self._fold == TRAIN, 1] if task.negative_distribution == "degree" else None,
            seed_number(self._seed),
            within_one_type=one_type,
        )
        drawn = sampler.draw(edges[rows, 0], task.negatives, epoch=number)
        self.query[rows] = rows
        query = np.repeat(rows, task.negatives)
        pairs = np.stack([np.repeat(edges[rows, 0], task.negatives), drawn.ravel()], axis=1)
        there = pairs[:, 1] >= 0
        if not there.any():
            raise DataError(
                "expected pairs that no edge joins, received sources that are joined to every target",
                where=f"{task.node_type} to {task.candidate_type}",
                hint="an edge type that joins everything leaves nothing to predict",
            )
        time = np.repeat(self._time[rows], task.negatives)[there] if len(self._time) else _NO_TIME
        return pairs[there], time, query[there]
