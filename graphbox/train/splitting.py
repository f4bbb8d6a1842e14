"""Decides what a task holds out: at random, by time, the last of each query, or as the data says.

What is random is a function of the original ids, the task and the seed alone: a keyed hash of each group's id
(or of a pair of ids) falls into test, validation or train. Adding nodes or reordering files moves nothing
else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphbox.config import (
    ClassifyTaskConfig,
    GivenSplitConfig,
    LeaveLastOutSplitConfig,
    RecommendTaskConfig,
    TaskConfig,
    TimeSplitConfig,
)
from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, EdgeType, FeatureSpec, edge_type_text
from graphbox.train.tasks import FOLDS, ClassifySplit, RecommendSplit, Split, pair_keys

__all__ = ["make_split", "unit_hash"]

_TRAIN, _VALIDATION, _TEST, _IGNORED = 0, 1, 2, 3
"""Parts in the order of :data:`graphbox.train.tasks.FOLDS`; an edge known earlier makes its pair known."""


def make_split(graph: Graph, task: TaskConfig, seed: int) -> Split:
    """Split the nodes or edges of a task into train, validation and test.

    Args:
        graph: the imported graph.
        task: the task's section of the run file.
        seed: seed of the hash.

    Raises:
        UsageError: the task names a feature or edge type that the graph does not have.
        DataError: a node has several groups, a value names no part, or a fold stays empty.
    """
    if isinstance(task, ClassifyTaskConfig):
        return _split_classify(graph, task, seed)
    return _split_recommend(graph, task, seed)


def unit_hash(seed: int, texts: Iterable[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each text: its 64-bit BLAKE2b keyed with the seed, as a fraction."""
    key = seed.to_bytes(8, "little")
    digests = b"".join(
        hashlib.blake2b(text.encode(), digest_size=8, key=key, person=b"graphbox").digest() for text in texts
    )
    return (np.frombuffer(digests, dtype="<u8") >> np.uint64(11)).astype(np.float64) / 2.0**53


def _fold_of(number: NDArray[np.float64], task: TaskConfig) -> NDArray[np.int8]:
    """Return 2 (test) below the test fraction, then 1 (validation) for its share of the rest, else 0."""
    validation_end = task.test_fraction + (1.0 - task.test_fraction) * task.validation_fraction
    return np.where(
        number < task.test_fraction, _TEST, np.where(number < validation_end, _VALIDATION, _TRAIN)
    ).astype(np.int8)


