"""Facts about a graph and a task, by which settings are chosen; nothing that is held out is read."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from graphbox.config import DataFacts
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType
from graphbox.train.tasks import ClassifySplit, LinkSplit, NextSplit, RecommendSplit, Split

_LEAST_PAIRS = 30
"""Fewest edges between labelled nodes for an estimate of homophily."""
_MOST_EDGES = 5_000_000
"""Most edges that are read for homophily and the number of pairs."""


def facts_of(
    graph: Graph,
    split: Split | None,
    edge_types: Collection[EdgeType] = (),
    *,
    reads_edges: bool = True,
) -> DataFacts:
    """Return what is known of a graph and of the training part of a task.

    Args:
        graph: the whole graph. Edges are read for a task of kind `classify` alone, which hides only
            whole edge types; for others they are counted.
        split: the split of the task; None: there is no task.
        edge_types: those that the model reads; none means all.
        reads_edges: read edges, up to some millions; else they are only counted.
    """
    there = graph.edge_types  # the trainer refuses others
    held_out = () if split is None else split.hidden_edge_types()
    seen = [each for each in there if each not in held_out and not graph.is_reverse(each)]
    own = [each for each in edge_types or seen if each in seen]
    joined = dict.fromkeys(end for each in own for end in (each[0], each[2]))
    nodes = sum(graph.num_nodes(name) - len(graph.removed_nodes(name)) for name in joined)
    edges = sum(graph.num_edges(each) for each in own)
    hides_edges = split is not None and not isinstance(split, ClassifySplit)
    is_read = reads_edges and edges <= _MOST_EDGES and not hides_edges
    sizes = (nodes, edges, _pairs(graph, own) if is_read else edges, len(joined))
    if split is None:
        return DataFacts(*sizes)
    hidden = {name for _, name in split.hidden_features()}
    features = any(name not in hidden for name in graph.features(split.node_type))
    if isinstance(split, NextSplit):
        return DataFacts(*sizes, features, validation=len(split.validation), histories=_histories(split))
    if isinstance(split, RecommendSplit | LinkSplit):
        return DataFacts(
            *sizes,
            any(name not in hidden for each in joined for name in graph.features(each)),
            links=len(split.known("validation")),
            validation=_validation_links(split),
        )
    if not isinstance(split, ClassifySplit):
        return DataFacts(*sizes, features)
    return DataFacts(
        *sizes,
        features,
        labels=len(split.nodes("train")),
        validation=len(split.nodes("validation")),
        classes=len(split.classes),
        homophily=_homophily(graph, split, own) if is_read else None,
    )


def _validation_links(split: RecommendSplit | LinkSplit) -> int:
    if isinstance(split, RecommendSplit):
        return len(split.validation)
    return len(split.part("validation").edges)


def _histories(split: NextSplit) -> int:
    """Return the number of nodes with two events or more in the training part."""
    return int(np.count_nonzero(np.diff(split.known("validation").offsets) >= 2))


def _pairs(graph: Graph, edge_types: Collection[EdgeType]) -> int:
    """Return the number of pairs of nodes that an edge joins; loops do not count."""
    by_ends: dict[tuple[str, str], list[NDArray[np.uint64]]] = {}
    for source, relation, target in edge_types:
        first, second = graph.csc((source, relation, target)).coo()
        if source == target:
            kept = first != second
            first, second = np.minimum(first, second)[kept], np.maximum(first, second)[kept]
        elif source > target:
            first, second = second, first
        keys = first.astype(np.uint64) * np.uint64(2**32) + second.astype(np.uint64)
        by_ends.setdefault((min(source, target), max(source, target)), []).append(keys)
    return sum(len(np.unique(np.concatenate(keys))) for keys in by_ends.values())


def _homophily(graph: Graph, split: ClassifySplit, edge_types: Collection[EdgeType]) -> float | None:
    """Return the share of the edges between labelled nodes of the training part that join a common class."""
    train = split.nodes("train")
    is_known = np.zeros(len(split.labels), bool)
    is_known[train] = True
    classes = split.members(train)
    same = pairs = 0
    for edge_type in edge_types:
        if edge_type[0] != split.node_type or edge_type[2] != split.node_type:
            continue
        sources, targets = graph.csc(edge_type).coo()
        compared = is_known[sources] & is_known[targets] & (sources != targets)
        pairs += int(compared.sum())
        common = classes[sources[compared]].multiply(classes[targets[compared]]).sum(axis=1)
        same += int(np.count_nonzero(common))
    return None if pairs < _LEAST_PAIRS else same / pairs
