"""Splits the edges of a task of kind `recommend`, by pairs of groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import (
    GivenSplitConfig,
    LeaveLastOutSplitConfig,
    RecommendTaskConfig,
    TimeSplitConfig,
)
from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.graph.schema import edge_type_text
from graphbox.train.splitting.at_random import Pairing, PartedLinks, split_at_random
from graphbox.train.splitting.edges import (
    distinct,
    distinct_pairs,
    edge_column,
    ends_of,
    single_alternatives,
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
    digest_of,
    given_part,
    latest_parts,
    unit_hash,
)
from graphbox.train.tasks import FOLDS, RecommendSplit, distinct_keys, pair_keys


@dataclass(frozen=True, eq=False)
class _Answers:
    """The edges of a task's relations.

    Attributes:
        edges: int64 [e, 2], query and target.
        relation: int16 [e], the number of the relation.
        single: bool [e], whether the edge is a single alternative.
        time: int64 [e]; empty where the split asks for none.
        part: int8 [e], the part that the data says.
    """

    edges: NDArray[np.int64]
    relation: NDArray[np.int16]
    single: NDArray[np.bool_]
    time: NDArray[np.int64]
    part: NDArray[np.int8]


def split_recommend(
    graph: Graph, task: RecommendTaskConfig, seed: int, folder: Path | None = None
) -> RecommendSplit:
    """Split the edges of the task; see :func:`graphbox.train.make_split`."""
    one_type = task.node_type == task.candidate_type
    groups = node_groups(graph, task.node_type, task.group)
    target_groups = groups if one_type else node_groups(graph, task.candidate_type, None)
    linked = [np.empty(0, np.uint64)]
    for relation in task.exclude_relations:
        source, target = graph.csc((task.node_type, relation, task.candidate_type)).coo()
        linked.append(
            pair_keys(groups.of_nodes[source], target_groups.of_nodes[target], ordered=not one_type)
        )
    pairing = Pairing(groups, target_groups, not one_type, distinct_keys(np.concatenate(linked)))
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    held_out = () if given is None else (*given.validation_relations, *given.test_relations)
    relations = (*task.relations, *held_out)
    if task.split.kind == "random":
        parted = split_at_random(graph, task, seed, pairing, folder)
    else:
        parted = _split_whole(graph, task, seed, pairing, len(relations))
    for part, name in enumerate(FOLDS):
        if not len(parted.links[part]):
            raise DataError(
                f"expected edges of {', '.join(task.relations)} in each fold, received none in {name}",
                where=f"{task.node_type} to {task.candidate_type}",
                hint=why_empty(task.split.kind),
            )
    train, validation, test = (parted.links[part] for part in (TRAIN, VALIDATION, TEST))
    return RecommendSplit(
        node_type=task.node_type,
        target_type=task.candidate_type,
        relations=relations,
        held_out_relations=held_out,
        exclude_relations=task.exclude_relations,
        group=groups.of_nodes,
        target_group=target_groups.of_nodes,
        train=train,
        validation=validation,
        test=test,
        validation_joined_by=parted.joined_by[VALIDATION],
        test_joined_by=parted.joined_by[TEST],
        validation_pairs=parted.pairs[VALIDATION],
        test_pairs=parted.pairs[TEST],
        ignored_pairs=parted.pairs.get(IGNORED, np.empty(0, np.uint64)),
        linked_pairs=pairing.linked,
        repeated=parted.repeated,
        digest=digest_of(task.model_dump_json(), seed, groups.of_nodes, train, validation, test),
    )


def _split_whole(
    graph: Graph, task: RecommendTaskConfig, seed: int, pairing: Pairing, relations: int
) -> PartedLinks:
    """Return the parts of a task's edges by their times, by the last of each query, or as the data says."""
    answers = _answers(graph, task)
    keys = pairing.keys(answers.edges)
    eligible = pairing.may_be_held_out(keys)
    pairs, pair_of_edge = distinct_pairs(keys)
    wanted = _edge_parts(task, answers, pairs, pair_of_edge, pairing.texts(pairs), seed)
    # What is known once is known: the earliest part of a pair's edges is the pair's.
    pair_part = np.full(len(pairs), IGNORED, dtype=np.int8)
    np.minimum.at(pair_part, pair_of_edge, wanted)
    # What may not be held out is known, unless the data says that it is in no part.
    part = pair_part[pair_of_edge]
    del pairs, pair_of_edge
    fold = np.where(eligible | (part == IGNORED), part, TRAIN).astype(np.int8)
    found, joined_by = {TRAIN: distinct(answers.edges[fold == TRAIN])}, {}
    for each in (VALIDATION, TEST):
        chosen = (fold == each) & answers.single
        found[each] = distinct(answers.edges[chosen])
        joined_by[each] = _joined_by(found[each], answers, chosen, relations)
    return PartedLinks(
        found,
        joined_by,
        {each: distinct_keys(keys[fold == each]) for each in (VALIDATION, TEST, IGNORED)},
        int((eligible & (wanted > fold) & (wanted != IGNORED)).sum()),
    )


