"""The search for compressed models: its time, a grid beside it, latencies measured anew, and kills.

    python -m benchmarks.compress_search --workspace W NAME [--version 1] [--trials 20] [--max-drop 0.5%]
        [--grid 200] [--kills 50] [--seconds 4] [--json]

Works on a copy of the workspace. Cases:

- ``search``: `graphbox compress NAME --trials N --max-drop D`, seconds of the whole command;
- ``chosen``: bytes of the version that the search chose, and the smallest that a random grid of ``--grid``
  recipes of the same methods finds within the same limit (0: no grid);
- ``p50``, ``p99``: figures of the report, and measured in a process of its own afterwards, for each version
  of the Pareto set; ratios to the original's of the same measurement are what a noisy machine leaves
  comparable;
- ``kills``: the command is killed with SIGKILL at random times until it was killed ``--kills`` times; counted
  are recipes that were tried twice, and trials of which size or quality differ from those of the search that
  was left alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphbox.artifact import Artifact
from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search import Space, Target, Workbench
from graphbox.config import parse_max_drop
from graphbox.deploy import open_model
from graphbox.deploy.bench import BatchLatency, bench_together
from graphbox.pipeline.stages.compress import quality_of
from graphbox.workspace import Workspace

_SHORTEST_S = 0.5
"""Before a kill; the longest is at first a quarter of the time that the search took."""
_LONGER = 1.05
"""Of the longest time after each kill, as the last measurement has to be done in one go."""


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    workspace: Path
    name: str
    version: int
    trials: int
    max_drop: str
    grid: int
    kills: int
    seconds: float
    as_json: bool


@dataclass(frozen=True)
class Figure:
    """One figure of a case."""

    case: str
    system: str
    value: float
    unit: str


def command(options: Options, workspace: Path) -> list[str]:
    """Return the search as a command line."""
    program = [sys.executable, "-m", "graphbox", "--workspace", str(workspace), "--json"]
    chosen = ["compress", options.name, "--version", str(options.version)]
    return [*program, *chosen, "--trials", str(options.trials), "--max-drop", options.max_drop]


def run_search(options: Options, workspace: Path) -> tuple[dict[str, Any], float]:
    """Run the search as a user does; return the report and its seconds."""
    began = time.monotonic()
    done = subprocess.run(command(options, workspace), check=True, capture_output=True)
    report: dict[str, Any] = json.loads(done.stdout)["compress"][options.name]["search"]
    return report, time.monotonic() - began


def space_of(trials: Sequence[Mapping[str, Any]], layers: Sequence[str]) -> Space:
    """Return the methods that a search tried, to be combined in all ways."""
    recipes = [trial["recipe"] for trial in trials if trial["state"] == "measured"]
    tables: dict[str, list[str]] = {}
    for recipe in recipes:
        for name in recipe["tables"]:
            tables.setdefault(name, ["float32"])
    for recipe in recipes:
        for name, codec in recipe["tables"].items():
            if codec not in tables[name]:
                tables[name].append(codec)
    return Space(
        tables={name: tuple(codecs) for name, codecs in tables.items()},
        dense=tuple(dict.fromkeys(recipe["dense"] for recipe in recipes)),
        layers=tuple(layers),
        max_neighbors=(None, *sorted({recipe["max_neighbors"] for recipe in recipes} - {None}, reverse=True)),
        kept_neurons=tuple(sorted({recipe["kept_neurons"] for recipe in recipes}, reverse=True)),
    )


def random_grid(space: Space, count: int) -> list[Recipe]:
    """Return distinct recipes, drawn evenly from all combinations."""
    random = np.random.default_rng(0)
    found: dict[str, Recipe] = {}
    for _ in range(50 * count):
        values = {name: known[random.integers(len(known))] for name, known in space.parameters.items()}
        recipe = space.recipe(values)
        found.setdefault(recipe.key, recipe)
        if len(found) == count:
            break
    return list(found.values())


def search_grid(options: Options, root: Path, space: Space, folder: Path) -> tuple[int, int]:
    """Try a grid; return how many recipes were measured, and the smallest bytes within the same limit."""
    with Workspace(root) as workspace:
        parent = workspace.model(options.name, options.version)
        quality = quality_of(workspace, parent)
        if quality.evaluate is None:
            raise SystemExit(f"expected a model that a run made, {options.name} comes from none")
        artifact, limits = Artifact.open(parent.path), Limits(max_drop=parse_max_drop(options.max_drop))
        with Workbench(
            artifact, folder / "models", Target(), quality.evaluate, quality.metric, quality.queries
        ) as workbench:
            original = workbench.try_recipe(Recipe(), "grid").metrics[quality.metric]
            tried = [workbench.try_recipe(recipe, "grid") for recipe in random_grid(space, options.grid)]
    measured = [trial for trial in tried if trial.state == "measured"]
    within = [trial for trial in measured if not limits.violations(trial.figures, quality.metric, original)]
    return len(measured), min(trial.size_bytes for trial in within)


def measured_anew(options: Options, workspace: Path, versions: Sequence[int]) -> dict[int, BatchLatency]:
    """Return latencies of single queries of versions, in turns, from a process of its own."""
    paths = {version: workspace / "models" / options.name / str(version) for version in versions}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_measured, paths, options.seconds).result()


def _measured(paths: Mapping[int, Path], seconds: float) -> dict[int, BatchLatency]:
    with ExitStack() as stack:
        models = {
            f"{version}": stack.enter_context(open_model(path, threads=1)) for version, path in paths.items()
        }
        reports = bench_together(models, (1,), seconds)
    return {version: reports[f"{version}"].batches[0] for version in paths}


def killed_search(options: Options, workspace: Path, longest_s: float) -> tuple[int, list[dict[str, Any]]]:
    """Kill the search at random times until it ends by itself; return the kills and its trials."""
    random = np.random.default_rng(1)
    kills = 0
    while True:
        process = subprocess.Popen(
            command(options, workspace), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            code = process.wait(_SHORTEST_S + (longest_s - _SHORTEST_S) * random.random())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            longest_s *= _LONGER
            continue
        if code:
            raise SystemExit(f"expected the search to end with exit code 0, received {code}")
        (log,) = (workspace / "compress" / options.name).glob(f"{options.version}-*/trials.jsonl")
        return kills, [json.loads(line) for line in log.read_text().splitlines()]


def figures_of(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what does not depend on the clock, by recipe."""
    return {
        json.dumps(trial["recipe"], sort_keys=True): [trial["state"], trial["size_bytes"], trial["metrics"]]
        for trial in trials
    }


