"""Counts of what the workspace holds."""

from __future__ import annotations

from fastapi import APIRouter, Request

import graphbox
from graphbox.server.access import Principal, Scope
from graphbox.server.routes import API_PREFIX
from graphbox.server.schema import Overview
from graphbox.server.services import ServicesDep

router = APIRouter(prefix=API_PREFIX, tags=["overview"])


@router.get("/overview")
def overview(request: Request, services: ServicesDep) -> Overview:
    """Count graphs, runs and models."""
    workspace = services.workspace
    principal: Principal | None = request.scope["graphbox.principal"]
    runs = workspace.runs() if workspace else []
    names = {record.name for record in workspace.models()} if workspace else set()
    return Overview(
        version=graphbox.__version__,
        workspace_name=workspace.name if workspace else None,
        graphs=len(workspace.graphs()) if workspace else 0,
        runs=len(runs),
        models=len(names | services.repository.names()),
        running=sum(run.state == "running" for run in runs),
        can_promote=workspace is not None and principal is not None and Scope.MANAGE in principal.scopes,
        follows=services.settings.follow,
    )
