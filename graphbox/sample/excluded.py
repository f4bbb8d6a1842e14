"""Edges that a sample must not use, for instance those whose labels a model learns to predict."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array
from graphbox.sample.adjacency import Adjacency, Arrays, EdgeType
from graphbox.sample.list_order import most_parallel_edges


class ExcludedPairs(NamedTuple):
    """Edges of one edge type that a sample must not use, by their ends.

    Attributes:
        relation: number of the edge type among those that are sampled.
        targets: int64 [n].
        sources: int64 [n].
        groups: int64 [n], of the trees of which group each must not be; empty: of none.
        group_of_tree: int64 [trees], the group of each tree, or empty.
    """

    relation: int
    targets: Int64Array
    sources: Int64Array
    groups: Int64Array
    group_of_tree: Int64Array


_ascending: dict[int, tuple[weakref.ref[Any], bool]] = {}


@dataclass(frozen=True, slots=True)
class ExcludedEdges:
    """Edges that must not be sampled, by their ends; parallel edges are all meant, pairs without edges none.

    Attributes:
        edge_index: integers [2, n]: source and target of each.
        groups: integers [n]: of disjoint samples, in the trees of which group each must not be; None: in none
            of the sample.
        group_of_tree: integers [trees], the group of each tree; with ``groups`` only.
    """

    edge_index: Any
    groups: Any = None
    group_of_tree: Any = None


def excluded_pairs(
    excluded: Mapping[EdgeType, ExcludedEdges], edge_types: Sequence[EdgeType], *, disjoint: bool
) -> list[ExcludedPairs]:
    """Return excluded edges of those edge types that are sampled and have some.

    Args:
        excluded: by edge type; types that are not sampled need nothing.
        edge_types: that are sampled, in order.
        disjoint: whether the sample has trees.

    Raises:
        UsageError: arrays of another shape, or groups of trees in a sample that has none.
    """
    pairs = []
    for number, edge_type in enumerate(edge_types):
        edges = excluded.get(edge_type)
        if edges is None:
            continue
        sources, targets, *groups = _checked(edges, f"excluded_edges[{edge_type!r}]", disjoint=disjoint)
        if len(targets):
            pairs.append(ExcludedPairs(number, targets, sources, *groups))
    return pairs


def _checked(
    edges: ExcludedEdges, where: str, *, disjoint: bool
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    index = integer_array(edges.edge_index, where, dimensions=2)
    if len(index) != 2:
        raise UsageError(f"expected integers [2, edges], received shape {list(index.shape)}", where=where)
    none = np.zeros(0, np.int64)
    if edges.groups is None and edges.group_of_tree is None:
        return index[0], index[1], none, none
    groups = none if edges.groups is None else integer_array(edges.groups, f"{where}.groups")
    of_tree = none
    if edges.group_of_tree is not None:
        of_tree = integer_array(edges.group_of_tree, f"{where}.group_of_tree")
    if not disjoint or len(groups) != index.shape[1] or not len(of_tree):
        raise UsageError(
            f"expected a disjoint sample, the group of each of {index.shape[1]} edges and of each tree; "
            f"received {len(groups)} and {len(of_tree)}, and a sample that is "
            f"{'' if disjoint else 'not '}disjoint",
            where=where,
        )
    return index[0], index[1], groups, of_tree


def lists_ascend(adjacency: Adjacency, arrays: Arrays, name: str, threads: int) -> bool:
    """Return whether the neighbours of each node ascend, so that edges are found by search.

    All edges are read at the first use of an adjacency.

    Args:
        adjacency: the CSC of an edge type.
        arrays: of the adjacency.
        name: for messages.
        threads: to read all edges.
    """
    key = id(adjacency)
    known = _ascending.get(key)
    if known is not None and known[0]() is adjacency:
        return known[1]
    try:
        most_parallel_edges(adjacency, arrays, name, threads)
        ascending = True
    except UsageError:  # each list is then looked through
        ascending = False
    try:
        reference = weakref.ref(adjacency, lambda dead: _forget(key, dead))
    except TypeError:  # an object of a class with slots: looked at again next time
        return ascending
    _ascending[key] = (reference, ascending)
    return ascending


def _forget(key: int, dead: weakref.ref[Any]) -> None:
    if key in _ascending and _ascending[key][0] is dead:
        del _ascending[key]
