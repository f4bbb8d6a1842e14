"""The audit log of a server: what changes something is noted before it runs, and again before its answer."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

import orjson

from graphbox.server.access import Principal
from graphbox.server.http.exchange import Exchange
from graphbox.server.tokens import LOOPBACK_NAME
from graphbox.workspace import Workspace
from graphbox.workspace.audit import AuditRequest, AuditResult

__all__ = ["AuditLog", "audited_request", "client_name"]

logger = logging.getLogger("graphbox.server.audit")

# Of larger bodies, such as rows, the size alone is noted.
_MAX_DETAIL_BYTES = 2048


class AuditLog:
    """Notes requests in the workspace's database, and in the log ``graphbox.server.audit``.

    Args:
        workspace: None: the log alone has them.
    """

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace

    def begin(self, request: AuditRequest) -> int | None:
        """Note a request before it runs; return the number of its entry. May wait for the database.

        Raises:
            GraphboxError: the database cannot be written; the request must not run.
        """
        return None if self._workspace is None else self._workspace.begin_audit(request)

    def end(
        self, number: int | None, request: AuditRequest, result: AuditResult, message: str | None = None
    ) -> None:
        """Note what became of a request, before its answer. May wait for the database.

        Raises:
            GraphboxError: the database cannot be written; the entry says that the request was begun.
        """
        # At this level it is in the log of any server that has not silenced it.
        logger.warning(
            "%s by %s from %s: %s%s",
            " ".join(filter(None, (request.action, request.model, _version_text(request.version)))),
            request.client,
            request.address,
            result,
            f" ({message})" if message else "",
            extra={"fields": {**asdict(request), "result": result, "reason": message}},
        )
        if number is not None and self._workspace is not None:
            self._workspace.end_audit(number, result, message)


def audited_request(exchange: Exchange, action: str, values: dict[str, str]) -> AuditRequest:
    """Return the entry of a request over HTTP.

    Args:
        exchange: its body is complete.
        action: of its route.
        values: of the placeholders of its route.
    """
    detail = _detail(exchange)
    version = detail.pop("version", None)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**31:
        detail, version = ({**detail, "version": version} if version is not None else detail), None
    return AuditRequest(
        client=client_name(exchange.principal),
        address=exchange.client[0] if exchange.client else "",
        action=action,
        model=values.get("name", values.get("model")),
        version=version,
        request_id=exchange.request_id.decode(),
        detail=detail,
    )


def client_name(principal: Principal | None) -> str:
    """Return how logs name a client."""
    return LOOPBACK_NAME if principal is None else principal.name


def result_of_status(status: int) -> AuditResult:
    """Return the result that a status of HTTP stands for."""
    if status < 400:
        return "ok"
    return "refused" if status < 500 else "failed"


def message_of_body(status: int, body: bytes) -> str | None:
    """Return the message of an error's body; None: there is none."""
    if status < 400:
        return None
    try:
        problem: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(problem, dict):
        return None
    message = problem.get("message", problem.get("error"))
    return message if isinstance(message, str) else None


def _detail(exchange: Exchange) -> dict[str, Any]:
    detail: dict[str, Any] = {"query": exchange.query.decode("latin-1")[:1024]} if exchange.query else {}
    if not exchange.body:
        return detail
    if len(exchange.body) > _MAX_DETAIL_BYTES:
        return detail | {"body_bytes": len(exchange.body)}
    try:
        body: Any = orjson.loads(bytes(exchange.body))
    except orjson.JSONDecodeError:
        return detail | {"body_bytes": len(exchange.body)}
    return body | detail if isinstance(body, dict) else detail | {"body_bytes": len(exchange.body)}


def _version_text(version: int | None) -> str | None:
    return None if version is None else f"version {version}"
