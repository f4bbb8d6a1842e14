"""Searches for compressed versions of a model: what was tried, and what became a version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import ValidationError

from graphbox.errors import FormatError, NotFoundError
from graphbox.server.compression_schema import Compression, CompressionSummary
from graphbox.server.routes import API_PREFIX
from graphbox.server.services import Services, ServicesDep
from graphbox.workspace import Workspace
from graphbox.workspace.searches import REPORT_FILE, SearchRecord

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])

Name = Annotated[str, Path(description="name of the model", max_length=128)]
SearchId = Annotated[str, Path(description="`id` of the search, as it is listed", max_length=128)]


@router.get("/{name}/compressions")
def compressions(name: Name, services: ServicesDep) -> list[CompressionSummary]:
    """List the searches for compressed versions of a model, the one written last first."""
    workspace, searches = _searches(services, name)
    return [] if workspace is None else [_summary(workspace, name, search) for search in searches]


@router.get("/{name}/compressions/{search_id}")
def compression(name: Name, search_id: SearchId, services: ServicesDep) -> Compression:
    """Return the report of a search for compressed versions; of one that has not finished, so far."""
    workspace, searches = _searches(services, name)
    search = next((each for each in searches if each.id == search_id), None)
    if workspace is None or search is None:
        raise NotFoundError(
            f"the model `{name}` has no search `{search_id}`",
            hint=f"GET {API_PREFIX}/models/{name}/compressions lists what there is",
        )
    found = _compression(workspace, name, search)
    for trial in (found.original, *found.tried, *found.points, *found.rejected):
        trial.reason = None if trial.reason is None else services.public_text(trial.reason)
    if found.unfinished is not None and found.unfinished.failure is not None:
        found.unfinished.failure = services.public_text(found.unfinished.failure)
    return found


def _searches(services: Services, name: str) -> tuple[Workspace | None, list[SearchRecord]]:
    """Return the workspace and the searches of a model; of one that comes from a folder there are none.

    Raises:
        NotFoundError: there is no such model.
    """
    if services.workspace is None or not services.workspace.models(name):
        if not services.repository.has(name):
            services.repository.slot(name)  # raises an error that names no other models
        return None, []
    return services.workspace, services.workspace.searches(name)


def _summary(workspace: Workspace, name: str, search: SearchRecord) -> CompressionSummary:
    try:
        found = _compression(workspace, name, search)
    except FormatError:
        return CompressionSummary(
            **_identity(workspace, name, search), state="damaged", trials=0, chosen_version=None
        )
    return CompressionSummary(**{key: getattr(found, key) for key in CompressionSummary.model_fields})


def _identity(workspace: Workspace, name: str, search: SearchRecord) -> dict[str, Any]:
    return {
        "id": search.id,
        "version": search.version,
        "key": search.key,
        "running": workspace.is_searching(name, search.version),
        "updated_at": search.updated_at(),
    }


def _compression(workspace: Workspace, name: str, search: SearchRecord) -> Compression:
    """Return the document of a search.

    Raises:
        FormatError: its report is damaged.
    """
    progress = search.progress()  # first: a search that finishes meanwhile removes it last
    report = search.report() or progress
    if report is None:
        raise _damaged(search)
    facts = {key: report[key] for key in Compression.model_fields if key in report}
    try:
        return Compression.model_validate(
            {
                "bounds": {},
                **facts,
                **_identity(workspace, name, search),
                "state": "finished" if progress is None else "unfinished",
                "trials": len(report["trials"] if progress is None else progress["trials"]),
                "tried": report["trials"],
                "chosen_version": _chosen_version(report),
                "unfinished": None if progress is None else {**progress, "trials": len(progress["trials"])},
            }
        )
    except (ValidationError, KeyError, TypeError, AttributeError):
        raise _damaged(search) from None


def _chosen_version(report: Mapping[str, Any]) -> int | None:
    versions = [point["version"] for point in report["points"] if point["key"] == report["chosen"]]
    return next(iter(versions), None)


def _damaged(search: SearchRecord) -> FormatError:
    return FormatError(
        "expected the report of a search",
        where=str(search.path / REPORT_FILE),
        hint="the same command writes it anew from the trials that are kept",
    )
