"""Quality on public data: runs the run files in ``examples/`` under the published protocol.

``make quality ROOT=folder`` runs everything whose files are there, ``make quality ROOT=folder DATA=gowalla
SEED=1`` one. A run that was stopped goes on where it was, a seed that has finished is not run again without
``--again``. Writes ``benchmarks/results/quality.json`` (rows of ``data``, ``metric``, ``value`` (the mean),
``by_seed``, ``seeds``, ``minutes`` of one run, ``published``, ``goal``) and the table in ``docs/results.md``.

A data set is a module of ``benchmarks/quality_data``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.quality_data import data_sets, defaults_table
from benchmarks.quality_data.protocol import DataSet, Job
from graphbox.durable import write_atomically

_SOURCE = Path(__file__).parents[1]
RESULTS = _SOURCE / "benchmarks" / "results" / "quality.json"
PAGE = _SOURCE / "docs" / "results.md"

Rows = Sequence[Mapping[str, Any]]

_INTRODUCTION = """\
# Results on public data

What the run files in `examples/` reach under the published protocols. Settings were chosen on validation
parts cut from train; unless a remark under the table says otherwise, the final model learns from train and
validation. Remarks also tell where a test part was seen before the figures were measured. Reached is the mean
of the seeds, with the standard deviation; minutes are those of one run with everything in it (import,
baselines, evaluation), as the machine let it.

`make quality ROOT=folder` measures again (`benchmarks/quality.py`); a data set is a module of
`benchmarks/quality_data`.

| data | metric | published | goal | reached | seeds | minutes |
|---|---|---|---|---|---|---|
"""


def measure(
    data: DataSet, seed: int, root: Path, scratch: Path, threads: int | None
) -> tuple[dict[str, float], float]:
    """Run one seed, or go on with it; return its figures by name, and minutes of all its stages."""
    folder = root / data.name
    tables = folder
    if data.prepare is not None:
        tables = scratch / "tables" / data.name
        tables.mkdir(parents=True, exist_ok=True)
        data.prepare(folder, tables)
    job = Job(data, seed, folder, tables, scratch / "workspace", threads)
    began = time.monotonic()
    measured = dict(data.measure(job))
    elapsed = time.monotonic() - began
    missing = [figure.name for figure in data.figures if figure.name not in measured]
    if missing:
        raise ValueError(f"{data.name}: expected a value of {', '.join(missing)}, received none")
    # Stages that an earlier sitting finished took their time there.
    stages = sum(stage.seconds or 0.0 for report in job.reports for stage in report.stages)
    return measured, max(elapsed, stages) / 60


def keep(
    data: DataSet, seed: int, measured: Mapping[str, float], minutes: float, path: Path = RESULTS
) -> list[dict[str, Any]]:
    """Add what a seed reached to the results; return all rows, those of a data set in its figures' order."""
    rows = read_results(path)
    earlier = {row["metric"]: row for row in rows if row["data"] == data.name}
    of_data = []
    for figure in data.figures:
        row = earlier.get(figure.name, {"by_seed": {}, "minutes_by_seed": {}})
        by_seed = row["by_seed"] | {str(seed): round(measured[figure.name], 5)}
        minutes_by_seed = row["minutes_by_seed"] | {str(seed): round(minutes, 2)}
        of_data.append(
            {
                "data": data.name,
                "metric": figure.name,
                "value": round(mean(by_seed.values()), 5),
                "seeds": sorted(map(int, by_seed)),
                "minutes": round(mean(minutes_by_seed.values()), 2),
                "published": figure.published,
                "goal": figure.goal,
                "by_seed": by_seed,
                "minutes_by_seed": minutes_by_seed,
            }
        )
    rows = sorted([row for row in rows if row["data"] != data.name] + of_data, key=lambda row: row["data"])
    with write_atomically(path) as stream:  # a line for each row: those who add rows do not meet
        stream.write(("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n").encode())
    return rows


def read_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the rows that were reached so far."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def page(rows: Rows) -> str:
    """Return ``docs/results.md``."""
    sets = data_sets()
    known = [sets[name] for name in dict.fromkeys(row["data"] for row in rows) if name in sets]
    remarks = [
        f"- **{data.name}** ([run file](../{data.run_file})){f': {data.remark}' if data.remark else ''}"
        for data in known
    ]
    tuned = _INTRODUCTION + "\n".join(map(_line, rows)) + "\n\n" + "\n".join(remarks) + "\n"
    return tuned + defaults_table.table(defaults_table.read_results(), rows)


def _line(row: Mapping[str, Any]) -> str:
    values = list(row["by_seed"].values())
    spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    shown = (
        row["data"],
        row["metric"],
        row["published"],
        "" if row["goal"] is None else f"≥ {row['goal']:.4g}",
        f"{row['value']:.4f}{spread}",
        ", ".join(map(str, row["seeds"])),
        row["minutes"],
    )
    return "| " + " | ".join(map(str, shown)) + " |"


def main() -> int:
    """Run what is asked for; return 1 when a goal is missed."""
    sets = data_sets()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder with a folder for each data set")
    parser.add_argument("--data", choices=list(sets), action="append", help="data set; all without one")
    parser.add_argument("--seed", type=int, action="append", help="seed; those of the data set without one")
    parser.add_argument("--scratch", type=Path, default=Path("build/quality"), help="folder of the runs")
    parser.add_argument("--threads", type=int, help="threads of a run; all CPUs without it")
    parser.add_argument("--again", action="store_true", help="measure seeds again that have finished")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    asked = parser.parse_args()
    if asked.page:
        PAGE.write_text(page(read_results()))
        return 0
    if asked.root is None:
        parser.error("name the folder with a folder for each data set: --root")
    for name in asked.data or sets:
        data = sets[name]
        missing = [file for file in data.files if not (asked.root / name / file).is_file()]
        if missing:
            print(f"{name}: left out, {asked.root / name} has no {', '.join(missing)}", file=sys.stderr)
            continue
        for seed in asked.seed or data.seeds:
            if not asked.again and _finished(data, seed):
                continue
            measured, minutes = measure(
                data, seed, asked.root.resolve(), asked.scratch.resolve(), asked.threads
            )
            PAGE.write_text(page(keep(data, seed, measured, minutes)))
            print(
                json.dumps({"data": name, "seed": seed, "minutes": round(minutes, 2), **measured}), flush=True
            )
    below = [row for row in read_results() if row["goal"] is not None and row["value"] < row["goal"]]
    for row in below:
        print(f"{row['data']} {row['metric']}: {row['value']}, wanted {row['goal']}", file=sys.stderr)
    return int(bool(below))


def _finished(data: DataSet, seed: int) -> bool:
    by_figure = {row["metric"]: row["by_seed"] for row in read_results() if row["data"] == data.name}
    return all(str(seed) in by_figure.get(figure.name, {}) for figure in data.figures)


if __name__ == "__main__":
    sys.exit(main())
