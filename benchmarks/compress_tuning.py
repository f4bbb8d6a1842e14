"""Fine-tuning: pruned and coarsely rounded versions of a model with it and without.

    python -m benchmarks.compress_tuning WORKSPACE NAME [--version 1] [--json]

For each share of neurons and each method: bytes of the ONNX part; the relative error of its outputs on
queries that were not trained on; the task's first metric on the validation part, which decides in a search,
and on the test part; and seconds to build the version. Nothing is written to the workspace.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from graphbox.artifact import Artifact
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.search import Target, Workbench
from graphbox.errors import GateError, UsageError
from graphbox.pipeline.stages.compress import quality_of
from graphbox.workspace import Workspace

CASES = (
    (0.75, False, UNCHANGED),
    (0.75, True, UNCHANGED),
    (0.5, False, UNCHANGED),
    (0.5, True, UNCHANGED),
    (0.25, False, UNCHANGED),
    (0.25, True, UNCHANGED),
    (0.125, True, UNCHANGED),
    (1.0, False, "int8_static"),
    (1.0, False, "int4_weights"),
    (0.5, True, "int4_weights"),
    (0.25, True, "int4_weights"),
    (0.125, True, "int4_weights"),
)
"""Kept neurons, whether layers differ in them, and method."""


@dataclass(frozen=True)
class Figures:
    """One version of the model.

    Attributes:
        recipe: in words.
        dense_bytes: of the ONNX part.
        error: of the outputs, relative; None: it was not compared.
        validation: metric on the validation part.
        test: metric on the test part.
        seconds: to build it.
        refused: why there is none.
    """

    recipe: str
    dense_bytes: int = 0
    error: float | None = None
    validation: float = 0.0
    test: float = 0.0
    seconds: float = 0.0
    refused: str = ""


def measure(workspace: Path, name: str, version: int) -> Iterator[Figures]:
    """Give the figures of the original, then of each case without and with fine-tuning."""
    opened = Workspace(workspace)
    parent = opened.model(name, version)
    quality = quality_of(opened, parent)
    evaluate = quality.evaluate
    if evaluate is None:
        raise UsageError(f"expected a model of a task, {name} has none")
    artifact, target = Artifact.open(parent.path), Target("onnxruntime")
    with (
        tempfile.TemporaryDirectory() as folder,
        Workbench(artifact, Path(folder), target, evaluate, quality.metric, quality.queries) as bench,
    ):

        def figures(recipe: Recipe) -> Figures:
            began = time.perf_counter()
            try:
                with bench.built(recipe, "model") as built, bench.open(built.path) as model:
                    seconds = time.perf_counter() - began
                    onnx = built.manifest.onnx
                    size = 0 if onnx is None else built.manifest.files[onnx.path].bytes
                    metrics = [
                        float(evaluate(model, fold)[quality.metric]) for fold in ("validation", "test")
                    ]
            except GateError as error:
                return Figures(str(recipe), refused=error.message)
            return Figures(str(recipe), size, None, metrics[0], metrics[1], seconds)

        yield figures(Recipe())
        for kept, by_layer, method in CASES:
            recipe = Recipe(method, kept_neurons=kept, by_layer=by_layer)
            tuned = figures(replace(recipe, tuned=True))
            outcome = bench.parts.tuned[recipe.key]
            plain = figures(recipe)
            yield Figures(**{**asdict(plain), "error": outcome.before.rms_relative})
            yield Figures(**{**asdict(tuned), "error": outcome.after.rms_relative})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workspace", type=Path)
    parser.add_argument("name")
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for each in measure(options.workspace, options.name, options.version):
        if options.json:
            print(json.dumps(asdict(each)), flush=True)
            continue
        error = "" if each.error is None else f"error {each.error:.4f}"
        metrics = f"{each.validation:.5f} {each.test:.5f}"
        values = f"{each.dense_bytes:>8} B  {error:<13} {metrics} {each.seconds:6.1f} s"
        print(f"{each.recipe:<75} {each.refused or values}", flush=True)


if __name__ == "__main__":
    main()
