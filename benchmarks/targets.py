"""A model version on every target of this machine: its metrics, how long opening takes, what a call costs.

    python -m benchmarks.targets WORKSPACE MODEL [--version N] [--targets NAME,...] [--json]

Opens the version on each target, in a package folder that is empty at first (``cold`` compiles where the
target compiles ahead), measures its task's test part as it is served, and calls its ONNX part with one row in
turns: through graphbox, and through ONNX Runtime alone (``bare``). The queries of the test part are the same
on every target. A graphbox server, a Triton and a browser are started where they are installed; a target that
is not there is reported with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.target_runtimes import EXTERNAL_TARGETS, RuntimeMissingError, started_runtime
from graphbox.deploy import DeployedEncoder, open_model, targets
from graphbox.errors import BackendMissingError, NotFoundError, UnsupportedError
from graphbox.package_folder import FOLDER_VARIABLE
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.workspace import ModelRecord, Workspace

ROUNDS, CALLS = 15, 200
SHOWN_METRICS = 2


@dataclass(frozen=True)
class Figures:
    """A model version on one target.

    Attributes:
        target: ``adapter/device``.
        cold_s: seconds of the first opening, with every digest of its files.
        cached_s: median seconds of further openings.
        metrics: of the test part.
        call_us: median microseconds of a call of the ONNX part with one row; None: it has none.
        bare_us: the same by ONNX Runtime alone; None on other targets.
    """

    target: str
    cold_s: float
    cached_s: float
    metrics: dict[str, float]
    call_us: float | None
    bare_us: float | None


def main() -> None:
    """Measure all targets and print a line for each."""
    options = _options()
    workspace = Workspace(options.workspace)
    record = workspace.model(options.model, options.version)
    names = options.targets.split(",") if options.targets else _all_targets()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            os.environ[FOLDER_VARIABLE] = str(Path(folder) / "packages")
            try:
                with started_runtime(name, options.workspace, record, Path(folder)):
                    show(figures_of(workspace, record, name), as_json=options.json)
            except (RuntimeMissingError, BackendMissingError, NotFoundError, UnsupportedError) as error:
                show_missing(name, str(error).splitlines()[0], as_json=options.json)


def figures_of(workspace: Workspace, record: ModelRecord, target: str) -> Figures:
    """Return the figures of a model version on one target."""
    cold_s = _opening_s(record.path, target)
    cached_s = statistics.median(_opening_s(record.path, target) for _ in range(5))
    with open_model(record.path, target=target) as model:
        metrics = _metrics(workspace, record, model)
        effective = model.effective
        call_us, bare_us = _calls(model) if isinstance(model, DeployedEncoder) else (None, None)
    return Figures(
        f"{effective['adapter']}/{effective['device']}", cold_s, cached_s, metrics, call_us, bare_us
    )


def _opening_s(path: Path, target: str) -> float:
    began = time.perf_counter()
    with open_model(path, target=target):
        return time.perf_counter() - began


def _metrics(workspace: Workspace, record: ModelRecord, model: Any) -> dict[str, float]:
    if record.run_id is None or record.task is None:
        return {}
    data = RunData.open(workspace, record.run_id)
    found = evaluate_deployed(
        model, data.graph, data.split(record.task), data.config.tasks[record.task], "test"
    )
    return {name: float(value) for name, value in found.items()}


def _calls(model: DeployedEncoder) -> tuple[float | None, float | None]:
    """Return microseconds of a call with one row, by graphbox and by ONNX Runtime alone."""
    if not model.inputs:
        return None, None
    feeds = model.feeds(np.array([0], np.int64))
    systems: list[Callable[[], object]] = [lambda: model.run(feeds)]
    if model.effective["adapter"] == "onnxruntime":
        systems.append(_bare(model, feeds))
    times: list[list[float]] = [[] for _ in systems]
    for _ in range(ROUNDS):
        for system, measured in zip(systems, times, strict=True):
            began = time.perf_counter()
            for _ in range(CALLS):
                system()
            measured.append(1e6 * (time.perf_counter() - began) / CALLS)
    medians = [statistics.median(measured) for measured in times]
    return medians[0], medians[1] if len(medians) > 1 else None


def _bare(model: DeployedEncoder, feeds: dict[str, Any]) -> Callable[[], object]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.artifact.onnx_bytes(), settings, providers=["CPUExecutionProvider"]
    )
    names = [tensor.name for tensor in model.outputs]
    return lambda: session.run(names, feeds)


def _all_targets() -> list[str]:
    """Return the targets of this machine's processors and devices, there or not, and those elsewhere."""
    found = [
        f"{target.adapter}/{target.device.name}" if target.device is not None else target.adapter
        for target in targets()
        if target.device is None or target.device.kind != "other"
    ]
    return [*found, *EXTERNAL_TARGETS]


def show(figures: Figures, *, as_json: bool) -> None:
    """Print the figures of one target."""
    if as_json:
        print(json.dumps(asdict(figures)), flush=True)
        return
    shown = list(figures.metrics.items())[:SHOWN_METRICS]
    metrics = " ".join(f"{name} {value:.4f}" for name, value in shown)
    call = "" if figures.call_us is None else f"  call {figures.call_us:.1f} us"
    bare = "" if figures.bare_us is None else f" (bare {figures.bare_us:.1f} us)"
    print(
        f"{figures.target:24} open {figures.cold_s:.3f} s cold, {figures.cached_s:.3f} s again"
        f"{call}{bare}  {metrics}",
        flush=True,
    )


def show_missing(target: str, reason: str, *, as_json: bool) -> None:
    """Print why a target was not measured."""
    if as_json:
        print(json.dumps({"target": target, "missing": reason}), flush=True)
    else:
        print(f"{target:24} not measured: {reason}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="a model version on every target of this machine")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("model")
    parser.add_argument("--version", type=int, help="the active one when left out")
    parser.add_argument("--targets", help="names, separated by commas; all when left out")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
