"""Looking at a graph: counts, degrees, features, and what may be wrong with the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphbox.graph.describe.degrees import (
    DEFAULT_MEMORY_BYTES,
    EdgeCounts,
    NodeCounts,
    Progress,
    Side,
    count_edges,
)
from graphbox.graph.describe.description import (
    Degrees,
    Description,
    EdgeTypeDescription,
    FeatureDescription,
    Hub,
    NodeTypeDescription,
    Problem,
)
from graphbox.graph.describe.features import describe_feature
from graphbox.graph.describe.histogram import DegreeBin, DegreeHistogram
from graphbox.graph.describe.problems import find_problems
from graphbox.graph.ingest.report import DegreeReport
from graphbox.graph.schema import EdgeType
from graphbox.graph.snapshot import as_live

if TYPE_CHECKING:
    from graphbox.graph.store import Graph

__all__ = [
    "DegreeBin",
    "DegreeHistogram",
    "Degrees",
    "Description",
    "EdgeTypeDescription",
    "FeatureDescription",
    "Hub",
    "NodeTypeDescription",
    "Problem",
    "Progress",
    "describe",
]


def describe(
    graph: Graph, *, memory_bytes: int = DEFAULT_MEMORY_BYTES, progress: Progress | None = None
) -> Description:
    """Return what there is to know about a graph; every array of it is read.

    Memory stays bounded whatever the graph's size: arrays are gone through in blocks, and counters of nodes
    take ``memory_bytes`` at most, with more passes over the edges where that is little.

    Args:
        graph: the graph.
        memory_bytes: memory for the counters of nodes.
        progress: called with the edge type, and how many of how many edges are done.
    """
    node_counts, edge_counts = count_edges(graph, memory_bytes=memory_bytes, progress=progress)
    node_types = tuple(_node_type(graph, name, counts) for name, counts in node_counts.items())
    edge_types = tuple(_edge_type(graph, each, edge_counts.get(each)) for each in graph.edge_types)
    isolated = {
        node_type: [_original_id(graph, node_type, index) for index in counts.examples]
        for node_type, counts in node_counts.items()
    }
    return Description(
        name=graph.name,
        path=None if graph.path is None else str(graph.path),
        size_bytes=graph.size_bytes,
        node_types=node_types,
        edge_types=edge_types,
        problems=find_problems(node_types, edge_types, isolated),
    )


def _node_type(graph: Graph, node_type: str, counts: NodeCounts) -> NodeTypeDescription:
    table, removed = graph.node_table(node_type), graph.removed_nodes(node_type)
    return NodeTypeDescription(
        name=node_type,
        nodes=graph.num_nodes(node_type) - len(removed),
        removed=len(removed),
        isolated=counts.isolated,
        id_type=graph.id_type(node_type),
        features=tuple(describe_feature(name, table.column(name), removed) for name in table.features),
        imported=table.imported,
    )


def _edge_type(graph: Graph, edge_type: EdgeType, counts: EdgeCounts | None) -> EdgeTypeDescription:
    num_edges = graph.num_edges(edge_type)
    if counts is None:
        return EdgeTypeDescription(edge_type, num_edges, reverse_of=graph.reverse_type(edge_type))
    edges = as_live(graph.own_edges(edge_type))
    source, _, target = edge_type
    return EdgeTypeDescription(
        edge_type,
        num_edges,
        weight="weight" in edges.columns,
        timestamp="timestamp" in edges.columns,
        self_loops=counts.self_loops,
        duplicate_edges=counts.duplicate_edges,
        in_degree=_degrees(graph, target, counts.into),
        out_degree=_degrees(graph, source, counts.out_of),
        features=tuple(describe_feature(name, edges.column(name), edges.removed) for name in edges.features),
        imported=graph.imported(edge_type),
    )


def _degrees(graph: Graph, node_type: str, side: Side) -> Degrees:
    histogram = side.histogram
    return Degrees(
        **vars(DegreeReport.of(histogram.degrees, histogram.nodes)),
        histogram=tuple(histogram.bins()),
        hubs=tuple(Hub(_original_id(graph, node_type, -negative), degree) for degree, negative in side.hubs),
    )


def _original_id(graph: Graph, node_type: str, index: int) -> str | int:
    original = graph.ids(node_type, np.array([index]))[0]
    return original if isinstance(original, str) else int(original)
