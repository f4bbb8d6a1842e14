"""Writes the parts of a model version, compressed by the methods of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphbox.artifact import Artifact, ArtifactWriter, Lineage, inspect_onnx
from graphbox.compress.dense import (
    Calibration,
    ConversionReport,
    DenseMethod,
    Queries,
    convert_dense,
    convert_for_target,
    default_dense,
    dense_method,
    dense_methods,
    layers_of,
)
from graphbox.compress.dense.fine_tuning import FineTuned, fine_tune
from graphbox.compress.dense.prune import prune_neurons
from graphbox.compress.dense.widths import HiddenLayers, measure_hidden_layers
from graphbox.compress.encoded_tables import EncodedTables
from graphbox.compress.neighbors import ShortenedLists
from graphbox.compress.popularity import popularity_of
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.tables import (
    CODEC_OF_PRECISION,
    TIERED_PRECISIONS,
    TRAINED_PRECISIONS,
    TableError,
    suited_precision,
)
from graphbox.config import OTHER_TABLES
from graphbox.deploy import DeployedModel
from graphbox.errors import GateError, UnsupportedError, UsageError, did_you_mean, missing_extra
from graphbox.row_codecs import can_train_codebooks

__all__ = [
    "AUTO",
    "Changes",
    "Original",
    "commit_version",
    "dense_choices",
    "given_tables",
    "table_choices",
    "write_recipe",
]

AUTO = "auto"
"""Method of the ONNX part: the fastest that the target runs."""

_ROWS_TO_FIT: Final = 4096


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
        queries: real ones, to measure ranges on and to learn from; None: those that the model knows itself.
        encoded: where encoded tables are kept; see `EncodedTables`.

    Attributes:
        tuned: ONNX parts that were fine-tuned, by the key of `Recipe.dense_part`: tables make no difference.
    """

    def __init__(
        self,
        artifact: Artifact,
        model: DeployedModel,
        target: str = AUTO,
        queries: Queries | None = None,
        encoded: Path | None = None,
    ) -> None:
        self.artifact = artifact
        self.model = model
        self.target = target
        self.tables = EncodedTables(artifact, encoded)
        has_feeds = model.num_queries and artifact.manifest.onnx is not None
        self.queries = queries or (Queries.of_model(model) if has_feeds else None)
        self.tuned: dict[str, FineTuned] = {}
        self._calibration: Calibration | None = None
        self._activations: Calibration | None = None
        self._hidden_layers: HiddenLayers | None = None

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
        """Feeds of real queries; None where there are none, or no ONNX part to feed."""
        if self._calibration is None and self.queries is not None:
            self._calibration = Calibration.of_random(self.queries)
        return self._calibration

    @property
    def activations(self) -> Calibration | None:
        """More feeds of real queries, for what is fitted to hidden layers by least squares."""
        if self._activations is None and self.queries is not None:
            self._activations = Calibration.of_random(self.queries, max_rows=_ROWS_TO_FIT)
        return self._activations

    def hidden_layers(self, model: bytes, feeds: Calibration) -> HiddenLayers:
        """Return the hidden layers of the ONNX part, measured once."""
        if self._hidden_layers is None:
            self._hidden_layers = measure_hidden_layers(model, feeds)
        return self._hidden_layers


def table_choices(artifact: Artifact, name: str, given: str | None = None) -> tuple[str, ...]:
    """Return the precisions that rows of a table can be written in without training, the largest first.

    Args:
        artifact: the model version.
        name: of the table.
        given: the only precision that is wanted; see `given_tables`.
    """
    if artifact.manifest.tables[name].codec != UNCHANGED:
        return (UNCHANGED,)
    if given is not None:
        return (given,)
    left_out = TRAINED_PRECISIONS
    if popularity_of(artifact, name) is None:
        left_out += TIERED_PRECISIONS
    return tuple(each for each in CODEC_OF_PRECISION if each not in left_out)


def given_tables(artifact: Artifact, precisions: Mapping[str, str]) -> dict[str, str]:
    """Return the precision of each table that settings give one.

    The one for all others is that of `suited_precision` where it is trained; a named table has what is named.

    Args:
        artifact: the model version.
        precisions: by table, `OTHER_TABLES` for those that are not named.

    Raises:
        UsageError: a table is unknown, or is compressed already.
        BackendMissingError: codebooks cannot be trained here.
        UnsupportedError: codebooks would take more bytes than they save: of a named table, or of every other.
    """
    specs, for_others = artifact.manifest.tables, precisions.get(OTHER_TABLES)
    for name, precision in precisions.items():
        if name != OTHER_TABLES:
            _check_named(artifact, name, precision)
    if not set(TRAINED_PRECISIONS).isdisjoint(precisions.values()) and not can_train_codebooks():
        raise missing_extra("faiss", "ann")
    others = {name: spec for name, spec in specs.items() if name not in precisions}
    if for_others is None:
        suited = {}
    else:
        suited = {name: suited_precision(for_others, spec.rows, spec.dim) for name, spec in others.items()}
        if for_others in TRAINED_PRECISIONS and suited and for_others not in suited.values():
            raise _larger(artifact, "a table that is smaller", for_others, next(iter(suited.values())))
    return {name: precisions.get(name) or suited[name] for name in specs if name in {*precisions, *suited}}


