"""Runs of pipelines and what they measured."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from graphbox.errors import NotFoundError
from graphbox.server.metrics_file import read_metrics
from graphbox.server.routes import API_PREFIX
from graphbox.server.schema import RunDetail, RunError, RunMetrics, RunReport, RunSummary, StageSummary
from graphbox.server.services import Services, ServicesDep
from graphbox.workspace import RunRecord
from graphbox.workspace.locks import is_held

router = APIRouter(prefix=f"{API_PREFIX}/runs", tags=["runs"])

METRICS_FILE = "metrics.jsonl"
_MAX_POINTS = 100_000
_STOPPED_STATES = frozenset({"created", "interrupted", "failed"})
# Errors that come from the run file or from what the run measured: the same stage would fail again.
_LASTING_ERRORS = frozenset({"config", "gate", "unsupported", "usage"})


@router.get("")
def runs(services: ServicesDep) -> list[RunSummary]:
    """List the runs, newest first."""
    records = services.workspace.runs() if services.workspace else []
    return [summary_of(record) for record in sorted(records, key=lambda run: run.created_at, reverse=True)]


@router.get("/{run_id}")
def run(run_id: str, services: ServicesDep) -> RunDetail:
    """Describe one run."""
    record = find_run(services, run_id)
    return RunDetail(
        **summary_of(record).model_dump(),
        stages=[
            StageSummary(
                name=stage.name, state=stage.state, seconds=stage.seconds, peak_bytes=stage.peak_bytes
            )
            for stage in record.stages
        ],
        config=record.config,
        report=RunReport(
            **{key: record.report[key] for key in RunReport.model_fields if key in record.report}
        ),
        error=RunError(**record.error) if record.error else None,
        resumable=_is_resumable(record),
        removable=not is_held(record.path / "lock"),
    )


def _is_resumable(record: RunRecord) -> bool:
    """Return whether the run can be continued without a change of its run file, which it keeps a copy of."""
    if record.state not in _STOPPED_STATES or not (record.path / "config.yaml").is_file():
        return False
    if record.state == "failed":
        # A batch whose loss was not finite is kept in `failed`; it would be the same again.
        diverged = record.stage == "train" and (record.path / "failed").is_dir()
        if diverged or (record.error or {}).get("code") in _LASTING_ERRORS:
            return False
    return not is_held(record.path / "lock")


@router.get("/{run_id}/metrics")
def run_metrics(
    run_id: str, services: ServicesDep, max_points: Annotated[int, Query(ge=3, le=_MAX_POINTS)] = 1000
) -> RunMetrics:
    """Return the measured quantities of a run, each thinned to at most ``max_points`` points."""
    return read_metrics(find_run(services, run_id).path / METRICS_FILE, max_points)


def find_run(services: Services, run_id: str) -> RunRecord:
    """Return the record of a run.

    Raises:
        NotFoundError: there is none of that id.
    """
    if services.workspace is None:
        raise NotFoundError(
            f"no run `{run_id}`: this server was started without a workspace",
            hint="graphbox -C WORKSPACE serve shows the runs of a workspace",
        )
    return services.workspace.run(run_id)


def summary_of(record: RunRecord) -> RunSummary:
    """Return what lists of runs show."""
    return RunSummary(
        id=record.id,
        name=record.name,
        state=record.state,
        stage=record.stage,
        created_at=record.created_at,
        updated_at=record.updated_at,
        seconds=record.seconds,
        size_bytes=record.size_bytes,
    )
