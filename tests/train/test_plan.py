"""Plans of trainings: what they count, and what a training took beside what was predicted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plan_training import compare, run_file, write_tables
from graphbox.config import RunConfig
from graphbox.errors import BackendMissingError, TimeLimitError
from graphbox.train import plan as plan_module
from graphbox.train.plan import GraphCounts, TrainingPlan, plan_trainings
from tests.cli.conftest import call_main

LIBRARIES_BYTES = 300_000_000
LINKS = ("node", "links", "node")
MODELS: dict[str, dict[str, Any]] = {
    "walk": {"kind": "deepwalk"},
    "wide": {"kind": "deepwalk", "dim": 512},
    "network": {"kind": "gnn", "task": "class", "num_neighbors": [10, 5], "embeddings": ["node"]},
    "own": {"kind": "custom", "trainer": "a:b"},
}


def config(**changes: Any) -> RunConfig:
    document = {
        "version": 1,
        "name": "planned",
        "graph": {
            "name": "planned",
            "nodes": {"node": {"path": "n.csv", "features": {"label": "categorical"}}},
            "edges": [{"type": list(LINKS), "path": "e.csv"}],
        },
        "tasks": {"class": {"kind": "classify", "node_type": "node", "label": "label"}},
        "models": MODELS,
        **changes,
    }
    return RunConfig.model_validate_json(json.dumps(document))


def counts(nodes: int) -> GraphCounts:
    return GraphCounts({"node": nodes}, {LINKS: 10 * nodes}, {"node": 20 * nodes})


def peak(plan: TrainingPlan | None) -> int:
    assert plan is not None
    return plan.peak_bytes


@pytest.fixture
def fixed_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what libraries take be a number: measuring it imports them in a process of its own."""
    monkeypatch.setattr(plan_module, "_libraries_bytes", lambda _: LIBRARIES_BYTES)


@pytest.mark.usefixtures("fixed_libraries")
def test_what_grows_with_the_graph_and_the_model() -> None:
    few, many = plan_trainings(config(), counts(10_000)), plan_trainings(config(), counts(1_000_000))
    assert few["own"] is None, "nobody knows what code of one's own takes"
    for name in ("walk", "wide", "network"):
        assert peak(many[name]) > peak(few[name]) + 500_000_000
        assert few[name] is not None
        assert peak(few[name]) > LIBRARIES_BYTES
    assert peak(many["wide"]) - peak(many["walk"]) > 2 * 1_000_000 * (512 - 128) * 4, "of two tables"


@pytest.mark.usefixtures("fixed_libraries")
def test_budgets_count() -> None:
    whole = plan_trainings(config(), counts(1_000_000))["network"]
    within = plan_trainings(config(memory={"tables": "64MiB"}), counts(1_000_000))["network"]
    assert peak(within) < peak(whole) - 500_000_000


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Let another program measure what the libraries take."""
    plan_module._libraries_bytes.cache_clear()
    yield lambda program: monkeypatch.setattr(plan_module, "_MEASURE", program)
    plan_module._libraries_bytes.cache_clear()


def test_libraries_whose_import_dies(measured: Callable[[str], None]) -> None:
    measured("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(BackendMissingError, match="the process that does was ended by SIGKILL"):
        plan_trainings(config(), counts(10))
    measured("import sys; sys.exit(3)")
    with pytest.raises(BackendMissingError, match="received: nothing but exit code 3"):
        plan_trainings(config(), counts(10))


def test_libraries_whose_import_hangs(
    measured: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "_MEASURE_TIMEOUT_S", 0.5)
    measured("import threading; threading.Event().wait()")
    with pytest.raises(TimeLimitError, match=r"within 0\.5 seconds"):
        plan_trainings(config(), counts(10))


def test_the_command_says_what_trainings_take(tmp_path: Path) -> None:
    write_tables(tmp_path, 2_000)
    command = ["-C", str(tmp_path / "workspace"), "plan", str(run_file(tmp_path, "deepwalk"))]
    outcome = call_main([*command, "--json"])
    assert outcome.code == 0, outcome.err
    plan = outcome.json["training"]["deepwalk"]
    parts = [plan[name] for name in ("libraries_bytes", "nodes_bytes", "edges_bytes")]
    assert plan["peak_bytes"] == sum(parts)
    assert plan["libraries_bytes"] > 100_000_000, "torch alone takes that"
    assert min(parts) > 0
    assert "peak memory" in call_main(command).out


@pytest.mark.stress
@pytest.mark.parametrize("model", ["deepwalk", "matrix_factorization", "gnn_sampled"])
def test_a_training_takes_what_was_predicted(model: str, tmp_path: Path) -> None:
    write_tables(tmp_path, 40_000)
    figure = compare(tmp_path, 40_000, model)
    assert figure.measured == pytest.approx(figure.predicted, rel=0.2)
