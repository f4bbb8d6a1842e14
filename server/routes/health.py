"""Liveness, readiness and metrics of the process."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import Response

import graphbox
from graphbox.server.access import Scope
from graphbox.server.problem import RefusedError
from graphbox.server.schema import Health, Readiness
from graphbox.server.services import Services, ServicesDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def health() -> Health:
    """Return 200 while the process runs."""
    return Health(version=graphbox.__version__)


@router.get("/healthz/live")
async def live() -> Health:
    """Return 200 while the process runs; restart it when it does not answer."""
    return Health(version=graphbox.__version__)


@router.get("/healthz/ready", responses={503: {"model": Readiness}})
async def ready(request: Request, response: Response, services: ServicesDep) -> Readiness:
    """Return 200 when every model answers, and 503 while models are loading at start or one cannot answer.

    A failed load of a newer version does not change this while the previous version answers. Model names
    need the token, if the server has one.
    """
    found = services.repository.readiness()
    if not found.ready:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    if not _is_admitted(services, request.scope["graphbox.headers"]):
        return Readiness(ready=found.ready, available=[], loading=[], failed={})
    failed = {name: services.public_text(reason) for name, reason in found.failed.items()}
    return Readiness(ready=found.ready, available=found.available, loading=found.loading, failed=failed)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(services: ServicesDep) -> Response:
    """Return the counters in the text format of Prometheus."""
    text, content_type = services.telemetry.text()
    return Response(text, headers={"content-type": content_type})


def _is_admitted(services: Services, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request to an open path could have asked for documents."""
    try:
        services.host_rule.check(headers.get(b"host"))
        if services.token_rule is not None:
            services.token_rule.check(headers, Scope.READ)
    except RefusedError:
        return False
    return True
