"""Routes of shared memory, log settings and trace settings over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from graphbox.server.kserve.extensions import Extensions
from graphbox.server.services import Services

__all__ = ["ExtensionRoute", "ExtensionRoutes"]

Answer = Callable[[dict[str, Any]], Awaitable[Any]]
"""Takes the JSON of a request, empty without a body; returns that of the answer, None for an empty body."""


@dataclass(frozen=True)
class ExtensionRoute:
    """A route.

    Attributes:
        template: path with placeholders in braces.
        answers: what answers a request, by method.
    """

    template: str
    answers: dict[str, Answer]


class ExtensionRoutes:
    """Finds the routes of the extensions."""

    def __init__(self, services: Services) -> None:
        self._extensions = Extensions(services)

    def find(self, segments: tuple[str, ...]) -> ExtensionRoute | None:
        """Return the route of the decoded parts of a path after ``/v2``; None: there is none."""
        match segments:
            case ["logging"]:
                return ExtensionRoute("/v2/logging", {"GET": self._log_settings, "POST": self._change_logs})
            case ["trace", "setting"]:
                return self._trace("/v2/trace/setting", "")
            case ["models", model, "trace", "setting"] if model:
                return self._trace("/v2/models/{model}/trace/setting", model)
            case [("systemsharedmemory" | "cudasharedmemory") as kind, "region", name, verb] if name:
                answers = self._memory(kind == "cudasharedmemory", name).get(verb)
                return (
                    None if answers is None else ExtensionRoute(f"/v2/{kind}/region/{{name}}/{verb}", answers)
                )
            case [("systemsharedmemory" | "cudasharedmemory") as kind, ("status" | "unregister") as verb]:
                answers = self._memory(kind == "cudasharedmemory", "")[verb]
                return ExtensionRoute(f"/v2/{kind}/{verb}", answers)
        return None

    def _trace(self, template: str, model: str) -> ExtensionRoute:
        async def show(_message: dict[str, Any]) -> Any:
            return await self._extensions.trace_settings(model)

        async def change(message: dict[str, Any]) -> Any:
            return await self._extensions.change_trace_settings(model, message)

        return ExtensionRoute(template, {"GET": show, "POST": change})

    def _memory(self, is_gpu: bool, name: str) -> dict[str, dict[str, Answer]]:
        """Return what answers by the last part of the path and the method; of all regions without a name."""
        extensions = self._extensions

        async def show(_message: dict[str, Any]) -> Any:
            return extensions.gpu_regions(name) if is_gpu else extensions.regions(name)

        async def register(message: dict[str, Any]) -> None:
            if is_gpu:
                extensions.register_gpu()
            extensions.register(name, message)

        async def unregister(_message: dict[str, Any]) -> None:
            if not is_gpu:
                extensions.unregister(name)

        return {
            "status": {"GET": show},
            "register": {"POST": register},
            "unregister": {"POST": unregister},
        }

    async def _log_settings(self, _message: dict[str, Any]) -> Any:
        return self._extensions.log_settings()

    async def _change_logs(self, message: dict[str, Any]) -> Any:
        return self._extensions.change_log_settings(message)
