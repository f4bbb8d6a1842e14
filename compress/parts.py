"""Writes the parts of a model version, compressed by the methods of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    Lineage,
    NeighborLists,
    RelationGroup,
    inspect_onnx,
)
from graphbox.compress.dense import (
    Calibration,
    ConversionReport,
    convert_dense,
    convert_for_target,
    default_dense,
    dense_method,
    dense_methods,
    layers_of,
)
from graphbox.compress.dense.prune import prune_neurons
from graphbox.compress.neighbors import ShortenedLists
from graphbox.compress.popularity import popularity_of
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.tables import (
    CODEC_OF_PRECISION,
    TIERED_PRECISIONS,
    TableError,
    codec_of,
    table_error,
)
from graphbox.deploy import DeployedModel

__all__ = ["AUTO", "Changes", "Original", "commit_version", "dense_choices", "table_choices", "write_recipe"]

Lists = Callable[[RelationGroup], NeighborLists]
"""Gives the neighbour lists of a group."""

AUTO = "auto"
"""Method of the ONNX part: the fastest that the target runs."""


@dataclass
class Changes:
    """Steps that were applied to the parts, in order, with their reports."""

    steps: list[str] = field(default_factory=list)
    dense: ConversionReport | None = None
    tables: dict[str, TableError] = field(default_factory=dict)


class Original:
    """A model version to compress, open on a target.

    Args:
        artifact: the version.
        model: the same, open.
        target: an adapter's name, ``adapter/device``, or ``auto``.
    """

    def __init__(self, artifact: Artifact, model: DeployedModel, target: str = AUTO) -> None:
        self.artifact = artifact
        self.model = model
        self.target = target
        self._calibration: Calibration | None = None

    @property
    def float_onnx(self) -> bytes | None:
        """The ONNX part where its weights are float32; None: there is nothing to convert."""
        onnx = self.artifact.manifest.onnx
        # The part that compares rows of a knowledge graph has no weights of its own.
        is_brought = self.artifact.manifest.kind == "knowledge_graph"
        return (
            None if onnx is None or is_brought or onnx.precision != "float32" else self.artifact.onnx_bytes()
        )

    @property
    def calibration(self) -> Calibration | None:
        """Feeds of the model's own queries; None where it has none, or there is nothing to convert."""
        if self._calibration is None and self.float_onnx is not None and self.model.num_queries:
            self._calibration = Calibration.of_model(self.model)
        return self._calibration


def table_choices(artifact: Artifact, name: str, given: str | None = None) -> tuple[str, ...]:
    """Return the precisions that rows of a table can be written in, the largest first.

    Args:
        artifact: the model version.
        name: of the table.
        given: the only precision that is wanted.
    """
    if artifact.manifest.tables[name].codec != UNCHANGED:
        return (UNCHANGED,)
    if given is not None:
        return (given,)
    is_known = popularity_of(artifact, name) is not None
    return tuple(each for each in CODEC_OF_PRECISION if is_known or each not in TIERED_PRECISIONS)


def dense_choices(original: Original, given: str | None = None) -> tuple[str, ...]:
    """Return the methods for the ONNX part of a model, by their names in run files.

    Args:
        original: the model.
        given: the only method that is wanted; `AUTO` is what it means for the model and its target.
    """
    model = original.float_onnx
    if model is None or not layers_of(model):
        return (UNCHANGED,)
    if given == AUTO:
        method = default_dense(model, original.target, original.calibration)
        return (UNCHANGED if method is None else method.user_name,)
    if given is not None:
        return (given,)
    methods = dense_methods()
    usable = [each.user_name for each in methods if original.calibration or not each.needs_calibration]
    return (UNCHANGED, *usable)


