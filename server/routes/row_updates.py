"""Row updates of models: new values for some rows of a served version, their list, and rolling back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from graphbox.artifact import Artifact, Manifest, TensorSpec
from graphbox.artifact.row_updates import UpdateManifest
from graphbox.deploy.row_updates import RowUpdater, RowUpdates, row_updates_of, table_to_update
from graphbox.deploy.signature import Signature, by_name, decoded_texts
from graphbox.errors import NotFoundError
from graphbox.server.kserve.codec import HEADER_LENGTH, decode_request
from graphbox.server.routes import API_PREFIX
from graphbox.server.routes.models import Name, Version, writable_workspace
from graphbox.server.schema import Answer
from graphbox.server.services import Services, ServicesDep
from graphbox.server.settings import RequestLimits

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

_ID, _VECTOR = "id", "vector"
_MOST_LISTED = 100
_BODY = {
    "requestBody": {
        "required": True,
        "description": "A KServe v2 request, in JSON or with binary data: the inputs `id`, BYTES or INT64 "
        "[n], and `vector`, FP32 [n, dim]. The header `Inference-Header-Content-Length` has the size of its "
        "JSON part.",
        "content": {"application/json": {}, "application/octet-stream": {}},
    }
}


class WrittenRowUpdate(Answer):
    """A row update that was written and is active."""

    model: str
    version: int
    sequence: int = Field(description="its number")
    parent: int = Field(description="number of the update that it follows; 0: the version itself")
    rows: int
    created_at: datetime


class ListedRowUpdate(Answer):
    """A row update of a model version."""

    sequence: int
    parent: int
    created_at: datetime
    rows: dict[str, int] = Field(description="rows by table")


class RowUpdatesAnswer(Answer):
    """The row updates of a model version, newest first."""

    model: str
    version: int
    active: int = Field(description="number of the update that servers apply; 0: none")
    applied: int | None = Field(
        description="number of the one that answers of the asked worker have; null: the version is not open"
    )
    failure: str | None = Field(description="why the asked worker has not applied the active one")
    updates: list[ListedRowUpdate]
    damaged: dict[int, str] = Field(description="updates that cannot be read, with the reason")


class RowsRollback(BaseModel):
    """The row update to serve."""

    model_config = ConfigDict(extra="forbid")

    sequence: int = Field(ge=0, description="number of the update; 0: the rows of the version itself")


@router.post("/{name}/rows", openapi_extra=_BODY)
async def update_rows(
    name: Name,
    request: Request,
    services: ServicesDep,
    table: Annotated[
        str | None, Query(max_length=128, description="name of the table; needed when there are several")
    ] = None,
    sequence: Annotated[
        int | None, Query(ge=1, description="number that the update has to get; any when left out")
    ] = None,
    version: Version = None,
) -> WrittenRowUpdate:
    """Write new rows of some ids and make them active; all workers answer with them within a second."""
    body = await request.body()
    length = request.headers.get(HEADER_LENGTH)

    def work() -> WrittenRowUpdate:
        with writable_workspace(services, name, version, "updating rows", f"update {name} FILE") as workspace:
            updater = RowUpdater(workspace, name, version, artifact=_open_artifact(services, name, version))
        chosen = table_to_update(updater.manifest, table)
        limits = RequestLimits(services.settings.rows_limit(name), services.settings.max_json_bytes)
        signature = _signature(updater.manifest, chosen, updater.has_integer_ids(chosen))
        inputs = decode_request(body, length, signature, limits).inputs
        ids = inputs[_ID]
        values = ids if updater.has_integer_ids(chosen) else decoded_texts(ids, _ID)
        written = updater.write({chosen: (values, inputs[_VECTOR])}, sequence)
        services.watcher.poll_requests_now()
        return WrittenRowUpdate(
            model=name,
            version=updater.version,
            sequence=written.sequence,
            parent=written.parent.sequence,
            rows=written.num_rows,
            created_at=written.created,
        )

    return await services.executor.run(work, long=True)


@router.get("/{name}/updates")
def row_updates(name: Name, services: ServicesDep, version: Version = None) -> RowUpdatesAnswer:
    """List the newest row updates of a model version, the active one, and what the asked worker serves."""
    return _answer(services, name, version)


@router.post("/{name}/rows/rollback")
def roll_back_rows(
    name: Name, rollback: RowsRollback, services: ServicesDep, version: Version = None
) -> RowUpdatesAnswer:
    """Serve the rows after an earlier row update, or again those after a later one; within a second."""
    sequence = rollback.sequence
    command = f"updates {name} --roll-back-to {sequence}"
    with writable_workspace(services, name, version, "rolling rows back", command) as workspace:
        updater = RowUpdater(workspace, name, version)
    updater.roll_back(sequence)
    services.watcher.poll_requests_now()
    return _answer(services, name, updater.version)


def _answer(services: Services, name: str, version: int | None) -> RowUpdatesAnswer:
    slot = services.repository.slot(name, version)
    workspace = services.workspace
    if workspace is not None and slot.path.is_relative_to(workspace.root):
        # Servers may not have polled yet.
        active = workspace.serving_records().row_sequence(slot.name, slot.version)
    else:
        active = slot.wanted_rows()
    found: RowUpdates = row_updates_of(slot.path, slot.name, slot.version, active, _MOST_LISTED)
    is_open = slot.state()[0] == "READY"
    state = slot.rows_state
    return RowUpdatesAnswer(
        model=slot.name,
        version=slot.version,
        active=found.active,
        applied=state.sequence if is_open else None,
        failure=services.public_text(state.failure) if is_open and state.failure else None,
        updates=[_listed(each) for each in reversed(found.updates)],
        damaged={number: services.public_text(text) for number, text in found.damaged.items()},
    )


def _listed(update: UpdateManifest) -> ListedRowUpdate:
    return ListedRowUpdate(
        sequence=update.sequence,
        parent=update.parent.sequence,
        created_at=update.created,
        rows={name: spec.rows for name, spec in update.tables.items()},
    )


def _open_artifact(services: Services, name: str, version: int | None) -> Artifact | None:
    """Return the files of a version that is open, whose ids are read; None: it is not open."""
    try:
        slot = services.repository.slot(name, version)
    except NotFoundError:
        return None
    served = slot.try_enter()
    if served is None:
        return None
    services.repository.leave(slot)
    return served.rows.base


def _signature(manifest: Manifest, table: str, integer_ids: bool) -> Signature:
    specs = [
        TensorSpec(name=_ID, datatype="INT64" if integer_ids else "BYTES", shape=(-1,)),
        TensorSpec(name=_VECTOR, datatype="FP32", shape=(-1, manifest.tables[table].dim)),
    ]
    return Signature("graphbox", by_name(specs), {}, answer=lambda inputs, _: dict(inputs), work=lambda _: 1)
