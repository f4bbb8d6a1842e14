"""A day of new data: append it, continue from the last run, evaluate and export; beside a training anew.

    python -m benchmarks.daily_cycle --root FOLDER [--data gowalla] [--kind lightgcn] [--later-epochs 4]

``FOLDER`` has a folder for each data set, as for ``make quality``. One percent of the users and one percent
of the items, drawn anew for each seed, come on the second day with all their edges, and with one percent of
all other edges. The first day is trained with ``--epochs``. On the second day the same command is timed twice
over the same graph: as on the first day, and with ``start_from`` and ``--later-epochs``. Both train, evaluate
on the same test part and export; the second counts the append. Prints a JSON line for each of them and one
with the medians over seeds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphbox import __version__

SHARE = 0.01
PARTS = {"chose": "train.txt.gz", "chose_later": "test.txt.gz"}
GRAPH: dict[str, Any] = {
    "name": "days",
    "nodes": {"user": {}, "item": {}},
    "edges": [
        {"type": ["user", "chose", "item"], "path": "chose.tsv", "reverse": "chosen_by"},
        {"type": ["user", "chose_later", "item"], "path": "chose_later.tsv"},
    ],
}
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("gowalla", "lightgcn"): {"epochs": 40, "popularity": 0.8, "temperature": 0.11},
    ("gowalla", "matrix_factorization"): {},
    ("lastfm", "lightgcn"): {},
    ("lastfm", "matrix_factorization"): {},
}
"""Settings beside the defaults by data set and kind: those of ``examples``."""


def pairs_of(path: Path, *, are_lists: bool) -> NDArray[np.int64]:
    """Return the pairs of a file: int64 [n, 2].

    Args:
        path: the file.
        are_lists: lines are a user and all its items, not a user, an item and a count.
    """
    found = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            user, *items = line.split()
            found += [(int(user), int(item)) for item in (items if are_lists else items[:1])]
    return np.array(found, np.int64)


def write_days(folder: Path, root: Path, data: str, seed: int) -> dict[str, int]:
    """Write the tables of both days; return what the second has."""
    are_lists = data == "gowalla"
    pairs = {name: pairs_of(root / data / file, are_lists=are_lists) for name, file in PARTS.items()}
    known = pairs["chose"]
    generator = np.random.default_rng(seed)
    is_new = []
    for column in (0, 1):
        count = int(known[:, column].max()) + 1
        chosen = np.zeros(count, bool)
        chosen[generator.choice(count, round(SHARE * count), replace=False)] = True
        is_new.append(chosen)
    counts = {"users": int(is_new[0].sum()), "items": int(is_new[1].sum())}
    for day in ("first", "second"):
        (folder / day).mkdir(parents=True)
    for name, each in pairs.items():
        later = is_new[0][each[:, 0]] | is_new[1][each[:, 1]]
        if name == "chose":
            later |= generator.random(len(each)) < SHARE
            counts |= {"edges": int(later.sum()), "edges_before": int((~later).sum())}
        for day, rows in (("first", each[~later]), ("second", each[later])):
            text = "".join(f"{user}\t{item}\n" for user, item in rows.tolist())
            (folder / day / f"{name}.tsv").write_text("source\ttarget\n" + text)
    return counts


def write_run_files(folder: Path, model: dict[str, Any], seed: int) -> None:
    """Write the run file of each day; JSON is YAML."""
    task = {
        "kind": "recommend",
        "node_type": "user",
        "target_type": "item",
        "relations": ["chose"],
        "split": {"kind": "given", "test_relations": ["chose_later"]},
        "k": 20,
        "baselines": ["popular"],
    }
    document = {
        "version": 1,
        "name": "days",
        "seed": seed,
        "graph": GRAPH,
        "tasks": {"items": task},
        "models": {"model": {**model, "task": "items", "train_on": "train_and_validation"}},
        "export": {"items": {"model": "model"}},
        "bench": {"batch_sizes": [1], "seconds": 0.1},
    }
    for day in ("first", "second"):
        (folder / day / "run.yaml").write_text(json.dumps(document))


def command(workspace: Path, *arguments: str | Path) -> tuple[dict[str, float], Any]:
    """Return the seconds that a command took, also of the CPU, and its document."""
    began, cpu_began = time.perf_counter(), _cpu_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", "-C", workspace, *arguments, "--json", "-q"],
        check=True,
        stdout=subprocess.PIPE,
    )
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}, json.loads(done.stdout)


def _cpu_seconds() -> float:
    """Return the seconds of the CPU that all commands took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def figures(report: Any) -> dict[str, Any]:
    """Return metric and seconds of the stages of a run."""
    measured = report["metrics"]["items"]["model"]
    stages = {each["name"]: round(each["seconds"], 1) for each in report["stages"]}
    return {"recall@20": measured["recall@20"], "ndcg@20": measured["ndcg@20"], "stages": stages}


