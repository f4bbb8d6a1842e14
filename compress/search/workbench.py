"""Builds the model of a recipe and measures its bytes, quality on the validation part and latency."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, ArtifactWriter
from graphbox.compress.apply import Evaluate, FindQueries, validation_metrics
from graphbox.compress.budget import sampled_errors
from graphbox.compress.dense import can_fine_tune, dense_method, layers_of, sensitivity
from graphbox.compress.dense.prune import has_hidden_neurons
from graphbox.compress.latency import Latency
from graphbox.compress.parts import Original, commit_version, write_recipe
from graphbox.compress.popularity import popularity_of
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.report import sizes_of
from graphbox.compress.search.trials import Trial
from graphbox.compress.tables import CODEC_OF_PRECISION, TRAINED_PRECISIONS, suited_precision
from graphbox.deploy import DeployedEncoder, DeployedModel, open_model
from graphbox.deploy.bench import BatchLatency, bench_together
from graphbox.errors import DataError, FormatError, GateError, UnsupportedError

__all__ = ["Target", "Workbench"]

_REFUSALS = (DataError, FormatError, GateError, UnsupportedError)
"""Errors that say that a recipe does not suit a model or a target, and not that the search cannot proceed."""


_COMPARED = "int8"
_LAYERS_TO_COMPARE = 2
_NODES_TO_COMPARE = 2000
_MOST_EMBEDDING_ERROR = 0.06
_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Target:
    """Where, and in what calls, models are measured.

    Attributes:
        name: an adapter's name, ``adapter/device``, or ``auto``.
        threads: that one call may use.
        batch: queries of one call.
        seconds: of timed calls of each model and trial.
    """

    name: str = "auto"
    threads: int = 1
    batch: int = 1
    seconds: float = 0.5


class Workbench:
    """Tries recipes on one model version. A context manager: the original stays open in between.

    Args:
        artifact: the original.
        folder: for models that are being measured; what is in it may be removed.
        target: where to measure.
        evaluate: returns the task's metrics of an open model on a part.
        metric: the one that decides.
        queries: finds real queries of the original; None: those that it knows itself.
    """

    def __init__(
        self,
        artifact: Artifact,
        folder: Path,
        target: Target,
        evaluate: Evaluate,
        metric: str,
        queries: FindQueries | None = None,
    ) -> None:
        self._artifact = artifact
        self._folder = folder
        self._target = target
        self._evaluate = evaluate
        self._metric = metric
        self._queries = queries
        self._original: DeployedModel | None = None
        self._parts: Original | None = None

    def __enter__(self) -> Self:
        _remove(self._folder)
        self._folder.mkdir(parents=True)
        self._original = self.open(self._artifact.path)
        queries = None if self._queries is None else self._queries(self._original)
        encoded = self._folder / "encoded"
        self._parts = Original(self._artifact, self._original, self._target.name, queries, encoded)
        return self

    def __exit__(self, *_: object) -> None:
        if self._original is not None:
            self._original.close()
        _remove(self._folder)

    @property
    def original(self) -> DeployedModel:
        """The original, open on the target."""
        assert self._original is not None, "used outside of its context"  # noqa: S101 - a mistake of the caller
        return self._original

    @property
    def parts(self) -> Original:
        """The parts of the original, to compress."""
        assert self._parts is not None, "used outside of its context"  # noqa: S101 - a mistake of the caller
        return self._parts

    def open(self, path: Path) -> DeployedModel:
        """Open a model version on the target; its files were just written, or verified before."""
        return open_model(path, target=self._target.name, threads=self._target.threads, verify=False)

    def try_recipe(self, recipe: Recipe, source: str) -> Trial:
        """Build and measure the model of a recipe.

        Raises:
            GraphboxError: nothing can be measured here at all: the disk is full, the target is away.
        """
        began = time.perf_counter()
        try:
            with self.built(recipe, "candidate") as built, self.open(built.path) as model:
                metrics = self.measured(model)
                latency = self.latencies({recipe.key: model})[recipe.key]
                parts = sizes_of(built.manifest)
        except _REFUSALS as error:
            return Trial(recipe, source, "refused", reason=error.message, seconds=time.perf_counter() - began)
        return Trial(
            recipe,
            source,
            "measured",
            size_bytes=sum(parts.values()),
            parts_bytes=parts,
            metrics=metrics,
            latency=latency,
            seconds=time.perf_counter() - began,
        )

    @contextmanager
    def built(self, recipe: Recipe, name: str) -> Iterator[Artifact]:
        """Yield the model of a recipe; it is removed afterwards. The original is not written again."""
        if recipe == Recipe():
            yield self._artifact
            return
        path = self._folder / name
        _remove(path)
        try:
            yield self.write(recipe, path, self._artifact.manifest.version)
        finally:
            _remove(path)

    def write(
        self, recipe: Recipe, path: Path, version: int, check: Any = None, step: str | None = None
    ) -> Artifact:
        """Write the model of a recipe as a version of its own; see `ArtifactWriter.commit`.

        Args:
            recipe: methods for the parts.
            path: folder of the version.
            version: its number.
            check: see `ArtifactWriter.commit`.
            step: last one of the lineage; None: the recipe's.
        """
        with ArtifactWriter(path) as writer:
            steps = write_recipe(self.parts, writer, recipe).steps
            return commit_version(self._artifact, writer, version, (*steps, step or recipe.step), check)

    def layer_errors(self) -> dict[str, float]:
        """Return the relative error of the outputs when one layer alone is int8, the largest first."""
        model, calibration = self.parts.float_onnx, self.parts.calibration
        if model is None or calibration is None or len(layers_of(model)) < _LAYERS_TO_COMPARE:
            return {}
        try:
            errors = sensitivity(model, dense_method(_COMPARED), calibration)
        except _REFUSALS:
            return {}
        return {name: error.rms_relative for name, error in errors.items()}

    def table_errors(self) -> dict[str, dict[str, float]]:
        """Return the relative error of a sample of rows in each precision, of each float32 table."""
        errors = {}
        for name, spec in self._artifact.manifest.tables.items():
            if spec.codec == UNCHANGED and spec.rows:
                try:
                    found = sampled_errors(
                        self._artifact.table(name), popularity=popularity_of(self._artifact, name)
                    )
                except DataError:  # beyond float16: trials are refused with the reason
                    continue
                errors[name] = {
                    precision: found[codec.name]
                    for precision, codec in CODEC_OF_PRECISION.items()
                    if codec.name in found
                }
        return errors

    def trained_errors(self, tables: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the relative error of float32 tables in the precisions that are trained, by precision.

        Those that make no table smaller are left out. Training takes tens of seconds for each; trials use the
        same encoded tables.

        Args:
            tables: names of those to encode.
        """
        errors: dict[str, dict[str, float]] = {}
        for name in tables:
            spec = self._artifact.manifest.tables[name]
            for precision in TRAINED_PRECISIONS:
                is_smaller = suited_precision(precision, spec.rows, spec.dim) == precision
                if spec.codec != UNCHANGED or not is_smaller:
                    continue
                try:
                    error = self.parts.tables.encoded(name, precision).error
                except DataError:  # rows that are not finite: trials are refused with the reason
                    continue
                errors.setdefault(name, {})[precision] = error.relative
        return errors

    def fits(self, recipe: Recipe, most_bytes: int) -> bool:
        """Return whether the model of a recipe has at most so many bytes; False where it does not suit."""
        try:
            with self.built(recipe, "candidate") as built:
                return sum(sizes_of(built.manifest).values()) <= most_bytes
        except _REFUSALS:
            return False

    def neighbor_bounds(self, bounds: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the bounds of neighbours with embeddings close to those of the original; None stays.

        The metric of the validation part does not show what is lost without neighbours where the lists have
        edges of that part: a finished model was given them.

        Args:
            bounds: the largest first.
        """
        random = np.random.default_rng(0)
        count = self.original.num_queries
        sample = random.choice(count, min(count, _NODES_TO_COMPARE), replace=False)
        close: list[int | None] = []
        for bound in bounds:
            if bound is not None and self._embedding_error(bound, sample) > _MOST_EMBEDDING_ERROR:
                break
            close.append(bound)
        return tuple(close)

    def _embedding_error(self, most: int, sample: npt.NDArray[np.int64]) -> float:
        """Return the relative error of embeddings when lists alone are shorter."""
        with self.built(Recipe(max_neighbors=most), "candidate") as built, self.open(built.path) as model:
            if not isinstance(model, DeployedEncoder) or not isinstance(self.original, DeployedEncoder):
                raise TypeError(f"expected a model that encodes nodes, received {type(model).__name__}")
            expected = self.original.encode_indices(sample)
            difference = model.encode_indices(sample) - expected
        return float(np.linalg.norm(difference)) / max(float(np.linalg.norm(expected)), _LEAST_NORM)

    @property
    def can_prune(self) -> bool:
        """Whether the ONNX part has hidden neurons that can be removed."""
        model, calibration = self.parts.float_onnx, self.parts.calibration
        return model is not None and calibration is not None and has_hidden_neurons(model)

    @property
    def can_tune(self) -> bool:
        """True if the ONNX part can be trained and has queries to learn from."""
        model = self.parts.float_onnx
        return model is not None and can_fine_tune(model, self.parts.queries)

    def measured(self, model: DeployedModel) -> dict[str, float]:
        """Return the metrics of a model on the validation part.

        Raises:
            DataError: the deciding one is no finite number.
        """
        metrics = validation_metrics(self._evaluate, model, self._metric)
        if not math.isfinite(metrics[self._metric]):
            raise DataError(f"expected a finite {self._metric}, received {metrics[self._metric]}")
        return metrics

    def latencies(
        self, models: Mapping[str, DeployedModel], seconds: float | None = None
    ) -> dict[str, Latency]:
        """Return the latency of each model, measured in turns with the original and the others."""
        batch = self._target.batch
        reports = bench_together({"": self.original, **models}, (batch,), seconds or self._target.seconds)
        original = reports[""].batches[0]
        return {name: _latency(reports[name].batches[0], original) for name in models}


def _latency(found: BatchLatency, original: BatchLatency) -> Latency:
    return Latency(
        p50_ms=found.p50_ms,
        p50_min_ms=found.p50_min_ms,
        p50_max_ms=found.p50_max_ms,
        p99_ms=found.p99_ms,
        original_p50_ms=original.p50_ms,
        original_p99_ms=original.p99_ms,
    )


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
