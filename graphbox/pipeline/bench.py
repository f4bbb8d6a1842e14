"""Measuring model versions side by side: requests end to end, and the ONNX part alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from graphbox.config import BenchConfig
from graphbox.errors import DoesNotFitError, GraphboxError
from graphbox.workspace import BenchRecord, ModelRecord, Operation, Workspace

if TYPE_CHECKING:
    from graphbox.deploy.bench import BatchLatency

_log = logging.getLogger("graphbox.pipeline")


def bench_models(
    records: list[ModelRecord], config: BenchConfig, workspace: Workspace
) -> list[dict[str, Any]]:
    """Measure versions of one model, alternating between them, and keep the figures in the workspace.

    Measured are requests end to end, and the ONNX part alone where there is one.

    Returns:
        For each version its number, precision, size, what really ran, and the figures of each operation and
        batch size.
    """
    from graphbox.server.bench import bench_requests

    requests = bench_requests(
        {str(record.version): record.path for record in records},
        config.batch_sizes,
        config.seconds,
        target=config.target,
        threads=config.threads,
    )
    programs = _bench_programs(records, config)
    results = []
    for record in records:
        key = str(record.version)
        effective = dict(requests[key][0].effective)
        figures: list[tuple[str, BatchLatency]] = [(each.operation, each.latency) for each in requests[key]]
        figures += [("program", latency) for latency in programs.get(key, ())]
        measured_at = datetime.now(UTC)
        benches = [
            BenchRecord(
                target=str(effective["adapter"]),
                batch=latency.batch,
                threads=config.threads,
                p50_ms=latency.p50_ms,
                p99_ms=latency.p99_ms,
                rows_per_s=latency.rows_per_s,
                measured_at=measured_at,
                operation=cast("Operation", operation),
            )
            for operation, latency in figures
        ]
        workspace.add_benches(record.name, record.version, benches)
        results.append(
            {
                "version": record.version,
                "precision": record.precision,
                "size_bytes": record.size_bytes,
                "target": str(effective["adapter"]),
                "effective": effective,
                "batches": [{"operation": operation, **asdict(latency)} for operation, latency in figures],
            }
        )
    return results


def _bench_programs(records: list[ModelRecord], config: BenchConfig) -> dict[str, tuple[BatchLatency, ...]]:
    """Measure the ONNX parts alone, of those versions that have one."""
    from graphbox.artifact import Artifact
    from graphbox.deploy import open_model
    from graphbox.deploy.bench import bench_together

    with ExitStack() as stack:
        models = {
            str(record.version): stack.enter_context(
                open_model(record.path, target=config.target, threads=config.threads, verify=False)
            )
            for record in records
            if Artifact.open(record.path, verify=False).manifest.onnx is not None
        }
        try:
            reports = bench_together(
                models, batch_sizes=config.batch_sizes, seconds=config.seconds, operation="program"
            )
        except DoesNotFitError as error:  # whole requests are split, bare feeds are not
            _log.warning("the ONNX part of %s is not measured alone: %s", records[0].name, error)
            return {}
    return {version: report.batches for version, report in reports.items()}


def with_active(workspace: Workspace, records: Sequence[ModelRecord]) -> list[ModelRecord]:
    """Return versions of one model, and before them the active one where it is another and opens."""
    from graphbox.deploy import open_model

    active = next((each for each in workspace.models(records[0].name) if each.active), None)
    if active is None or active.version in {record.version for record in records}:
        return list(records)
    try:
        open_model(active.path).close()
    except GraphboxError as error:
        _log.warning("the active version %d of %s is not measured: %s", active.version, active.name, error)
        return list(records)
    return [active, *records]
