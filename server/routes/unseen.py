"""Embeddings, classes and nearest nodes of nodes that an encoder was never given."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from graphbox.artifact import EdgeFeature
from graphbox.artifact.preprocess import NodeFeature
from graphbox.deploy import DeployedEncoder, UnseenNode
from graphbox.errors import InvalidRequestError, NotFoundError, did_you_mean
from graphbox.server.body import shorten
from graphbox.server.question_schema import (
    EncodedNode,
    EncodedNodes,
    EncodeInputs,
    RankedNode,
    UnseenExample,
    UnseenFeature,
    UnseenInputs,
    UnseenRelation,
)
from graphbox.server.routes import API_PREFIX, RoutingKey
from graphbox.server.routes.json_objects import answer_objects, check_answer_length, documented_body
from graphbox.server.services import ServicesDep
from graphbox.server.slot import ServedModel

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

Name = Annotated[str, Path(description="name of the model", max_length=128)]
Version = Annotated[int | None, Query(ge=1, description="version of the model; the served one when left out")]

_MOST_CATEGORIES = 1000
_MOST_VALUES = 1 << 20
_KEYS = ("features", "neighbors", "weights", "edge_features")
_HISTORY = "history"


@router.get("/{name}/encode")
def encode_inputs(name: Name, services: ServicesDep, version: Version = None) -> EncodeInputs:
    """Describe the features and relations that an encoder reads of nodes that it was never given."""
    with services.repository.use(name, version) as served:
        model = served.encoder
        unseen = _inputs(model) if model.encodes_unseen else None
        return EncodeInputs(model=served.name, version=served.version, unseen=unseen)


@router.post("/{name}/encode", response_model=EncodedNodes, openapi_extra=documented_body("EncodeRequest"))
async def encode(
    name: Name,
    request: Request,
    services: ServicesDep,
    k: Annotated[int, Query(ge=0, description="number of nearest nodes to return for each node")] = 0,
    linked: Annotated[
        bool, Query(description="whether the given neighbours of a node may be among its nearest nodes")
    ] = True,
    version: Version = None,
    routing_key: RoutingKey = None,
) -> Response:
    """Return embeddings, classes and nearest nodes of nodes given by their features and neighbours."""

    def answer(objects: list[dict[str, Any]]) -> bytes:
        check_answer_length(services, name, k, "nodes", len(objects), fewest=0)
        with services.inference.use(name, version, routing_key) as served:
            nodes = [_node(each, number, served) for number, each in enumerate(objects)]
            _check_values(served, len(nodes))
            return _encoded(served, nodes, k, linked).model_dump_json().encode()

    return await answer_objects(request, services, name, "nodes", answer, long=k > 0)


def _inputs(model: DeployedEncoder) -> UnseenInputs:
    reader = model.unseen_reader
    node_type = model.query_types[0]
    example = model.unseen_example()
    return UnseenInputs(
        node_type=node_type,
        features=[_feature(each) for each in reader.features],
        relations=[
            UnseenRelation(
                name=name,
                node_type=source,
                integer_ids=model.id_index(source).kind == "int64",
                weighed=name in reader.weighed,
                edge_features=[_feature(each) for each in reader.edge_features[name]],
            )
            for name, source in reader.relations.items()
        ],
        classes=list(model.classes),
        target_type=model.target_type() if node_type in model.manifest.targets else None,
        example=UnseenExample(
            features=dict(example.features),
            neighbors={name: list(ids) for name, ids in example.neighbors.items()},
            edge_features={
                name: [dict(each or {}) for each in edges] for name, edges in example.edge_features.items()
            },
        ),
    )


def _feature(feature: NodeFeature | EdgeFeature) -> UnseenFeature:
    return UnseenFeature(
        name=feature.name,
        kind=feature.kind,
        dim=feature.dim,
        categories=list(feature.categories[:_MOST_CATEGORIES]),
        num_categories=len(feature.categories),
    )


def _check_values(served: ServedModel, nodes: int) -> None:
    """Check that the answer fits into memory as JSON."""
    model = served.encoder
    values = model.manifest.dim + len(model.classes)
    if nodes * values > _MOST_VALUES:
        raise InvalidRequestError(
            f"expected at most {_MOST_VALUES // values} nodes of {values} values each in one request, "
            f"received {nodes}",
            where="nodes",
            hint="send fewer nodes in one request, or ask for tensors by KServe",
        )


def _encoded(served: ServedModel, nodes: list[UnseenNode], k: int, linked: bool) -> EncodedNodes:
    model = served.encoder
    try:
        vectors, shares = _vectors(model, nodes)
        neighbors = _nearest(model, nodes, vectors, k, linked)
    except NotFoundError as error:
        # 404 would say that the model does not exist.
        raise InvalidRequestError(error.message, where=error.where, hint=error.hint) from error
    found = [
        EncodedNode(embedding=vector, probabilities=probabilities, neighbors=nearest)
        for vector, probabilities, nearest in zip(vectors.tolist(), shares, neighbors, strict=True)
    ]
    return EncodedNodes(
        model=served.name,
        version=served.version,
        rows_sequence=served.rows_sequence,
        nodes=found,
    )


def _vectors(
    model: DeployedEncoder, nodes: list[UnseenNode]
) -> tuple[npt.NDArray[np.float32], list[dict[str, float]]]:
    """Return the embeddings of nodes, and the probabilities of each by class."""
    shares: list[dict[str, float]] = [{} for _ in nodes]
    if model.classes:
        vectors, probabilities = model.classify_unseen(nodes)
        shares = [dict(zip(model.classes, row, strict=True)) for row in probabilities.tolist()]
    else:
        vectors = model.encode_unseen(nodes)
    return vectors, shares


def _nearest(
    model: DeployedEncoder, nodes: list[UnseenNode], vectors: npt.NDArray[np.float32], k: int, linked: bool
) -> list[list[RankedNode]]:
    if not k:
        return [[] for _ in nodes]
    found = model.neighbors_of_unseen(nodes, vectors, k, exclude_given=not linked)
    node_type = model.target_type()
    return [
        [
            RankedNode(id=identifier, type=node_type, score=value)
            for identifier, value in zip(model.ids(index, node_type), score.tolist(), strict=True)
        ]
        for index, score in found
    ]


def _node(node: dict[str, Any], number: int, served: ServedModel) -> UnseenNode:
    if _HISTORY in node:
        return _node_of_history(node, number, served)
    for key, value in node.items():
        if key not in _KEYS or not isinstance(value, dict):
            raise InvalidRequestError(
                "expected objects `features`, `neighbors`, `weights` and `edge_features`, or a list "
                f"`history`, received `{shorten(key)}`" + (", which is no object" if key in _KEYS else ""),
                where=f"node {number}",
                hint=None if key in _KEYS else did_you_mean(key, _KEYS),
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
    for relation, edges in node.get("edge_features", {}).items():
        if not isinstance(edges, list) or not all(each is None or isinstance(each, dict) for each in edges):
            raise InvalidRequestError(
                "expected a list with an object or null for each neighbour",
                where=f"node {number}, edge features `{shorten(relation)}`",
            )
    return UnseenNode(**node)


def _node_of_history(node: dict[str, Any], number: int, served: ServedModel) -> UnseenNode:
    """Return a node by the ids of its events in their order, the last one last."""
    where, history = f"node {number}", node[_HISTORY]
    if len(node) > 1:
        raise InvalidRequestError(
            "expected `history` alone, received other fields beside it",
            where=where,
            hint="a model of sequences reads nothing else",
        )
    if not isinstance(history, list) or not all(type(each) in (str, int) for each in history):
        raise InvalidRequestError("expected a list of original ids", where=f"{where}, history")
    reader = served.encoder.unseen_reader
    if reader.history is None:
        raise InvalidRequestError(
            "expected `features` and `neighbors`, received a history, whose order this model does not read",
            where=where,
            hint=f"give the ids under `neighbors`, by one of {', '.join(reader.relations) or '(none)'}",
        )
    if not history:
        raise InvalidRequestError(
            "expected a history of at least one event, received none",
            where=f"{where}, history",
            hint="nothing is known of such a user: recommend what is popular",
        )
    return UnseenNode(neighbors={reader.history: history})
