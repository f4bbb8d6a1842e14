"""Embeddings and classes of nodes that an encoder was never given."""

from __future__ import annotations

from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from graphbox.deploy import UnseenNode
from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.body import json_too_large, parse_object, read_body, shorten
from graphbox.server.routes import API_PREFIX
from graphbox.server.schema import EncodedNode, EncodedNodes
from graphbox.server.services import ServicesDep
from graphbox.server.slot import ServedModel

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

_LONG_BODY_BYTES = 64 * 1024
_KEYS = ("features", "neighbors", "weights")
# The body is parsed by hand: pydantic would validate it on the event loop.
_BODY: Final = {
    "required": True,
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/EncodeRequest"}}},
}


@router.post("/{name}/encode", response_model=EncodedNodes, openapi_extra={"requestBody": _BODY})
async def encode(
    name: Annotated[str, Path(description="name of the model", max_length=128)],
    request: Request,
    services: ServicesDep,
    version: Annotated[
        int | None, Query(ge=1, description="version of the model; the served one when left out")
    ] = None,
) -> Response:
    """Return embeddings, and classes, of nodes given by their features and neighbours."""
    limit_bytes = services.settings.max_json_bytes
    if int(request.headers.get("content-length", "0")) > limit_bytes:
        raise json_too_large(limit_bytes)
    body = await read_body(request.receive)

    def answer() -> bytes:
        nodes = _nodes(parse_object(body, limit_bytes), services.settings.rows_limit(name))
        with services.repository.use(name, version) as served:
            return _encoded(served, nodes).model_dump_json().encode()

    is_long = len(body) > _LONG_BODY_BYTES
    content = await services.executor.run_while_connected(request.receive, answer, long=is_long)
    return Response(content, media_type="application/json")


def _encoded(served: ServedModel, nodes: list[UnseenNode]) -> EncodedNodes:
    model = served.encoder
    try:
        if model.classes:
            vectors, probabilities = model.classify_unseen(nodes)
        else:
            vectors, probabilities = model.encode_unseen(nodes), None
    except NotFoundError as error:
        # 404 would say that the model does not exist.
        raise InvalidRequestError(error.message, where=error.where, hint=error.hint) from error
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InvalidRequestError(
            "expected features from which the model computes numbers, it returned others", where=f"node {row}"
        )
    found = []
    for row, vector in enumerate(vectors.tolist()):
        shares = (
            {}
            if probabilities is None
            else dict(zip(model.classes, probabilities[row].tolist(), strict=True))
        )
        found.append(EncodedNode(embedding=vector, probabilities=shares))
    return EncodedNodes(model=served.name, version=served.version, nodes=found)


def _nodes(message: dict[str, Any], most: int) -> list[UnseenNode]:
    if message.keys() != {"nodes"}:
        received = ", ".join(f"`{shorten(key)}`" for key in list(message)[:20]) or "none"
        raise InvalidRequestError(f"expected the one field `nodes`, received {received}", where="request")
    nodes = message["nodes"]
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise InvalidRequestError("expected a list of objects", where="nodes")
    if len(nodes) > most:
        raise InvalidRequestError(
            f"expected at most {most} nodes in one request, received {len(nodes)}", where="nodes"
        )
    return [_node(node, number) for number, node in enumerate(nodes)]


def _node(node: dict[str, Any], number: int) -> UnseenNode:
    for key, value in node.items():
        if key not in _KEYS or not isinstance(value, dict):
            raise InvalidRequestError(
                f"expected objects `features`, `neighbors` and `weights`, received `{shorten(key)}`",
                where=f"node {number}",
            )
    for relation, ids in node.get("neighbors", {}).items():
        if not isinstance(ids, list) or not all(type(each) in (str, int) for each in ids):
            raise InvalidRequestError(
                "expected a list of original ids", where=f"node {number}, neighbours `{shorten(relation)}`"
            )
    for relation, weights in node.get("weights", {}).items():
        if not isinstance(weights, list) or not all(type(each) in (float, int) for each in weights):
            raise InvalidRequestError(
                "expected a list of numbers", where=f"node {number}, weights `{shorten(relation)}`"
            )
    return UnseenNode(**node)
