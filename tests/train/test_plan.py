"""Plans of trainings: what they count, and what a training took beside what was predicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plan_training import compare, run_file, write_tables
from graphbox.config import RunConfig
from graphbox.train.plan import GraphCounts, TrainingPlan, plan_trainings

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


def test_what_grows_with_the_graph_and_the_model() -> None:
    few, many = plan_trainings(config(), counts(10_000)), plan_trainings(config(), counts(1_000_000))
    assert few["own"] is None, "nobody knows what code of one's own takes"
    for name in ("walk", "wide", "network"):
        assert peak(many[name]) > peak(few[name]) + 500_000_000
        assert few[name] is not None
        assert peak(few[name]) > 100_000_000, "torch alone takes that"
    assert peak(many["wide"]) - peak(many["walk"]) > 2 * 1_000_000 * (512 - 128) * 4, "of two tables"


def test_budgets_count() -> None:
    whole = plan_trainings(config(), counts(1_000_000))["network"]
    within = plan_trainings(config(memory={"tables": "64MiB"}), counts(1_000_000))["network"]
    assert peak(within) < peak(whole) - 500_000_000


def test_the_command_says_what_trainings_take(tmp_path: Path) -> None:
    write_tables(tmp_path, 2_000)
    path = run_file(tmp_path, "gnn_sampled")
    command = [sys.executable, "-m", "graphbox", "-C", str(tmp_path / "workspace"), "plan", str(path)]
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
    plan = document["training"]["gnn_sampled"]
    parts = [plan[name] for name in ("libraries_bytes", "nodes_bytes", "edges_bytes")]
    assert plan["peak_bytes"] == sum(parts)
    assert min(parts) > 0
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert "peak memory" in text


@pytest.mark.stress
@pytest.mark.parametrize("model", ["deepwalk", "matrix_factorization", "gnn_sampled"])
def test_a_training_takes_what_was_predicted(model: str, tmp_path: Path) -> None:
    write_tables(tmp_path, 40_000)
    figure = compare(tmp_path, 40_000, model)
    assert figure.measured == pytest.approx(figure.predicted, rel=0.2)
