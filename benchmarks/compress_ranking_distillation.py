"""Distillation of rankings on lastfm: a recommender of 64 numbers a vector, and those of 16 that it teaches.

Runs ``examples/lastfm/distil.yaml`` with several seeds, on the given split: all artists are ranked for each
of 1,858 users with answers in the test part. Bytes are those of all vectors, float32.

    python -m benchmarks.compress_ranking_distillation --root FOLDER_WITH_TRAIN_AND_TEST --workspace FOLDER

`--workspace` keeps finished seeds; without it all is done in a folder that is removed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import graphbox
from graphbox.pipeline import RunReport
from graphbox.train import load_trained

RUN_FILE = Path(__file__).parents[1] / "examples" / "lastfm" / "distil.yaml"
MODELS = {
    "teacher": "lightgcn, 64 numbers: the teacher",
    "small": "lightgcn, 16 numbers, not taught",
    "student": "lightgcn, 16 numbers, taught",
    "small_factors": "matrix factorization, 16 numbers, not taught",
    "student_factors": "matrix factorization, 16 numbers, taught",
}
METRICS = ("recall@20", "ndcg@20", "teacher_agreement")


def run(seed: int, root: Path, workspace: Path, *, quick: bool) -> RunReport:
    """Run the run file with a seed, or return what an earlier call left."""
    settings = [f"seed={seed}", "threads=1", "device=cpu", f"graph.root={json.dumps(str(root))}", "export={}"]
    if quick:
        settings += [f"models.{name}.epochs=2" for name in MODELS]
    return graphbox.run(RUN_FILE, settings, workspace)


def vector_bytes(report: RunReport, name: str) -> int:
    """Return the bytes of the vectors of a model."""
    trained = load_trained(report.path, name)
    of_targets = 0 if trained.target is None else trained.target.nbytes
    return of_targets + sum(each.nbytes for each in trained.embeddings.values())


def show(reports: Sequence[RunReport], *, as_json: bool) -> None:
    """Print the figures of each model, mean and standard deviation over seeds."""
    for name, words in MODELS.items():
        figures = [report.metrics["artists"][name] for report in reports]
        found: dict[str, Any] = {
            "model": words,
            "seeds": len(reports),
            "bytes": vector_bytes(reports[0], name),
        }
        for metric in METRICS:
            values = [each[metric] for each in figures if metric in each]
            if values:
                found[metric], found[f"{metric}_deviation"] = mean(values), pstdev(values)
        if as_json:
            print(json.dumps(found), flush=True)
            continue
        shown = [
            f"{metric} {found[metric]:.4f} +- {found[f'{metric}_deviation']:.4f}"
            for metric in METRICS
            if metric in found
        ]
        print(f"{words:46} {found['bytes']:>10,} bytes  {', '.join(shown)}", flush=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder with train.txt.gz and test.txt.gz")
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument(
        "--workspace", type=Path, help="keeps the runs; a seed that has finished is not rerun"
    )
    parser.add_argument("--quick", action="store_true", help="two epochs of all models: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        workspace = (options.workspace or Path(scratch)) / "workspace"
        root = options.root.resolve()
        show(
            [run(seed, root, workspace, quick=options.quick) for seed in range(options.seeds)],
            as_json=options.json,
        )


if __name__ == "__main__":
    main()
