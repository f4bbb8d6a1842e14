"""Predictions of click models, and answers of knowledge graph models."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from graphbox import deploy
from graphbox.errors import InvalidRequestError
from graphbox.server.question_schema import (
    LikelyAnswer,
    LikelyAnswers,
    NodeId,
    Prediction,
    Predictions,
    Relation,
    Relations,
)
from graphbox.server.routes import API_PREFIX, RoutingKey
from graphbox.server.routes.json_objects import answer_objects, documented_body
from graphbox.server.services import ServicesDep
from graphbox.server.slot import ServedModel

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

Name = Annotated[str, Path(description="name of the model", max_length=128)]
Version = Annotated[int | None, Query(ge=1, description="version of the model; the served one when left out")]
EntityId = Annotated[str | None, Query(max_length=1024)]


@router.post(
    "/{name}/predict", response_model=Predictions, openapi_extra=documented_body("PredictionRequest")
)
async def predict(
    name: Name,
    request: Request,
    services: ServicesDep,
    version: Version = None,
    routing_key: RoutingKey = None,
) -> Response:
    """Return the probabilities of rows, each given by its own columns; of several labels that of each."""

    def answer(rows: list[dict[str, Any]]) -> bytes:
        with services.inference.use(name, version, routing_key) as served:
            return _predictions(served, served.click.predict(rows)).model_dump_json().encode()

    return await answer_objects(request, services, name, "rows", answer)


def _predictions(served: ServedModel, found: deploy.Predictions) -> Predictions:
    probabilities, labels = found.probabilities.tolist(), served.click.form.labels
    for row, values in enumerate(probabilities):
        wrong = next((value for value in values if not math.isfinite(value)), None)
        if wrong is not None:
            raise InvalidRequestError(
                f"expected columns from which the model computes a number, it returned {wrong}",
                where=f"row {row}",
            )
    return Predictions(
        model=served.name,
        version=served.version,
        rows_sequence=served.rows_sequence,
        predictions=[
            Prediction(
                probability=values[0],
                probabilities=dict(zip(labels, values, strict=False)),
                unseen=found.unseen_fields(row),
            )
            for row, values in enumerate(probabilities)
        ],
    )


@router.get("/{name}/relations")
def relations(name: Name, services: ServicesDep, version: Version = None) -> Relations:
    """List the relations that a model of a knowledge graph can be asked about."""
    with services.repository.use(name, version) as served:
        ends = served.knowledge_graph.form.ends
        return Relations(
            relations=[
                Relation(name=relation, head_type=head_type, tail_type=tail_type)
                for relation, (head_type, tail_type) in ends.items()
            ]
        )


@router.get("/{name}/answers", response_model=LikelyAnswers)
async def answers(
    name: Name,
    services: ServicesDep,
    relation: Annotated[str, Query(description="name of a relation", max_length=1024)],
    head: Annotated[EntityId, Query(description="original id; its tails are found")] = None,
    tail: Annotated[EntityId, Query(description="original id; its heads are found")] = None,
    k: Annotated[int, Query(ge=1, description="number of answers")] = 10,
    known: Annotated[bool, Query(description="whether what the data has already is among them")] = False,
    version: Version = None,
    routing_key: RoutingKey = None,
) -> Response:
    """Return the likeliest tails of a head, or heads of a tail, best first."""
    if k > services.settings.max_neighbors:
        raise InvalidRequestError(
            f"expected k between 1 and {services.settings.max_neighbors}, received {k}",
            where="query parameter `k`",
        )
    if (head is None) == (tail is None):
        raise InvalidRequestError(
            f"expected either a head or a tail, received {'neither' if head is None else 'both'}",
            where="query parameters `head` and `tail`",
        )

    def answer() -> bytes:
        text, to_heads = (head, False) if head is not None else (tail or "", True)
        with services.inference.use(name, version, routing_key) as served:
            found = _likely(served, relation, text, to_heads, k, known)
            return found.model_dump_json().encode()

    return Response(await services.executor.run(answer), media_type="application/json")


def _likely(
    served: ServedModel, relation: str, text: str, to_heads: bool, k: int, known: bool
) -> LikelyAnswers:
    model = served.knowledge_graph
    asked_type = model.end_types(relation)[to_heads]
    ids = served.artifact.ids(asked_type)
    node = ids.index([ids.from_text(text)])
    found = model.answer_indices(relation, node, k, to_heads=to_heads, with_known=known)[0]
    return LikelyAnswers(
        model=served.name,
        version=served.version,
        rows_sequence=served.rows_sequence,
        relation=relation,
        query=NodeId(id=ids[int(node[0])], type=asked_type),
        asked="head" if to_heads else "tail",
        answers=[
            LikelyAnswer(id=identifier, type=found.node_type, score=score, known=is_known)
            for identifier, score, is_known in zip(
                served.artifact.ids(found.node_type).take(found.index),
                found.score.tolist(),
                found.known.tolist(),
                strict=True,
            )
        ],
    )
