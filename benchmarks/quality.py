"""Quality on public data: runs the run files in ``examples/`` under the published protocol.

``make quality ROOT=folder`` runs everything whose files are there, ``make quality ROOT=folder DATA=gowalla
SEED=1`` one. A run that was stopped goes on where it was, a seed that has finished is not run again. Writes
``benchmarks/results/quality.json`` (rows of ``data``, ``metric``, ``value`` (the mean), ``by_seed``,
``seeds``, ``minutes`` of one run, ``published``, ``goal``) and the table in ``docs/results.md``.

A data set is an entry of ``DATA``: its run file, how published files become tables, and what is measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import graphbox
from graphbox.train.storage import write_atomically

_HERE = Path(__file__).parent
RESULTS = _HERE / "results" / "quality.json"
PAGE = _HERE.parent / "docs" / "results.md"
SEEDS = (0, 1, 2)

Prepare = Callable[[Path, Path], None]
"""Makes the tables of a run file, in the second folder, of published files, in the first."""


@dataclass(frozen=True)
class Figure:
    """A figure of a run's report.

    Attributes:
        name: what it is called in the results.
        task: task of the run file.
        model: model or baseline of the run file.
        metric: name in the report.
        published: what papers report.
        goal: what is wanted; None for a reference.
    """

    name: str
    task: str
    model: str
    metric: str
    published: str = ""
    goal: float | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set under its published protocol.

    Attributes:
        run_file: the example's, relative to the root of the source.
        files: published files that must be there, in the folder named like the data set.
        figures: what is measured.
        prepare: makes tables of the files; None: they are read as they are.
        overrides: further settings, ``key.path=value``.
    """

    run_file: str
    files: tuple[str, ...]
    figures: tuple[Figure, ...]
    prepare: Prepare | None = None
    overrides: tuple[str, ...] = field(default=())


def edges_of_neighbor_lists(source: Path, destination: Path) -> None:
    """Write a line for each edge of files with a node and its neighbours on each line."""
    for path in sorted(source.glob("*.txt.gz")):
        target = destination / path.name.removesuffix(".gz")
        if target.exists():
            continue
        with gzip.open(path, "rt") as lines, write_atomically(target) as stream:
            for line in lines:
                node, *neighbors = line.split()
                stream.write("".join(f"{node}\t{neighbor}\n" for neighbor in neighbors).encode())


def _ranking(
    task: str, published: Mapping[str, tuple[str, str]], goals: tuple[float, float]
) -> tuple[Figure, ...]:
    """Return recall@20 and ndcg@20 of the model, and of the closed form beside it."""
    metrics = ("recall@20", "ndcg@20")
    return tuple(
        Figure(
            f"{metric} {model}",
            task,
            model,
            metric,
            published.get(model, ("", ""))[number],
            goals[number] if model == "lightgcn" else None,
        )
        for model in ("lightgcn", "gfcf", "popular")
        for number, metric in enumerate(metrics)
    )


DATA: dict[str, DataSet] = {
    "gowalla": DataSet(
        "examples/gowalla/graphbox.yaml",
        ("train.txt.gz", "test.txt.gz"),
        _ranking("places", {"lightgcn": (".1830", ".1554"), "gfcf": (".1849", ".1518")}, (0.183, 0.155)),
        prepare=edges_of_neighbor_lists,
    ),
    "lastfm": DataSet(
        "examples/lastfm/graphbox.yaml",
        ("train.txt.gz", "test.txt.gz"),
        _ranking("artists", {"gfcf": (".2716", ".2139")}, (0.2716, 0.214)),
    ),
}


