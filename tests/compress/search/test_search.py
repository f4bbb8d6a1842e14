"""Searches on a real model: within limits, repeatable, resumed after kill -9, refused with figures."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.compress.agreement import Agreement
from graphbox.compress.latency import Latency
from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search import (
    Budget,
    Found,
    RecipeTrialLog,
    Setting,
    Space,
    Target,
    Workbench,
    report_document,
    report_page,
    search,
)
from graphbox.config import parse_latency_limit, parse_max_drop
from graphbox.deploy import DeployedModel
from graphbox.errors import GateError, UnsupportedError, UsageError
from tests.artifact.sample_model import make_model, write_encoder

METRIC = "agreement"
SPACE = Space(
    tables=dict.fromkeys(("package", "tag", "target"), ("float32", "float16", "int8")),
    dense=("float32", "int8"),
)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("models")
    return write_encoder(folder / "sample" / "1", make_model(packages=300, tags=20))


def run(artifact: Artifact, folder: Path, limits: Limits, trials: int = 9, space: Space = SPACE) -> Found:
    """Search with agreement with the original as the quality."""
    folder.mkdir(exist_ok=True)
    made: list[Agreement] = []

    def evaluate(model: DeployedModel, part: str) -> Mapping[str, float]:
        made[:] = made or [Agreement(bench.original)]
        return made[0](model, part)

    bench = Workbench(artifact, folder / "models", Target("onnxruntime", seconds=0.02), evaluate, METRIC)
    with bench:
        return search(bench, space, limits, METRIC, RecipeTrialLog(folder / "trials.jsonl"), Budget(trials))


def test_the_smallest_model_within_the_drop_is_chosen(artifact: Artifact, tmp_path: Path) -> None:
    limits = Limits(max_drop=parse_max_drop("30%"))
    found = run(artifact, tmp_path / "search", limits, trials=12)
    assert len(found.trials) == 12
    assert found.original.metrics[METRIC] == 1.0
    assert found.chosen.size_bytes == min(trial.size_bytes for trial in found.points)
    assert found.chosen.size_bytes < found.original.size_bytes
    assert found.chosen.metrics[METRIC] >= 0.7
    assert not list((tmp_path / "search").glob("models*"))
    assert all(trial.state == "measured" for trial in found.trials)
    assert len({trial.recipe.key for trial in found.trials}) == 12
    assert [trial.source for trial in found.trials] == ["ladder"] * 7 + ["sampler"] * 5


def test_bounds_of_neighbors_are_tried_and_kept_close(artifact: Artifact, tmp_path: Path) -> None:
    space = Space(tables={}, max_neighbors=(None, 3, 2, 1))
    found = run(artifact, tmp_path / "search", Limits(max_drop=parse_max_drop("60%")), 4, space)
    by_bound = {trial.recipe.max_neighbors: trial for trial in found.trials}
    assert [by_bound[each].state for each in (None, 3, 2, 1)] == ["measured"] * 4
    sizes = [by_bound[each].parts_bytes["other"] for each in (None, 3, 2, 1)]
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert len({trial.metrics[METRIC] for trial in found.trials}) > 2
    with Workbench(artifact, tmp_path / "bench", Target("onnxruntime"), lambda *_: {}, METRIC) as bench:
        assert bench.neighbor_bounds((None, 100, 1)) == (None, 100)  # one neighbour changes embeddings


def test_fixed_methods_leave_out_trials_with_others(artifact: Artifact, tmp_path: Path) -> None:
    limits = Limits(max_drop=parse_max_drop("30%"))
    broad = run(artifact, tmp_path / "search", limits, trials=9)
    fixed = Space(tables=dict.fromkeys(("package", "tag", "target"), ("float16",)), dense=("float32", "int8"))
    found = run(artifact, tmp_path / "search", limits, trials=3, space=fixed)
    assert broad.chosen.recipe not in fixed
    assert found.chosen.recipe in fixed
    assert {trial.recipe.key for trial in found.trials if trial.recipe not in fixed} == {Recipe().key}
    assert {trial.recipe.dense for trial in found.trials if trial.recipe in fixed} == {"float32", "int8"}


def test_without_a_limit_of_quality_the_best_model_is_chosen(artifact: Artifact, tmp_path: Path) -> None:
    half = 9 * sum(record.bytes for record in artifact.manifest.files.values()) // 10
    found = run(artifact, tmp_path / "search", Limits(max_size_bytes=half))
    within = [trial for trial in found.trials if trial.size_bytes <= half]
    assert found.chosen.size_bytes <= half
    assert found.chosen.metrics[METRIC] == max(trial.metrics[METRIC] for trial in within)


def test_infeasible_limits_name_what_binds_and_the_nearest_model(artifact: Artifact, tmp_path: Path) -> None:
    limits = Limits(max_size_bytes=1000, max_drop=parse_max_drop(0.5))
    with pytest.raises(
        GateError, match=r"none of 9 tried is; .* exceeds --max-size 1000 \(it has \d+\)"
    ) as refused:
        run(artifact, tmp_path / "search", limits)
    assert "exceed --max-size alone" in refused.value.message
    assert refused.value.exit_code == 6


def test_other_limits_begin_with_what_is_known(artifact: Artifact, tmp_path: Path) -> None:
    run(artifact, tmp_path / "search", Limits(max_drop=parse_max_drop(0.5)), trials=6)
    before = (tmp_path / "search" / "trials.jsonl").read_bytes()
    run(artifact, tmp_path / "search", Limits(max_drop=parse_max_drop(0.2)), trials=6)
    assert (tmp_path / "search" / "trials.jsonl").read_bytes() == before


def test_a_minimum_of_an_unknown_metric_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of the measured metrics"):
        run(artifact, tmp_path / "search", Limits(minimums={"recall@20": 0.4}))


KILLED = """
import json, sys
from pathlib import Path
from graphbox.artifact import Artifact
from graphbox.compress.latency import Latency
from graphbox.compress.limits import Limits
from graphbox.config import parse_latency_limit, parse_max_drop
from tests.compress.search.test_search import run
folder = Path(sys.argv[2])
limits = Limits(max_drop=parse_max_drop(0.5))
found = run(Artifact.open(sys.argv[1]), folder, limits, trials=6)  # the ladder: proposals follow latencies
print(json.dumps([trial.recipe.key for trial in found.trials]))
"""


def test_a_search_that_is_killed_continues_and_tries_the_same(artifact: Artifact, tmp_path: Path) -> None:
    whole = run(artifact, tmp_path / "whole", Limits(max_drop=parse_max_drop(0.5)), trials=6)
    folder = tmp_path / "killed"
    folder.mkdir()
    command = [sys.executable, "-c", KILLED, str(artifact.path), str(folder)]
    log = folder / "trials.jsonl"
    rng = np.random.default_rng(0)
    for _ in range(3):
        known = len(log.read_bytes().splitlines()) if log.exists() else 0
        wanted = min(known + int(rng.integers(1, 3)), 5)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (len(log.read_bytes().splitlines()) if log.exists() else 0) < wanted:
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = log.read_bytes().splitlines()
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert log.read_bytes().splitlines()[: len(finished)] == finished
    assert json.loads(result.stdout) == [trial.recipe.key for trial in whole.trials]


def test_the_report_has_every_trial_and_needs_nothing_else(artifact: Artifact, tmp_path: Path) -> None:
    limits = Limits(max_size_bytes=10**9, max_drop=parse_max_drop("30%"))
    found = run(artifact, tmp_path / "search", limits, trials=4)
    setting = Setting("<sample>", 1, METRIC, limits, "graphbox compress sample", "here")
    versions = {trial.recipe.key: number for number, trial in enumerate(found.points, 1)}
    document = report_document(found, setting, versions, {})
    assert json.loads(json.dumps(document)) == document
    assert document["limits"] == ["--max-size 1000000000B", "--max-drop 30%"]
    page = report_page(document)
    assert page.count("<circle") == 4
    assert "&lt;sample&gt;" in page
    assert "<script" not in page
    assert "http" not in page


def test_recipes_that_do_not_suit_are_noted_and_passed_over(tmp_path: Path) -> None:
    """Rows beyond float16 can be held by float32 alone."""
    sample = make_model(packages=60, tags=8)
    sample.target[3, 0] = 1e6
    artifact = write_encoder(tmp_path / "sample" / "1", sample)
    space = Space(tables={"target": ("float32", "float16", "int8")})
    found = run(artifact, tmp_path / "search", Limits(), space=space, trials=3)
    states = {trial.recipe.tables.get("target", "float32"): trial for trial in found.trials}
    assert states["float32"].state == "measured"
    for precision in ("float16", "int8"):
        assert states[precision].state == "refused"
        assert "expected elements within 65504" in str(states[precision].reason)
    assert found.chosen.recipe == Recipe()


def test_a_metric_that_is_no_number_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    """Of a tried model its trial is, of the original the search."""
    worth = {"float32": 0.5}

    def evaluate(model: DeployedModel, _part: str) -> Mapping[str, float]:
        codec = model.manifest.tables["target"].codec
        return {METRIC: worth.get(codec, math.nan)}

    tmp_path.joinpath("search").mkdir()
    space = Space(tables={"target": ("float32", "int8")})
    log = tmp_path / "search" / "trials.jsonl"
    bench = Workbench(artifact, tmp_path / "models", Target("onnxruntime", seconds=0.02), evaluate, METRIC)
    with bench:
        found = search(bench, space, Limits(), METRIC, RecipeTrialLog(log), Budget(2))
        assert [trial.state for trial in found.trials] == ["measured", "refused"]
        worth.clear()
        log.unlink()
        with pytest.raises(
            UnsupportedError, match="cannot be measured as it is: expected a finite agreement"
        ):
            search(bench, space, Limits(), METRIC, RecipeTrialLog(log), Budget(2))
    assert not log.exists()


COARSE = Space(tables={}, dense=("float32", "int4_weights"), can_tune=True)


def open_bench(artifact: Artifact, folder: Path) -> Workbench:
    """Return a workbench with agreement as the quality."""

    def evaluate(model: DeployedModel, part: str) -> Mapping[str, float]:
        return Agreement(bench.original)(model, part)

    bench = Workbench(artifact, folder, Target("onnxruntime", seconds=0.02), evaluate, METRIC)
    return bench


def test_what_misses_the_quality_is_tried_with_fine_tuning(artifact: Artifact, tmp_path: Path) -> None:
    found = run(artifact, tmp_path / "search", Limits(max_drop=parse_max_drop(0.0)), trials=9, space=COARSE)
    original, rounded, tuned = found.trials
    assert (rounded.recipe, rounded.source) == (Recipe("int4_weights"), "ladder")
    assert (tuned.recipe, tuned.source) == (Recipe("int4_weights", tuned=True), "tuning")
    assert tuned.state == "measured"
    assert rounded.metrics[METRIC] < tuned.metrics[METRIC] < original.metrics[METRIC]
    assert tuned.size_bytes == pytest.approx(rounded.size_bytes, rel=0.01)


@pytest.mark.parametrize("limits", [Limits(max_drop=parse_max_drop("90%")), Limits(max_size_bytes=20_000)])
def test_what_misses_no_limit_of_quality_alone_is_left_to_the_sampler(
    limits: Limits, artifact: Artifact, tmp_path: Path
) -> None:
    with nullcontext() if limits.max_size_bytes is None else pytest.raises(GateError):
        run(artifact, tmp_path / "search", limits, trials=9, space=COARSE)
    trials = list(RecipeTrialLog(tmp_path / "search" / "trials.jsonl"))
    assert [(trial.recipe.tuned, trial.source) for trial in trials[2:]] == [(True, "sampler")]


def test_a_tuned_model_is_built_again_with_the_same_bytes(artifact: Artifact, tmp_path: Path) -> None:
    """By another process, too, which has trained nothing yet."""

    def digest() -> str:
        bench = open_bench(artifact, tmp_path / "models")
        with bench, bench.built(Recipe("int4_weights", tuned=True), "model") as built:
            assert built.manifest.lineage.steps[-3] == "fine-tuned"
            return built.manifest.files["model.onnx"].sha256

    assert digest() == digest()


def test_tables_beside_a_tuned_part_do_not_train_it_again(artifact: Artifact, tmp_path: Path) -> None:
    with open_bench(artifact, tmp_path / "models") as bench:
        bench.try_recipe(Recipe("int4_weights", tuned=True), "sampler")
        (tuned,) = bench.parts.tuned.values()
        beside = bench.try_recipe(Recipe("int4_weights", {"target": "int8"}, tuned=True), "sampler")
        assert beside.state == "measured"
        (again,) = bench.parts.tuned.values()
        assert again is tuned


def test_fine_tuning_that_gains_nothing_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    with open_bench(artifact, tmp_path / "models") as bench:
        assert bench.can_tune
        refused = bench.try_recipe(Recipe(tuned=True), "sampler")
    assert refused.state == "refused"
    assert "expected a smaller error of the outputs after fine-tuning, it went from 0 to" in str(
        refused.reason
    )


def test_models_with_few_queries_are_not_fine_tuned(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "sample" / "1", make_model(packages=60, tags=8))
    with open_bench(artifact, tmp_path / "models") as bench:
        assert not bench.can_tune
        refused = bench.try_recipe(Recipe("int4_weights", tuned=True), "sampler")
    assert "at least 64 queries to be trained on, received 60" in str(refused.reason)


class Timed(Workbench):
    """A workbench whose latencies are chosen: relative to the original, by the method of the ONNX part."""

    factors: Mapping[str, float]
    disturbed = 1.0
    """Factor of the median and of all but one repeat when a model is measured first, alone."""

    def latencies(
        self, models: Mapping[str, DeployedModel], seconds: float | None = None
    ) -> dict[str, Latency]:
        found = {}
        for key, model in models.items():
            onnx = model.manifest.onnx
            factor = self.factors[onnx.precision if onnx is not None else "float32"]
            worse = factor * (self.disturbed if seconds is None else 1.0)
            found[key] = Latency(worse, factor, worse, 2 * worse, 1.0, 2.0)
        return found


def timed_search(
    artifact: Artifact, folder: Path, limits: Limits, factors: Mapping[str, float], disturbed: float = 1.0
) -> Found:
    """Search with chosen latencies by precision of the ONNX part."""
    folder.mkdir(exist_ok=True)

    def evaluate(model: DeployedModel, part: str) -> Mapping[str, float]:
        return Agreement(bench.original)(model, part)

    bench = Timed(artifact, folder / "models", Target("onnxruntime"), evaluate, METRIC)
    bench.factors, bench.disturbed = factors, disturbed
    with bench:
        return search(bench, SPACE, limits, METRIC, RecipeTrialLog(folder / "trials.jsonl"), Budget(9))


def test_with_a_limit_of_latency_parts_are_tried_beside_a_method_that_keeps_it(
    artifact: Artifact, tmp_path: Path
) -> None:
    limits = Limits(max_p50=parse_latency_limit("100%", ""), max_drop=parse_max_drop("30%"))
    factors = {"float32": 1.0, "int8_dynamic": 1.08}
    found = timed_search(artifact, tmp_path / "slower", limits, factors)
    assert [trial.recipe for trial in found.trials[:2]] == [Recipe(), Recipe("int8")]
    assert {trial.recipe.dense for trial in found.trials[2:5]} == {"float32"}
    assert found.chosen.recipe.dense == "float32"
    assert found.chosen.size_bytes == min(each.size_bytes for each in found.points)
    faster = timed_search(artifact, tmp_path / "faster", limits, {"float32": 1.0, "int8_dynamic": 0.9})
    assert {trial.recipe.dense for trial in faster.trials[2:5]} == {"int8"}


def test_a_disturbed_measurement_is_repeated_before_the_choice(artifact: Artifact, tmp_path: Path) -> None:
    limits = Limits(max_p50=parse_latency_limit("100%", ""), max_drop=parse_max_drop("30%"))
    factors = {"float32": 1.0, "int8_dynamic": 1.08}
    found = timed_search(artifact, tmp_path / "search", limits, factors, disturbed=1.4)
    assert found.chosen.recipe.dense == "float32"
    assert found.chosen.size_bytes < found.original.size_bytes
    assert found.chosen.latency is not None
    assert found.chosen.latency.ratio("p50") == 1.0
    assert {trial.recipe.dense for trial in found.rejected} == set()  # int8 is above in all repeats
    (tried,) = [trial for trial in found.trials if trial.recipe == found.chosen.recipe]
    assert tried == found.chosen


def test_a_limit_of_latency_that_nothing_keeps_names_the_ratio(artifact: Artifact, tmp_path: Path) -> None:
    limits = Limits(max_p50=parse_latency_limit("50%", ""), max_drop=parse_max_drop("30%"))
    with pytest.raises(
        GateError, match=r"none of 9 tried is.* exceeds --max-p50 50% \(it has 90%\)"
    ) as refused:
        timed_search(artifact, tmp_path / "search", limits, {"float32": 1.0, "int8_dynamic": 0.9})
    assert "exceed --max-p50 alone" in refused.value.message
