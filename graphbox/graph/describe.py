"""Looking at a graph: counts, degrees, isolated nodes, and what the import found wrong in the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphbox.graph.columns import Column
from graphbox.graph.schema import EdgeType, Int64Array, edge_type_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from graphbox.graph.store import Graph

__all__ = ["describe", "render"]

_PERCENTILES = (50, 90, 99)


def describe(graph: Graph) -> dict[str, Any]:
    """Return what there is to know about a graph as plain values.

    Returns:
        ``name``, ``path``, ``size_bytes`` (None when in memory), ``nodes``, ``edges`` (totals, reverse edge
        types not counted again), ``node_types`` (``name``, ``nodes``, ``isolated``, ``id_type``,
        ``features``) and ``edge_types`` (``source``, ``relation``, ``target``, ``edges``, ``reverse_of``,
        ``self_loops``, ``duplicate_edges``, ``in_degree``, ``out_degree``, ``imported``). A degree is
        ``mean``, ``p50``, ``p90``, ``p99`` and ``max``; ``isolated`` nodes have no edge of any type.
    """
    degree: dict[str, Int64Array] = {
        node_type: np.zeros(graph.num_nodes(node_type), np.int64) for node_type in graph.node_types
    }
    edge_types = [_edge_type(graph, edge_type, degree) for edge_type in graph.edge_types]
    return {
        "name": graph.name,
        "path": None if graph.path is None else str(graph.path),
        "size_bytes": graph.size_bytes,
        "nodes": sum(len(each) for each in degree.values()),
        "edges": sum(entry["edges"] for entry in edge_types if entry["reverse_of"] is None),
        "node_types": [_node_type(graph, node_type, degree[node_type]) for node_type in graph.node_types],
        "edge_types": edge_types,
    }


def _node_type(graph: Graph, node_type: str, degree: Int64Array) -> dict[str, Any]:
    return {
        "name": node_type,
        "nodes": len(degree),
        "isolated": int((degree == 0).sum()),
        "id_type": graph.id_type(node_type),
        "features": [_feature(name, column) for name, column in graph.node_columns(node_type).items()],
    }


def _feature(name: str, column: Column) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "kind": column.kind}
    values = column.values
    if column.kind == "number":
        present = values[~np.isnan(values)]
        entry["missing"] = len(values) - len(present)
        if len(present):
            entry |= {
                "min": float(present.min()),
                "p50": float(np.median(present)),
                "max": float(present.max()),
            }
    elif column.kind == "categorical":
        entry |= {"missing": int((values < 0).sum()), "categories": len(column.spec.categories or ())}
    elif column.kind == "boolean":
        entry["true"] = int(values.sum())
    elif column.kind == "integer":
        if len(values):
            entry |= {"min": int(values.min()), "max": int(values.max())}
    else:
        entry["dim"] = values.shape[1]
    return entry


def _edge_type(graph: Graph, edge_type: EdgeType, degree: dict[str, Int64Array]) -> dict[str, Any]:
    source, relation, target = edge_type
    entry: dict[str, Any] = {"source": source, "relation": relation, "target": target}
    entry["edges"] = graph.num_edges(edge_type)
    entry["reverse_of"] = None
    if graph.is_reverse(edge_type):
        forward = graph.reverse_type(edge_type)
        return {**entry, "reverse_of": None if forward is None else edge_type_text(forward)}
    csc = graph.csc(edge_type)
    into = csc.in_degree()
    out_of = np.bincount(csc.indices, minlength=csc.num_sources)
    degree[source] += out_of
    degree[target] += into
    same_as_before = csc.indices[1:] == csc.indices[:-1]
    starts = csc.indptr[1:-1]
    same_as_before[starts[(starts > 0) & (starts < csc.num_edges)] - 1] = False
    sources, targets = csc.coo()
    return {
        **entry,
        "self_loops": int((sources == targets).sum()) if source == target else 0,
        "duplicate_edges": int(same_as_before.sum()),
        "in_degree": _distribution(into),
        "out_degree": _distribution(out_of),
        "features": [_feature(name, column) for name, column in graph.edge_columns(edge_type).items()],
        "imported": graph.imported(edge_type),
    }


def _distribution(degree: Int64Array) -> dict[str, float]:
    percentiles = np.percentile(degree, _PERCENTILES, method="inverted_cdf")
    named = {f"p{q}": int(value) for q, value in zip(_PERCENTILES, percentiles, strict=True)}
    return {"mean": float(degree.mean()), **named, "max": int(degree.max())}


def render(description: dict[str, Any], console: Console) -> None:
    """Print a description as tables.

    Args:
        description: what :func:`describe` returned.
        console: a ``rich.console.Console``.
    """
    from rich.markup import escape
    from rich.table import Table

    size = description["size_bytes"]
    console.print(
        f"[bold]{escape(description['name'])}[/bold]: {description['nodes']:,} nodes, "
        f"{description['edges']:,} edges" + (f", {size:,} bytes" if size is not None else ""),
        highlight=False,
    )
    nodes = _table(Table(title="Nodes", title_justify="left"), ["node type"], ["nodes", "isolated"])
    nodes.add_column("ids")
    nodes.add_column("features")
    for entry in description["node_types"]:
        features = ", ".join(f"{feature['name']} ({feature['kind']})" for feature in entry["features"])
        counts = (f"{entry[count]:,}" for count in ("nodes", "isolated"))
        nodes.add_row(entry["name"], *counts, entry["id_type"], escape(features))
    console.print(nodes)

    edges = _table(
        Table(title="Edges", title_justify="left"),
        ["edge type", "reverse"],
        ["edges", "in-degree p50/p99/max", "out-degree p50/p99/max", "self-loops", "skipped"],
    )
    reverse = {entry["reverse_of"]: entry["relation"] for entry in description["edge_types"]}
    for entry in description["edge_types"]:
        if entry["reverse_of"] is not None:
            continue
        edge_type = (entry["source"], entry["relation"], entry["target"])
        imported = entry["imported"]
        edges.add_row(
            " ".join(edge_type),
            reverse.get(edge_type_text(edge_type), ""),
            f"{entry['edges']:,}",
            _degrees(entry["in_degree"]),
            _degrees(entry["out_degree"]),
            f"{entry['self_loops']:,}",
            f"{imported['rows'] - imported['edges']:,}" if imported else "",
        )
    console.print(edges)


def _table(table: Table, texts: list[str], numbers: list[str]) -> Table:
    for text in texts:
        table.add_column(text)
    for number in numbers:
        table.add_column(number, justify="right")
    return table


def _degrees(distribution: dict[str, float]) -> str:
    return "/".join(f"{distribution[key]:,}" for key in ("p50", "p99", "max"))