def epochs_of(report: Any) -> int:
    """Return how many epochs were trained."""
    return int(report["training"]["model"]["epochs"])


def measure(arguments: argparse.Namespace, seed: int) -> dict[str, dict[str, Any]]:
    """Return the figures of one seed: the second day anew, and continued."""
    with TemporaryDirectory(dir=arguments.scratch) as scratch:
        folder, workspace = Path(scratch), Path(scratch) / "workspace"
        counts = write_days(folder, arguments.root, arguments.data, seed)
        settings = {"kind": arguments.kind, **SETTINGS[arguments.data, arguments.kind]}
        if arguments.epochs is not None:
            settings["epochs"] = arguments.epochs
        write_run_files(folder, settings, seed)
        day = folder / "first" / "run.yaml"
        command(workspace, "run", day)
        append, _ = command(workspace, "import", "--append", folder / "second" / "run.yaml")
        begin = ["models.model.start_from=days", f"models.model.epochs={arguments.later_epochs}"]
        begin += arguments.set or []
        on, continued = command(workspace, "run", day, *begin)
        again, anew = command(workspace, "run", day, "--fresh")
    start = continued["training"]["model"]["started_from"]
    return {
        "anew": {**again, "epochs": epochs_of(anew), **figures(anew)},
        "continued": {
            **{name: round(on[name] + append[name], 1) for name in on},
            "append": append,
            "epochs": epochs_of(continued),
            **figures(continued),
            "nodes": start["nodes"],
            "new": counts,
        },
    }


def main() -> None:
    """Print a line for each training, and one with the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--data", choices=sorted({data for data, _ in SETTINGS}), default="gowalla")
    parser.add_argument("--kind", choices=sorted({kind for _, kind in SETTINGS}), default="lightgcn")
    parser.add_argument("--epochs", type=int, help="of a training anew; default: those of the example")
    parser.add_argument("--later-epochs", type=int, default=4)
    parser.add_argument("--set", action="append", help="further settings of the continued training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scratch", type=Path)
    arguments = parser.parse_args()
    case = f"{arguments.kind} on {arguments.data}"
    found: dict[str, list[dict[str, Any]]] = {"anew": [], "continued": []}
    for seed in range(arguments.seeds):
        for system, each in measure(arguments, seed).items():
            found[system].append(each)
            print(json.dumps({"case": case, "system": system, "seed": seed, **each}), flush=True)

    medians: dict[str, Any] = {
        name: {system: statistics.median(each[name] for each in runs) for system, runs in found.items()}
        for name in ("seconds", "cpu_seconds", "recall@20", "ndcg@20")
    }
    for name in ("seconds", "cpu_seconds"):
        medians[name]["share"] = round(medians[name]["continued"] / medians[name]["anew"], 3)
    print(json.dumps({"case": case, "system": "medians", "graphbox": __version__, **medians}))


if __name__ == "__main__":
    main()
