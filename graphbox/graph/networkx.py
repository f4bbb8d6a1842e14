"""Conversion from and to NetworkX, for graphs that fit memory many times over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphbox.errors import UsageError, missing_extra
from graphbox.graph.arrays import feature_columns, ids_of
from graphbox.graph.columns import Column
from graphbox.graph.store import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, Graph
from graphbox.graph.tables import NodeTable, edge_table


def graph_from_networkx(
    graph: Any,
    *,
    weight: str | None,
    timestamp: str | None,
    node_features: Sequence[str],
    edge_features: Sequence[str],
    name: str,
) -> Graph:
    """Return the graph in memory that a NetworkX graph holds, see :meth:`Graph.from_networkx`."""
    if not (hasattr(graph, "is_directed") and hasattr(graph, "is_multigraph")):
        raise UsageError(f"expected a NetworkX graph, received {type(graph).__name__}")
    nodes = dict(graph.nodes(data=True))
    position = {node: number for number, node in enumerate(nodes)}
    edges = [(position[source], position[target], data) for source, target, data in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(target, source, data) for source, target, data in edges if source != target]
    ends = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
    attributes = [edge[2] for edge in edges]
    table = edge_table(
        ends[:, 0],
        ends[:, 1],
        len(nodes),
        len(nodes),
        weight=_optional(attributes, weight),
        timestamp=_optional(attributes, timestamp),
        features=feature_columns(
            {each: _values(attributes, each) for each in edge_features}, len(edges), "edges"
        ),
    )
    of_nodes = {each: _values(list(nodes.values()), each) for each in node_features}
    columns = feature_columns(of_nodes, len(nodes), "nodes")
    table_of_nodes = NodeTable(ids_of(list(nodes), len(nodes), "nodes"), columns)
    return Graph(name, {DEFAULT_NODE_TYPE: table_of_nodes}, {DEFAULT_EDGE_TYPE: table})


def _optional(attributes: Sequence[Mapping[str, Any]], name: str | None) -> list[Any] | None:
    """Return an attribute of all edges, or None when no edge has it."""
    if name is None or not any(name in each for each in attributes):
        return None
    return _values(attributes, name)


def _values(attributes: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    missing = sum(name not in each for each in attributes)
    if missing:
        raise UsageError(
            f"expected the attribute on all {len(attributes)}, {missing} have none",
            where=f"attribute `{name}`",
            hint="set it everywhere, or leave it out",
        )
    return [each[name] for each in attributes]


def graph_to_networkx(graph: Graph) -> Any:
    """Return a graph as ``networkx.MultiDiGraph``, see :meth:`Graph.to_networkx`."""
    try:
        import networkx as nx
    except ImportError:
        raise missing_extra("networkx", "train") from None
    converted = nx.MultiDiGraph(name=graph.name)
    nodes: dict[str, list[Any]] = {}
    for node_type in graph.node_types:
        ids = graph.ids(node_type).tolist()
        nodes[node_type] = ids if len(graph.node_types) == 1 else [(node_type, each) for each in ids]
        attributes = _rows(graph.node_columns(node_type), len(ids))
        removed = set(graph.removed_nodes(node_type).tolist())
        converted.add_nodes_from(
            (node, {"node_type": node_type, **each})
            for index, (node, each) in enumerate(zip(nodes[node_type], attributes, strict=True))
            if index not in removed
        )
    for edge_type in graph.edge_types:
        if graph.is_reverse(edge_type):
            continue
        csc = graph.csc(edge_type)
        columns = graph.edge_columns(edge_type)
        if csc.edge_ids is not None:
            columns = {name: column.take(csc.edge_ids) for name, column in columns.items()}
        attributes = _rows(columns, csc.num_edges)
        for name, values in (("weight", csc.weight), ("timestamp", csc.timestamp)):
            for each, value in zip(attributes, () if values is None else values.tolist(), strict=False):
                each[name] = value
        source, target = (ends.tolist() for ends in csc.coo())
        converted.add_edges_from(
            (nodes[edge_type[0]][tail], nodes[edge_type[2]][head], {"relation": edge_type[1], **each})
            for tail, head, each in zip(source, target, attributes, strict=True)
        )
    return converted


def _rows(columns: Mapping[str, Column], count: int) -> list[dict[str, Any]]:
    """Return the features of each row by name; missing numbers are NaN, missing categories None."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, column in columns.items():
        for row, value in zip(rows, _plain(column), strict=True):
            row[name] = value
    return rows


def _plain(column: Column) -> list[Any]:
    values = column.values.tolist()
    if column.offsets is not None:
        bounds = column.offsets.tolist()
        return [values[low:high] for low, high in pairwise(bounds)]
    if column.kind == "categorical":
        categories = column.spec.categories or ()
        return [categories[code] if code >= 0 else None for code in values]
    plain: list[Any] = values
    return plain
