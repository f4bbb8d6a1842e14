"""The audit log: what clients changed, or tried to."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from graphbox.server.routes import API_PREFIX
from graphbox.server.schema import AuditEntry
from graphbox.server.services import ServicesDep

router = APIRouter(prefix=API_PREFIX, tags=["audit"])

# Beyond it, neither databases nor clients in JavaScript compare exactly.
_HIGHEST_ID = 2**53 - 1


@router.get("/audit")
def audit(
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=1000, description="most entries to return")] = 100,
    before: Annotated[
        int | None, Query(ge=1, le=_HIGHEST_ID, description="only entries with a lower id")
    ] = None,
    model: Annotated[str | None, Query(max_length=128, description="only what is about this model")] = None,
) -> list[AuditEntry]:
    """List the requests that changed something, or tried to, newest first.

    Of a server without a workspace, the log alone has them.
    """
    records = services.workspace.audit(limit=limit, before=before, model=model) if services.workspace else []
    return [
        AuditEntry(
            id=record.id,
            time=record.time,
            client=record.request.client,
            address=record.request.address,
            action=record.request.action,
            model=record.request.model,
            version=record.request.version,
            detail=dict(record.request.detail),
            request_id=record.request.request_id,
            result=record.result,
            message=record.message,
        )
        for record in records
    ]
