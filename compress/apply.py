"""Makes a smaller version of an artifact, measures both, and refuses one that got too much worse."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from graphbox.artifact import Artifact, ArtifactWriter, Lineage, inspect_onnx
from graphbox.artifact.manifest import TableSpec
from graphbox.compress.agreement import Agreement
from graphbox.compress.quantize import QuantizationReport, quantize_onnx
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.report import BeforeAfter, CompressReport, MetricDrop, sizes_of
from graphbox.compress.tables import TableError, halve_table, quantize_table
from graphbox.config import BenchConfig, CompressConfig, MaxDrop, parse_max_drop
from graphbox.deploy import DeployedModel, open_model
from graphbox.errors import GateError, UsageError, did_you_mean

__all__ = ["Changes", "Evaluate", "HeldOutPart", "compress", "recipe_of", "write_recipe"]

HeldOutPart = Literal["validation", "test"]
Evaluate = Callable[[DeployedModel, HeldOutPart], Mapping[str, float]]


@dataclass
class Changes:
    """Steps that were applied to the parts, in order, with their reports."""

    steps: list[str] = field(default_factory=list)
    dense: QuantizationReport | None = None
    tables: dict[str, TableError] = field(default_factory=dict)


def compress(
    artifact: Artifact,
    destination: str | os.PathLike[str],
    config: CompressConfig,
    *,
    version: int,
    metric: str,
    evaluate: Evaluate | None,
    bench: BenchConfig | None = None,
) -> CompressReport:
    """Write a compressed version of an artifact, unless it answers too much worse.

    Both models are opened on the same target and evaluated on the validation part as they are served. The
    test part is looked at once, of what was decided for, and decides nothing.

    Args:
        artifact: the model version to compress; it stays as it is.
        destination: the folder of the new version, to be made.
        config: which parts become int8, and the largest allowed drop.
        version: of the new model version; the name stays.
        metric: the one of ``evaluate``'s metrics that decides; higher is better.
        evaluate: returns the task's metrics of a deployed model on a part; None: `Agreement` with the
            original is measured instead.
        bench: target and threads to evaluate on.

    Raises:
        GateError: when the metric drops by more than ``config.max_drop``; nothing is written then.
        UsageError: when nothing is to be compressed, or the metric is not among the measured ones.
        ConflictError: when the destination exists.
    """
    settings, max_drop = bench or BenchConfig(), parse_max_drop(config.max_drop)
    reports: list[CompressReport] = []
    with _open(artifact.path, settings) as original, ArtifactWriter(destination) as writer:
        has_test = evaluate is not None
        evaluate = evaluate or Agreement(original)
        metrics_before = _measured(evaluate, original, metric)

        def judge(compressed: Artifact) -> Mapping[str, Mapping[str, float]]:
            with _open(compressed.path, settings) as model:
                metrics_after = _measured(evaluate, model, metric)
                drop = _judged(metric, metrics_before[metric], metrics_after[metric], max_drop)
                metrics_test = dict(evaluate(model, "test")) if has_test else {}
                metrics = (metrics_before, metrics_after, metrics_test)
            reports.append(_report(artifact, compressed, changes, drop, metrics))
            task = compressed.manifest.task
            return {
                **compressed.manifest.metrics,
                **({} if task is None else {task: reports[0].metrics_test}),
            }

        changes = write_recipe(artifact, writer, recipe_of(config, artifact), original)
        _check_changed(artifact, changes)
        manifest = artifact.manifest
        writer.commit(
            name=manifest.name,
            version=version,
            kind=manifest.kind,
            task=manifest.task,
            dim=manifest.dim,
            targets=manifest.targets,
            metrics=manifest.metrics,
            lineage=Lineage(
                run=manifest.lineage.run,
                graph=manifest.lineage.graph,
                parent=f"{manifest.name}/{manifest.version}",
                steps=(*manifest.lineage.steps, *changes.steps),
            ),
            check=judge,
        )
    return reports[0]


def _open(path: Path, settings: BenchConfig) -> DeployedModel:
    return open_model(path, target=settings.target, threads=settings.threads, verify=False)


def _measured(evaluate: Evaluate, model: DeployedModel, metric: str) -> dict[str, float]:
    metrics = dict(evaluate(model, "validation"))
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


def write_recipe(
    artifact: Artifact, writer: ArtifactWriter, recipe: Recipe, original: DeployedModel
) -> Changes:
    """Write every part of a model version, compressed by the methods of a recipe.

    Args:
        artifact: the original.
        writer: of the new version, which is not committed.
        recipe: methods for the parts.
        original: the original, open, for requests to calibrate with.

    Returns:
        What was done to the parts.

    Raises:
        UnsupportedError: a part cannot be compressed so.
        DataError: values are beyond what a codec can hold.
    """
    changes = Changes()
    for node_type in artifact.node_types:
        writer.add_ids(node_type, artifact.ids(node_type).to_arrow())
    _write_tables(artifact, writer, recipe, changes)
    _write_dense(artifact, writer, recipe, changes)
    writer.copy_rest(artifact)
    return changes


def table_codecs(spec: TableSpec) -> tuple[str, ...]:
    """Return the codecs that rows of a table can be written in, the largest first."""
    return ("float32", "float16", "int8") if spec.codec == "float32" else (UNCHANGED,)


def dense_methods(artifact: Artifact) -> tuple[str, ...]:
    """Return the methods for the ONNX part of a model, the most precise first."""
    onnx = artifact.manifest.onnx
    if onnx is None or artifact.manifest.kind == "knowledge_graph" or onnx.precision != "float32":
        return (UNCHANGED,)
    return ("float32", "int8")


def recipe_of(config: CompressConfig, artifact: Artifact) -> Recipe:
    """Return the recipe that the settings mean for a model: one codec for all tables."""
    tables = {} if config.tables == UNCHANGED else dict.fromkeys(artifact.manifest.tables, config.tables)
    return Recipe(dense=config.dense, tables=tables)


def _check_changed(artifact: Artifact, changes: Changes) -> None:
    if not changes.steps:
        raise UsageError(
            "expected something to compress, received a model whose parts already are what is asked for",
            where=str(artifact.path),
            hint="set `dense: int8` or `tables: int8`",
        )


def _write_tables(artifact: Artifact, writer: ArtifactWriter, recipe: Recipe, changes: Changes) -> None:
    applied: set[str] = set()
    for name, spec in artifact.manifest.tables.items():
        codec = recipe.tables.get(name, UNCHANGED)
        if codec == UNCHANGED or spec.codec != "float32":
            writer.copy_table(artifact, name)
            continue
        table = artifact.table(name)
        if codec == "float16":
            halved = halve_table(table)
            writer.add_table(name, spec.node_type, halved.rows)
            changes.tables[name] = halved.error
            applied.add("float16")
        else:
            quantized = quantize_table(table)
            writer.add_int8_table(name, spec.node_type, quantized.codes, quantized.scale_bias)
            changes.tables[name] = quantized.error
            applied.add("int8_rowwise")
    changes.steps.extend(f"tables {codec}" for codec in sorted(applied))


def _write_dense(artifact: Artifact, writer: ArtifactWriter, recipe: Recipe, changes: Changes) -> None:
    onnx = artifact.manifest.onnx
    if onnx is None:
        return
    model = artifact.onnx_bytes()
    # What compares rows of a knowledge graph has no weights of its own.
    has_weights = artifact.manifest.kind != "knowledge_graph"
    if recipe.dense == "int8" and onnx.precision == "float32" and has_weights:
        quantized = quantize_onnx(model)
        model, changes.dense = quantized.model, quantized.report
        changes.steps.append("dense int8_dynamic")
    precision = inspect_onnx(model, onnx.path).precision
    writer.set_onnx(model, opset=onnx.opset, precision=precision, inputs=onnx.inputs, outputs=onnx.outputs)


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