def _check_named(artifact: Artifact, name: str, precision: str) -> None:
    """Reject a name of no table, or a precision that a table cannot have.

    Raises:
        UsageError: the table is unknown, or compressed already.
        UnsupportedError: codebooks would take more bytes than they save.
    """
    specs = artifact.manifest.tables
    if name not in specs:
        raise UsageError(
            f"expected one of the tables {', '.join(specs) or '(there are none)'} of "
            f"{artifact.manifest.name} version {artifact.manifest.version}, received `{name}`",
            where="--tables",
            hint=did_you_mean(name, specs),
        )
    spec = specs[name]
    if UNCHANGED not in {precision, spec.codec}:
        raise UsageError(
            f"expected a table of float32 rows, `{name}` of {artifact.manifest.name} version "
            f"{artifact.manifest.version} has the codec {spec.codec}",
            where="--tables",
            hint="start from the version that was exported: --version",
        )
    smaller = suited_precision(precision, spec.rows, spec.dim)
    if smaller != precision:
        raise _larger(artifact, f"the table `{name}` to be smaller", precision, smaller)


def _larger(artifact: Artifact, what: str, precision: str, smaller: str) -> UnsupportedError:
    return UnsupportedError(
        f"expected {what} in `{precision}` than in `{smaller}`: codebooks take more bytes than rows save",
        where=str(artifact.path),
        hint=f"choose `{smaller}`",
    )


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
    lists = None if recipe.max_neighbors is None else ShortenedLists(artifact, recipe.max_neighbors)
    if lists is not None and lists.left_out:
        changes.steps.append(f"neighbors at most {lists.most}")
    _write_tables(original, writer, recipe, lists, changes)
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
    original: Original,
    writer: ArtifactWriter,
    recipe: Recipe,
    lists: ShortenedLists | None,
    changes: Changes,
) -> None:
    artifact, applied = original.artifact, set[str]()
    for name, spec in artifact.manifest.tables.items():
        precision = recipe.tables.get(name, UNCHANGED)
        if precision == UNCHANGED or spec.codec != UNCHANGED:
            writer.copy_table(artifact, name)
            continue
        table = original.tables.encoded(name, precision, lists)
        writer.add_encoded_table(name, spec.node_type, table.codec, table.arrays, (spec.rows, spec.dim))
        changes.tables[name] = table.error
        applied.add(table.codec.name)
    changes.steps.extend(f"tables {codec}" for codec in sorted(applied))


def _write_dense(original: Original, writer: ArtifactWriter, recipe: Recipe, changes: Changes) -> None:
    onnx = original.artifact.manifest.onnx
    if onnx is None:
        return
    model = original.float_onnx
    if model is None:
        model = original.artifact.onnx_bytes()
    else:
        model = _pruned(original, model, recipe, changes)
        method = _method(original, model, recipe)
        model = _tuned(original, model, method, recipe, changes)
        model = _converted(original, model, method, recipe, changes)
    precision = inspect_onnx(model, onnx.path).precision
    writer.set_onnx(model, opset=onnx.opset, precision=precision, inputs=onnx.inputs, outputs=onnx.outputs)


def _pruned(original: Original, model: bytes, recipe: Recipe, changes: Changes) -> bytes:
    feeds = original.activations
    if recipe.kept_neurons >= 1 or feeds is None:
        return model
    keep: float | dict[str, float] = recipe.kept_neurons
    if recipe.by_layer:
        keep = original.hidden_layers(model, feeds).shares(recipe.kept_neurons)
    pruned = prune_neurons(model, feeds, keep)
    neurons = ", ".join(f"{after} of {before}" for before, after in pruned.report.neurons.values())
    changes.steps.append(f"neurons {100 * recipe.kept_neurons:g} % ({neurons})")
    return pruned.model


def _method(original: Original, model: bytes, recipe: Recipe) -> DenseMethod | None:
    if recipe.dense == UNCHANGED:
        return None
    if recipe.dense == AUTO:
        return default_dense(model, original.target, original.calibration)
    return dense_method(recipe.dense)


def _layers(model: bytes, recipe: Recipe) -> list[str] | None:
    """Return the layers to convert; None: those that the method finds worth it."""
    if not recipe.float_layers:
        return None
    return [each.name for each in layers_of(model) if each.name not in recipe.float_layers]


def _tuned(
    original: Original, model: bytes, method: DenseMethod | None, recipe: Recipe, changes: Changes
) -> bytes:
    """Return the model after training for what the recipe does to it.

    Raises:
        GateError: its error on queries that it was not trained on did not get smaller.
    """
    if not recipe.tuned:
        return model
    key = recipe.dense_part.key
    if key not in original.tuned:
        original.tuned[key] = fine_tune(
            original.artifact.onnx_bytes(),
            model,
            original.queries,
            method=method,
            calibration=original.calibration,
            layers=_layers(model, recipe),
        )
    tuned = original.tuned[key]
    if not tuned.is_better:
        raise GateError(
            "expected a smaller error of the outputs after fine-tuning, it went from "
            f"{tuned.before.rms_relative:.4g} to {tuned.after.rms_relative:.4g} on {tuned.after.rows} rows "
            "that were not trained on",
            hint="the recipe without fine-tuning is the better one",
        )
    changes.steps.append("fine-tuned")
    return tuned.model


def _converted(
    original: Original, model: bytes, method: DenseMethod | None, recipe: Recipe, changes: Changes
) -> bytes:
    if method is None:
        return model
    layers, calibration = _layers(model, recipe), original.calibration
    if recipe.dense == AUTO or layers is not None:
        converted = convert_dense(method, model, calibration, layers)
    else:
        converted = convert_for_target(method, model, original.target, calibration)
    changes.dense = converted.report
    changes.steps.append(f"dense {converted.report.method}")
    return converted.model
