"""Makes a smaller version of an artifact, measures both, and refuses one that got too much worse."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from graphbox.artifact import Artifact, ArtifactWriter
from graphbox.compress.agreement import Agreement
from graphbox.compress.dense import Queries
from graphbox.compress.parts import Changes, Original, commit_version, given_tables, write_recipe
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.report import BeforeAfter, CompressReport, MetricDrop, sizes_of
from graphbox.config import BenchConfig, CompressConfig, MaxDrop, parse_max_drop, precisions_by_table
from graphbox.deploy import DeployedModel, open_model
from graphbox.errors import GateError, UsageError, did_you_mean

__all__ = ["Evaluate", "FindQueries", "HeldOutPart", "compress", "recipe_of", "validation_metrics"]

HeldOutPart = Literal["validation", "test"]
Evaluate = Callable[[DeployedModel, HeldOutPart], Mapping[str, float]]
FindQueries = Callable[[DeployedModel], Queries]


def compress(
    artifact: Artifact,
    destination: str | os.PathLike[str],
    config: CompressConfig,
    *,
    version: int,
    metric: str,
    evaluate: Evaluate | None,
    bench: BenchConfig | None = None,
    queries: FindQueries | None = None,
) -> CompressReport:
    """Write a compressed version of an artifact, unless it answers too much worse.

    Both models are opened on the same target and evaluated on the validation part as they are served. The
    test part is looked at once, of what was decided for, and decides nothing.

    Args:
        artifact: the model version to compress; it stays as it is.
        destination: the folder of the new version, to be made.
        config: methods for the parts, and the largest allowed drop.
        version: of the new model version; the name stays.
        metric: the one of ``evaluate``'s metrics that decides; higher is better.
        evaluate: returns the task's metrics of a deployed model on a part; None: `Agreement` with the
            original is measured instead.
        bench: target and threads to evaluate on.
        queries: finds real queries of the original, to measure ranges on; None: those that it knows itself.

    Raises:
        GateError: when the metric drops by more than ``config.max_drop``; nothing is written then.
        UsageError: when nothing is to be compressed, or the metric is not among the measured ones.
        UnsupportedError: when a method does not suit the model.
        BackendMissingError: when the codec of the tables is trained by a package that is missing.
        ConflictError: when the destination exists.
    """
    settings, max_drop = bench or BenchConfig(), parse_max_drop(config.max_drop)
    recipe = recipe_of(config, artifact)
    reports: list[CompressReport] = []
    with _open(artifact.path, settings) as original, ArtifactWriter(destination) as writer:
        has_test = evaluate is not None
        evaluate = evaluate or Agreement(original)
        metrics_before = validation_metrics(evaluate, original, metric)

        def judge(compressed: Artifact) -> Mapping[str, Mapping[str, float]]:
            with _open(compressed.path, settings) as model:
                metrics_after = validation_metrics(evaluate, model, metric)
                drop = _judged(metric, metrics_before[metric], metrics_after[metric], max_drop)
                metrics_test = dict(evaluate(model, "test")) if has_test else {}
                metrics = (metrics_before, metrics_after, metrics_test)
            reports.append(_report(artifact, compressed, changes, drop, metrics))
            task = compressed.manifest.task
            return {
                **compressed.manifest.metrics,
                **({} if task is None else {task: reports[0].metrics_test}),
            }

        found = None if queries is None else queries(original)
        opened = Original(artifact, original, settings.target, found)
        changes = write_recipe(opened, writer, recipe)
        _check_changed(artifact, changes)
        commit_version(artifact, writer, version, changes.steps, judge)
    return reports[0]


def _open(path: Path, settings: BenchConfig) -> DeployedModel:
    return open_model(path, target=settings.target, threads=settings.threads, verify=False)


def validation_metrics(evaluate: Evaluate, model: DeployedModel, metric: str) -> dict[str, float]:
    """Return the metrics of an open model on the validation part.

    Raises:
        UsageError: the deciding metric is not among them.
    """
    metrics = {name: float(value) for name, value in evaluate(model, "validation").items()}
    if metric not in metrics:
        raise UsageError(
            f"expected one of the measured metrics {sorted(metrics)}, received `{metric}`",
            hint=did_you_mean(metric, metrics),
        )
    return metrics


def _judged(metric: str, before: float, after: float, max_drop: MaxDrop) -> MetricDrop:
    drop = before - after
    if not after >= max_drop.floor(before):  # NaN is refused, too
        raise GateError(
            f"expected {metric} of the validation part to drop by at most {max_drop}, "
            f"it dropped by {drop:g} ({before:g} to {after:g})",
            hint="nothing was written; compress less (`dense` or `tables`: float32) or raise `max_drop`",
        )
    return MetricDrop(metric, before, after, drop, before - max_drop.floor(before))


def recipe_of(config: CompressConfig, artifact: Artifact) -> Recipe:
    """Return the recipe that the settings mean for a model; tables without a precision stay as they are.

    Raises:
        UsageError: a named table is unknown, or is compressed already.
        BackendMissingError: a codec is trained by a package that is missing.
        UnsupportedError: a codec makes no table smaller; see `given_tables`.
    """
    given = given_tables(artifact, precisions_by_table(config.tables))
    tables = {name: precision for name, precision in given.items() if precision != UNCHANGED}
    unchanged = tuple(name for name in artifact.manifest.tables if name not in tables)
    return Recipe(dense=config.dense, tables=tables, max_neighbors=config.max_neighbors, unchanged=unchanged)


def _check_changed(artifact: Artifact, changes: Changes) -> None:
    if not changes.steps:
        raise UsageError(
            "expected something to compress, received a model whose parts already are what is asked for",
            where=str(artifact.path),
            hint="set `dense: auto` or `tables: int8`",
        )


def _report(
    original: Artifact,
    compressed: Artifact,
    changes: Changes,
    drop: MetricDrop,
    metrics: tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]],
) -> CompressReport:
    before, after = sizes_of(original.manifest), sizes_of(compressed.manifest)
    return CompressReport(
        metric=drop,
        metrics_before=metrics[0],
        metrics_after=metrics[1],
        metrics_test=metrics[2],
        size_bytes=BeforeAfter(sum(before.values()), sum(after.values())),
        parts_bytes={part: BeforeAfter(before[part], after[part]) for part in before},
        dense=changes.dense,
        tables=changes.tables,
    )
