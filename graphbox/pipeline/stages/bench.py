"""Stage `bench`: latency and throughput of every artifact of the run, versions of one model side by side."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from graphbox.config import BenchConfig
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.workspace import BenchRecord, ModelRecord, Workspace

__all__ = ["STAGE", "bench_models"]


def _run(context: StageContext) -> StageResult:
    versions: dict[str, list[int]] = {}
    for stage in ("export", "compress"):
        if stage in context.finished:
            for name, version in context.output(stage, "versions").items():
                versions.setdefault(name, []).append(version)
    report: dict[str, list[dict[str, Any]]] = {}
    for number, (name, numbers) in enumerate(versions.items()):
        context.progress.step(name, number, len(versions), "models")
        context.stop.check()
        records = [context.workspace.model(name, version) for version in numbers]
        report[name] = bench_models(records, context.config.bench, context.workspace)
    return StageResult(f"measured {', '.join(versions)}", report={"bench": report})


def bench_models(
    records: list[ModelRecord], config: BenchConfig, workspace: Workspace
) -> list[dict[str, Any]]:
    """Measure versions of one model, alternating between them, and keep the figures in the workspace.

    Returns:
        For each version its number, precision, size, what really ran, and the batches' figures.
    """
    from graphbox.deploy import open_model
    from graphbox.deploy.bench import bench_together

    with ExitStack() as stack:
        models = {
            str(record.version): stack.enter_context(
                open_model(record.path, target=config.target, threads=config.threads)
            )
            for record in records
        }
        reports = bench_together(models, batch_sizes=config.batch_sizes, seconds=config.seconds)
        targets = {version: str(model.effective["adapter"]) for version, model in models.items()}
    results = []
    for record in records:
        measured = reports[str(record.version)].as_dict()
        now = datetime.now(UTC)
        workspace.add_benches(
            record.name,
            record.version,
            [
                BenchRecord(
                    target=targets[str(record.version)],
                    batch=batch["batch"],
                    threads=config.threads,
                    p50_ms=batch["p50_ms"],
                    p99_ms=batch["p99_ms"],
                    rows_per_s=batch["rows_per_s"],
                    measured_at=now,
                )
                for batch in measured["batches"]
            ],
        )
        about = {"version": record.version, "precision": record.precision, "size_bytes": record.size_bytes}
        results.append({**about, "target": targets[str(record.version)], **measured})
    return results


STAGE = Stage("bench", _run, wanted=lambda config: bool(config.export))
