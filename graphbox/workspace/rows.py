"""Rows of the database as records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Row

from graphbox.workspace.locks import is_held
from graphbox.workspace.records import (
    BenchRecord,
    EdgeTypeCount,
    GraphRecord,
    ModelRecord,
    RunRecord,
    StageRecord,
)


def graph_record(row: Row[Any], path: Path) -> GraphRecord:
    """Return a row of ``graphs`` as a record."""
    return GraphRecord(
        name=row.name,
        path=path,
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        node_types=row.node_types,
        edge_types=tuple(EdgeTypeCount(*edge) for edge in row.edge_types),
        fingerprint=row.fingerprint,
        run_id=row.run_id,
    )


def run_record(row: Row[Any], stage_rows: Iterable[Row[Any]], path: Path) -> RunRecord:
    """Return a row of ``runs`` as a record; one whose process is gone is shown as interrupted."""
    record = RunRecord(
        id=row.id,
        name=row.name,
        state=row.state,
        stage=row.stage,
        stages=tuple(
            StageRecord(stage.name, stage.state, stage.seconds, stage.peak_bytes, stage.outputs)
            for stage in stage_rows
        ),
        created_at=row.created_at,
        updated_at=row.updated_at,
        heartbeat=row.heartbeat,
        error=row.error,
        path=path,
        size_bytes=row.size_bytes,
        config=row.config,
        config_digest=row.config_digest,
        report=row.report,
    )
    if record.state == "running" and not is_held(path / "lock"):
        return _interrupted(record)
    return record


def model_record(row: Row[Any], bench_rows: Iterable[Row[Any]], path: Path) -> ModelRecord:
    """Return a row of ``models`` and its measurements as a record."""
    return ModelRecord(
        name=row.name,
        version=row.version,
        kind=row.kind,
        task=row.task,
        path=path,
        size_bytes=row.size_bytes,
        precision=row.precision,
        parent=row.parent,
        run_id=row.run_id,
        metrics=row.metrics,
        bench=tuple(
            BenchRecord(
                b.target, b.batch, b.threads, b.p50_ms, b.p99_ms, b.rows_per_s, b.measured_at, b.operation
            )
            for b in bench_rows
        ),
        created_at=row.created_at,
        active=row.active,
        deciding_metric=row.deciding_metric,
        measured_on=row.measured_on,
    )


def _interrupted(record: RunRecord) -> RunRecord:
    stages = tuple(
        replace(stage, state="interrupted") if stage.state == "running" else stage for stage in record.stages
    )
    during = f"during the stage `{record.stage}`" if record.stage else "before its first stage"
    error = {
        "code": "interrupted_run",
        "message": f"the run's process ended {during} without a word: it was killed, or ran out of memory",
        "where": str(record.path),
        "hint": f"`graphbox runs resume {record.id}` goes on after the last finished stage",
    }
    return replace(record, state="interrupted", stages=stages, error=error)
