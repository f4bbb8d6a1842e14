"""Distillation on Cora: a graph network and the MLPs that it teaches, and how fast each answers.

Runs ``examples/cora/distil.yaml`` with several seeds, on the public split: 140 papers with known topics, 500
to choose by, 1,000 to test on. Students learn what the teacher says of all papers. Then the teacher and the
student of the first seed answer requests in turns: in process (``DeployedEncoder.classify``, 1 and 32 papers
a request, drawn at random), and over loopback as the stage `bench` measures it.

    python -m benchmarks.compress_distillation --root FOLDER_WITH_CORA_NPZ --workspace FOLDER

`--workspace` keeps finished seeds; without it all is done in a folder that is removed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import numpy as np

import graphbox
from benchmarks.measure import rate_of, show_in_turns
from benchmarks.quality_data import data_sets
from graphbox.artifact.ids import Id
from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.pipeline import RunReport

RUN_FILE = Path(__file__).parents[1] / "examples" / "cora" / "distil.yaml"
MODELS = {
    "teacher": "graph network (APPNP), the teacher",
    "words": "MLP of words, not taught",
    "taught_words": "MLP of words, taught",
    "student": "MLP of words and rows of walks, taught",
}
BATCHES = (1, 32)
PAPERS = 192
"""Papers of all requests of a turn; a teacher of ten hops takes tens of milliseconds for one."""


def run(seed: int, tables: Path, workspace: Path, *, quick: bool) -> RunReport:
    """Run the run file with a seed, or return what an earlier call left; the first seed is served, too."""
    settings = [
        f"seed={seed}",
        "threads=1",
        "device=cpu",
        f"graph.root={json.dumps(str(tables))}",
        "bench={batch_sizes: [1, 32], seconds: 1.0}",
    ]
    if seed:
        settings.append("export={}")
    if quick:
        settings += [f"models.{name}.epochs=2" for name in MODELS]
    return graphbox.run(RUN_FILE, settings, workspace)


def show_quality(reports: Sequence[RunReport], *, as_json: bool) -> None:
    """Print the accuracy of each model, mean and standard deviation over seeds."""
    for name, words in MODELS.items():
        figures = [report.metrics["topic"][name] for report in reports]
        found: dict[str, Any] = {"model": words, "seeds": len(reports)}
        for metric in ("accuracy", "teacher_agreement"):
            values = [each[metric] for each in figures if metric in each]
            if values:
                found[metric], found[f"{metric}_deviation"] = mean(values), pstdev(values)
        if as_json:
            print(json.dumps({**found, "by_seed": [each["accuracy"] for each in figures]}), flush=True)
            continue
        agreement = found.get("teacher_agreement")
        agrees = "" if agreement is None else f", agrees with the teacher on {agreement:.3f}"
        print(f"{words:40} {found['accuracy']:.4f} +- {found['accuracy_deviation']:.4f}{agrees}", flush=True)


def show_rates(folder: Path, versions: dict[str, int], *, as_json: bool) -> None:
    """Print how many requests each model answers a second in this process, in turns."""
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(open_encoder(folder / name / str(version)))
            for name, version in versions.items()
        }
        ids = models["teacher"].artifact.ids("paper").take(np.arange(models["teacher"].num_queries))
        for batch in BATCHES:
            generator = np.random.default_rng(0)
            asked = [
                [ids[number] for number in generator.integers(0, len(ids), batch)]
                for _ in range(PAPERS // batch)
            ]
            systems = {name: rate_of(_answering(model, asked)) for name, model in models.items()}
            medians = show_in_turns(f"in process, {batch} paper(s)", "requests/s", systems, as_json=as_json)
            if not as_json:
                print(f"  student / teacher: {medians['student'] / medians['teacher']:.1f}", flush=True)


def _answering(model: DeployedEncoder, asked: Sequence[Sequence[Id]]) -> Callable[[], float]:
    def answer(model: DeployedEncoder) -> float:
        for each in asked:
            model.classify(each)
        return float(len(asked))

    return partial(answer, model)


def show_requests(report: RunReport, *, as_json: bool) -> None:
    """Print what the stage `bench` measured of requests over loopback."""
    for name, versions in report.bench.items():
        for each in versions[-1]["batches"]:
            if each["operation"] != "infer":
                continue
            if as_json:
                print(json.dumps({"model": name, **each}), flush=True)
            else:
                rate = each["rows_per_s"] / each["batch"]
                print(
                    f"over loopback, {each['batch']} paper(s)  {name:10} {rate:,.0f} requests/s, "
                    f"p50 {each['p50_ms']:.3f} ms",
                    flush=True,
                )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder with cora.npz")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0 on")
    parser.add_argument(
        "--workspace", type=Path, help="keeps the runs; a seed that has finished is not rerun"
    )
    parser.add_argument("--quick", action="store_true", help="two epochs of all models: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.workspace or Path(scratch)
        tables, workspace = folder / "tables", folder / "workspace"
        tables.mkdir(parents=True, exist_ok=True)
        prepare = data_sets()["cora"].prepare
        assert prepare is not None  # noqa: S101 - for the type checker
        prepare(options.root, tables)
        reports = [run(seed, tables, workspace, quick=options.quick) for seed in range(options.seeds)]
        show_quality(reports, as_json=options.json)
        versions = {name: about["version"] for name, about in reports[0].export.items()}
        show_rates(workspace / "models", versions, as_json=options.json)
        show_requests(reports[0], as_json=options.json)


if __name__ == "__main__":
    main()
