"""Leakage control: which edges would give the label of a link away."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

import numpy as np

from graphbox.errors import UsageError
from graphbox.native import Int64Array
from graphbox.sample.adjacency import EdgeType, GraphLike, edge_type_name
from graphbox.sample.excluded import ExcludedEdges

_REVERSED = "rev_"


@runtime_checkable
class _KnowsReverses(Protocol):
    def reverse_type(self, edge_type: EdgeType) -> EdgeType | None: ...


def leaking_types(
    graph: GraphLike, edge_type: EdgeType, asked: bool | Collection[EdgeType]
) -> tuple[EdgeType, ...]:
    """Return the edge types in which a link of ``edge_type`` must not be seen.

    Args:
        graph: the graph.
        edge_type: of the links.
        asked: True for the type itself and the types that hold its edges backwards: the one the graph says,
            and those between the same node types whose relation is ``rev_`` and its name or the other way
            round. False for none; or the types themselves.

    Raises:
        UsageError: a type that the graph does not have, or that joins other node types.
    """
    if asked is False:
        return ()
    known = [tuple(each) for each in graph.edge_types]
    source, relation, target = edge_type
    if asked is True:
        backwards = {
            (target, f"{_REVERSED}{relation}", source),
            (target, relation.removeprefix(_REVERSED), source)
            if relation.startswith(_REVERSED)
            else edge_type,
        }
        if isinstance(graph, _KnowsReverses):
            backwards.add(graph.reverse_type(edge_type) or edge_type)
        return tuple(each for each in graph.edge_types if tuple(each) in {*backwards, edge_type})
    for each in asked:
        if tuple(each) not in known or {each[0], each[2]} != {source, target}:
            raise UsageError(
                f"expected True, False or edge types between `{source}` and `{target}`, received {each!r}; "
                f"the graph has: {', '.join(map(edge_type_name, graph.edge_types))}",
                where="exclude_seed_edges",
            )
    return tuple(asked)


def excluded_links(
    types: Collection[EdgeType],
    edge_type: EdgeType,
    links: Int64Array,
    groups: tuple[Int64Array, Int64Array] | None,
) -> dict[EdgeType, ExcludedEdges] | None:
    """Return the edges to exclude for links, in the direction that each edge type has them.

    Args:
        types: from :func:`leaking_types`.
        edge_type: of the links.
        links: int64 [2, n].
        groups: of disjoint samples int64 [n], in the trees of which group each link must not be seen, and
            int64 [trees], the group of each tree; else None.
    """
    if not types or not links.shape[1]:
        return None
    source, _, target = edge_type
    excluded = {}
    for each in types:
        ways = []
        if (each[0], each[2]) == (source, target):
            ways.append(links)
        if (each[0], each[2]) == (target, source):
            ways.append(links[::-1])
        index = np.concatenate(ways, axis=1)
        if groups is None:
            excluded[each] = ExcludedEdges(index)
        else:
            excluded[each] = ExcludedEdges(index, np.tile(groups[0], len(ways)), groups[1])
    return excluded
