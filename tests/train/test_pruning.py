"""Trials of a search that end early: the rule beside plain NumPy, searches, and what survives a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig, Metapath2VecConfig
from graphbox.graph import Graph
from graphbox.train import fit, load_outcome, make_split
from graphbox.train.choosing import pruning
from graphbox.train.choosing.choose import Settled
from graphbox.train.choosing.pruning import MedianRule, Reports, curve_of
from graphbox.train.choosing.trials import SettingsTrialLog, key_of
from graphbox.train.fit import load_settled


def random_reports(generator: np.random.Generator) -> Reports:
    """Return reports of a trial of random length and frequency, some of which are no number."""
    epochs, every = int(generator.integers(1, 60)), int(generator.integers(1, 9))
    measured = range(every, epochs + 1, every)
    costs = np.round(generator.normal(size=len(measured)), 1)  # rounded, so that some are equal
    costs[generator.random(len(measured)) < 0.1] = np.nan
    return [(epoch / epochs, float(cost)) for epoch, cost in zip(measured, costs, strict=True)]


def exceeded(reports: Reports, finished: list[Reports]) -> float | None:
    """Return what :meth:`MedianRule.exceeded` should."""
    if len(reports) < 3 or reports[-1][0] < 0.1 or reports[-1][0] >= 1:
        return None
    bests = []
    for other in finished:
        until = np.array([cost for share, cost in other if share <= reports[-1][0]])
        if np.isfinite(until).any():
            bests.append(np.nanmin(until))
    costs = np.array([cost for _, cost in reports])
    if len(bests) < 3 or not np.isfinite(costs).any():
        return None
    return float(np.median(bests)) if np.nanmin(costs) > np.median(bests) else None


class TestRule:
    def test_it_is_that_of_plain_numpy_on_random_curves(self) -> None:
        generator = np.random.default_rng(0)
        ended = 0
        for _ in range(500):
            finished = [random_reports(generator) for _ in range(generator.integers(0, 8))]
            rule = MedianRule([curve_of(each) for each in finished])
            reports = random_reports(generator)
            for count in range(len(reports) + 1):
                wanted = exceeded(reports[:count], finished)
                assert rule.exceeded(reports[:count]) == wanted
                ended += wanted is not None
        assert ended > 100

    def test_a_trial_as_good_as_the_median_goes_on(self) -> None:
        rule = MedianRule([((0.1, cost),) for cost in (-0.5, -0.6, -0.7)])
        worse, equal = [(share, -0.59) for share in (0.1, 0.2, 0.3)], [(0.1, -0.6), (0.2, 0.0), (0.3, 0.0)]
        assert rule.exceeded(worse) == -0.6
        assert rule.exceeded(equal) is None

    def test_a_trial_that_reports_nothing_goes_on(self) -> None:
        rule = MedianRule([((0.1, -1.0),)] * 5)
        assert rule.exceeded([]) is None
        assert rule.exceeded([(share, float("nan")) for share in (0.1, 0.2, 0.3, 0.4)]) is None

    def test_trials_are_compared_at_the_same_share_of_their_epochs(self) -> None:
        # The others learn for ten times as long, or stopped early: each had its 0.6 in the first half.
        others = [((0.05, -0.3), (0.5, -0.6), (0.9, -0.8)), ((0.2, -0.6),), ((0.4, -0.6), (0.6, -0.9))]
        rule = MedianRule(others)
        assert rule.exceeded([(0.1, -0.4), (0.3, -0.5), (0.5, -0.55)]) == -0.6
        assert rule.exceeded([(0.1, -0.4), (0.3, -0.5), (0.5, -0.65)]) is None
        assert rule.exceeded([(0.1, -0.4), (0.15, -0.5), (0.19, -0.1)]) is None  # one had none by then


CONFIG = GraphNetworkConfig(
    kind="gnn",
    task="topic",
    dim=8,
    epochs=24,
    validate_every=2,
    patience=None,
    relations=(("item", "needs", "item"),),
    features={"item": ("size", "kept")},
    embeddings=("item",),
    auto=("layer", "layers"),
    tune=3600.0,  # the values run out first
)


def search(graph: Graph, task: ClassifyTaskConfig, folder: Path, **options: Any) -> Settled:
    task = task.model_copy(update={"validation_fraction": 0.5})
    settings = {"config": CONFIG, "seed": 3, "threads": 1, **options}
    fit(graph, make_split(graph, task, 0), name="net", task=task, run_folder=folder, **settings)
    settled = load_settled(folder, "net")
    assert settled is not None
    return settled


def log_of(folder: Path) -> list[dict[str, Any]]:
    """Return the trials of a search without their times."""
    log = SettingsTrialLog(folder / "choices" / "net" / "trials.jsonl")
    return [{**vars(trial), "seconds": 0.0} for trial in log]


def of_state(folder: Path, state: str) -> list[dict[str, Any]]:
    return [trial for trial in log_of(folder) if trial["state"] == state]


@pytest.fixture(scope="module")
def searched(
    graph: Graph, classify_task: ClassifyTaskConfig, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    search(graph, classify_task, folder)
    return folder


class TestSearch:
    def test_poor_trials_end_early_and_the_winner_is_the_same(
        self,
        graph: Graph,
        classify_task: ClassifyTaskConfig,
        searched: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(pruning, "_FINISHED_TRIALS", 10**9)
        whole = search(graph, classify_task, tmp_path)
        assert {each["state"] for each in whole.trials} == {"measured"}
        settled, pruned = load_settled(searched, "net"), of_state(searched, "pruned")
        assert settled is not None
        assert settled.settings == whole.settings
        assert load_outcome(searched, "net").best_value == load_outcome(tmp_path, "net").best_value
        ended = len(settled.trials) - len(pruned)
        assert settled.why.startswith(f"best accuracy of {ended}, {len(pruned)} more pruned: ")
        to_their_end = {key_of(each["settings"]): each for each in log_of(tmp_path)}
        assert len(pruned) >= 3
        for trial in pruned:
            other = to_their_end[key_of(trial["settings"])]
            assert trial["source"] == "search"
            assert trial["value"] < trial["median"]
            assert 3 * 2 <= trial["epochs"] < other["epochs"] == 24  # measured every other epoch
            # It did the same until it was ended, and was no better than the winner after.
            share = trial["epochs"] / 24
            assert trial["curve"] == tuple(each for each in other["curve"] if each[0] <= share)
            assert trial["cost"] == trial["curve"][-1][1] == -trial["value"]
            assert other["value"] < settled.trials[0]["value"]
        assert all("curve" not in trial for trial in settled.trials)
        assert not list((searched / "choices" / "net").glob("trial-*"))  # the winner's became the model's

    def test_medians_are_those_of_the_trials_before(self, searched: Path) -> None:
        trials = log_of(searched)
        for number, trial in enumerate(trials):
            if trial["state"] != "pruned":
                continue
            share = trial["epochs"] / 24
            bests = [
                max(-cost for at, cost in before["curve"] if at <= share)
                for before in trials[:number]
                if before["state"] == "measured"
            ]
            assert len(bests) >= 3
            assert trial["median"] == np.median(bests)

    def test_killed_in_trials_that_are_pruned_it_ends_the_same(
        self, graph: Graph, searched: Path, classify_task: ClassifyTaskConfig, tmp_path: Path
    ) -> None:
        trials = log_of(searched)
        first = next(number for number, trial in enumerate(trials) if trial["state"] == "pruned")
        measured = sum(trial["epochs"] // 2 for trial in trials[:first])
        for entered in (measured + 2, 2):  # within the first pruned trial, then where it would be pruned
            code = _SCRIPT.format(graph=graph.path, folder=tmp_path, entered=entered)
            ended = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, env=dict(os.environ), check=False)
            assert ended.returncode == -signal.SIGKILL
            assert len(log_of(tmp_path)) == first
            assert (tmp_path / "choices" / "net" / f"trial-{first}").is_dir()
        search(graph, classify_task, tmp_path, resume=True)
        assert log_of(tmp_path) == trials
        assert load_settled(tmp_path, "net").settings == load_settled(searched, "net").settings  # type: ignore[union-attr]

    def test_trials_that_measure_nothing_are_never_pruned(
        self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path
    ) -> None:
        walks = Metapath2VecConfig(
            kind="metapath2vec",
            task="topic",
            metapaths=((("item", "needs", "item"), ("item", "needs_back", "item")),),
            dim=8,
            epochs=3,
            auto=("walk_length", "window"),
            tune=3600.0,
        )
        settled = search(graph, classify_task, tmp_path, config=walks)
        assert len(settled.trials) >= 5
        assert {trial["state"] for trial in settled.trials} == {"measured"}
        assert all(trial["curve"] == () for trial in log_of(tmp_path))


_ROOT = Path(__file__).parents[2]
_SCRIPT = """
import os, signal
from pathlib import Path
import tests.train.test_pruning as case
from graphbox.config import ClassifyTaskConfig
from graphbox.graph import Graph
from graphbox.train.network.classify import GraphNetworkTrainer
left = {entered}
measured = GraphNetworkTrainer.measured
def last(self):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return measured(self)
GraphNetworkTrainer.measured = last
task = ClassifyTaskConfig(
    kind="classify", node_type="item", label="topic", group=("item", "part_of", "group")
)
case.search(Graph.open("{graph}"), task, Path("{folder}"), resume=True)
"""
