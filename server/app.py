"""The ASGI application: one FastAPI app for people and programs, one plain callable for inference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

import graphbox
from graphbox.server import page
from graphbox.server.gateway import Gateway
from graphbox.server.kserve.executor import Executor
from graphbox.server.kserve.rest import KServe
from graphbox.server.page import PageFiles
from graphbox.server.problem import add_error_handlers
from graphbox.server.repository import Repository
from graphbox.server.routes import (
    API_PREFIX,
    answers,
    events,
    graphs,
    health,
    models,
    overview,
    runs,
    targets,
)
from graphbox.server.schema import EventEnd, MetricPoint, Problem, RunSummary
from graphbox.server.services import Services
from graphbox.server.settings import Settings
from graphbox.server.telemetry import Telemetry
from graphbox.workspace import Workspace

__all__ = ["build_api", "create_app"]

# Given as content, not as a model: of routes that stream, too, errors are JSON.
_ERROR: dict[str, Any] = {
    "description": "An error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_FURTHER_MODELS = (Problem, MetricPoint, EventEnd, RunSummary)


def create_app(settings: Settings) -> Gateway:
    """Return the ASGI application of a server.

    Raises:
        UsageError: unsafe or wrong settings.
        GraphboxError: the workspace or a named artifact cannot be opened.
    """
    settings.check()
    workspace = (
        Workspace(settings.workspace, settings.database_url, create=False) if settings.workspace else None
    )
    repository = Repository(workspace, settings.artifacts, settings.target, settings.threads)
    telemetry = Telemetry()
    services = Services(settings=settings, workspace=workspace, repository=repository, telemetry=telemetry)
    executor = Executor(settings.max_pending)
    kserve = KServe(services, executor)
    telemetry.watch(kserve.statistics, lambda: executor.pending)
    api = build_api()
    api.state.services = services
    api.state.page = PageFiles()
    api.state.executor = executor
    return Gateway(services, api=api, kserve=kserve)


def build_api() -> FastAPI:
    """Return the FastAPI part with its routes and error handlers, not yet connected to a workspace."""
    api = FastAPI(
        title="graphbox",
        version=graphbox.__version__,
        summary="Graphs, runs and models of a workspace, and what its models answer",
        docs_url=None,  # the interactive pages load scripts from other hosts
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
        responses={"default": _ERROR},
        generate_unique_id_function=_operation_id,
        lifespan=_lifespan,
    )
    add_error_handlers(api)
    for noun in (health, overview, graphs, runs, events, models, answers, targets, page):
        api.include_router(noun.router)
    describe_routes = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            _add_schemas(describe_routes())
        document: dict[str, Any] = api.openapi_schema or {}
        return document

    api.openapi = openapi  # type: ignore[method-assign]  # the way FastAPI documents for extending it
    return api


def _operation_id(route: APIRoute) -> str:
    return route.name


def _add_schemas(document: dict[str, Any]) -> None:
    """Add what no route names as its answer: errors, and the data of the event stream."""
    _, definitions = models_json_schema(
        [(model, "serialization") for model in _FURTHER_MODELS], ref_template="#/components/schemas/{model}"
    )
    document["components"]["schemas"] |= definitions["$defs"]


@asynccontextmanager
async def _lifespan(api: FastAPI) -> AsyncIterator[None]:
    services: Services = api.state.services
    executor: Executor = api.state.executor
    try:
        yield
    finally:
        services.stopping.set()
        executor.close()
        services.repository.close()