def measure(name: str, seed: int, root: Path, scratch: Path, threads: int | None = None) -> dict[str, Any]:
    """Run one seed, or go on with it; return its figures by name, and ``minutes``."""
    data = DATA[name]
    folder = root / name
    if data.prepare is not None:
        tables = scratch / "tables" / name
        tables.mkdir(parents=True, exist_ok=True)
        data.prepare(folder, tables)
        folder = tables
    run_file = _HERE.parent / data.run_file
    overrides = [f"graph.root={json.dumps(str(folder))}", f"seed={seed}", *data.overrides]
    if threads is not None:
        overrides.append(f"threads={threads}")
    report = graphbox.run(run_file, overrides, scratch / "workspace")
    found: dict[str, Any] = {"minutes": sum(stage.seconds or 0.0 for stage in report.stages) / 60}
    for figure in data.figures:
        of_task = {**report.baselines[figure.task], **report.metrics[figure.task]}
        if figure.model in of_task:
            found[figure.name] = float(of_task[figure.model][figure.metric])
    return found


def keep(name: str, seed: int, found: Mapping[str, Any], path: Path = RESULTS) -> list[dict[str, Any]]:
    """Add what a seed reached to the results; return all rows."""
    rows = read_results(path)
    for figure in DATA[name].figures:
        if figure.name not in found:
            continue
        row = next((row for row in rows if (row["data"], row["metric"]) == (name, figure.name)), None)
        if row is None:
            rows.append(row := {"data": name, "metric": figure.name, "by_seed": {}, "minutes_by_seed": {}})
        row["by_seed"][str(seed)] = round(found[figure.name], 5)
        row["minutes_by_seed"][str(seed)] = round(found["minutes"], 2)
        row["value"] = round(mean(row["by_seed"].values()), 5)
        row["seeds"] = sorted(map(int, row["by_seed"]))
        row["minutes"] = round(mean(row["minutes_by_seed"].values()), 2)
        row["published"], row["goal"] = figure.published, figure.goal
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as stream:
        stream.write((json.dumps(rows, indent=1) + "\n").encode())
    return rows


def read_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the rows that were reached so far."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return ``docs/results.md``."""
    lines = [
        "# Results on public data",
        "",
        "What the run files in `examples/` reach under the published protocol: settings chosen on a",
        "validation part cut from train, the final model trained on train and validation, test looked at",
        "once. The mean of the seeds; minutes of one run, as the machine let it.",
        "`make quality` measures again (`benchmarks/quality.py`).",
        "",
        "| data | metric | published | goal | reached | seeds | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        goal = "" if row["goal"] is None else f"≥ {row['goal']:.4g}"
        seeds = ", ".join(map(str, row["seeds"]))
        shown = (
            row["data"],
            row["metric"],
            row["published"],
            goal,
            f"{row['value']:.4f}",
            seeds,
            row["minutes"],
        )
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is asked for; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder with a folder for each data set")
    parser.add_argument("--data", choices=list(DATA), action="append", help="data set; all without one")
    parser.add_argument("--seed", type=int, action="append", help="seed; 0, 1 and 2 without one")
    parser.add_argument("--scratch", type=Path, default=Path("build/quality"), help="folder of the runs")
    parser.add_argument("--threads", type=int, help="threads of a run; all CPUs without it")
    asked = parser.parse_args()
    for name in asked.data or DATA:
        missing = [file for file in DATA[name].files if not (asked.root / name / file).is_file()]
        if missing:
            print(f"{name}: left out, {asked.root / name} has no {', '.join(missing)}", file=sys.stderr)
            continue
        for seed in asked.seed or SEEDS:
            done = [row for row in read_results() if row["data"] == name and str(seed) in row["by_seed"]]
            if len(done) == len(DATA[name].figures):
                continue
            found = measure(name, seed, asked.root, asked.scratch, asked.threads)
            PAGE.write_text(page(keep(name, seed, found)))
            print(json.dumps({"data": name, "seed": seed, **found}), flush=True)
    rows = read_results()
    below = [row for row in rows if row["goal"] is not None and row["value"] < row["goal"]]
    for row in below:
        print(f"{row['data']} {row['metric']}: {row['value']}, wanted {row['goal']}", file=sys.stderr)
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
