"""A task of kind next from tables to model versions: what is served does the task as it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphbox.deploy import open_encoder
from graphbox.pipeline import run
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.workspace import Workspace
from tests.train.visits import some_visits

MODEL = {"task": "next", "dim": 8, "epochs": 2, "window": 8, "batch_size": 32, "dropout": 0.0}


def run_file(folder: Path) -> Path:
    rows = (f"{visitor},{place},{time}" for visitor, place, time in some_visits(80))
    (folder / "visits.csv").write_text("\n".join(["visitor,place,time", *rows]) + "\n")
    edge: dict[str, Any] = {"type": ["visitor", "visited", "place"], "path": "visits.csv"}
    edge |= {"source": "visitor", "target": "place", "timestamp": "time", "keep_duplicates": True}
    task = {"kind": "next", "node_type": "visitor", "target_type": "place", "relations": ["visited"], "k": 5}
    document = {
        "version": 1,
        "name": "visits",
        "threads": 1,
        "graph": {"name": "visits", "nodes": {"visitor": {}, "place": {}}, "edges": [edge]},
        "tasks": {"next": task},
        "models": {kind: {"kind": kind, **MODEL} for kind in ("sasrec", "gru4rec", "comirec")},
        "export": {
            "attention": {"model": "sasrec"},
            "units": {"model": "gru4rec"},
            "interests": {"model": "comirec"},
            "rows": {"model": "sasrec", "form": "vectors"},
            "interest_rows": {"model": "comirec", "form": "vectors"},
        },
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(document))
    return path


def test_versions_rank_as_was_measured(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    report = run(run_file(tmp_path), (), workspace)
    assert report.state == "finished"
    assert set(report.baselines["next"]) == {"popular", "markov", "item_knn"}
    data = RunData.open(workspace, report.run)
    task, split = data.config.tasks["next"], data.split("next")
    models = {"attention": "sasrec", "units": "gru4rec", "interests": "comirec"}
    models |= {"rows": "sasrec", "interest_rows": "comirec"}
    for name, model in models.items():
        with open_encoder(workspace.model(name, 1).path) as served:
            stores_vectors = name.endswith("rows")
            assert served.encodes_unseen != stores_vectors
            found = evaluate_deployed(served, data.graph, split, task, "test")
            assert found == pytest.approx(report.metrics["next"][model], abs=1e-6)
            if not stores_vectors:  # which know the events to predict
                validation = evaluate_deployed(served, data.graph, split, task, "validation")
                assert validation["queries"] == len(split.validation)  # type: ignore[attr-defined]
