"""Requests for a list of JSON objects, answered on a thread of the executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from graphbox.errors import InvalidRequestError
from graphbox.server.body import json_too_large, parse_object, shorten
from graphbox.server.services import Services

__all__ = ["answer_objects", "check_answer_length", "documented_body"]

_LONG_BODY_BYTES = 64 * 1024


def documented_body(schema: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that `answer_objects` reads, by the name of its schema.

    Pydantic does not read such bodies: it would validate them on the event loop.
    """
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"requestBody": {"required": True, "content": content}}


async def answer_objects(
    request: Request,
    services: Services,
    model: str,
    key: str,
    answer: Callable[[list[dict[str, Any]]], bytes],
    *,
    long: bool = False,
) -> Response:
    """Return the JSON answer to a request for the list of objects in its body.

    Args:
        request: its body is ``{key: [{...}, ...]}``.
        services: parts of the server.
        model: name of the model, which bounds the length of the list.
        key: the one field of the body.
        answer: returns the answer for the list; called on a thread of the executor.
        long: whether even a short list takes long; long bodies do anyway.

    Raises:
        RefusedError: 413, the body is too large.
        InvalidRequestError: the body is something else, or the list too long.
    """
    limit_bytes = services.settings.max_json_bytes
    if int(request.headers.get("content-length", "0")) > limit_bytes:
        raise json_too_large(limit_bytes)
    body = await request.body()
    most = services.settings.rows_limit(model)

    def work() -> bytes:
        return answer(_objects(parse_object(body, limit_bytes), key, most))

    is_long = long or len(body) > _LONG_BODY_BYTES
    content = await services.executor.run(work, long=is_long)
    return Response(content, media_type="application/json")


def check_answer_length(
    services: Services, model: str, k: int, noun: str, count: int, *, fewest: int = 1
) -> None:
    """Check the number of nearest nodes that a request asks for.

    Args:
        services: parts of the server.
        model: name of the model, which bounds the length of the answer.
        k: nearest nodes of each object.
        noun: plural name of the objects.
        count: number of objects.
        fewest: smallest ``k``.

    Raises:
        InvalidRequestError: ``k``, or the length of the answer, is beyond its limit.
    """
    if k > services.settings.max_neighbors:
        raise InvalidRequestError(
            f"expected k between {fewest} and {services.settings.max_neighbors}, received {k}",
            where="query parameter `k`",
        )
    most = services.settings.rows_limit(model)
    if k * count > most:
        raise InvalidRequestError(
            f"expected at most {most} nearest nodes in one answer, received k = {k} for {count} {noun}",
            where="query parameter `k`",
            hint=f"send fewer {noun} in one request",
        )


def _objects(message: dict[str, Any], key: str, most: int) -> list[dict[str, Any]]:
    if message.keys() != {key}:
        received = ", ".join(f"`{shorten(name)}`" for name in list(message)[:20]) or "none"
        raise InvalidRequestError(f"expected the one field `{key}`, received {received}", where="request")
    objects = message[key]
    if not isinstance(objects, list) or not all(isinstance(each, dict) for each in objects):
        raise InvalidRequestError("expected a list of objects", where=key)
    if len(objects) > most:
        raise InvalidRequestError(
            f"expected at most {most} {key} in one request, received {len(objects)}", where=key
        )
    return objects
