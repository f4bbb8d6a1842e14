"""Errors as Problem JSON: the one place where an exception becomes an HTTP response."""

from __future__ import annotations

import logging
import re
import reprlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from graphbox.errors import GraphboxError, InvalidRequestError

__all__ = [
    "AmbiguousIdError",
    "PublicText",
    "RefusedError",
    "add_error_handlers",
    "problem_response",
    "request_id_of",
    "too_large",
]

logger = logging.getLogger("graphbox.server")

_TEMPORARY = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
# Of the values that a request has wrong.
_MOST_DESCRIBED = 8
_LONGEST_RECEIVED = 128
_short_repr = reprlib.Repr()
_short_repr.maxstring = _short_repr.maxother = _short_repr.maxlong = _LONGEST_RECEIVED
_CODE_OF_STATUS = {404: "not_found", 405: "method_not_allowed"}


class AmbiguousIdError(InvalidRequestError):
    """Several node types have the requested id.

    Args:
        text: the id.
        node_types: the types that have it.
    """

    def __init__(self, text: str, node_types: Sequence[str]) -> None:
        super().__init__(
            f"the id `{text}` exists in the node types {', '.join(node_types)}",
            where="query parameter `type`",
            hint=f"choose one: {' or '.join(f'`type={name}`' for name in node_types)}",
        )
        self.node_types = tuple(node_types)


class RefusedError(Exception):
    """A request refused for a reason that exists only in HTTP, such as a missing token.

    Args:
        status: HTTP status of the answer.
        code: stable machine-readable name.
        message: what was expected and what was received.
        hint: what to do next.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})


def problem_body(
    code: str,
    message: str,
    request_id: str,
    *,
    where: str | None = None,
    hint: str | None = None,
    choices: Sequence[str] = (),
) -> bytes:
    """Return a Problem as JSON bytes."""
    return orjson.dumps(
        {
            "code": code,
            "message": message,
            "where": where,
            "hint": hint,
            "choices": list(choices),
            "request_id": request_id,
        },
    )


class PublicText:
    """Names the folders of this machine in messages: a client has no use for their paths.

    Args:
        folders: name of each, by its absolute path. What lies inside is named relative to it.
    """

    def __init__(self, folders: Mapping[Path, str]) -> None:
        deepest_first = sorted(folders.items(), key=lambda item: len(item[0].parts), reverse=True)
        self._names = [(str(path), name) for path, name in deepest_first if len(path.parts) > 1]

    def __call__(self, text: str) -> str:
        """Return ``text`` without absolute paths of the folders."""
        for path, name in self._names:
            text = text.replace(f"{path}/", "").replace(path, name)
        return text


def problem_response(error: GraphboxError, request_id: str, public_text: PublicText) -> Response:
    """Return the answer for an error graphbox raised on purpose."""
    where = None if error.where is None else public_text(error.where)
    hint = None if error.hint is None else public_text(error.hint)
    choices = error.node_types if isinstance(error, AmbiguousIdError) else ()
    message = public_text(error.message)
    return Response(
        problem_body(error.code, message, request_id, where=where, hint=hint, choices=choices),
        status_code=error.http_status,
        media_type="application/json",
        headers={"retry-after": "1"} if error.http_status in _TEMPORARY else None,
    )


def too_large(limit_bytes: int) -> RefusedError:
    """Return the refusal of a body that is too large."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"expected a body of at most {limit_bytes} bytes, received a larger one",
    )


def kserve_error(message: str) -> bytes:
    """Return the error body of the KServe protocol."""
    return orjson.dumps({"error": message})


def one_line(error: GraphboxError) -> str:
    """Return place, message and hint of an error in one line, for protocols whose errors are one text."""
    where = f"{error.where}: " if error.where else ""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{where}{error.message}{hint}"


def refusal_response(error: RefusedError, request_id: str) -> Response:
    """Return the answer for a refused request."""
    return Response(
        problem_body(error.code, error.message, request_id, hint=error.hint),
        status_code=error.status,
        media_type="application/json",
        headers=error.headers,
    )


def request_id_of(scope: Any) -> str:
    """Return the id the gateway gave the request of an ASGI ``scope``."""
    return str(scope.get("graphbox.request_id", ""))


def add_error_handlers(api: FastAPI) -> None:
    """Make every error of ``api`` a Problem: ours, wrong parameters, unknown paths, and defects."""

    @api.exception_handler(GraphboxError)
    async def on_graphbox_error(request: Request, error: GraphboxError) -> Response:
        request_id = request_id_of(request.scope)
        if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.error("request %s: %s", request_id, error)
        return problem_response(error, request_id, request.app.state.services.public_text)

    @api.exception_handler(RefusedError)
    async def on_refused(request: Request, error: RefusedError) -> Response:
        return refusal_response(error, request_id_of(request.scope))

    @api.exception_handler(RequestValidationError)
    async def on_wrong_parameters(request: Request, error: RequestValidationError) -> Response:
        where, message = describe_parameters(error.errors())
        body = problem_body("invalid_request", message, request_id_of(request.scope), where=where)
        return Response(body, status_code=400, media_type="application/json")

    @api.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        code = _CODE_OF_STATUS.get(status, re.sub(r"\W+", "_", status.phrase.lower()))
        hint = "GET /api/v1/openapi.json lists every path" if status == HTTPStatus.NOT_FOUND else None
        message = f"{status.phrase}: {request.method} {request.url.path}"
        body = problem_body(code, message, request_id_of(request.scope), hint=hint)
        return Response(body, status_code=status, media_type="application/json", headers=error.headers)

    @api.exception_handler(Exception)
    async def on_defect(request: Request, _error: Exception) -> Response:
        # Starlette raises the exception again after this answer; the gateway logs it with the request id.
        return Response(
            defect_body(request_id_of(request.scope)), status_code=500, media_type="application/json"
        )


def defect_body(request_id: str) -> bytes:
    """Return the Problem for an exception nobody expected; what it was stays in the log."""
    return problem_body(
        "internal",
        "the server failed on this request",
        request_id,
        hint=f"the server's log has the reason under request id {request_id}",
    )


def describe_parameters(errors: Sequence[Any]) -> tuple[str, str]:
    """Return where the first wrong parameter is, and one sentence about all of them."""
    messages = []
    for error in errors[:_MOST_DESCRIBED]:
        kind, *names = [str(part) for part in error["loc"]] or ["request"]
        name = f"{kind} parameter `{'.'.join(names)[:_LONGEST_RECEIVED]}`" if names else kind
        received = "" if error["type"] == "missing" else f", received {_shown(error['input'])}"
        messages.append((name, f"{error['msg']}{received}"))
    where = messages[0][0]
    if len(messages) == 1:
        return where, messages[0][1]
    more = f"; and {len(errors) - len(messages)} more" if len(errors) > len(messages) else ""
    return where, "; ".join(f"{name}: {message}" for name, message in messages) + more


def _shown(received: Any) -> str:
    """Return the beginning of a value of a client, which may be long, and nested as deep as Python allows."""
    return _short_repr.repr(received)[:_LONGEST_RECEIVED]