def _digest(text: str, seed: int, *arrays: NDArray[Any]) -> str:
    digest = hashlib.blake2b(f"{text} {seed}".encode(), digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


# ------------------------------------------------------------------------------------- groups


def _groups(graph: Graph, node_type: str, edge_type: EdgeType | None) -> tuple[NDArray[np.int64], list[str]]:
    """Return the group of each node and the text by which each group is hashed.

    A node without a group is one of its own. The texts of the two kinds cannot be equal.
    """
    num_nodes = graph.num_nodes(node_type)
    if edge_type is None:
        return np.arange(num_nodes), [f"node {node}" for node in graph.ids(node_type).tolist()]
    csr = graph.csr(edge_type)
    degree = np.diff(csr.indptr)
    if (degree > 1).any():
        node = int(np.flatnonzero(degree > 1)[0])
        raise DataError(
            f"expected at most one group for each {node_type}, received {int(degree[node])}",
            where=f"{node_type} {graph.ids(node_type, [node])[0]}, edge type {edge_type_text(edge_type)}",
            hint="group by an edge type with one target for each node, or leave `group` out",
        )
    group = np.full(num_nodes, -1, dtype=np.int64)
    group[degree == 1] = csr.indices
    used, group[degree == 1] = np.unique(csr.indices, return_inverse=True)
    alone = np.flatnonzero(group < 0)
    group[alone] = len(used) + np.arange(len(alone))
    texts = [f"group {name}" for name in graph.ids(edge_type[2], used.astype(np.int64)).tolist()]
    return group, texts + [f"node {name}" for name in graph.ids(node_type, alone).tolist()]


# --------------------------------------------------------------------- what the data itself says


def _given_part(spec: FeatureSpec | None, given: GivenSplitConfig, where: str) -> NDArray[np.int8]:
    """Return the part that each category of a feature names; the last entry is that of a missing value.

    Raises:
        UsageError: there is no such categorical feature.
        DataError: a category names no part.
    """
    if spec is None or spec.categories is None:
        raise UsageError(
            f"expected a categorical feature that says train, validation or test, received `{given.feature}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where=where,
            hint=f"write `{given.feature}: categorical` under the `features` of that table",
        )
    part_of = {
        value: part
        for part, values in (
            (_TRAIN, given.train),
            (_VALIDATION, given.validation),
            (_TEST, given.test),
            (_IGNORED, given.ignored),
        )
        for value in values
    }
    for category in spec.categories:
        if category not in part_of:
            raise DataError(
                f"expected one of {', '.join(part_of)} in `{given.feature}`, received `{category}`",
                where=where,
                hint=did_you_mean(category, part_of)
                or "name it under `train`, `validation`, `test` or `ignored` of the task's `split`",
            )
    return np.array([*(part_of[category] for category in spec.categories), _IGNORED], dtype=np.int8)


# ----------------------------------------------------------------------------------- classify


def _split_classify(graph: Graph, task: ClassifyTaskConfig, seed: int) -> ClassifySplit:
    spec = graph.features(task.node_type).get(task.label)
    if spec is None or spec.categories is None:
        raise UsageError(
            f"expected a categorical feature of {task.node_type} as label, received `{task.label}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where="label",
        )
    labels = np.asarray(graph.feature(task.node_type, task.label)).astype(np.int64)
    if isinstance(task.split, GivenSplitConfig):
        fold = _given_nodes(graph, task, task.split, labels, seed)
        hint = f"the feature `{task.split.feature}` says what is held out"
    else:
        group, texts = _groups(graph, task.node_type, task.group)
        fold = _fold_of(unit_hash(seed, texts), task)[group]
        hint = "a group is never split: use more groups, or larger fractions"
    fold = np.where(labels < 0, -1, fold).astype(np.int8)
    for position, name in enumerate(FOLDS):
        if not (fold == position).any():
            raise DataError(
                f"expected nodes with a `{task.label}` in each fold, received none in {name}",
                where=f"node type {task.node_type}",
                hint=hint,
            )
    return ClassifySplit(
        node_type=task.node_type,
        label=task.label,
        split_feature=task.split.feature if isinstance(task.split, GivenSplitConfig) else None,
        classes=tuple(spec.categories),
        labels=labels,
        fold=fold,
        digest=_digest(task.model_dump_json(), seed, labels, fold),
    )


def _given_nodes(
    graph: Graph, task: ClassifyTaskConfig, given: GivenSplitConfig, labels: NDArray[np.int64], seed: int
) -> NDArray[np.int8]:
    """Return the part of each node as its feature says, -1 for none."""
    spec = graph.features(task.node_type).get(str(given.feature))
    part_of = _given_part(spec, given, f"node type {task.node_type}")
    fold = part_of[np.asarray(graph.feature(task.node_type, str(given.feature))).astype(np.int64)]
    if not (fold == _VALIDATION).any():
        trained = np.flatnonzero((fold == _TRAIN) & (labels >= 0))
        texts = [f"node {name}" for name in graph.ids(task.node_type, trained).tolist()]
        fold[trained[unit_hash(seed, texts) < task.validation_fraction]] = _VALIDATION
    return np.where(fold == _IGNORED, -1, fold).astype(np.int8)


# ---------------------------------------------------------------------------------- recommend


@dataclass(frozen=True, eq=False)
class _Answers:
    """The edges of a task's relations.

    Attributes:
        edges: int64 [e, 2], query and target.
        single: bool [e], whether the edge is a single alternative.
        time: int64 [e]; empty where the split asks for none.
        part: int8 [e], the part that the data says.
    """

    edges: NDArray[np.int64]
    single: NDArray[np.bool_]
    time: NDArray[np.int64]
    part: NDArray[np.int8]


def _split_recommend(graph: Graph, task: RecommendTaskConfig, seed: int) -> RecommendSplit:
    one_type = task.node_type == task.candidate_type
    group, texts = _groups(graph, task.node_type, task.group)
    target_group, target_texts = (group, texts) if one_type else _groups(graph, task.candidate_type, None)
    linked = [np.empty(0, np.uint64)]
    for relation in task.exclude_relations:
        source, target = graph.csc((task.node_type, relation, task.candidate_type)).coo()
        linked.append(pair_keys(group[source], target_group[target], ordered=not one_type))
    linked_pairs = np.unique(np.concatenate(linked))

    answers = _answers(graph, task)
    source_group, edge_target_group = group[answers.edges[:, 0]], target_group[answers.edges[:, 1]]
    keys = pair_keys(source_group, edge_target_group, ordered=not one_type)
    eligible = ~np.isin(keys, linked_pairs)
    if one_type:
        eligible &= source_group != edge_target_group
    pairs, pair_of_edge = np.unique(keys, return_inverse=True)
    pair_texts = _pair_texts(pairs, texts, target_texts, ordered=not one_type)
    wanted = _edge_parts(task, answers, pairs, pair_of_edge, pair_texts, seed)
    # What is known once is known: the earliest part of a pair's edges is the pair's.
    pair_part = np.full(len(pairs), _IGNORED, dtype=np.int8)
    np.minimum.at(pair_part, pair_of_edge, wanted)
    fold = np.where(eligible, pair_part[pair_of_edge], _TRAIN)
    repeated = int((eligible & (wanted > fold) & (wanted != _IGNORED)).sum())

    found = {}
    for position, name in enumerate(FOLDS):
        chosen = fold == position
        found[name] = np.unique(answers.edges[chosen if position == 0 else chosen & answers.single], axis=0)
        if not len(found[name]):
            raise DataError(
                f"expected edges of {', '.join(task.relations)} in each fold, received none in {name}",
                where=f"{task.node_type} to {task.candidate_type}",
                hint=_why_empty(task),
            )
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    held_out = () if given is None else (*given.validation_relations, *given.test_relations)
    return RecommendSplit(
        node_type=task.node_type,
        target_type=task.candidate_type,
        relations=(*task.relations, *held_out),
        held_out_relations=held_out,
        exclude_relations=task.exclude_relations,
        group=group,
        target_group=target_group,
        train=found["train"],
        validation=found["validation"],
        test=found["test"],
        validation_pairs=np.unique(keys[fold == _VALIDATION]),
        test_pairs=np.unique(keys[fold == _TEST]),
        ignored_pairs=np.unique(keys[fold == _IGNORED]),
        linked_pairs=linked_pairs,
        repeated=repeated,
        digest=_digest(
            task.model_dump_json(), seed, group, found["train"], found["validation"], found["test"]
        ),
    )


def _why_empty(task: RecommendTaskConfig) -> str:
    match task.split.kind:
        case "time":
            return "edges of one time fall into one part: use larger fractions, or another split"
        case "leave_last_out":
            return "only what has three or more targets is tested"
        case "given":
            return "the task's `split` says which edges are in which part"
    return "only pairs of groups without an excluded relation are held out: use larger fractions"


def _answers(graph: Graph, task: RecommendTaskConfig) -> _Answers:
    """Return the edges of the task's relations, those that are held out as a whole included."""
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    relations = [(relation, _TRAIN) for relation in task.relations]
    if given is not None:
        relations += [(relation, _VALIDATION) for relation in given.validation_relations]
        relations += [(relation, _TEST) for relation in given.test_relations]
    edges, single, part = [], [], []
    times = [np.empty(0, np.int64)]
    for relation, its_part in relations:
        edge_type = (task.node_type, relation, task.candidate_type)
        csc = graph.csc(edge_type)
        source, target = csc.coo()
        edges.append(np.stack([source, target], axis=1))
        single.append(_single(graph, edge_type, task.alternative, source))
        if isinstance(task.split, TimeSplitConfig | LeaveLastOutSplitConfig):
            times.append(_timestamps(csc, edge_type, task.split.kind))
        if given is not None and given.feature is not None:
            spec = graph.edge_features(edge_type).get(given.feature)
            part_of = _given_part(spec, given, f"edge type {edge_type_text(edge_type)}")
            part.append(part_of[_edge_column(graph, edge_type, given.feature)])
        else:
            part.append(np.full(len(source), its_part, dtype=np.int8))
    return _Answers(
        np.concatenate(edges), np.concatenate(single), np.concatenate(times), np.concatenate(part)
    )


def _timestamps(csc: CSC, edge_type: EdgeType, kind: str) -> NDArray[np.int64]:
    if csc.timestamp is None:
        raise UsageError(
            f"expected edges with a timestamp for a split of kind {kind}, received none",
            where=f"edge type {edge_type_text(edge_type)}",
            hint="name the column: `timestamp: ...` at the edge type under graph.edges",
        )
    return csc.timestamp


def _edge_column(graph: Graph, edge_type: EdgeType, name: str) -> NDArray[np.int64]:
    """Return an edge feature in the order of the CSC."""
    csc = graph.csc(edge_type)
    column = np.asarray(graph.edge_feature(edge_type, name)).astype(np.int64)
    return column[csc.ids_at(np.arange(csc.num_edges))]


def _single(
    graph: Graph, edge_type: EdgeType, alternative: str | None, source: NDArray[np.int64]
) -> NDArray[np.bool_]:
    if alternative is None:
        return np.ones(len(source), dtype=bool)
    clause = _edge_column(graph, edge_type, alternative)
    _, position, count = np.unique(
        np.stack([source, clause], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    return np.asarray(count[position] == 1)


def _edge_parts(
    task: RecommendTaskConfig,
    answers: _Answers,
    pairs: NDArray[np.uint64],
    pair_of_edge: NDArray[np.int64],
    pair_texts: Iterable[str],
    seed: int,
) -> NDArray[np.int8]:
    """Return the part that each edge would be in by itself: int8 [e]."""
    match task.split.kind:
        case "random":
            return _fold_of(unit_hash(seed, pair_texts), task)[pair_of_edge]
        case "time":
            return _by_time(_first_time(answers.time, len(pairs), pair_of_edge), task)[pair_of_edge]
        case "leave_last_out":
            first = _first_time(answers.time, len(pairs), pair_of_edge)
            return _last_of_each(answers, first, pair_of_edge, unit_hash(seed, pair_texts))
    part = answers.part.copy()
    if not (part == _VALIDATION).any():
        known = np.zeros(len(pairs), dtype=bool)
        known[pair_of_edge[part == _TRAIN]] = True
        cut = known & (unit_hash(seed, pair_texts) < task.validation_fraction)
        part[cut[pair_of_edge] & (part == _TRAIN)] = _VALIDATION
    return part


def _first_time(time: NDArray[np.int64], pairs: int, pair_of_edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when the first edge of each pair came to be: int64 [pairs]."""
    first = np.full(pairs, np.iinfo(np.int64).max)
    np.minimum.at(first, pair_of_edge, time)
    return first


def _by_time(first: NDArray[np.int64], task: RecommendTaskConfig) -> NDArray[np.int8]:
    """Return the part of each pair; pairs of one time are in one part."""
    part = np.zeros(len(first), dtype=np.int8)
    for number, fraction in ((_TEST, task.test_fraction), (_VALIDATION, task.validation_fraction)):
        rest = np.sort(first[part == _TRAIN])
        if len(rest):
            begin = rest[min(int((1.0 - fraction) * len(rest)), len(rest) - 1)]
            part[(part == _TRAIN) & (first >= begin)] = number
    return part


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
    part[pair[end - 2]] = _VALIDATION
    part[pair[end - 1]] = _TEST
    return part[pair_of_edge]


def _pair_texts(
    pairs: NDArray[np.uint64], first_texts: Sequence[str], second_texts: Sequence[str], *, ordered: bool
) -> Iterable[str]:
    low = (pairs >> np.uint64(32)).astype(np.int64).tolist()
    high = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64).tolist()
    for first, second in zip(low, high, strict=True):
        both = (first_texts[first], second_texts[second])
        # Group numbers depend on the order of the nodes, the names do not.
        yield "\0".join(both if ordered else sorted(both))
