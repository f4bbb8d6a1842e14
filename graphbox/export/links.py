"""The known links that an artifact shows beside its answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.artifact.links import links_table
from graphbox.graph import Graph
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import CSC, EdgeType

_KEYS_AT_ONCE = 1 << 20


class KnownEdges(Protocol):
    """Part of a graph that a model saw."""

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types of which it saw edges."""
        ...

    def csc(self, edge_type: EdgeType) -> CSC:
        """Return the edges of one edge type that were seen."""
        ...


def links_of(
    graph: Graph, known: KnownEdges, node_types: set[str], *, negatives: Collection[EdgeType] = ()
) -> pa.Table:
    """Return the links among nodes of some types; those that ``known`` does not have are held out.

    Args:
        graph: every edge.
        known: what the model was trained on.
        node_types: both ends of a link are of these.
        negatives: edge types that hold what is no link.

    Returns:
        A table for `graphbox.artifact.Links`; without the reverse edge types, which say nothing new. Ends are
        rows of the artifact, see `LiveRows`.
    """
    tables = []
    live = {name: LiveRows.of_graph(graph, name) for name in graph.node_types if name in node_types}
    for edge_type in graph.edge_types:
        among = {edge_type[0], edge_type[2]} <= node_types
        if not among or graph.is_reverse(edge_type) or edge_type in negatives:
            continue
        source, target = graph.csc(edge_type).coo()
        held_out = np.ones(len(source), dtype=np.bool_)
        if edge_type in known.edge_types:
            held_out = _are_missing(_keys(source, target), _keys(*known.csc(edge_type).coo()))
        rows = live[edge_type[0]].rows(source), live[edge_type[2]].rows(target)
        tables.append(links_table(*rows, held_out, edge_type))
    return _together(tables)


def linked_nodes(
    graph: Graph, node_type: str, node: int, other_type: str, negatives: Collection[EdgeType] = ()
) -> npt.NDArray[np.int64]:
    """Return the nodes of a type that some link joins with a node, either way, ascending: int64 [k].

    Args:
        graph: every edge.
        node_type: of the node.
        node: its index.
        other_type: of those returned.
        negatives: edge types that hold what is no link.
    """
    found: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    for edge_type in graph.edge_types:
        if edge_type in negatives:
            continue
        csc = graph.csc(edge_type)
        if (edge_type[0], edge_type[2]) == (other_type, node_type):
            found.append(np.asarray(csc.indices[csc.indptr[node] : csc.indptr[node + 1]], np.int64))
        if (edge_type[0], edge_type[2]) == (node_type, other_type):
            edges = np.flatnonzero(np.asarray(csc.indices) == node)
            found.append(np.searchsorted(csc.indptr, edges, side="right").astype(np.int64) - 1)
    return np.unique(np.concatenate(found))


def links_of_triples(
    known: npt.NDArray[np.int64],
    held_out: npt.NDArray[np.int64],
    ends: Mapping[str, tuple[str, str]],
    live: Mapping[str, LiveRows],
) -> pa.Table:
    """Return triples as links, each relation an edge type of its own name.

    Args:
        known: int64 [n, 3], head, relation, tail of what a model was given.
        held_out: int64 [m, 3], of what it was not.
        ends: by relation the node types of its heads and its tails, in the order of their numbers.
        live: rows of the artifact, by node type.

    Returns:
        A table for `graphbox.artifact.Links`.
    """
    triples = np.concatenate([known, held_out])
    hidden = np.arange(len(triples)) >= len(known)
    order = np.argsort(triples[:, 1], kind="stable")
    bounds = np.searchsorted(triples[order, 1], np.arange(len(ends) + 1))
    tables = []
    for number, (relation, (head_type, tail_type)) in enumerate(ends.items()):
        chosen = order[bounds[number] : bounds[number + 1]]
        if len(chosen):
            of_relation = triples[chosen]
            heads, tails = live[head_type].rows(of_relation[:, 0]), live[tail_type].rows(of_relation[:, 2])
            tables.append(links_table(heads, tails, hidden[chosen], (head_type, relation, tail_type)))
    return _together(tables)


def _together(tables: list[pa.Table]) -> pa.Table:
    if not tables:
        none = np.empty(0, np.int64)
        return links_table(none, none, none.astype(bool), ("", "", ""))
    return pa.concat_tables(tables).unify_dictionaries()


def _are_missing(keys: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return whether each key is none of the known ones, bool [n]; ``known`` is sorted in place.

    `numpy.isin` sorts both together, which takes several times their memory.
    """
    missing = np.ones(len(keys), np.bool_)
    known.sort()
    for start in range(0, len(keys) if len(known) else 0, _KEYS_AT_ONCE):
        part = keys[start : start + _KEYS_AT_ONCE]
        place = np.minimum(np.searchsorted(known, part), len(known) - 1)
        missing[start : start + len(part)] = known[place] != part
    return missing


def _keys(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (source << 32) | target
