"""Models of the workspace, and the questions a person asks one: which ids it knows, what is near."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.index import Question, nearest
from graphbox.server.problem import RefusedError
from graphbox.server.question_schema import (
    IdMatches,
    Neighbor,
    NeighborAnswer,
    NodeId,
    TrueLink,
)
from graphbox.server.repository import Known
from graphbox.server.routes import API_PREFIX, RoutingKey
from graphbox.server.routes.traffic_states import traffic_states
from graphbox.server.schema import (
    BenchPoint,
    ModelSummary,
    ModelVersion,
    Promotion,
    Running,
    VersionComparison,
)
from graphbox.server.services import Services, ServicesDep
from graphbox.server.slot import ServedModel
from graphbox.workspace import ModelRecord, Workspace, compare

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

Name = Annotated[str, Path(description="name of the model", max_length=128)]
Version = Annotated[int | None, Query(ge=1, description="version of the model; the served one when left out")]
Allow = Annotated[
    list[str] | None,
    Query(description="original ids that alone may be among the neighbours; all when left out"),
]
Deny = Annotated[list[str] | None, Query(description="original ids that may not be among the neighbours")]
NodeType = Annotated[
    str | None, Query(alias="type", description="node type; needed when several have this id")
]


@router.get("")
def models(services: ServicesDep) -> list[ModelSummary]:
    """List the models with their versions, newest first."""
    records = services.workspace.models() if services.workspace else []
    known = services.repository.known()
    active = {record.name: record for record in records if record.active}
    versions = {
        (record.name, record.version): version_of(record, active.get(record.name)) for record in records
    }
    for model in known:
        key = (model.name, model.version)
        if key not in versions:
            versions[key] = _version_outside_workspace(model)
        versions[key].served = model.served
        versions[key].failure = services.public_text(model.reason) or None
        versions[key].running = _running(model.effective) if model.effective else None
    names = sorted({name for name, _ in versions})
    traffic = traffic_states(services, known)
    return [
        ModelSummary(
            name=name,
            versions=[versions[key] for key in sorted(versions, reverse=True) if key[0] == name],
            canary=traffic[name].canary if name in traffic else None,
            shadow=traffic[name].shadow if name in traffic else None,
        )
        for name in names
    ]


@router.post("/{name}/promote")
def promote(name: Name, promotion: Promotion, services: ServicesDep) -> ModelVersion:
    """Make a version active: the one served by default.

    The server switches to it within a second, or at SIGHUP if it does not follow.
    """
    version = promotion.version
    with writable_workspace(services, name, version, "promote", f"promote {name} --version {version}") as (
        workspace
    ):
        record = workspace.promote_model(name, version)
    return version_of(record, record)


@contextmanager
def writable_workspace(
    services: Services, name: str, version: int | None, action: str, command: str
) -> Iterator[Workspace]:
    """Yield the workspace to change which version of a model gets its requests.

    Args:
        services: parts of the server.
        name: of the model.
        version: of the model; None: the request names none.
        action: for messages.
        command: ``graphbox models`` with these words does the same.

    Raises:
        RefusedError: 403, the server has no token.
        InvalidRequestError: the model comes from a folder.
    """
    if services.token_rule is None:
        raise RefusedError(
            HTTPStatus.FORBIDDEN,
            "token_required",
            f"{action} is refused on a server without a token",
            hint=f"start it with --token or --token-file, or run `graphbox models {command}`",
        )
    if services.workspace is None:
        raise _not_in_workspace(name, version)
    try:
        yield services.workspace
    except NotFoundError:
        if services.repository.has(name):
            services.repository.slot(name, version)
            raise _not_in_workspace(name, version) from None
        if not services.workspace.models(name):
            services.repository.slot(
                name
            )  # raises an error that names no other models, as the workspace's does
        raise


def _not_in_workspace(name: str, version: int | None) -> InvalidRequestError:
    which = f"`{name}`" if version is None else f"`{name}` version {version}"
    return InvalidRequestError(
        f"expected a model of a workspace: {which} comes from a folder (`--models`)",
        where="model",
        hint="a folder of models serves its highest version: copy the version there under a higher number",
    )


@router.get("/{name}/neighbors", response_model=NeighborAnswer)
async def neighbors(
    name: Name,
    services: ServicesDep,
    id: Annotated[str, Query(description="original id of the query", max_length=1024)],  # noqa: A002 - its name in the URL
    node_type: NodeType = None,
    k: Annotated[int, Query(ge=1, description="number of neighbours")] = 10,
    linked: Annotated[
        bool, Query(description="whether nodes that a known link joins to the query are among them")
    ] = True,
    allow: Allow = None,
    deny: Deny = None,
    version: Version = None,
    routing_key: RoutingKey = None,
) -> Response:
    """Return the nodes whose vectors are nearest to that of one node, with the links known between them."""
    if k > services.settings.max_neighbors:
        raise InvalidRequestError(
            f"expected k between 1 and {services.settings.max_neighbors}, received {k}",
            where="query parameter `k`",
        )

    def answer() -> bytes:
        with services.inference.use(name, version, routing_key) as served:
            found = _neighbors(served, id, node_type, k, linked, allow, deny or ())
            return found.model_dump_json().encode()

    return Response(await services.executor.run(answer), media_type="application/json")


def _neighbors(
    served: ServedModel,
    identifier: str,
    node_type: str | None,
    k: int,
    linked: bool,
    allow: Sequence[str] | None,
    deny: Sequence[str],
) -> NeighborAnswer:
    query_type, index = served.find(identifier, node_type)
    (found,) = nearest(served, [Question(query_type, index, allow, deny)], k, linked)
    links = served.artifact.links.between(query_type, index, found.node_type, found.index)
    return NeighborAnswer(
        model=served.name,
        version=served.version,
        rows_sequence=served.rows_sequence,
        query=NodeId(id=served.artifact.ids(query_type)[index], type=query_type),
        query_types=served.types_of(identifier),
        neighbors=[
            Neighbor(
                id=neighbor,
                type=found.node_type,
                score=score,
                links=[
                    TrueLink(relation=link.relation, held_out=link.held_out, direction=link.direction)
                    for link in between
                ],
            )
            for neighbor, score, between in zip(
                served.artifact.ids(found.node_type).take(found.index),
                found.score.tolist(),
                links,
                strict=True,
            )
        ],
    )


@router.get("/{name}/ids")
def ids(
    name: Name,
    services: ServicesDep,
    node_type: NodeType = None,
    prefix: Annotated[str, Query(max_length=1024, description="how the ids start")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="most ids to return")] = 20,
    version: Version = None,
) -> IdMatches:
    """List ids the model can be asked about that start with ``prefix``, shortest first.

    With ``type`` they may be of any node type of an encoder, such as the neighbours of ``encode``. Without
    a prefix the examples come first: the ids of the model's example request, then the nodes that are linked
    most.
    """
    with services.repository.use(name, version) as served:
        return IdMatches(
            ids=[
                NodeId(id=identifier, type=found_type)
                for found_type, identifier in served.ids_with_prefix(prefix, limit, node_type)
            ]
        )


@router.get("/{name}/example")
def example(name: Name, services: ServicesDep, version: Version = None) -> dict[str, Any]:
    """Return the inputs of the example request of the model, as an infer request has them."""
    with services.repository.use(name, version) as served:
        return {"inputs": served.artifact.example_inputs()}


def _running(effective: Mapping[str, Any]) -> Running:
    return Running.model_validate(
        {name: effective[name] for name in Running.model_fields if name in effective}
    )


def version_of(record: ModelRecord, active: ModelRecord | None) -> ModelVersion:
    """Return the document of a version of a workspace.

    Args:
        record: of the version.
        active: of the active version; None: there is none.
    """
    comparison = None
    if active is not None and active.version != record.version:
        found = compare(record, active).as_dict()
        comparison = VersionComparison(**{key: found[key] for key in VersionComparison.model_fields})
    return ModelVersion(
        version=record.version,
        kind=record.kind,
        task=record.task,
        precision=record.precision,
        size_bytes=record.size_bytes,
        parent=record.parent,
        run_id=record.run_id,
        created_at=record.created_at,
        active=record.active,
        metrics={task: dict(values) for task, values in record.metrics.items()},
        deciding_metric=record.deciding_metric,
        comparison=comparison,
        bench=[
            BenchPoint(
                operation=point.operation,
                target=point.target,
                threads=point.threads,
                batch=point.batch,
                p50_ms=point.p50_ms,
                p99_ms=point.p99_ms,
                rows_per_s=point.rows_per_s,
            )
            for point in sorted(
                record.bench,
                key=lambda point: (point.operation, point.target, point.threads, point.batch),
            )
        ],
        served=False,
        promotable=True,
        failure=None,
        running=None,
    )


def _version_outside_workspace(model: Known) -> ModelVersion:
    manifest = model.manifest()
    return ModelVersion(
        version=manifest.version,
        kind=manifest.kind,
        task=manifest.task,
        precision=manifest.onnx.precision if manifest.onnx else "float32",
        size_bytes=manifest.size_bytes,
        parent=None,
        run_id=manifest.lineage.run,
        created_at=manifest.created_at,  # type: ignore[arg-type]  # pydantic parses the ISO 8601 text
        active=False,
        metrics={task: dict(values) for task, values in manifest.metrics.items()},
        deciding_metric=None,
        comparison=None,
        bench=[],
        served=False,
        promotable=False,
        failure=None,
        running=None,
    )
