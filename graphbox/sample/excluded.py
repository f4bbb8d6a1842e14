"""Edges that a sample must not use, for instance those whose labels a model learns to predict."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array
from graphbox.sample.adjacency import Adjacency, Arrays, EdgeType, as_arrays, edge_type_name
from graphbox.sample.list_order import most_parallel_edges

ExcludedPairs: TypeAlias = tuple[int, Int64Array, Int64Array, Int64Array, Int64Array]
"""Relation number, targets, sources, groups, groups of trees."""

ExcludedRows: TypeAlias = tuple[int, Int64Array, Int64Array, Int64Array, Int64Array, bool]
"""As the native core takes them: relation number, targets, sources, groups, groups of trees, whether lists
ascend."""

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


def excluded_rows(
    excluded: Mapping[EdgeType, ExcludedEdges],
    adjacencies: Mapping[EdgeType, Adjacency],
    *,
    disjoint: bool,
    threads: int,
) -> list[ExcludedRows]:
    """Return excluded edges as the native core takes them.

    Args:
        excluded: by edge type; types that are not sampled need nothing.
        adjacencies: the CSC of each edge type that is sampled, in order.
        disjoint: whether the sample has trees.
        threads: for a look at all edges at the first use of an adjacency: whether its lists ascend, so that
            edges are found by search.

    Raises:
        UsageError: arrays of another shape, or groups of trees in a sample that has none.
    """
    rows = []
    for pairs in excluded_pairs(excluded, list(adjacencies), disjoint=disjoint):
        edge_type = list(adjacencies)[pairs[0]]
        adjacency, name = adjacencies[edge_type], edge_type_name(edge_type)
        ascending = _lists_ascend(adjacency, as_arrays(adjacency, name), name, threads)
        rows.append((*pairs, ascending))
    return rows


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
            pairs.append((number, targets, sources, groups[0], groups[1]))
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


def _lists_ascend(adjacency: Adjacency, arrays: Arrays, name: str, threads: int) -> bool:
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
