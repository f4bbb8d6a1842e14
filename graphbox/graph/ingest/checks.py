"""Checks of an import's source before anything is read."""

from __future__ import annotations

from collections.abc import Mapping

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.columns import FEATURE_KINDS
from graphbox.graph.schema import EdgeType, FeatureKind, GraphSource, check_type_name, edge_type_text

_EDGE_FEATURE_KINDS = tuple(kind for kind in FEATURE_KINDS if kind != "slots")


def check_source(source: GraphSource) -> None:
    """Check names, node types and kinds.

    Raises:
        UsageError: there is no node type, an edge type is there twice, one has a name it may not have, or is
            unknown, or there is no such kind of feature.
    """
    if not source.nodes:
        raise UsageError("expected at least one node type, received none", where=f"graph `{source.name}`")
    for node_type, nodes in source.nodes.items():
        check_type_name(node_type, "node type")
        where = f"node type `{node_type}`"
        _check_kinds(nodes.features, where, FEATURE_KINDS)
        if nodes.id is None and not nodes.features:
            raise UsageError("expected features of nodes without ids, received none", where=where)
        if nodes.data is None and nodes.features:
            raise UsageError(
                "expected no features of nodes without a table, received "
                + ", ".join(f"`{name}`" for name in nodes.features),
                where=where,
                hint="give the node type a table",
            )
    seen: set[EdgeType] = set()
    for edges in source.edges:
        where = f"edge type {edge_type_text(edges.type)}"
        if edges.source == edges.target:
            raise UsageError(
                f"expected a column of sources and one of targets, received `{edges.source}` for both",
                where=where,
                hint="every edge would be a self-loop; name the column of the other end",
            )
        _check_kinds(edges.features, where, _EDGE_FEATURE_KINDS)
        for end in (edges.type[0], edges.type[2]):
            if end not in source.nodes:
                raise UsageError(
                    f"expected one of the node types {', '.join(source.nodes)}, received `{end}`",
                    where=where,
                    hint=did_you_mean(end, source.nodes),
                )
        reverse = [] if edges.reverse is None else [(edges.type[2], edges.reverse, edges.type[0])]
        for edge_type in (edges.type, *reverse):
            check_type_name(edge_type[1], where)
            if edge_type in seen:
                raise UsageError(
                    "expected each edge type once, received it twice", where=edge_type_text(edge_type)
                )
            seen.add(edge_type)
    _check_found_nodes(source)


def _check_found_nodes(source: GraphSource) -> None:
    """Check that nodes without a table have edges that they can be found at."""
    ends = {end for edges in source.edges for end in (edges.type[0], edges.type[2])}
    for node_type, nodes in source.nodes.items():
        if nodes.data is None and node_type not in ends:
            raise UsageError(
                "expected a table, or an edge type that leads to or from these nodes, received neither",
                where=f"node type `{node_type}`",
            )


def _check_kinds(features: Mapping[str, FeatureKind], where: str, known: tuple[FeatureKind, ...]) -> None:
    for name, kind in features.items():
        if kind not in known:
            raise UsageError(
                f"expected one of {', '.join(known)}, received `{kind}`",
                where=f"{where}, feature `{name}`",
                hint="only nodes have slots" if kind in FEATURE_KINDS else did_you_mean(str(kind), known),
            )
