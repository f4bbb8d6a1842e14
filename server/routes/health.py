"""Liveness, readiness and metrics of the process."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

import graphbox
from graphbox.server.schema import Health
from graphbox.server.services import ServicesDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def health() -> Health:
    """Tell that the process answers."""
    return Health(version=graphbox.__version__)


@router.get("/healthz/live")
async def live() -> Health:
    """Tell that the process answers; restart it when it does not."""
    return Health(version=graphbox.__version__)


@router.get("/healthz/ready")
async def ready() -> Health:
    """Tell that requests are accepted. A model that cannot be loaded does not change this."""
    return Health(version=graphbox.__version__)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(services: ServicesDep) -> Response:
    """Answer the counters in the text format of Prometheus."""
    text, content_type = services.telemetry.text()
    return Response(text, headers={"content-type": content_type})
