"""Nearest nodes of several queries: original ids, or vectors that a client has."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from graphbox.errors import InvalidRequestError, NotFoundError, did_you_mean
from graphbox.server.body import shorten
from graphbox.server.index import Found, Question, nearest
from graphbox.server.question_schema import (
    NeighborAnswers,
    RankedNode,
    RankedNodes,
)
from graphbox.server.routes import API_PREFIX, RoutingKey
from graphbox.server.routes.json_objects import answer_objects, check_answer_length, documented_body
from graphbox.server.services import ServicesDep
from graphbox.server.slot import ServedModel

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

Name = Annotated[str, Path(description="name of the model", max_length=128)]
Version = Annotated[int | None, Query(ge=1, description="version of the model; the served one when left out")]

_KEYS = ("id", "vector", "type", "allow", "deny")


@router.post(
    "/{name}/neighbors", response_model=NeighborAnswers, openapi_extra=documented_body("NeighborsRequest")
)
async def neighbors_of_queries(
    name: Name,
    request: Request,
    services: ServicesDep,
    k: Annotated[int, Query(ge=1, description="number of neighbours of each query")] = 10,
    linked: Annotated[
        bool, Query(description="whether nodes that a known link joins to a query are among them")
    ] = True,
    version: Version = None,
    routing_key: RoutingKey = None,
) -> Response:
    """Return the nodes whose vectors are nearest to those of nodes, or to vectors."""

    def answer(objects: list[dict[str, Any]]) -> bytes:
        check_answer_length(services, name, k, "queries", len(objects))
        with services.inference.use(name, version, routing_key) as served:
            questions = [_question(served, each, f"query {number}") for number, each in enumerate(objects)]
            found = nearest(served, questions, k, linked)
            return _answers(served, found).model_dump_json().encode()

    return await answer_objects(request, services, name, "queries", answer)


def _question(served: ServedModel, query: dict[str, Any], where: str) -> Question:
    for key in query:
        if key not in _KEYS:
            raise InvalidRequestError(
                f"expected the fields {', '.join(_KEYS)}, received `{shorten(key)}`",
                where=where,
                hint=did_you_mean(key, _KEYS),
            )
    node_type, identifier = query.get("type"), query.get("id")
    if node_type is not None and not isinstance(node_type, str):
        raise InvalidRequestError("expected a string", where=f"{where}, type")
    if ("id" in query) == ("vector" in query):
        raise InvalidRequestError("expected either `id` or `vector`", where=where)
    allow = _ids(query["allow"], f"{where}, allow") if "allow" in query else None
    deny = _ids(query.get("deny", []), f"{where}, deny")
    if "vector" in query:
        known = served.encoder.query_types
        if node_type is not None and node_type not in known:
            raise InvalidRequestError(
                f"expected one of the node types {', '.join(known)}, received `{shorten(node_type)}`",
                where=f"{where}, type",
            )
        vector = _vector(query["vector"], f"{where}, vector")
        return Question(node_type or known[0], vector, allow, deny, where)
    if type(identifier) not in (str, int):
        raise InvalidRequestError("expected an original id, a string or an integer", where=f"{where}, id")
    try:
        found_type, index = served.find(str(identifier), node_type)
    except NotFoundError as error:
        # 404 would say that the model does not exist.
        raise InvalidRequestError(error.message, where=where, hint=error.hint) from error
    return Question(found_type, index, allow, deny, where)


def _ids(values: Any, where: str) -> list[str | int]:
    if not isinstance(values, list) or not all(type(each) in (str, int) for each in values):
        raise InvalidRequestError("expected a list of original ids", where=where)
    return values


def _vector(values: Any, where: str) -> npt.NDArray[np.float32]:
    if not isinstance(values, list) or not all(type(each) in (float, int) for each in values):
        raise InvalidRequestError("expected a list of numbers", where=where)
    with np.errstate(over="ignore"):  # infinity, which is refused
        return np.array(values, np.float64).astype(np.float32)


def _answers(served: ServedModel, found: list[Found]) -> NeighborAnswers:
    queries = [
        RankedNodes(
            neighbors=[
                RankedNode(id=identifier, type=each.node_type, score=score)
                for identifier, score in zip(
                    served.artifact.ids(each.node_type).take(each.index), each.score.tolist(), strict=True
                )
            ]
        )
        for each in found
    ]
    return NeighborAnswers(
        model=served.name,
        version=served.version,
        rows_sequence=served.rows_sequence,
        queries=queries,
    )
