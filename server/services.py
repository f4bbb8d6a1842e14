"""The parts of a running server, and how routes get them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from graphbox.server.audit import AuditLog
from graphbox.server.auth import HostRule, TokenRule
from graphbox.server.client_limits import ClientLimits
from graphbox.server.executor import Executor
from graphbox.server.inference import Inference
from graphbox.server.kserve.shared_memory import SharedMemory
from graphbox.server.log_settings import LogSettings
from graphbox.server.problem import PublicText
from graphbox.server.repository import Repository
from graphbox.server.restricted import Restrictions
from graphbox.server.settings import Settings
from graphbox.server.telemetry import Telemetry
from graphbox.server.trace_settings import TraceSettings
from graphbox.server.tracing import Tracing
from graphbox.server.watcher import Watcher
from graphbox.workspace import Workspace

__all__ = ["Services", "ServicesDep"]


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts of a running server.

    Attributes:
        settings: settings of the server.
        host_rule: accepted ``Host`` headers.
        token_rule: the token requests must present, or None.
        workspace: the workspace to show, or None.
        repository: the served models.
        watcher: follows the workspace and the model folders.
        telemetry: counters.
        executor: threads of model executions.
        inference: runs the calls of models, for all transports.
        public_text: names the folders of this machine in messages to clients.
        audit: notes requests that change something.
        client_limits: limits on the requests of one client, or None.
        tracing: makes spans of requests, or None.
        log_settings: which records are logged.
        trace_settings: which requests are traced in the log.
        restrictions: categories of requests that need a secret of their own, or None.
        shared_memory: regions that clients registered; None: the server offers no shared memory.
        stopping: set when the server is asked to stop; streams end then.
    """

    settings: Settings
    host_rule: HostRule
    token_rule: TokenRule | None
    workspace: Workspace | None
    repository: Repository
    watcher: Watcher
    telemetry: Telemetry
    executor: Executor
    inference: Inference
    public_text: PublicText
    audit: AuditLog
    client_limits: ClientLimits | None = None
    tracing: Tracing | None = None
    log_settings: LogSettings
    trace_settings: TraceSettings
    restrictions: Restrictions | None = None
    shared_memory: SharedMemory | None = None
    stopping: threading.Event = field(default_factory=threading.Event)


def services_of(request: Request) -> Services:
    """Return the services of the server that answers ``request``."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
