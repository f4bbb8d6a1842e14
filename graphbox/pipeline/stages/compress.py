"""Stage `compress`: smaller versions of artifacts, refused when they answer too much worse."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.artifact import Artifact
from graphbox.config import BenchConfig, CompressConfig, RunConfig, evaluation_settings, result_settings
from graphbox.errors import UsageError
from graphbox.pipeline.artifacts import new_version
from graphbox.pipeline.compression_search import Quality, Watch, register_compressed, search_version
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.pipeline.stages.import_graph import open_graph
from graphbox.pipeline.stages.split import load_splits
from graphbox.pipeline.training_queries import training_queries
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
        quality = Quality(
            _evaluation(graph, splits[task], config.tasks[task]),
            config.tasks[task].deciding_metric,
            parent.measured_on,
            training_queries(graph, splits[task]),
        )
        if settings.search is None:
            version, folder = new_version(context, "compress", name)
            report[name] = compress_version(parent, settings, version, folder, quality, config.bench)
            register_compressed(context.workspace, Artifact.open(folder), parent)
        else:
            watch = Watch(partial(_show, context, name), context.stop.check)
            report[name] = search_version(context.workspace, parent, settings, config.bench, quality, watch)
        versions[name] = report[name]["version"]
    summary = ", ".join(f"{name} {_change(entry)}" for name, entry in report.items())
    return StageResult(summary, {"versions": versions}, {"compress": report})


def compress_model(
    workspace: Workspace,
    parent: ModelRecord,
    settings: CompressConfig,
    bench: BenchConfig,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Compress a model version of the workspace, measured on the task of the run that made it.

    A model that comes from no run, or has no task, is measured by how far its answers agree with those of the
    original.

    Args:
        workspace: where the model is.
        parent: the version to compress.
        settings: methods and limits; with a section `search` the models within them are searched for.
        bench: target and threads.
        watch: progress of a search.

    Returns:
        The report, as the stage gives it.

    Raises:
        NotFoundError: the run is no longer there.
        ConflictError: nodes are being forgotten.
        GateError: the result is too much worse; nothing is kept.
    """
    quality = quality_of(workspace, parent)
    with workspace.without_forgetting():
        if settings.search is not None:
            return search_version(workspace, parent, settings, bench, quality, watch or Watch())
        version, folder = workspace.new_model_path(parent.name)
        report = compress_version(parent, settings, version, folder, quality, bench)
        register_compressed(workspace, Artifact.open(folder), parent)
    return report


def quality_of(workspace: Workspace, parent: ModelRecord) -> Quality:
    """Return how good a model version is measured: on the task of its run, else by agreement with itself.

    Raises:
        NotFoundError: the run is no longer there.
    """
    if parent.task is None or parent.run_id is None:
        return Quality()
    data = RunData.open(workspace, parent.run_id)
    task = data.config.tasks[parent.task]
    split = data.split(parent.task)
    evaluate = _evaluation(data.graph, split, task)
    return Quality(evaluate, task.deciding_metric, parent.measured_on, training_queries(data.graph, split))


def _show(context: StageContext, name: str, line: str, done: int, most: int) -> None:
    context.progress.step(f"{name}: {line}", done, most, "models")


def compress_version(
    parent: ModelRecord,
    settings: CompressConfig,
    version: int,
    folder: Path,
    quality: Quality,
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
        metric=quality.metric,
        evaluate=quality.evaluate,
        bench=bench,
        queries=quality.queries,
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
