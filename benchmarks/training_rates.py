"""Training rate of every kind of model on public data: examples per second of the first batches.

Each model of some run files in ``examples/`` (and of the bundled graph) is trained for some batches after a
warm-up, in several repeats that continue the training. Run it in two checkouts in turns to compare them.

    python -m benchmarks.training_rates --root FOLDER [--only NAME] [--batches 20] [--repeats 5]

``FOLDER`` has a folder for each data set, as for ``make quality``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.quality_data import data_sets
from graphbox.config import load_config
from graphbox.pipeline import run_pipeline
from graphbox.pipeline.run_data import RunData
from graphbox.train import Assignment, GraphView
from graphbox.train.assignment import make_trainer
from graphbox.workspace import Workspace

SOURCE = Path(__file__).parents[1]
RUN_FILES = {
    "gowalla": ("lightgcn", "matrix_factorization"),
    "wn18rr": ("complex", "rotate"),
    "adult": ("deepfm",),
    "collegemsg": ("temporal",),
    "cora": ("gnn",),
    "wiki": ("deepwalk",),
    "debian": ("metapath2vec", "sage", "gnn"),
}
"""Kinds of models that are measured, by data set."""

SETTINGS: dict[str, dict[str, Any]] = {
    "matrix_factorization": {"dim": 64},
    "rotate": {"dim": 64},
    "gnn": {"num_neighbors": [10, 5], "batch_size": 512, "layers": 2, "layer": "sage"},
}
"""Settings of kinds that a run file does not have, beside its task."""


def data_of(name: str, root: Path, scratch: Path) -> RunData | None:
    """Import a data set and split it; None: its files are not there."""
    workspace = Workspace(scratch / "workspace")
    if name == "debian":
        run_file, tables = SOURCE / "graphbox" / "demo" / "graphbox.yaml", None
    else:
        data = data_sets()[name]
        run_file, tables = SOURCE / data.run_file, root / name
        if not tables.exists():
            return None
        if data.prepare is not None:
            tables = scratch / "tables" / name
            tables.mkdir(parents=True)
            data.prepare(root / name, tables)
    settings = [] if tables is None else [f"graph.root={json.dumps(str(tables))}"]
    report = run_pipeline(load_config(run_file, settings), workspace, until="split")
    return RunData.open(workspace, report.run)


def sections_of(data: RunData, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return a section for each kind: that of the run file, or one for its first task."""
    found = {model.kind: model for model in data.config.models.values() if model.kind in kinds}
    first = next(iter(data.config.models.values()))
    for kind in kinds:
        if kind not in found or kind == "gnn":
            task = found[kind].task if kind in found else first.task
            settings = {"kind": kind, "task": task, **SETTINGS.get(kind, {})}
            whole = {**data.config.model_dump(mode="json"), "models": {"m": settings}}
            whole |= {"export": {}, "compress": {}}
            found[kind] = type(data.config).model_validate_json(json.dumps(whole)).models["m"]
    return found


def rates(data: RunData, section: Any, batches: int, repeats: int) -> list[float]:
    """Return the examples per second of each repeat."""
    split = None if section.task is None else data.split(section.task)
    view = GraphView(data.graph, split, "test" if section.sees_validation else "train")
    task = None if section.task is None else data.config.tasks[section.task]
    trainer = make_trainer(section, Assignment("m", view, split, task, 0, 1))
    found: list[float] = []
    number, epoch, count = 0, 0, trainer.begin_epoch(0)
    while len(found) <= repeats:
        began, examples = time.perf_counter(), 0
        for _ in range(batches):
            if number == count:
                epoch, number = epoch + 1, 0
                count = trainer.begin_epoch(epoch)
            examples += trainer.train_batch(epoch, number)[1]
            number += 1
        found.append(examples / (time.perf_counter() - began))
    trainer.close()
    return found[1:]


def main() -> None:
    """Print a JSON line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--only", action="append")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for name, kinds in RUN_FILES.items():
        if arguments.only and name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            data = data_of(name, arguments.root, Path(scratch))
            if data is None:
                continue
            for kind, section in sections_of(data, kinds).items():
                found = rates(data, section, arguments.batches, arguments.repeats)
                print(
                    json.dumps(
                        {
                            "case": f"{name}, {kind}",
                            "system": "graphbox",
                            "threads": 1,
                            "rate": round(statistics.median(found), 1),
                            "unit": "examples/s",
                            "min": round(min(found), 1),
                            "max": round(max(found), 1),
                            "repeats": len(found),
                        }
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
