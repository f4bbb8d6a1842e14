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
from graphbox.graph.describe.parts import (
    edge_features,
    has_timestamp,
    has_weight,
    node_features,
    removed_edges,
)
from graphbox.graph.describe.problems import find_problems
from graphbox.graph.schema import EdgeType

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
    "outline",
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
        node_type: [_shown_id(graph, node_type, index) for index in counts.examples]
        for node_type, counts in node_counts.items()
    }
    return _description(graph, node_types, edge_types, find_problems(node_types, edge_types, isolated))


def outline(graph: Graph) -> Description:
    """Return what of a description costs nothing: types, counts and names of features; no array is read."""
    node_types = tuple(_node_type(graph, node_type, None) for node_type in graph.node_types)
    return _description(graph, node_types, tuple(_edge_type(graph, each, None) for each in graph.edge_types))


def _description(
    graph: Graph,
    node_types: tuple[NodeTypeDescription, ...],
    edge_types: tuple[EdgeTypeDescription, ...],
    problems: tuple[Problem, ...] = (),
) -> Description:
    return Description(
        name=graph.name,
        path=None if graph.path is None else str(graph.path),
        size_bytes=graph.size_bytes,
        node_types=node_types,
        edge_types=edge_types,
        problems=problems,
    )


def _node_type(graph: Graph, node_type: str, counts: NodeCounts | None) -> NodeTypeDescription:
    num_nodes = graph.num_nodes(node_type) - graph.num_removed(node_type)
    features = node_features(graph.node_table(node_type))
    return NodeTypeDescription(
        name=node_type,
        nodes=num_nodes,
        removed=graph.num_removed(node_type),
        isolated=None if counts is None else counts.isolated,
        id_type=graph.id_type(node_type),
        features=tuple(
            FeatureDescription(name, rows.kind, num_nodes)
            if counts is None
            else describe_feature(name, rows, graph.removed_nodes(node_type))
            for name, rows in features.items()
        ),
        imported=graph.node_table(node_type).imported,
    )


def _edge_type(graph: Graph, edge_type: EdgeType, counts: EdgeCounts | None) -> EdgeTypeDescription:
    num_edges = graph.num_edges(edge_type)
    if graph.is_reverse(edge_type):
        return EdgeTypeDescription(edge_type, num_edges, reverse_of=graph.reverse_type(edge_type))
    edges = graph.own_edges(edge_type)
    weight, timestamp = has_weight(edges), has_timestamp(edges)
    if counts is None:
        return EdgeTypeDescription(edge_type, num_edges, has_weight=weight, has_timestamp=timestamp)
    source, _, target = edge_type
    return EdgeTypeDescription(
        edge_type,
        num_edges,
        has_weight=weight,
        has_timestamp=timestamp,
        self_loops=counts.self_loops,
        duplicate_edges=counts.duplicate_edges,
        in_degree=_degrees(graph, target, counts.into),
        out_degree=_degrees(graph, source, counts.out_of),
        features=tuple(
            describe_feature(name, rows, removed_edges(edges)) for name, rows in edge_features(edges).items()
        ),
        imported=graph.imported(edge_type),
    )


def _degrees(graph: Graph, node_type: str, side: Side) -> Degrees:
    histogram = side.histogram
    return Degrees(
        mean=histogram.mean,
        p50=histogram.percentile(50),
        p90=histogram.percentile(90),
        p99=histogram.percentile(99),
        max=histogram.maximum,
        bins=tuple(histogram.bins()),
        hubs=tuple(_hub(graph, node_type, -negative, degree) for degree, negative in side.hubs),
    )


def _hub(graph: Graph, node_type: str, index: int, degree: int) -> Hub:
    original = graph.ids(node_type, np.array([index]))[0]
    return Hub(original if isinstance(original, str) else int(original), degree)


def _shown_id(graph: Graph, node_type: str, index: int) -> str:
    return str(graph.ids(node_type, np.array([index]))[0])
