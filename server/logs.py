"""Logs of a server: lines of JSON, and one line for each request."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

__all__ = ["AccessEntry", "JsonFormatter", "access_logger", "log_access", "start_json_log"]

access_logger = logging.getLogger("graphbox.server.access")
"""Logs each request: those of probes at DEBUG, all others at INFO."""

# Asked every few seconds by whatever watches the server.
_PROBES = frozenset(
    {
        "/healthz",
        "/healthz/live",
        "/healthz/ready",
        "/v2/health/live",
        "/v2/health/ready",
        "/metrics",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady",
    }
)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON.

    Every line has ``time`` (ISO 8601, UTC), ``level``, ``logger`` and ``message``; a traceback is the text of
    one field. Values of the record's attribute ``fields`` are added.

    Args:
        worker: position of the worker that logs; None: there is one process.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            document["worker"] = self._worker
        document |= (
            record.msg.fields() if isinstance(record.msg, AccessEntry) else getattr(record, "fields", {})
        )
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:
            document["traceback"] = record.exc_text
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        try:
            return orjson.dumps(document, default=str).decode()
        except TypeError:  # such as text that is no Unicode
            return json.dumps(document, default=str)


def start_json_log(level: int, worker: int | None = None) -> None:
    """Send logs of this process as lines of JSON to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(worker))
    logging.basicConfig(level=level, handlers=[handler], force=True)


class AccessEntry:
    """Line of a request that was answered, or whose client left (status 0).

    Args:
        method: of HTTP, or ``gRPC``.
        path: as received, still percent-encoded, so that it cannot forge lines of the log.
        route: pattern of the route, or path of the method.
        status: of HTTP, or name of that of gRPC.
        seconds: from the request to the end of its answer.
        request_id: of the client if it sent one, else made by the server.
        client: name of the token, else the address.
        model: that answered; None: none did, or the route names it in its body.
        version: of the model that answered; None: it is not known.
        sent_bytes: of the answer's body.
    """

    __slots__ = ("_values",)

    def __init__(
        self,
        method: str,
        path: str,
        route: str,
        status: int | str,
        seconds: float,
        request_id: str,
        client: str,
        model: str | None,
        version: str | None,
        sent_bytes: int,
    ) -> None:
        self._values = (method, path, route, status, seconds, request_id, client, model, version, sent_bytes)

    def __str__(self) -> str:
        method, path, _, status, seconds, request_id, client, *_ = self._values
        return f"{method} {path} {status} {seconds * 1e3:.1f} ms {request_id} {client}"

    @property
    def is_of_probe(self) -> bool:
        """Whether the request is one of those that come every few seconds."""
        return self._values[1] in _PROBES

    def fields(self) -> dict[str, Any]:
        """Return the fields of its line of JSON."""
        method, path, route, status, seconds, request_id, client, model, version, sent_bytes = self._values
        return {
            "request_id": request_id,
            "method": method,
            "path": path,
            "route": route,
            "status": status,
            "model": model,
            "version": version,
            "bytes": sent_bytes,
            "duration_ms": round(seconds * 1e3, 3),
            "client": client,
        }


def log_access(entry: AccessEntry) -> None:
    """Log a request."""
    access_logger.log(logging.DEBUG if entry.is_of_probe else logging.INFO, entry)
