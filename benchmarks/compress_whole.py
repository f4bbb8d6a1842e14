"""Whole versions of a compressed model beside the original: size, metric on the test part, latency in turns.

python -m benchmarks.compress_whole WORKSPACE MODEL [--original 1] [--chosen N] [--batch 1] [--json]

`graphbox compress` has to have written the chosen version; without --chosen it is the smallest one. Sizes are
of all files but the manifest, of tables and ONNX part, and of the rest alone. The metric is that of the
task, on the validation and test parts, of both versions as they are served; --seconds are measured for each
operation in 7 repeats that alternate between the two, and medians are printed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from graphbox.artifact import Artifact
from graphbox.compress.apply import HeldOutPart
from graphbox.compress.report import sizes_of
from graphbox.deploy import DeployedEncoder, open_model
from graphbox.deploy.bench import bench_together
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.workspace import ModelRecord, Workspace

REPEATS = 7


def main() -> None:
    """Measure both versions and print them."""
    parser = argparse.ArgumentParser(description="whole compressed versions")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("model")
    parser.add_argument("--original", type=int, default=1, help="version that was compressed")
    parser.add_argument("--chosen", type=int, help="compressed version (default: the smallest)")
    parser.add_argument("--batch", type=int, default=1, help="queries of a call")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timed calls of each operation")
    parser.add_argument("--no-metric", action="store_true", help="measure sizes and latencies alone")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    workspace = Workspace(options.workspace)
    original = workspace.model(options.model, options.original)
    chosen = (
        min(_compressed(workspace, original), key=_size)
        if options.chosen is None
        else workspace.model(options.model, options.chosen)
    )
    found = {"chosen": f"version {chosen.version}", **compare(workspace, original, chosen, options)}
    print(json.dumps(found) if options.json else _text(found))


def compare(
    workspace: Workspace, original: ModelRecord, chosen: ModelRecord, options: argparse.Namespace
) -> dict[str, Any]:
    """Return sizes, metrics and latencies of both versions."""
    pair = {"original": original.path, "chosen": chosen.path}
    sizes = {name: sizes_of(Artifact.open(path).manifest) for name, path in pair.items()}
    models = {name: open_model(path, threads=1, verify=False) for name, path in pair.items()}
    found: dict[str, Any] = {
        "tables": {name: spec.codec for name, spec in models["chosen"].manifest.tables.items()},
        "bytes": {name: sum(parts.values()) for name, parts in sizes.items()},
        "model_bytes": {name: parts["tables"] + parts["dense"] for name, parts in sizes.items()},
        "other_bytes": {name: parts["other"] for name, parts in sizes.items()},
        "metrics": {},
        "latency_ms": {},
    }
    if not options.no_metric and original.run_id is not None and original.task is not None:
        data = RunData.open(workspace, original.run_id)
        task, split = data.config.tasks[original.task], data.split(original.task)
        parts: tuple[HeldOutPart, ...] = ("validation", "test")
        for part in parts:
            found["metrics"][f"{task.deciding_metric}, {part}"] = {
                name: float(evaluate_deployed(model, data.graph, split, task, part)[task.deciding_metric])
                for name, model in models.items()
            }
    operations = ["encode", "neighbors"] if isinstance(models["original"], DeployedEncoder) else [None]
    for operation in operations:
        reports = bench_together(models, (options.batch,), options.seconds, REPEATS, operation)  # type: ignore[arg-type]
        latencies = {name: report.batches[0] for name, report in reports.items()}
        found["latency_ms"][str(operation or "call")] = {
            name: {"p50": each.p50_ms, "p50_min": each.p50_min_ms, "p50_max": each.p50_max_ms}
            for name, each in latencies.items()
        }
    for model in models.values():
        model.close()
    return found


def _compressed(workspace: Workspace, original: ModelRecord) -> list[ModelRecord]:
    found = [each for each in workspace.models(original.name) if each.parent == original.version]
    if not found:
        raise SystemExit(f"{original.name} has no compressed version: run `graphbox compress` before")
    return found


def _size(record: ModelRecord) -> int:
    return sum(sizes_of(Artifact.open(record.path, verify=False).manifest).values())


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['chosen']}: {', '.join(map(': '.join, found['tables'].items()))}"]
    titles = {"bytes": "whole version", "model_bytes": "tables and ONNX", "other_bytes": "the rest"}
    for key, title in titles.items():
        before, after = found[key]["original"], found[key]["chosen"]
        lines.append(
            f"{title:22} {before / 1e6:8.3f} MB {after / 1e6:8.3f} MB  {before / after:.2f}x smaller"
        )
    for title, each in found["metrics"].items():
        before, after = each["original"], each["chosen"]
        lines.append(f"{title:22} {before:8.4f}    {after:8.4f}     {100 * (after / before - 1):+.2f} %")
    for operation, each in found["latency_ms"].items():
        before, after = each["original"]["p50"], each["chosen"]["p50"]
        lines.append(f"{operation + ' p50':22} {before:8.4f} ms {after:8.4f} ms  {after / before:.3f} of it")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
