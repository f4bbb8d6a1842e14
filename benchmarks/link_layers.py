"""Layers of a graph network for links between nodes without features, on links held out at random.

    python -m benchmarks.link_layers --root FOLDER_OF_THE_DATA_SETS --seeds 0

Chooses what a `gnn` without `layer` takes for such a task. Reads Wiki, CollegeMsg and Beauty; lastfm-hin, on
which the default is reported, is not among them. Prints JSON lines: ``data``, ``layer``, ``seed``, ``auc``
and ``average_precision`` of the validation part, ``test_auc``, ``epochs`` and ``seconds``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphbox.pipeline import run
from graphbox.workspace import Workspace

LAYERS: Mapping[str, Mapping[str, Any]] = {
    "sage": {"auto": []},
    "lightgcn": {"layer": "lightgcn"},
    "lightgcn, residual": {"layer": "lightgcn", "residual": True},
    "defaults": {},
}
"""Settings by name; all others are the defaults."""


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    return [(source, target) for source, target, *_ in map(str.split, lines)]


def _purchases(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return user and item of each purchase of a file with a user's items on each line."""
    return [(user, f"item{item}") for user, *items in map(str.split, lines) for item in items]


DATA: Mapping[str, tuple[str, str, str, Callable[[Iterable[str]], list[tuple[str, str]]]]] = {
    "wiki": ("edges.txt.gz", "page", "page", _pairs),
    "collegemsg": ("CollegeMsg.txt.gz", "student", "student", _pairs),
    "beauty": ("sequences.txt.gz", "user", "item", _purchases),
}
"""File, node types of both ends and reader of each data set."""


def run_file(data: str, layer: str, seed: int) -> dict[str, Any]:
    """Return a run file that trains and measures one layer."""
    _, source, target, _ = DATA[data]
    edges = {"type": [source, "meets", target], "path": "edges.txt", "format": "edge_list"}
    task = {"kind": "predict_links", "node_type": source, "target_type": target, "relations": ["meets"]}
    return {
        "version": 1,
        "name": data,
        "seed": seed,
        "graph": {"name": data, "nodes": {source: {}, target: {}}, "edges": [edges]},
        "tasks": {"links": {**task, "baselines": []}},
        "models": {"network": {"kind": "gnn", "task": "links", **LAYERS[layer]}},
    }


def measure(root: Path, data: str, layer: str, seed: int) -> dict[str, Any]:
    """Train one layer; return what it reaches."""
    file, _, _, read = DATA[data]
    with gzip.open(root / data / file, "rt") as lines:
        pairs = sorted(set(read(lines)))
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "edges.txt").write_text("".join(f"{source} {target}\n" for source, target in pairs))
        (folder / "run.yaml").write_text(json.dumps(run_file(data, layer, seed)))
        began = time.perf_counter()
        report = run(folder / "run.yaml", (), Workspace(folder / "workspace"))
        seconds = time.perf_counter() - began
    training = report.training["network"]
    validation = training["validation"]
    return {
        "data": data,
        "layer": layer,
        "seed": seed,
        "auc": round(float(validation["validation_auc"]), 4),
        "average_precision": round(float(validation["validation_average_precision"]), 4),
        "test_auc": round(float(report.metrics["links"]["network"]["auc"]), 4),
        "epochs": training["epochs"],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure all layers on the data sets that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder with a folder for each data set")
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    asked = parser.parse_args()
    for data in asked.data:
        for seed in asked.seeds:
            for layer in LAYERS:
                print(json.dumps(measure(asked.root, data, layer, seed)), flush=True)


if __name__ == "__main__":
    main()
