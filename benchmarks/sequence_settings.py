"""Defaults of SASRec against other values of one setting each, on MovieLens-100k.

    pip install --target /tmp/peers --no-deps recbole
    python -m benchmarks.sequence_settings --peers /tmp/peers --seeds 0 1

recbole carries the ratings as its example. Events are ratings in the order of time, the last of each user is
found among all movies that the user has not rated. Nothing is reported on these data for the kind, so that a
choice by them is fair to every set that `benchmarks/quality_data` has. Prints JSON lines: ``variant``,
``seed``, ``ndcg`` and ``hit_rate`` at 10, ``epochs`` and ``seconds``.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.pipeline import run
from graphbox.workspace import Workspace

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "dropout 0.1": {"dropout": 0.1},
    "dropout 0.4": {"dropout": 0.4},
    "popularity_exponent 0": {"popularity_exponent": 0.0},
    "popularity_exponent 1": {"popularity_exponent": 1.0},
    "learning_rate 0.001": {"learning_rate": 0.001},
    "learning_rate 0.004": {"learning_rate": 0.004},
    "table_learning_rate 0.005": {"table_learning_rate": 0.005},
    "table_learning_rate 0.02": {"table_learning_rate": 0.02},
    "batch_size 128": {"batch_size": 128},
    "batch_size 512": {"batch_size": 512},
    "batch_size 512, epochs 200": {"batch_size": 512, "epochs": 200},
}
"""Settings of each variant; all others are the defaults."""


def read_events(path: Path) -> dict[str, list[int]]:
    """Return user, item and time of each rating, as columns."""
    with path.open(encoding="utf-8") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return {
        "user": [int(row[0]) for row in rows],
        "item": [int(row[1]) for row in rows],
        "time": [int(row[3]) for row in rows],
    }


def run_file(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a run file that trains and measures one variant."""
    edges = {
        "type": ["user", "rates", "item"],
        "path": "events.parquet",
        "source": "user",
        "target": "item",
        "timestamp": "time",
        "keep_duplicates": True,
    }
    return {
        "version": 1,
        "name": "movielens",
        "seed": seed,
        "graph": {"name": "movielens", "nodes": {"user": {}, "item": {}}, "edges": [edges]},
        "tasks": {
            "next": {
                "kind": "next",
                "node_type": "user",
                "target_type": "item",
                "relations": ["rates"],
                "baselines": [],
            }
        },
        "models": {"sasrec": {"kind": "sasrec", "task": "next", **settings}},
    }


def measure(events: Mapping[str, list[int]], variant: str, seed: int) -> dict[str, Any]:
    """Train a variant; return what it reaches."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pq.write_table(pa.table(dict(events)), folder / "events.parquet")
        (folder / "run.yaml").write_text(json.dumps(run_file(VARIANTS[variant], seed)))
        began = time.perf_counter()
        report = run(folder / "run.yaml", (), Workspace(folder / "workspace"))
        seconds = time.perf_counter() - began
    figures, training = report.metrics["next"]["sasrec"], report.training["sasrec"]
    return {
        "variant": variant,
        "seed": seed,
        "ndcg": round(float(figures["ndcg@10"]), 4),
        "hit_rate": round(float(figures["recall@10"]), 4),
        "epochs": training["epochs"],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure the variants that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, required=True, help="folder with recbole")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    asked = parser.parse_args()
    events = read_events(asked.peers / "recbole" / "dataset_example" / "ml-100k" / "ml-100k.inter")
    for seed in asked.seeds:
        for variant in asked.variants:
            print(json.dumps(measure(events, variant, seed)), flush=True)


if __name__ == "__main__":
    main()