def _answers(graph: Graph, task: RecommendTaskConfig) -> _Answers:
    """Return the edges of the task's relations, those that are held out as a whole included."""
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    relations = [(relation, TRAIN) for relation in task.relations]
    if given is not None:
        relations += [(relation, VALIDATION) for relation in given.validation_relations]
        relations += [(relation, TEST) for relation in given.test_relations]
    edges, numbers, single, part = [], [], [], []
    times = [np.empty(0, np.int64)]
    for number, (relation, its_part) in enumerate(relations):
        edge_type = (task.node_type, relation, task.candidate_type)
        csc = graph.csc(edge_type)
        ends = ends_of(csc)
        edges.append(ends)
        numbers.append(np.full(len(ends), number, dtype=np.int16))
        single.append(
            np.ones(len(ends), bool)
            if task.alternative is None
            else single_alternatives(graph, edge_type, task.alternative, ends[:, 0])
        )
        if isinstance(task.split, TimeSplitConfig | LeaveLastOutSplitConfig):
            times.append(timestamps(csc, edge_type, task.split.kind))
        if given is not None and given.feature is not None:
            spec = graph.edge_features(edge_type).get(given.feature)
            part_of = given_part(spec, given, f"edge type {edge_type_text(edge_type)}")
            part.append(part_of[edge_column(graph, edge_type, given.feature)])
        else:
            part.append(np.full(len(ends), its_part, dtype=np.int8))
    return _Answers(
        together(edges), together(numbers), together(single), np.concatenate(times), together(part)
    )


def _joined_by(
    pairs: NDArray[np.int64], answers: _Answers, chosen: NDArray[np.bool_], relations: int
) -> NDArray[np.bool_]:
    """Return which relations' chosen edges join each pair: bool [pairs, relations]."""
    keys = pair_keys(pairs[:, 0], pairs[:, 1], ordered=True)
    edges, number = answers.edges[chosen], answers.relation[chosen]
    of_edges = pair_keys(edges[:, 0], edges[:, 1], ordered=True)
    return np.stack([np.isin(keys, of_edges[number == each]) for each in range(relations)], axis=1)


def _edge_parts(
    task: RecommendTaskConfig,
    answers: _Answers,
    pairs: NDArray[np.uint64],
    pair_of_edge: NDArray[np.int64],
    texts: Iterable[str],
    seed: int,
) -> NDArray[np.int8]:
    """Return the part that each edge would be in by itself: int8 [e]."""
    match task.split.kind:
        case "time":
            return latest_parts(_first_time(answers.time, len(pairs), pair_of_edge), task)[pair_of_edge]
        case "leave_last_out":
            first = _first_time(answers.time, len(pairs), pair_of_edge)
            return _last_of_each(answers, first, pair_of_edge, unit_hash(seed, texts))
    part = answers.part.copy()
    if not (part == VALIDATION).any():
        known = np.zeros(len(pairs), dtype=bool)
        known[pair_of_edge[part == TRAIN]] = True
        cut = known & (unit_hash(seed, texts) < task.validation_fraction)
        part[cut[pair_of_edge] & (part == TRAIN)] = VALIDATION
    return part


def _first_time(time: NDArray[np.int64], pairs: int, pair_of_edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when the first edge of each pair came to be: int64 [pairs]."""
    first = np.full(pairs, np.iinfo(np.int64).max)
    np.minimum.at(first, pair_of_edge, time)
    return first


def _last_of_each(
    answers: _Answers,
    first: NDArray[np.int64],
    pair_of_edge: NDArray[np.int64],
    number: NDArray[np.float64],
) -> NDArray[np.int8]:
    """Return the part of each edge: test for a query's last pair, validation for the one before.

    What came at the same time is ordered by the hash of the pair.
    """
    _, one = np.unique(np.stack([answers.edges[:, 0], pair_of_edge], axis=1), axis=0, return_index=True)
    query, pair = answers.edges[one, 0], pair_of_edge[one]
    order = np.lexsort((number[pair], first[pair], query))
    query, pair = query[order], pair[order]
    end = np.flatnonzero(np.diff(query, append=-1)) + 1
    count = np.diff(end, prepend=0)
    end = end[count >= 3]
    part = np.zeros(len(first), dtype=np.int8)
    part[pair[end - 2]] = VALIDATION
    part[pair[end - 1]] = TEST
    return part[pair_of_edge]
