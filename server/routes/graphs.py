"""Graphs of the workspace."""

from __future__ import annotations

from fastapi import APIRouter

from graphbox.server.routes import API_PREFIX
from graphbox.server.schema import EdgeTypeCount, GraphSummary, NodeTypeCount
from graphbox.server.services import ServicesDep
from graphbox.workspace import GraphRecord

router = APIRouter(prefix=f"{API_PREFIX}/graphs", tags=["graphs"])


@router.get("")
def graphs(services: ServicesDep) -> list[GraphSummary]:
    """List the graphs."""
    return [_summary(record) for record in (services.workspace.graphs() if services.workspace else [])]


def _summary(record: GraphRecord) -> GraphSummary:
    return GraphSummary(
        name=record.name,
        size_bytes=record.size_bytes,
        created_at=record.created_at,
        node_types=[NodeTypeCount(name=name, nodes=count) for name, count in record.node_types.items()],
        edge_types=[
            EdgeTypeCount(source=edge.source, relation=edge.relation, target=edge.target, edges=edge.edges)
            for edge in record.edge_types
        ],
    )
