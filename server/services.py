"""What the routes of one server share, and how they get it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.server.telemetry import Telemetry
from graphbox.workspace import Workspace

__all__ = ["Services", "ServicesDep"]


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts of a running server.

    Attributes:
        settings: what it was told at start.
        workspace: what it shows, or None.
        repository: the models it serves.
        telemetry: its counters.
        stopping: set once the server is asked to stop; streams end then.
    """

    settings: Settings
    workspace: Workspace | None
    repository: Repository
    telemetry: Telemetry
    stopping: threading.Event = field(default_factory=threading.Event)


def services_of(request: Request) -> Services:
    """Return the services of the server that answers ``request``."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