def write_recipe(original: Original, writer: ArtifactWriter, recipe: Recipe) -> Changes:
    """Write every part of a model version, compressed by the methods of a recipe.

    Parts that are compressed already stay as they are.

    Args:
        original: the version to compress.
        writer: of the new version, which is not committed.
        recipe: methods for the parts.

    Returns:
        Steps that were applied, and their reports.

    Raises:
        UsageError: a method is unknown.
        UnsupportedError: a part cannot be compressed so, or the target cannot run it.
        GateError: a converted ONNX part computes something else.
        DataError: values are beyond what a codec can hold.
    """
    changes = Changes()
    artifact = original.artifact
    for node_type in artifact.node_types:
        writer.add_ids(node_type, artifact.ids(node_type).to_arrow())
    lists: Lists = artifact.neighbor_lists
    if recipe.max_neighbors is not None:
        lists = shortened = ShortenedLists(artifact, recipe.max_neighbors)
        if shortened.left_out:
            changes.steps.append(f"neighbors at most {recipe.max_neighbors}")
    _write_tables(artifact, writer, recipe, lists, changes)
    _write_dense(original, writer, recipe, changes)
    writer.copy_rest(artifact, lists)
    return changes


def commit_version(
    artifact: Artifact,
    writer: ArtifactWriter,
    version: int,
    steps: Sequence[str],
    check: Callable[[Artifact], Mapping[str, Mapping[str, float]]] | None = None,
) -> Artifact:
    """Complete a compressed version: it is what the original is, with further steps in its lineage.

    Args:
        artifact: the original.
        writer: with all parts of the version.
        version: its number.
        steps: that were applied.
        check: see `ArtifactWriter.commit`.
    """
    manifest = artifact.manifest
    return writer.commit(
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
            steps=(*manifest.lineage.steps, *steps),
        ),
        check=check,
    )


def _write_tables(
    artifact: Artifact, writer: ArtifactWriter, recipe: Recipe, lists: Lists, changes: Changes
) -> None:
    applied: set[str] = set()
    for name, spec in artifact.manifest.tables.items():
        precision = recipe.tables.get(name, UNCHANGED)
        if precision == UNCHANGED or spec.codec != UNCHANGED:
            writer.copy_table(artifact, name)
            continue
        table = artifact.table(name)
        is_tiered = precision in TIERED_PRECISIONS
        codec = codec_of(precision, popularity_of(artifact, name, lists) if is_tiered else None)
        writer.add_table(name, spec.node_type, table, codec)
        changes.tables[name] = table_error(table, writer.stored_rows(name))
        applied.add(codec.name)
    changes.steps.extend(f"tables {codec}" for codec in sorted(applied))


def _write_dense(original: Original, writer: ArtifactWriter, recipe: Recipe, changes: Changes) -> None:
    onnx = original.artifact.manifest.onnx
    if onnx is None:
        return
    model = original.float_onnx
    if model is None:
        model = original.artifact.onnx_bytes()
    else:
        model = _converted(original, _pruned(original, model, recipe, changes), recipe, changes)
    precision = inspect_onnx(model, onnx.path).precision
    writer.set_onnx(model, opset=onnx.opset, precision=precision, inputs=onnx.inputs, outputs=onnx.outputs)


def _pruned(original: Original, model: bytes, recipe: Recipe, changes: Changes) -> bytes:
    if recipe.kept_neurons >= 1 or original.calibration is None:
        return model
    pruned = prune_neurons(model, original.calibration, recipe.kept_neurons)
    changes.steps.append(f"neurons {100 * recipe.kept_neurons:g} %")
    return pruned.model


def _converted(original: Original, model: bytes, recipe: Recipe, changes: Changes) -> bytes:
    if recipe.dense == UNCHANGED:
        return model
    calibration = original.calibration
    if recipe.dense == AUTO:
        method = default_dense(model, original.target, calibration)
        if method is None:
            return model
        converted = convert_dense(method, model, calibration)
    elif recipe.float_layers:
        layers = [each.name for each in layers_of(model) if each.name not in recipe.float_layers]
        converted = convert_dense(dense_method(recipe.dense), model, calibration, layers)
    else:
        converted = convert_for_target(dense_method(recipe.dense), model, original.target, calibration)
    changes.dense = converted.report
    changes.steps.append(f"dense {converted.report.method}")
    return converted.model
