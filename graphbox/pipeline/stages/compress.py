"""Stage `compress`: smaller versions of artifacts, refused when they answer too much worse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.artifact import Artifact
from graphbox.config import BenchConfig, CompressConfig, RunConfig, evaluation_settings, result_settings
from graphbox.errors import UsageError
from graphbox.pipeline.artifacts import MeasuredBy, new_version, register
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.pipeline.stages.import_graph import open_graph
from graphbox.pipeline.stages.split import load_splits
from graphbox.workspace import ModelRecord, Workspace

if TYPE_CHECKING:
    from graphbox.compress import Evaluate
    from graphbox.config import TaskConfig
    from graphbox.graph import Graph
    from graphbox.train.tasks import Split


def _run(context: StageContext) -> StageResult:
    config = context.config
    graph = open_graph(context)
    splits = load_splits(context)
    versions: dict[str, int] = {}
    report: dict[str, Any] = {}
    for number, (name, settings) in enumerate(config.compress.items()):
        context.progress.step(name, number, len(config.compress), "artifacts")
        context.stop.check()
        parent = context.workspace.model(name, context.output("export", "versions")[name])
        task = config.models[config.export[name].model].task
        if task is None:
            raise _without_task(name)
        versions[name], folder = new_version(context, "compress", name)
        report[name] = compress_version(
            parent,
            settings,
            versions[name],
            folder,
            evaluate=_evaluation(graph, splits[task], config.tasks[task]),
            metric=config.tasks[task].deciding_metric,
            bench=config.bench,
        )
        _register(context.workspace, folder, parent)
    summary = ", ".join(f"{name} {_change(entry)}" for name, entry in report.items())
    return StageResult(summary, {"versions": versions}, {"compress": report})


def compress_model(
    workspace: Workspace, parent: ModelRecord, settings: CompressConfig, bench: BenchConfig
) -> dict[str, Any]:
    """Compress a model version of the workspace, measured on the task of the run that made it.

    Returns:
        The report, as the stage gives it.

    Raises:
        NotFoundError: the run is no longer there.
        ConflictError: nodes are being forgotten.
        GateError: the result is too much worse; nothing is kept.
    """
    if parent.task is None:
        raise _without_task(parent.name)
    if parent.run_id is None:
        raise UsageError(
            f"the model `{parent.name}` comes from no run of this workspace, so its task cannot be measured",
            where=str(parent.path),
        )
    data = RunData.open(workspace, parent.run_id)
    task = data.config.tasks[parent.task]
    with workspace.without_forgetting():
        version, folder = workspace.new_model_path(parent.name)
        report = compress_version(
            parent,
            settings,
            version,
            folder,
            evaluate=_evaluation(data.graph, data.split(parent.task), task),
            metric=task.deciding_metric,
            bench=bench,
        )
        _register(workspace, folder, parent)
    return report


def _register(workspace: Workspace, folder: Path, parent: ModelRecord) -> None:
    """Make a compressed version known: it was measured as its parent was."""
    measured = None
    if parent.deciding_metric is not None and parent.measured_on is not None:
        measured = MeasuredBy(parent.deciding_metric, parent.measured_on)
    register(workspace, Artifact.open(folder), run_id=parent.run_id, measured=measured, parent=parent.version)


def compress_version(
    parent: ModelRecord,
    settings: CompressConfig,
    version: int,
    folder: Path,
    *,
    evaluate: Evaluate,
    metric: str,
    bench: BenchConfig,
) -> dict[str, Any]:
    """Write a compressed version of ``parent`` into ``folder`` and return the report.

    Raises:
        GateError: the result is too much worse; nothing is written.
    """
    from graphbox.compress import compress

    result = compress(
        Artifact.open(parent.path),
        folder,
        settings,
        version=version,
        metric=metric,
        evaluate=evaluate,
        bench=bench,
    )
    return {"version": version, "parent": parent.version, **result.as_dict()}


def _evaluation(graph: Graph, split: Split, task: TaskConfig) -> Evaluate:
    """Return what measures a deployed model on a part of its task."""
    return lambda model, fold: evaluate_deployed(model, graph, split, task, fold)


def _without_task(name: str) -> UsageError:
    return UsageError(
        f"the model of the artifact `{name}` has no task, so what compression costs cannot be measured",
        where=f"compress.{name}",
        hint="give the model a task, or leave the artifact as it is",
    )


def _change(entry: dict[str, Any]) -> str:
    size, metric = entry["size_bytes"], entry["metric"]
    smaller = size["before"] / size["after"]
    return f"{smaller:.1f}x smaller, {metric['name']} {metric['before']:.3f} -> {metric['after']:.3f}"


def _reads(config: RunConfig) -> dict[str, Any]:
    """Return the settings that sizes and metrics of compressed artifacts depend on."""
    tasks = {
        task: {key: value for key, value in keys.items() if not key.startswith("baseline")}
        for task, keys in evaluation_settings(config)["tasks"].items()
    }
    settings = result_settings(config)
    bench = {key: settings["bench"][key] for key in ("target", "threads")}
    return {"compress": settings["compress"], "bench": bench, "tasks": tasks}


STAGE = Stage(
    "compress",
    _run,
    wanted=lambda config: bool(config.compress),
    reads=_reads,
    needs=("export",),
)
