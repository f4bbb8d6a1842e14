"""The table of defaults: figures of templates beside those of tuned run files and the best published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.quality_data.templates import CASES, ORIGINS

__all__ = ["GOAL", "RESULTS", "read_results", "table"]

RESULTS = Path(__file__).parents[1] / "results" / "quality_defaults.json"
GOAL = 0.97
"""Share of the best published figure that a template is to reach."""

Rows = Sequence[Mapping[str, Any]]

_INTRODUCTION = f"""
## Defaults

What a user meets first: the models of the templates of `graphbox init`, untouched, under the same protocols.
`tune: 10min` is the same with a search. The ratio is to the best published figure, or where nothing is
published to what the run file above reaches; wanted are {GOAL}, in at most twice the minutes of the run file.
Settings that the data chooses are chosen anew for each seed, on the validation part; the test part is
measured once, with what was chosen. CPU minutes are those of one run with everything in it; beside them the
minutes of the run file, from the table above.

`make quality-defaults ROOT=folder` measures again (`benchmarks/quality_defaults.py`), with `TUNE=10min` after
a search. Searches are of the first seed, in one thread and beside other programs: in ten minutes they tried
424 settings on Cora, and one or two on Gowalla, WN18RR and lastfm-hin.

| data | template | figure | best | reached | ratio | seeds | CPU minutes | run file | `tune` | ratio |
|---|---|---|---|---|---|---|---|---|---|---|
"""

_ORIGINS = """
Where chosen defaults come from. None was chosen on data that it is reported on, or the choice is the same
without it. The test parts of cora and imdb were printed while the comparison was made; nothing was chosen by
them. Sets without a row are not measured yet.

| kind | setting | value | chosen on | by |
|---|---|---|---|---|
"""


def read_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the rows that were reached so far."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def table(rows: Rows, tuned: Rows) -> str:
    """Return the part of ``docs/results.md`` on defaults.

    Args:
        rows: what templates reached.
        tuned: rows of ``quality.json``, for the minutes of the run files.
    """
    minutes = {(row["data"], row["metric"]): row["minutes"] for row in tuned}
    sources = {case.data: case.source for case in CASES}
    plain = [row for row in rows if row["tune"] is None]
    searched = {row["data"]: row for row in rows if row["tune"] is not None}
    lines = []
    for row in plain:
        value = mean(row["by_seed"].values())
        other = searched.get(row["data"])
        found = None if other is None else mean(other["by_seed"].values())
        shown = (
            row["data"],
            f"`{row['template']}`",
            row["metric"],
            f"{row['best']:.4g} ({sources[row['data']]})",
            f"{value:.4f}",
            f"{value / row['best']:.3f}",
            ", ".join(row["by_seed"]),
            f"{mean(row['minutes_by_seed'].values()):.2f}",
            minutes.get((row["data"], row["metric"]), ""),
            "" if found is None else f"{found:.4f}",
            "" if found is None else f"{found / row['best']:.3f}",
        )
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    origins = [
        f"| `{each.kind}` | {each.setting} | {each.value} | {', '.join(each.chosen_on)} | {each.command} |"
        for each in ORIGINS
    ]
    return _INTRODUCTION + "\n".join(lines) + "\n" + _ORIGINS + "\n".join(origins) + "\n"
