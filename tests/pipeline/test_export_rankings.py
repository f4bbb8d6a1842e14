"""Models that rank nodes of another type are exported, served and compressed as they were trained."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.deploy import open_encoder
from graphbox.pipeline import RunReport, run
from graphbox.pipeline.run_data import RunData
from graphbox.train import load_trained
from graphbox.workspace import Workspace
from tests.pipeline.deployed_figures import deployed_figures
from tests.train.shop import build_shop

RUN_FILE = """\
version: 1
name: shop
threads: 1
graph:
  name: shop
  nodes: {user: {path: user.parquet}, item: {path: item.parquet}}
  edges:
    - {type: [user, bought, item], path: bought.parquet, reverse: bought_by}
    - {type: [user, bought_later, item], path: bought_later.parquet}
tasks:
  items:
    kind: recommend
    node_type: user
    target_type: item
    relations: [bought]
    split: {kind: given, test_relations: [bought_later]}
    k: 5
  told:
    kind: predict_links
    node_type: user
    target_type: item
    relations: [bought]
models:
  light: {kind: lightgcn, task: items, dim: 16, epochs: 8, batch_size: 32, candidates: 64}
  network: {kind: gnn, task: told, layer: sage, dim: 16, epochs: 3}
export:
  shop-items: {model: light, unknown_ids: mean}
  shop-links: {model: network}
compress:
  shop-items: {max_drop: 0.5}
  shop-links: {max_drop: 0.5}
bench: {seconds: 0.05, batch_sizes: [1]}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def report(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("tables")
    build_shop(folder)
    (folder / "run.yaml").write_text(RUN_FILE)
    return run(folder / "run.yaml", (), workspace)


def artifact_of(workspace: Workspace, version: int) -> Artifact:
    return Artifact.open(workspace.model("shop-items", version).path)


def test_what_is_served_is_the_trained_ranking(workspace: Workspace, report: RunReport) -> None:
    trained = load_trained(report.path, "light")
    with open_encoder(artifact_of(workspace, 1).path) as model:
        assert model.query_types[0] == "user"
        assert (model.target_type("user"), model.target_type("item")) == ("item", "item")
        users = ["u3", "u50"]
        scores = trained.score(model.index(users, "user"))
        found, score = model.neighbors(users, 5, node_type="user")
        best = np.sort(scores, axis=1)[:, ::-1][:, :5]
        np.testing.assert_allclose(score, best, rtol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(scores, found, axis=1), best, rtol=1e-5)
        near, _ = model.neighbors(["i4"], 3, node_type="item")
        assert int(model.index(["i4"], "item")[0]) not in near[0]


def test_unknown_ids_have_the_mean_vector_of_their_type(workspace: Workspace, report: RunReport) -> None:
    trained = load_trained(report.path, "light")
    for version in (1, 2):  # as trained, and compressed
        with open_encoder(artifact_of(workspace, version).path) as model:
            for node_type in ("user", "item"):
                vectors, known = model.encode_known(["absent", *model.ids([0], node_type)], node_type)
                rows = trained.embeddings[node_type] if node_type == "user" else trained.target
                assert rows is not None
                mean = np.asarray(rows, np.float64).mean(axis=0)
                np.testing.assert_allclose(vectors[0], mean, rtol=1e-5, atol=1e-7)
                assert known.tolist() == [False, True]
    links = Artifact.open(workspace.model("shop-links", 1).path)
    assert [output.name for output in links.manifest.outputs] == ["embedding"]


def test_links_that_were_held_out_as_a_whole_are_told_apart(workspace: Workspace, report: RunReport) -> None:
    artifact = artifact_of(workspace, 1)
    graph = RunData.open(workspace, report.run).graph
    sources, targets = (each.tolist() for each in graph.csc(("user", "bought_later", "item")).coo())
    for user, item in zip(sources[:20], targets[:20], strict=True):
        found = artifact.links.between("user", user, "item", np.array([item]))[0]
        later = [link for link in found if link.relation == "bought_later"]
        assert [link.held_out for link in later] == [True]


@pytest.mark.parametrize(
    ("name", "task", "model", "metric"),
    [
        ("shop-items", "items", "light", "recall@5"),
        ("shop-links", "told", "network", "average_precision"),
    ],
)
def test_what_is_served_reaches_what_was_trained(
    workspace: Workspace, report: RunReport, name: str, task: str, model: str, metric: str
) -> None:
    trained = report.metrics[task][model][metric]
    served = deployed_figures(workspace, report, name, "test")[metric]
    assert served == pytest.approx(trained, rel=1e-5)
    measured = report.compress[name]  # fewer bits are judged on the validation part
    assert measured["metric"]["name"] == metric
    before = deployed_figures(workspace, report, name, "validation")[metric]
    assert measured["metric"]["before"] == pytest.approx(before)
    assert measured["metric"]["after"] == pytest.approx(before, abs=0.05)
    assert measured["metrics_test"][metric] == pytest.approx(trained, abs=0.05)
