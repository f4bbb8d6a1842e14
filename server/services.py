"""The parts of a running server, and how routes get them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from graphbox.server.auth import HostRule, TokenRule
from graphbox.server.executor import Executor
from graphbox.server.inference import Inference
from graphbox.server.problem import PublicText
from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.server.telemetry import Telemetry
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
    stopping: threading.Event = field(default_factory=threading.Event)


def services_of(request: Request) -> Services:
    """Return the services of the server that answers ``request``."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
