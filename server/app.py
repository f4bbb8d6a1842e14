"""The application of a server: a FastAPI app for REST and the page, KServe beside it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

import graphbox
from graphbox.deploy.select import candidates_of
from graphbox.package_folder import keep_packages_in
from graphbox.server import page
from graphbox.server.audit import AuditLog
from graphbox.server.auth import HostRule, TokenRule
from graphbox.server.client_limits import ClientLimits
from graphbox.server.counters import Counters
from graphbox.server.executor import Executor
from graphbox.server.gateway import Gateway
from graphbox.server.inference import Inference
from graphbox.server.kserve.management import Management
from graphbox.server.kserve.rest import KServe
from graphbox.server.kserve.shared_memory import SharedMemory
from graphbox.server.log_settings import LogSettings
from graphbox.server.page import PageFiles
from graphbox.server.problem import PublicText, add_error_handlers
from graphbox.server.question_schema import (
    EncodeRequest,
    NeighborsRequest,
    PredictionRequest,
)
from graphbox.server.readiness import Readiness
from graphbox.server.repository import Repository
from graphbox.server.restricted import Restrictions
from graphbox.server.routes import (
    API_PREFIX,
    answers,
    audit,
    compressions,
    events,
    graphs,
    health,
    models,
    neighbors,
    overview,
    row_updates,
    runs,
    sign_in,
    targets,
    traffic,
    unseen,
)
from graphbox.server.schema import EventEnd, MetricPoint, Problem, RunSummary
from graphbox.server.services import Services
from graphbox.server.serving_state import ServingState
from graphbox.server.settings import Settings
from graphbox.server.shadow_counters import TrafficCollector
from graphbox.server.shared_document import SharedDocument
from graphbox.server.telemetry import PENDING_EXECUTIONS, Telemetry
from graphbox.server.tokens import Tokens
from graphbox.server.trace_settings import TraceSettings
from graphbox.server.tracing import Tracing
from graphbox.server.watcher import Watcher
from graphbox.workspace import Workspace

__all__ = ["build_api", "create_app", "create_app_of"]

logger = logging.getLogger("graphbox.server")

# A request that finds the database locked ends with a status that says to try again, instead of hanging.
_DATABASE_BUSY_TIMEOUT_S = 2.0
# Given as content, not as a model: of routes that stream, too, errors are JSON.
_ERROR: dict[str, Any] = {
    "description": "An error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_FURTHER_MODELS = (
    Problem,
    MetricPoint,
    EventEnd,
    RunSummary,
    PredictionRequest,
    EncodeRequest,
    NeighborsRequest,
)


def create_app(
    settings: Settings,
    on_preload: Callable[[Readiness], None] | None = None,
    *,
    counters: Counters | None = None,
    state: ServingState | None = None,
    document: SharedDocument | None = None,
) -> Gateway:
    """Return the application of a server.

    Args:
        settings: its settings.
        on_preload: called once, in another thread, after every model was opened or failed to open.
        counters: of all workers of the server; None: this process alone serves.
        state: requests about models, of all workers; None: see `Repository`.
        document: settings and regions of all workers; None: this process alone serves.

    Raises:
        UsageError: unsafe or wrong settings.
        NotFoundError: there is no such target, no such token file, or no secret of a restriction.
        GraphboxError: the workspace or a folder of models cannot be opened.
    """
    settings.check()
    if settings.target != "auto":
        candidates_of(settings.target)  # else every model would fail to open, in a server that runs
    workspace = (
        Workspace(
            settings.workspace,
            settings.database_url,
            create=settings.create,
            busy_timeout_s=_DATABASE_BUSY_TIMEOUT_S,
        )
        if settings.workspace
        else None
    )
    if workspace is not None:
        keep_packages_in(workspace.root)
        if workspace.has_unfinished_forgettings():
            logger.warning(
                "nodes were to be forgotten, which was interrupted: `graphbox forget --resume` resumes it"
            )
    repository = Repository(
        workspace,
        settings.models,
        settings.target,
        settings.threads,
        counters=counters,
        state=state,
        nearest=settings.nearest,
        requires_model=settings.create,
        max_updated_bytes=settings.max_updated_bytes,
    )
    return create_app_of(settings, workspace, repository, on_preload, document)


def create_app_of(
    settings: Settings,
    workspace: Workspace | None,
    repository: Repository,
    on_preload: Callable[[Readiness], None] | None = None,
    document: SharedDocument | None = None,
) -> Gateway:
    """Return the application of a server of an opened workspace and repository."""
    telemetry = Telemetry(repository.counters)
    executor = Executor(settings.max_pending, gauge=repository.counters.gauge(PENDING_EXECUTIONS))
    token_rule = _token_rule(settings)
    document = document or SharedDocument.of_one_process()
    log_settings, trace_settings = LogSettings(document), TraceSettings(document)

    def poll() -> None:
        if token_rule is not None:
            token_rule.tokens.reload()
        log_settings.poll()
        trace_settings.poll()

    services = Services(
        settings=settings,
        host_rule=HostRule(settings),
        token_rule=token_rule,
        workspace=workspace,
        repository=repository,
        watcher=Watcher(
            repository,
            on_preload,
            follows=settings.follow,
            also_poll=poll,
        ),
        telemetry=telemetry,
        executor=executor,
        inference=Inference(repository, executor, settings),
        public_text=PublicText(_folder_names(settings)),
        audit=AuditLog(workspace),
        client_limits=ClientLimits.of(settings),
        tracing=Tracing() if settings.otel else None,
        log_settings=log_settings,
        trace_settings=trace_settings,
        restrictions=Restrictions.of(settings.restrict),
        shared_memory=SharedMemory(
            document, settings.shared_memory_prefix, settings.max_body_bytes, settings.max_buffered_bytes
        )
        if settings.shared_memory
        else None,
    )
    kserve = KServe(services)
    telemetry.watch(Management(services).statistics)
    telemetry.registry.register(TrafficCollector(repository.counters, lambda: repository.routes))
    api = build_api()
    api.state.services = services
    api.state.page = PageFiles()
    return Gateway(services, api=api, kserve=kserve)


def _token_rule(settings: Settings) -> TokenRule | None:
    if settings.token is None and settings.token_file is None:
        return None
    tokens = Tokens(settings.token, settings.token_file)
    return TokenRule(tokens, settings.port, is_encrypted=settings.tls_certificate is not None)


def _folder_names(settings: Settings) -> dict[Path, str]:
    """Return how messages to clients name the folders of this machine."""
    named = {path.absolute(): path.name for path in settings.models}
    if settings.workspace is not None:
        named[settings.workspace.absolute()] = "the workspace"
    named |= {
        Path(tempfile.gettempdir()): "the temporary folder",
        Path(graphbox.__file__).parent: "graphbox",
    }
    try:
        named[Path.home()] = "the home folder"
    except RuntimeError:  # a user without one, as in a container
        return named
    return named


def build_api() -> FastAPI:
    """Return the FastAPI part with its routes and error handlers, not yet connected to a workspace."""
    api = FastAPI(
        title="graphbox",
        version=graphbox.__version__,
        summary="Graphs, runs and models of a workspace, and what its models answer",
        docs_url=None,  # the interactive pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # other paths than the documented ones do not exist
        openapi_url=f"{API_PREFIX}/openapi.json",
        responses={"default": _ERROR},
        generate_unique_id_function=_operation_id,
        lifespan=_lifespan,
    )
    add_error_handlers(api)
    for noun in (
        health,
        overview,
        graphs,
        runs,
        events,
        models,
        compressions,
        row_updates,
        traffic,
        neighbors,
        answers,
        unseen,
        targets,
        audit,
        sign_in,
        page,
    ):
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
    services.watcher.start()
    try:
        yield
    finally:
        services.stopping.set()
        services.inference.shadows.stop(services.settings.drain_timeout_s)
        services.executor.close()
        if services.tracing is not None:
            services.tracing.close()
        services.watcher.stop(services.settings.drain_timeout_s)
        services.repository.close()
