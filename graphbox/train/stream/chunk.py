"""A chunk of a stream: one committed change of the graph, as a trainer sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.chunks import StreamRecord, chunk_contents
from graphbox.graph.schema import EdgeType
from graphbox.graph.snapshot import LiveEdgeTable, as_live
from graphbox.train.view import GraphView


@dataclass(frozen=True, eq=False)
class NewEdges:
    """The edges of one type that came with a chunk, in the order of their timestamps.

    Where edges have no timestamp, and among equal ones, the order is that of targets, then sources.

    Attributes:
        source: int64 [n], indices of nodes.
        target: int64 [n], indices of nodes.
        edge_ids: int64 [n], their ids in the chunk's view.
        timestamp: int64 [n], or None where the type has none.
        weight: float32 [n], or None where the type has none.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    edge_ids: NDArray[np.int64]
    timestamp: NDArray[np.int64] | None = None
    weight: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Chunk:
    """New nodes and edges of a change of the graph.

    The same chunk of the same stream is the same whenever it is made: also after a stop, and after the graph
    was compacted, though edge ids are others then.

    Attributes:
        number: number of the chunk in its stream, from 0. Number 0 is the graph before anything was learnt:
            it is not scored.
        name: name of the chunk, such as ``20261101/04``.
        view: the graph after the chunk: with its nodes and edges, without those that expired with it.
        nodes: int64 [n] by node type, ascending: indices of the new nodes. Types without any are left out.
        edges: the new edges by edge type; reverse edge types and types without any are left out.
    """

    number: int
    name: str
    view: GraphView
    nodes: Mapping[str, NDArray[np.int64]]
    edges: Mapping[EdgeType, NewEdges]

    @property
    def rows(self) -> int:
        """Number of new edges; of new nodes where there are no edges at all."""
        edges = sum(len(each) for each in self.edges.values())
        return edges or sum(len(each) for each in self.nodes.values())

    def before(self) -> GraphView:
        """Return the graph as it was before the chunk's edges came, without what expired with it.

        New nodes are there, without edges, and have their features; so have nodes whose features it set.
        """
        return self.view.without_edges({name: edges.edge_ids for name, edges in self.edges.items()})


def chunk_of(graph: Graph, stream: StreamRecord, number: int) -> Chunk:
    """Return a chunk of the stream that a graph holds; the view is right only of the last one.

    Raises:
        UsageError: the stream does not remember it.
    """
    record = stream.record(number)
    nodes, edges = chunk_contents(graph, stream, number)
    return Chunk(
        number,
        "" if record is None else record.name,
        GraphView(graph, None),
        nodes,
        {edge_type: _new_edges(as_live(graph.own_edges(edge_type)), ids) for edge_type, ids in edges.items()},
    )


def _new_edges(table: LiveEdgeTable, edge_ids: NDArray[np.int64]) -> NewEdges:
    source, target = table.ends(edge_ids)
    timestamp = table.column_at("timestamp", edge_ids)
    weight = table.column_at("weight", edge_ids)
    # Of repeated edges of one moment the order is that of their ids, which compaction keeps among them.
    ends = (edge_ids, source, target)
    order = np.lexsort(ends if timestamp is None else (*ends, timestamp))
    return NewEdges(
        source[order],
        target[order],
        edge_ids[order],
        None if timestamp is None else timestamp[order],
        None if weight is None else weight[order],
    )
