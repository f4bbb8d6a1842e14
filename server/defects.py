"""The answer to a request that failed for a reason nobody expected."""

from __future__ import annotations

import logging
from http import HTTPStatus

from graphbox.server.http.exchange import Exchange
from graphbox.server.problem import defect_body

__all__ = ["answer_defect"]

logger = logging.getLogger("graphbox.server")


def answer_defect(exchange: Exchange, error: BaseException) -> None:
    """Log ``error`` with the id of the request, and answer 500 unless a part of an answer was sent."""
    request_id = exchange.request_id.decode()
    path = exchange.path.decode("latin-1")
    logger.error("request %s: %s %s failed", request_id, exchange.method, path, exc_info=error)
    if not exchange.status:
        headers = [(b"content-type", b"application/json")]
        exchange.respond(HTTPStatus.INTERNAL_SERVER_ERROR, headers, defect_body(request_id))
