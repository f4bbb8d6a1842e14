"""Defaults on public data: the templates of `graphbox init`, untouched, beside the tuned run files.

``make quality-defaults ROOT=folder`` runs each case of ``benchmarks/quality_data/templates.py`` whose files
are there, ``TUNE=10min`` with a search; ``DATA=cora SEED=1`` one. A run that was stopped resumes; one that
has finished is not run again without ``--again``. Writes ``benchmarks/results/quality_defaults.json`` and the
table in ``docs/results.md``. Prints a JSON line for each run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import quality
from benchmarks.quality_data import data_sets
from benchmarks.quality_data.defaults_table import GOAL, RESULTS, read_results
from benchmarks.quality_data.protocol import Figure
from benchmarks.quality_data.templates import CASES, Case, overrides_of
from graphbox.durable import write_atomically


def measure(
    case: Case, seed: int, root: Path, scratch: Path, threads: int | None, tune: str | None
) -> tuple[float, float]:
    """Run a case with one seed, or resume it; return its figure and the CPU minutes of this process."""
    data = data_sets()[case.data]
    of_template = replace(
        data,
        overrides=overrides_of(case, data, tune),
        figures=tuple(each for each in data.figures if each.name == case.figure or _is_measured(each, case)),
    )
    began = time.process_time()
    measured, _ = quality.measure(of_template, seed, root, scratch, threads)
    return measured[case.figure], (time.process_time() - began) / 60


def _is_measured(figure: Figure, case: Case) -> bool:
    """Return whether a figure is one of the case's model, or is computed without the report."""
    return figure.source is None or figure.source[1] == case.model


def keep(
    case: Case, seed: int, tune: str | None, value: float, minutes: float, path: Path = RESULTS
) -> list[dict[str, Any]]:
    """Add what a seed reached to the results; return all rows."""
    rows = read_results(path)
    same = [row for row in rows if (row["data"], row["tune"]) == (case.data, tune)]
    row = same[0] if same else {"data": case.data, "tune": tune, "by_seed": {}, "minutes_by_seed": {}}
    row = {
        **row,
        "template": case.template or case.kind,
        "metric": case.figure,
        "best": case.best,
        "by_seed": row["by_seed"] | {str(seed): round(value, 5)},
        "minutes_by_seed": row["minutes_by_seed"] | {str(seed): round(minutes, 2)},
    }
    others = [each for each in rows if (each["data"], each["tune"]) != (case.data, tune)]
    rows = sorted([*others, row], key=lambda each: (each["data"], each["tune"] or ""))
    with write_atomically(path) as stream:
        stream.write(("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n").encode())
    return rows


def main() -> int:
    """Run what is asked for; return 1 when a template is below the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.data for case in CASES]
    parser.add_argument("--root", type=Path, help="folder with a folder for each data set")
    parser.add_argument("--data", choices=names, action="append", help="data set; all without one")
    parser.add_argument("--seed", type=int, action="append", help="seed; those of the data set without one")
    parser.add_argument("--tune", help="time for a search in each run, like 10min")
    parser.add_argument(
        "--scratch", type=Path, default=Path("build/quality-defaults"), help="folder of the runs"
    )
    parser.add_argument("--threads", type=int, help="threads of a run; all CPUs without it")
    parser.add_argument("--again", action="store_true", help="measure seeds again that have finished")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    asked = parser.parse_args()
    if asked.page:
        quality.PAGE.write_text(quality.page(quality.read_results()))
        return 0
    if asked.root is None:
        parser.error("name the folder with a folder for each data set: --root")
    for case in CASES:
        data = data_sets()[case.data]
        missing = [file for file in data.files if not (asked.root / case.data / file).is_file()]
        if missing or (asked.data and case.data not in asked.data):
            continue
        for seed in asked.seed or data.seeds:
            if not asked.again and _finished(case, seed, asked.tune):
                continue
            scratch = asked.scratch.resolve() / (asked.tune or "templates")
            value, minutes = measure(case, seed, asked.root.resolve(), scratch, asked.threads, asked.tune)
            keep(case, seed, asked.tune, value, minutes)
            quality.PAGE.write_text(quality.page(quality.read_results()))
            row = {"data": case.data, "seed": seed, "tune": asked.tune, "minutes": round(minutes, 2)}
            print(json.dumps({**row, case.figure: value, "ratio": round(value / case.best, 4)}), flush=True)
    below = [row for row in read_results() if mean(row["by_seed"].values()) < GOAL * row["best"]]
    for row in below:
        print(f"{row['data']}: {mean(row['by_seed'].values()):.4f} of {row['best']}", file=sys.stderr)
    return int(bool(below))


def _finished(case: Case, seed: int, tune: str | None) -> bool:
    rows = [row for row in read_results() if (row["data"], row["tune"]) == (case.data, tune)]
    return any(str(seed) in row["by_seed"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
