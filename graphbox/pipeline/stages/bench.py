"""Stage `bench`: what requests to every artifact of the run cost, versions of one model side by side."""

from __future__ import annotations

from typing import Any

from graphbox.config import result_settings
from graphbox.pipeline.bench import bench_models, with_active
from graphbox.pipeline.stage import Stage, StageContext, StageResult


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
        beside = with_active(context.workspace, records)
        report[name] = bench_models(beside, context.config.bench, context.workspace)
    return StageResult(f"measured {', '.join(versions)}", report={"bench": report})


STAGE = Stage(
    "bench",
    _run,
    wanted=lambda config: bool(config.export),
    reads=lambda config: {"bench": result_settings(config)["bench"]},
    needs=("export", "compress"),
)
