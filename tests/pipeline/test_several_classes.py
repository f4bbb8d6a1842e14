"""Nodes with several classes from a run file to a server: figures, artifact, probabilities, `predict`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import PaddedBlockForm
from graphbox.deploy import UnseenNode, open_encoder
from graphbox.pipeline import RunReport, run
from graphbox.train import load_trained
from graphbox.workspace import Workspace
from tests.cli.conftest import call_main
from tests.pipeline.deployed_figures import deployed_figures
from tests.server.server_process import start_process

PAPERS, CITATIONS, TOPICS = 400, 3000, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Papers with one topic or two, which their words and the papers they cite give away."""
    folder, generator = tmp_path_factory.mktemp("several"), np.random.default_rng(0)
    topics = generator.random((PAPERS, TOPICS)) < 0.3
    topics[np.arange(PAPERS), generator.integers(0, TOPICS, PAPERS)] = True
    papers = [
        f"p{paper},{'|'.join(f'w{topic}' for topic in np.flatnonzero(each))}"
        for paper, each in enumerate(topics)
    ]
    (folder / "paper.csv").write_text("\n".join(["id,words", *papers]) + "\n")
    about = [f"p{paper},topic-{topic}" for paper, topic in zip(*topics.nonzero(), strict=True)]
    (folder / "about.csv").write_text("\n".join(["source,target", *about]) + "\n")
    source, target = generator.integers(0, PAPERS, (2, CITATIONS))
    alike = (topics[source] & topics[target]).any(axis=1) & (source != target)
    cites = [f"p{first},p{second}" for first, second in zip(source[alike], target[alike], strict=True)]
    (folder / "cites.csv").write_text("\n".join(["source,target", *cites]) + "\n")
    document = {
        "version": 1,
        "name": "several",
        "threads": 1,
        "graph": {
            "name": "several",
            "nodes": {"paper": {"path": "paper.csv", "features": {"words": "slots"}}, "topic": {}},
            "edges": [
                {"type": ["paper", "cites", "paper"], "path": "cites.csv"},
                {"type": ["paper", "about", "topic"], "path": "about.csv"},
            ],
        },
        "tasks": {
            "topics": {
                "kind": "classify",
                "node_type": "paper",
                "memberships": ["paper", "about", "topic"],
            }
        },
        "models": {
            "network": {
                "kind": "gnn", "task": "topics", "dim": 16, "layers": 1, "epochs": 60, "dropout": 0.0
            },
            "walks": {"kind": "deepwalk", "task": "topics", "dim": 16, "epochs": 2},
        },
        "export": {"topics": {"model": "network", "form": "encoder"}},
        "bench": {"seconds": 0.02, "batch_sizes": [1]},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Workspace:
    return Workspace(folder / "workspace")


@pytest.fixture(scope="module")
def report(folder: Path, workspace: Workspace) -> RunReport:
    (folder / "run.yaml").write_text((folder / "run.json").read_text())
    return run(folder / "run.yaml", (), workspace)


def test_models_and_baselines_are_measured_alike(report: RunReport) -> None:
    models, baselines = report.metrics["topics"], report.baselines["topics"]
    names = {"micro_f1", "macro_f1", "threshold_micro_f1", "threshold_macro_f1", "nodes"}
    for figures in (*models.values(), *baselines.values()):
        assert set(figures) == names
    assert set(baselines) == {"majority", "neighbors_vote", "label_propagation", "sgc"}
    assert models["network"]["micro_f1"] > baselines["majority"]["micro_f1"] + 0.2
    assert report.notes["topics"]["network"].startswith("validation micro_f1 ")


def test_the_artifact_gives_each_class_a_probability_of_its_own(
    workspace: Workspace, report: RunReport
) -> None:
    trained = load_trained(report.path, "network")
    assert trained.logits is not None
    expected = 1.0 / (1.0 + np.exp(-trained.logits))
    with open_encoder(workspace.model("topics", 1).path) as model:
        assert set(model.classes) == {f"topic-{topic}" for topic in range(TOPICS)}
        form = model.artifact.preprocess
        assert isinstance(form, PaddedBlockForm)
        assert form.has_several_classes
        _, probability = model.classify_indices(np.arange(PAPERS, dtype=np.int64))
        np.testing.assert_allclose(probability, expected, atol=1e-4)
        assert abs(probability.sum(axis=1) - 1.0).max() > 0.1
    figures = deployed_figures(workspace, report, "topics", "test")
    assert figures == pytest.approx(report.metrics["topics"]["network"], abs=1e-6)


def test_predict_writes_a_column_for_each_class(folder: Path, report: RunReport) -> None:
    outcome = call_main(
        ["-C", folder / "workspace", "predict", "last", "--model", "network", "-o", folder / "found.parquet"]
    )
    assert outcome.code == 0, outcome.err
    found = pq.read_table(folder / "found.parquet")
    assert set(found.column_names) == {"id", *(f"topic-{topic}" for topic in range(TOPICS))}
    logits = load_trained(report.path, "network").logits
    assert logits is not None
    shares = np.stack([found.column(number + 1).to_numpy() for number in range(TOPICS)], axis=1)
    np.testing.assert_allclose(shares, 1.0 / (1.0 + np.exp(-logits)), atol=1e-4)


def test_a_server_answers_with_the_probabilities(
    workspace: Workspace, report: RunReport, tmp_path: Path
) -> None:
    path = workspace.model("topics", 1).path
    node = UnseenNode(features={"words": ["w0", "w2"]})
    with open_encoder(path) as model:
        _, expected = model.classify_unseen([node])
        classes = model.classes
    server = start_process({"port": 0, "models": [path], "target": "onnxruntime"}, tmp_path / "server.log")
    try:
        server.wait_until_ready()
        with server.client() as client:
            answer = client.post("/api/v1/models/topics/encode", json={"nodes": [vars(node)]})
            shares = answer.raise_for_status().json()["nodes"][0]["probabilities"]
            np.testing.assert_allclose([shares[name] for name in classes], expected[0], atol=1e-6)
            assert set(sorted(shares, key=lambda name: shares[name])[-2:]) == {"topic-0", "topic-2"}
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()
