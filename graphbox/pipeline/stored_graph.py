"""Stored graphs of a workspace as run files name them: which types they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphbox.config.graph_schema import EdgeTypeSchema, GraphSchema, SchemaOf
from graphbox.errors import NotFoundError
from graphbox.workspace import Workspace

if TYPE_CHECKING:
    from graphbox.graph import Graph, GraphSource


def stored_schema(workspace: Workspace) -> SchemaOf:
    """Return what looks up the types of a stored graph for :func:`graphbox.config.load_config`."""

    def look_up(name: str) -> GraphSchema:
        from graphbox.graph import Graph

        try:
            path = workspace.graph(name).path
        except NotFoundError as error:
            raise NotFoundError(
                f"there is no stored graph `{name}` in the workspace {workspace.root}",
                where="graph.name",
                hint=f"{error.hint}; list its tables under `graph.nodes` and `graph.edges` to import it, or "
                "give `graph=` in Python",
            ) from None
        return schema_of_graph(Graph.open(path), f"the stored graph `{name}`")

    return look_up


def schema_of_graph(graph: Graph, origin: str) -> GraphSchema:
    """Return the types of a graph; no array is read.

    Args:
        graph: the graph.
        origin: what it is, for messages.
    """
    nodes = {}
    for node_type in graph.node_types:
        of_type = graph.node_table(node_type)
        nodes[node_type] = {name: of_type.template(name).kind for name in of_type.features}
    edges = []
    for edge_type in graph.edge_types:
        if graph.is_reverse(edge_type):
            continue
        reverse, table = graph.reverse_type(edge_type), graph.own_edges(edge_type)
        edges.append(
            EdgeTypeSchema(
                type=edge_type,
                reverse=None if reverse is None else reverse[1],
                features={name: table.template(name).kind for name in table.features},
                has_timestamp="timestamp" in table.columns,
                has_weight="weight" in table.columns,
            )
        )
    return GraphSchema(nodes, tuple(edges), origin)


def schema_of_source(source: GraphSource, origin: str) -> GraphSchema:
    """Return the types that an import of ``source`` makes.

    Args:
        source: the tables.
        origin: what they are, for messages.
    """
    return GraphSchema(
        {name: dict(node.features) for name, node in source.nodes.items()},
        tuple(
            EdgeTypeSchema(
                type=edge.type,
                reverse=edge.reverse,
                features=dict(edge.features),
                has_timestamp=edge.timestamp is not None,
                has_weight=edge.weight is not None,
                keeps_duplicates=edge.keep_duplicates,
            )
            for edge in source.edges
        ),
        origin,
    )
