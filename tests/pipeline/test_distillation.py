"""A run file from a teacher to a served student: no list of neighbours anywhere, and what torch says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphbox.artifact import PaddedBlockForm
from graphbox.config import load_config
from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.deploy.unseen import UnseenNode
from graphbox.pipeline.engine import run_pipeline
from graphbox.train import TrainedModel, load_trained
from graphbox.workspace import Workspace
from tests.contract.run_files import GRAPH, TASKS, write_tables

KNOWS = ["user", "knows", "user"]
RUN_FILE = {
    "version": 1,
    "name": "student",
    "seed": 3,
    "threads": 1,
    "graph": GRAPH,
    "tasks": {"taste": {**TASKS["taste"], "baselines": []}},
    "models": {
        "gcn": {"kind": "gnn", "task": "taste", "layer": "gcn", "relations": [KNOWS], "epochs": 40},
        "walks": {"kind": "deepwalk", "dim": 6, "edge_types": [KNOWS], "epochs": 1, "walk_length": 10},
        "mlp": {
            "kind": "mlp",
            "task": "taste",
            "distil": {"teachers": ["gcn"]},
            "positions": "walks",
            "dim": 16,
            "layers": 2,
            "epochs": 40,
            "batch_size": 16,
            "dropout": 0.1,
        },
    },
    "export": {"taster": {"model": "mlp"}},
    "compress": {"taster": {"max_drop": 1.0}},
}


class Served:
    """The run, its student as training left it, and the version that is served."""

    def __init__(self, folder: Path) -> None:
        write_tables(folder)
        (folder / "run.yaml").write_text(json.dumps(RUN_FILE))
        config = load_config(folder / "run.yaml")
        self.report = run_pipeline(config, Workspace(folder / "workspace"), until="compress")
        self.trained: TrainedModel = load_trained(self.report.path, "mlp")
        self.walks: TrainedModel = load_trained(self.report.path, "walks")
        self.folder = folder / "workspace" / "models" / "taster" / "1"
        self.model: DeployedEncoder = open_encoder(self.folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        found = Served(tmp_path_factory.mktemp("served"))
        yield found
        found.model.close()


def probabilities(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def test_the_report_has_both_and_how_far_they_agree(served: Served) -> None:
    metrics = served.report.metrics["taste"]
    assert "teacher_agreement" not in metrics["gcn"]
    assert 0.75 <= metrics["mlp"]["teacher_agreement"] <= 1.0
    assert metrics["mlp"]["accuracy"] > 0.6


def test_no_file_and_no_input_has_neighbours(served: Served) -> None:
    form = served.model.artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    assert all(layer.groups == () for layer in form.layers)
    assert not (served.folder / "neighbors").exists()
    inputs = {each.name for each in onnx.load(served.folder / "model.onnx").graph.input}
    assert inputs == {"rows_0", "own_0_0", "own_1_0"}


def test_it_answers_what_torch_does(served: Served) -> None:
    assert served.trained.logits is not None
    users = np.arange(len(served.trained.logits))
    expected = probabilities(served.trained.logits)
    for batch in (users, users[:1], users[:0], users[[5, 5, 2]]):
        embedding, found = served.model.classify_indices(batch)
        np.testing.assert_allclose(found, expected[batch], atol=1e-5)
        np.testing.assert_allclose(embedding, served.trained.embeddings["user"][batch], atol=1e-4)


def test_a_node_is_answered_by_its_features_and_its_row_of_walks(served: Served) -> None:
    from graphbox.graph import Graph

    graph = Graph.open(served.folder.parents[2] / "graphs" / "town")
    user = 7
    features = {
        "x": np.asarray(graph.feature("user", "x"))[user].tolist(),
        "position": served.walks.embeddings["user"][user].tolist(),
    }
    _, known = served.model.classify_indices(np.array([user]))
    _, unseen = served.model.classify_unseen([UnseenNode(features)])
    np.testing.assert_allclose(unseen, known, atol=1e-5)
    _, nowhere = served.model.classify_unseen([UnseenNode({**features, "position": [0.0] * 6})])
    assert np.isfinite(nowhere).all()
    assert np.abs(nowhere - known).max() > 1e-4


def test_it_is_compressed_like_any_encoder(served: Served) -> None:
    compressed = served.report.compress["taster"]
    assert compressed["version"] == 2


def test_rankings(tmp_path: Path) -> None:
    """A teacher of rankings, its student of a quarter of the size, and both in the report and served."""
    write_tables(tmp_path)
    student = {
        "kind": "matrix_factorization",
        "task": "friend",
        "dim": 8,
        "distil": {"teachers": ["teacher"]},
    }
    document = {
        **RUN_FILE,
        "name": "ranked",
        "tasks": {"friend": {**TASKS["friend"], "baselines": []}},
        "models": {"teacher": {"kind": "lightgcn", "task": "friend", "dim": 32}, "student": student},
        "export": {"teacher": {"model": "teacher"}, "student": {"model": "student"}},
        "compress": {},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(document))
    config = load_config(tmp_path / "run.yaml")
    report = run_pipeline(config, Workspace(tmp_path / "workspace"), until="export")
    metrics = report.metrics["friend"]
    assert "teacher_agreement" not in metrics["teacher"]
    assert 0.3 < metrics["student"]["teacher_agreement"] <= 1.0
    models = tmp_path / "workspace" / "models"
    for name, dim in (("teacher", 32), ("student", 8)):
        model = open_encoder(models / name / "1")
        trained = load_trained(report.path, name)
        assert trained.target is not None
        assert trained.target.shape[1] == dim
        np.testing.assert_array_equal(model.encode_indices(np.array([3]))[0], trained.embeddings["user"][3])
        model.close()
