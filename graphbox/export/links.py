"""The known links that an artifact shows beside its answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.artifact.links import links_table
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, EdgeType

__all__ = ["KnownEdges", "links_of"]


class KnownEdges(Protocol):
    """What a model saw of a graph."""

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
        A table for `graphbox.artifact.Links`; without the reverse edge types, which say nothing new.
    """
    tables = []
    for edge_type in graph.edge_types:
        among = {edge_type[0], edge_type[2]} <= node_types
        if not among or graph.is_reverse(edge_type) or edge_type in negatives:
            continue
        source, target = graph.csc(edge_type).coo()
        held_out = np.ones(len(source), dtype=np.bool_)
        if edge_type in known.edge_types:
            held_out = ~np.isin(_keys(source, target), _keys(*known.csc(edge_type).coo()))
        tables.append(links_table(source, target, held_out, edge_type))
    if not tables:
        none = np.empty(0, np.int64)
        return links_table(none, none, none.astype(bool), ("", "", ""))
    return pa.concat_tables(tables).unify_dictionaries()


def _keys(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (source << 32) | target
