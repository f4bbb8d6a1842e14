"""Plans of trainings: what they count, and what a training took beside what was predicted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plan_training import CASES, WORLDS, figures, run_file
from graphbox.config import RunConfig, load_config
from graphbox.errors import BackendMissingError, TimeLimitError
from graphbox.graph import Graph
from graphbox.graph.ingest import import_graph
from graphbox.graph.plan import plan_import
from graphbox.pipeline.stages.import_graph import graph_source
from graphbox.train.plan import GraphCounts, TrainingPlan, libraries, plan_trainings, problems
from graphbox.words import counted_bytes
from tests.cli.conftest import call_main

LIBRARIES_BYTES = 300_000_000
LIBRARIES = libraries.Libraries(LIBRARIES_BYTES, 120_000_000)
LINKS = ("node", "links", "node")
MODELS: dict[str, dict[str, Any]] = {
    "walk": {"kind": "deepwalk"},
    "wide": {"kind": "deepwalk", "dim": 512},
    "network": {"kind": "gnn", "task": "class", "num_neighbors": [10, 5], "embeddings": ["node"]},
    "own": {"kind": "module", "task": "class", "model": "a:b", "num_neighbors": [2]},
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


def planned(run: RunConfig, nodes: int) -> dict[str, TrainingPlan | None]:
    return plan_trainings(run, counts(nodes), libraries=LIBRARIES)


def test_what_grows_with_the_graph_and_the_model() -> None:
    few, many = planned(config(), 10_000), planned(config(), 1_000_000)
    assert few["own"] is None, "nobody knows what code of one's own takes"
    for name in ("walk", "wide", "network"):
        assert peak(many[name]) > peak(few[name]) + 500_000_000
        assert few[name] is not None
        assert peak(few[name]) > LIBRARIES_BYTES
    assert peak(many["wide"]) - peak(many["walk"]) > 2 * 1_000_000 * (512 - 128) * 4, "of two tables"


def test_inputs_and_classes_of_an_mlp_and_lists_of_teachers_count() -> None:
    """A row of walks is read and copied for each node; a list has 8 bytes for each candidate."""
    dense = {"kind": "mlp", "task": "class"}
    ranked = {"kind": "matrix_factorization", "task": "next"}
    tasks = {
        "class": {"kind": "classify", "node_type": "node", "label": "label"},
        "next": {"kind": "recommend", "node_type": "node", "relations": ["links"]},
    }
    models = {
        "walk": {"kind": "deepwalk", "dim": 32},
        "dense": dense,
        "placed": {**dense, "positions": "walk"},
        "taught": {**dense, "distil": {"teachers": ["dense"]}},
        "ranked": ranked,
        "short": {**ranked, "distil": {"teachers": ["ranked"], "k": 10}},
        "long": {**ranked, "distil": {"teachers": ["ranked"], "k": 20}},
    }
    nodes = 1_000_000
    run = config(models=models, tasks=tasks)
    sizes = GraphCounts({"node": nodes}, {LINKS: nodes}, {"node": 20 * nodes}, {"node": {"label": 5}})
    plans = plan_trainings(run, sizes, libraries=LIBRARIES)
    found = {name: peak(plan) for name, plan in plans.items()}
    assert 0 <= found["placed"] - found["dense"] - 2 * 4 * 32 * nodes < 10_000_000
    assert 0 <= found["taught"] - found["dense"] - 4 * 5 * nodes < 10_000_000
    assert 0 <= found["long"] - found["short"] - 8 * 10 * nodes < 10_000_000


def test_budgets_count() -> None:
    whole = planned(config(), 1_000_000)["network"]
    within = planned(config(memory={"tables": "64MiB"}), 1_000_000)["network"]
    assert peak(within) < peak(whole) - 400_000_000


def test_several_processes_divide_rows_and_batches_and_hold_the_rest_each() -> None:
    models = {"network": {**MODELS["network"], "batch_size": 4096}}
    one = planned(config(models=models), 1_000_000)["network"]
    four = planned(config(models=models, processes=4), 1_000_000)["network"]
    assert one is not None
    assert four is not None
    assert one.process_bytes == one.peak_bytes
    rows_bytes = 8 * 64 * 1_000_000
    assert four.rows_bytes == rows_bytes
    assert four.process_bytes < one.process_bytes - 3 * rows_bytes // 4
    own = four.process_bytes - LIBRARIES.mapped_bytes
    assert four.peak_bytes == LIBRARIES_BYTES + 4 * own, "with the process that starts them"
    room = four.peak_bytes - 1
    run, plans = config(models=models, processes=4), {"network": four}
    ((_, message, hint),) = problems(run, counts(1_000_000), plans, room)
    assert "of memory to train `network` in 4 processes, received" in message
    assert "with `processes=3` it takes" in hint
    assert problems(run, counts(1_000_000), plans, room + 1) == []


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Let another program measure what the libraries take."""
    libraries._libraries_of.cache_clear()
    yield lambda program: monkeypatch.setattr(libraries, "_MEASURE", program)
    libraries._libraries_of.cache_clear()


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
    monkeypatch.setattr(libraries, "_MEASURE_TIMEOUT_S", 0.5)
    measured("import threading; threading.Event().wait()")
    with pytest.raises(TimeLimitError, match=r"after 0\.5 seconds"):
        plan_trainings(config(), counts(10))