def run(options: Options, folder: Path) -> Iterator[Figure]:
    """Measure all cases, one after the other."""
    untouched = folder / "workspace"
    shutil.copytree(options.workspace, untouched)
    shutil.rmtree(untouched / "compress", ignore_errors=True)
    searched = folder / "searched"
    shutil.copytree(untouched, searched)
    report, seconds = run_search(options, searched)
    trials = report["trials"]
    yield Figure("search", "graphbox", seconds, "s")
    yield Figure("search", "trials", len(trials), "trials")
    chosen = next(point for point in report["points"] if point["key"] == report["chosen"])
    yield Figure("chosen", "search", chosen["size_bytes"], "bytes")
    if options.grid:
        space = space_of(trials, list(report["layer_errors"]))
        measured, smallest = search_grid(options, searched, space, folder / "grid")
        yield Figure("chosen", f"grid of {measured}", smallest, "bytes")
    yield from latencies(options, searched, report)
    if options.kills:
        yield from kills(options, untouched, folder, trials, seconds)


def latencies(options: Options, workspace: Path, report: Mapping[str, Any]) -> list[Figure]:
    """Return latencies of the report and measured anew."""
    points = [point for point in report["points"] if point["version"] != options.version]
    anew = measured_anew(options, workspace, [options.version, *(point["version"] for point in points)])
    original = anew[options.version]
    figures = []
    for point in points:
        latency = point["latency"]
        for name in ("p50_ms", "p99_ms"):
            case = f"{name[:3]}/version {point['version']}"
            reported, again = latency[name], getattr(anew[point["version"]], name)
            figures += [
                Figure(case, "report", reported, "ms"),
                Figure(case, "anew", again, "ms"),
                Figure(case, "report / original", reported / latency[f"original_{name}"], "ratio"),
                Figure(case, "anew / original", again / getattr(original, name), "ratio"),
            ]
    return figures


def kills(
    options: Options, untouched: Path, folder: Path, expected: Sequence[Mapping[str, Any]], seconds: float
) -> list[Figure]:
    """Return what kills change."""
    wanted, count, repeated, different = figures_of(expected), 0, 0, 0
    number = 0
    while count < options.kills:
        number += 1
        workspace = folder / f"killed-{number}"
        shutil.copytree(untouched, workspace)
        killed, trials = killed_search(options, workspace, max(2 * _SHORTEST_S, seconds / 4))
        found = figures_of(trials)
        count += killed
        repeated += len(trials) - len(found)
        different += sum(found[key] != wanted[key] for key in found.keys() & wanted.keys())
        shutil.rmtree(workspace)
    return [
        Figure("kills", "killed", count, "times"),
        Figure("kills", "searches", number, "searches"),
        Figure("kills", "tried twice", repeated, "trials"),
        Figure("kills", "other size or quality", different, "trials"),
    ]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--max-drop", default="0.5%")
    parser.add_argument("--grid", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = Options(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder:
        for figure in run(options, Path(folder)):
            line = f"| {figure.case} | {figure.system} | {figure.value:,.4g} | {figure.unit} |"
            print(json.dumps(asdict(figure)) if options.as_json else line, flush=True)


if __name__ == "__main__":
    main()
