"""The audit log of a server: what changes something is noted before it runs, and again before its answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import orjson

from graphbox.server.access import ROW_UPDATE_ACTION, Principal
from graphbox.server.body import shorten
from graphbox.server.http.exchange import Exchange
from graphbox.server.tokens import LOOPBACK_NAME
from graphbox.workspace import Workspace
from graphbox.workspace.audit import AuditRequest, AuditResult

__all__ = ["AuditLog", "audited_request", "client_name", "plain_detail", "plain_text"]

logger = logging.getLogger("graphbox.server.audit")

# Of larger bodies, and of rows, the size alone is noted.
_MAX_DETAIL_BYTES = 2048
_LONGEST_VALUE = 1024
_LONGEST_MESSAGE = 1000
# A database may not take NUL, and a line end begins a line of the log that nobody wrote.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


class AuditLog:
    """Notes requests in the workspace's database, and in the log ``graphbox.server.audit``.

    Args:
        workspace: None: the log alone has them.
    """

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        # Requests may change the level of the server's loggers, but not take what they do out of its log.
        logger.setLevel(logger.getEffectiveLevel())

    def begin(self, request: AuditRequest) -> int | None:
        """Note a request before it runs; return the number of its entry. May wait for the database.

        Raises:
            GraphboxError: the database cannot be written; the request must not run.
        """
        if self._workspace is not None:
            return self._workspace.begin_audit(request)
        _log(request, "begun")
        return None

    def end(
        self, number: int | None, request: AuditRequest, result: AuditResult, message: str | None = None
    ) -> None:
        """Note what became of a request, before its answer. May wait for the database.

        Raises:
            GraphboxError: the database cannot be written; the entry says that the request was begun.
        """
        text = None if message is None else shorten(plain_text(message), _LONGEST_MESSAGE)
        _log(request, result, text)
        if number is not None and self._workspace is not None:
            self._workspace.end_audit(number, result, text)


def audited_request(exchange: Exchange, action: str) -> AuditRequest:
    """Return the entry of a request over HTTP.

    Args:
        exchange: its body is complete.
        action: of its route.
    """
    detail = _detail(exchange, has_rows=action == ROW_UPDATE_ACTION)
    version = detail.pop("version", None)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**31:
        detail, version = ({**detail, "version": version} if version is not None else detail), None
    model = exchange.placeholders.get("name", exchange.placeholders.get("model"))
    return AuditRequest(
        client=client_name(exchange.principal),
        address=exchange.client[0] if exchange.client else "",
        action=action,
        model=None if model is None else plain_text(model),
        version=version,
        request_id=exchange.request_id.decode(),
        detail=plain_detail(detail),
    )


def plain_text(text: str) -> str:
    """Return a text of a client as databases and lines of logs hold it: without control characters."""
    return _CONTROL_CHARACTER.sub(" ", text)


def plain_detail(values: Mapping[str, Any]) -> dict[str, str | float | bool | None]:
    """Return values of a request as scalars, however deep they are nested; texts are cut."""
    return {shorten(plain_text(name)): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> str | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return shorten(plain_text(value), _LONGEST_VALUE)
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # it is nested too deep for a text
        text = f"{type(value).__name__} of lists or objects that are nested too deep to be shown"
    return shorten(text, _LONGEST_VALUE)


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


def _detail(exchange: Exchange, *, has_rows: bool) -> dict[str, Any]:
    detail: dict[str, Any] = {"query": exchange.query.decode("latin-1")[:1024]} if exchange.query else {}
    if not exchange.body:
        return detail
    # Rows may be those of persons, and `graphbox forget` could not find vectors in a log.
    if has_rows or len(exchange.body) > _MAX_DETAIL_BYTES:
        return detail | {"body_bytes": len(exchange.body)}
    try:
        body: Any = orjson.loads(bytes(exchange.body))
    except orjson.JSONDecodeError:
        return detail | {"body_bytes": len(exchange.body)}
    return body | detail if isinstance(body, dict) else detail | {"body_bytes": len(exchange.body)}


def _log(request: AuditRequest, result: AuditResult, message: str | None = None) -> None:
    """Log an entry at a level that is in the log of each server that was not started without it."""
    values = {each.name: getattr(request, each.name) for each in fields(request)}
    logger.warning(
        "%s by %s from %s: %s%s",
        " ".join(filter(None, (request.action, request.model, _version_text(request.version)))),
        request.client,
        request.address,
        result,
        f" ({message})" if message else "",
        extra={"fields": {**values, "detail": dict(request.detail), "result": result, "reason": message}},
    )


def _version_text(version: int | None) -> str | None:
    return None if version is None else f"version {version}"
