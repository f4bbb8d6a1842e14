"""Statuses of gRPC, and the one table from the HTTP statuses of errors to them."""

from __future__ import annotations

import logging
from enum import IntEnum
from http import HTTPStatus

from graphbox.errors import GraphboxError
from graphbox.server.problem import PublicText, RefusedError, one_line

__all__ = ["OVERLOADED", "Status", "status_of"]

logger = logging.getLogger("graphbox.server")


class Status(IntEnum):
    """Statuses of gRPC (https://grpc.io/docs/guides/status-codes)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_OF_HTTP: dict[int, Status] = {
    HTTPStatus.BAD_REQUEST: Status.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: Status.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: Status.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: Status.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: Status.DEADLINE_EXCEEDED,
    HTTPStatus.CONFLICT: Status.FAILED_PRECONDITION,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Status.RESOURCE_EXHAUSTED,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Status.UNIMPLEMENTED,
    HTTPStatus.UNPROCESSABLE_ENTITY: Status.FAILED_PRECONDITION,  # the files of a model, not the request
    HTTPStatus.TOO_MANY_REQUESTS: Status.RESOURCE_EXHAUSTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: Status.INTERNAL,
    HTTPStatus.NOT_IMPLEMENTED: Status.UNIMPLEMENTED,
    HTTPStatus.SERVICE_UNAVAILABLE: Status.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: Status.DEADLINE_EXCEEDED,
    HTTPStatus.INSUFFICIENT_STORAGE: Status.RESOURCE_EXHAUSTED,
}
OVERLOADED = "overloaded"


def status_of(error: BaseException, public_text: PublicText, method: str) -> tuple[Status, str]:
    """Return the status and the message of an error; one that nobody expected is logged.

    Args:
        error: why a call failed.
        public_text: removes paths of this machine.
        method: the called method, for the log.
    """
    if isinstance(error, GraphboxError):
        return _OF_HTTP.get(error.http_status, Status.UNKNOWN), public_text(one_line(error))
    if isinstance(error, RefusedError):
        if error.code == OVERLOADED:  # other clients are told to try another server, these to slow down
            return Status.RESOURCE_EXHAUSTED, error.message
        return _OF_HTTP.get(error.status, Status.UNKNOWN), error.message
    logger.error("gRPC %s failed", method, exc_info=error)
    return Status.INTERNAL, "the server failed on this request; its log has the reason"