def test_the_command_says_what_trainings_take(tmp_path: Path) -> None:
    WORLDS["links"].write(tmp_path, 2_000)
    command = ["-C", str(tmp_path / "workspace"), "plan", str(run_file(tmp_path, "deepwalk"))]
    outcome = call_main([*command, "--json"])
    assert outcome.code == 0, outcome.err
    plan = outcome.json["training"]["deepwalk"]
    parts = [plan[name] for name in ("libraries_bytes", "nodes_bytes", "edges_bytes")]
    assert plan["peak_bytes"] == sum(parts)
    assert plan["libraries_bytes"] > 100_000_000, "torch alone takes that"
    assert min(parts) > 0
    assert "peak memory" in call_main(command).out


def test_a_graph_counts_as_its_tables_do(tmp_path: Path) -> None:
    """Compare counts that `plan` reads from tables with those that the trainer reads from the graph."""
    WORLDS["log"].write(tmp_path, 3_000)
    path = run_file(tmp_path, "deepfm")
    loaded = load_config(path)
    found = plan_import(graph_source(loaded.graph), tmp_path / "graph", probe=False)
    import_graph(graph_source(loaded.graph), tmp_path / "graph")
    of_graph = GraphCounts.of(Graph.open(tmp_path / "graph"))
    (rows,) = found.types
    assert of_graph.nodes == {"row": rows.count.likely}
    assert of_graph.values["row"] == {**rows.values, "clicked": 2}
    assert of_graph.feature_bytes["row"] == pytest.approx(rows.feature_bytes, rel=0.01)


def test_what_does_not_fit_and_what_would() -> None:
    run, nodes = config(), counts(1_000_000)
    plans = plan_trainings(run, nodes, libraries=LIBRARIES)
    room = peak(plans["walk"])
    ((name, message, hint),) = problems(config(models={"wide": MODELS["wide"]}), nodes, plans, room)
    assert name == "wide"
    needed, there = counted_bytes(peak(plans["wide"])), counted_bytes(room)
    assert f"expected {needed} of memory to train `wide`, received {there}" in message
    assert f"with `models.wide.dim=128` it takes {there}" in hint
    allowed = config(memory={"total": "1TiB"})
    assert problems(allowed, nodes, plans, room) == []
    bare = config(memory={"total": "1MB"})
    assert all("on disk" not in hint for _, _, hint in problems(bare, nodes, plans, room))
    assert (
        f"the libraries alone take {counted_bytes(LIBRARIES_BYTES)}"
        in problems(bare, nodes, plans, room)[0][2]
    )
    tight = config(memory={"total": "1GB"})
    (walk, *_) = problems(tight, nodes, plans, room)
    assert "received 1,000,000,000 bytes (953.7 MiB), which `memory.total` allows" in walk[1]
    (network,) = (hint for name, _, hint in problems(tight, nodes, plans, room) if name == "network")
    assert "`memory.tables` keep part of it on disk" in network


def test_what_does_not_fit_is_refused_before_it_begins(tmp_path: Path) -> None:
    WORLDS["links"].write(tmp_path, 500)
    command = ["-C", str(tmp_path / "workspace"), "train", str(run_file(tmp_path, "metapath2vec"))]
    refused = call_main([*command, "memory.total=1MB"])
    assert refused.code == 3
    assert (
        "of memory to train `metapath2vec`, received 1,000,000 bytes (976.6 KiB), which `memory.total`"
        in refused.err
    )
    (run,) = (tmp_path / "workspace" / "runs").iterdir()
    assert not (run / "trained").exists()
    assert call_main([*command, "memory.total=1TiB"]).code == 0
    assert [each.name for each in (tmp_path / "workspace" / "runs").iterdir()] == [run.name], "it goes on"


@pytest.mark.parametrize(
    "name",
    [each if each == "metapath2vec" else pytest.param(each, marks=pytest.mark.stress) for each in CASES],
)
def test_a_training_takes_what_was_predicted(name: str, tmp_path: Path) -> None:
    for figure in figures([name], (20_000,), tmp_path):
        assert figure.measured == pytest.approx(figure.predicted, rel=0.15)
