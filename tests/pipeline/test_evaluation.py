"""The stage `evaluate`: progress, stopping, resuming, and samples of queries."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import InterruptedRunError, UsageError
from graphbox.metrics import RankingQueries, Watch, evaluate_ranking
from graphbox.pipeline import Silence, Stop, continue_run, stop_on_signals
from graphbox.workspace import Workspace
from tests.cli.conftest import finished as finished  # noqa: PLC0414 - a fixture

CLOSED_FORMS = ("gfcf", "ials", "ease")


@pytest.fixture
def workspace(finished: Path, tmp_path: Path) -> Workspace:
    """A copy of the workspace of a finished run."""
    shutil.copytree(finished / "workspace", tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


class Steps(Silence):
    """Notes what is measured; sends this process a signal at the first figures of one measurement."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.measured: dict[str, tuple[float, float | None, str]] = {}
        self._stop_at = stop_at

    def step(
        self,
        what: str,
        done: float,
        total: float | None,
        unit: str = "",
        values: Mapping[str, float] | None = None,
    ) -> None:
        self.measured[what] = (done, total, unit)
        if what == self._stop_at and done:
            os.kill(os.getpid(), signal.SIGTERM)


def evaluate(workspace: Workspace, progress: Steps, *overrides: str) -> Mapping[str, object]:
    stop = Stop()
    report = continue_run(
        "last", workspace, until="evaluate", again=True, overrides=overrides, progress=progress, stop=stop
    )
    return report.document()


def test_every_model_and_baseline_has_progress(workspace: Workspace) -> None:
    steps = Steps()
    evaluate(workspace, steps)
    of_nodes = ["majority", "neighbors_vote", "label_propagation", "sgc"]
    baselines = ["popular", "popular_within_category", "adamic_adar", "personalized_pagerank", "user_knn"]
    assert list(steps.measured) == [
        *(f"{name} of field" for name in of_nodes),
        *(f"{name} of cite" for name in (*baselines, *CLOSED_FORMS)),
        "walk",
        "sage",
    ]
    queries = steps.measured["sage"][1]
    assert queries
    for name in ("user_knn of cite", "personalized_pagerank of cite", "sage"):
        assert steps.measured[name] == (queries, queries, "queries")


def test_a_signal_stops_and_what_was_measured_is_kept(workspace: Workspace) -> None:
    before = workspace.run("last")
    told: list[str] = []
    steps = Steps("user_knn of cite")
    with (
        stop_on_signals(told.append) as stop,
        pytest.raises(InterruptedRunError, match=r"`evaluate`: measuring user_knn of cite, \d+ of \d+ done"),
    ):
        continue_run("last", workspace, until="evaluate", again=True, progress=steps, stop=stop)
    assert told == ["stopping: keeping the metrics measured so far (Ctrl-C again to stop at once)"]
    assert workspace.run("last") == before
    rest = Steps()
    report = evaluate(workspace, rest)
    left = [f"{name} of cite" for name in ("user_knn", *CLOSED_FORMS)]
    assert list(rest.measured) == [*left, "walk", "sage"]
    assert report["metrics"] == before.report["metrics"]
    assert report["baselines"] == before.report["baselines"]
    everything = Steps()
    evaluate(workspace, everything)
    assert len(everything.measured) > len(rest.measured)


def test_only_what_depends_on_a_changed_setting_is_measured(workspace: Workspace) -> None:
    before = workspace.run("last").report
    steps = Steps()
    report = evaluate(workspace, steps, "tasks.cite.baselines=[popular,gfcf]")
    assert list(steps.measured) == []
    assert list(report["baselines"]["cite"]) == ["popular", "gfcf"]  # type: ignore[index]
    assert report["metrics"] == before["metrics"]
    steps = Steps()
    report = evaluate(workspace, steps, "tasks.cite.k=3")
    assert list(steps.measured) == ["popular of cite", "gfcf of cite", "sage"]
    assert "recall@3" in report["metrics"]["cite"]["sage"]  # type: ignore[index]


def test_baselines_are_bounded_and_models_are_not(workspace: Workspace) -> None:
    before = workspace.run("last").report
    every = before["metrics"]["cite"]["sage"]["queries"]
    report = evaluate(workspace, Steps(), "tasks.cite.baseline_queries=4")
    assert report["metrics"] == before["metrics"]
    for metrics in report["baselines"]["cite"].values():  # type: ignore[index]
        assert (metrics["queries"], metrics["queries_total"]) == (4, every)
        assert "coverage@5" not in metrics
    again = evaluate(workspace, Steps())
    assert again["baselines"] == report["baselines"]
    lifted = evaluate(workspace, Steps(), "tasks.cite.baseline_queries=all")
    assert lifted["baselines"] == before["baselines"]


def test_a_model_that_is_not_there_leaves_the_run_finished(workspace: Workspace) -> None:
    before = workspace.run("last")
    shutil.rmtree(before.path / "trained" / "sage")
    with pytest.raises(UsageError, match="there is no trained model `sage`"):
        evaluate(workspace, Steps())
    assert replace(workspace.run("last"), heartbeat=before.heartbeat) == before


@pytest.mark.parametrize("threads", [1, 3])
def test_a_check_ends_a_ranking_between_blocks(threads: int) -> None:
    count = 400
    every = np.arange(count, dtype=np.int64)
    queries = RankingQueries(every, np.arange(count + 1), every, np.zeros(count + 1, np.int64), every[:0])
    stop, scored = Stop(), []

    def score(block: np.ndarray) -> np.ndarray:
        scored.append(len(block))
        if len(scored) == 2 * threads:
            stop.request()
        return np.zeros((len(block), count), np.float32)

    with pytest.raises(InterruptedRunError):
        evaluate_ranking(
            score, queries, every, k=1, block_rows=4, threads=threads, watch=Watch(check=stop.check)
        )
    assert len(scored) < 4 * threads
