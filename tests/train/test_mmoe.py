"""MMoE learns several labels of a row, some rows without one, and is exported, served and compressed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from graphbox.artifact import Artifact, FieldsForm
from graphbox.config import ClickTaskConfig, FurtherLabelConfig, model_kind
from graphbox.deploy import open_click
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.metrics import click_report
from graphbox.pipeline import RunReport, run
from graphbox.train import GraphView, load_split, load_trained, make_split
from graphbox.train.assignment import Assignment, make_streaming_trainer, make_trainer
from graphbox.train.click.trainer import ClickTrainer
from graphbox.train.stream import Chunk
from graphbox.train.tasks import ClickSplit, save_split
from graphbox.workspace import Workspace
from tests.cli.conftest import call_main
from tests.server.server_process import start_process
from tests.train.chunk_by_chunk import score_then_learn

ROWS = 4000
FEATURES: dict[str, Any] = {
    "clicked": "boolean",
    "bought": "categorical",
    "user": "categorical",
    "item": "categorical",
    "price": "number",
}
TASK = ClickTaskConfig(
    kind="click", node_type="row", label="clicked", also=(FurtherLabelConfig(label="bought"),)
)


def log_table(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Return a log: clicked is what fits the user, bought of that what is cheap; without click it is unknown.

    Users click items of their own parity, and of those buy what costs less than the user's purse has.
    """
    random = np.random.default_rng(seed)
    user, item = random.integers(0, 12, rows), random.integers(0, 10, rows)
    price = random.random(rows).astype(np.float32)
    clicked = random.random(rows) < np.where((user + item) % 2, 0.9, 0.1)
    bought = random.random(rows) < np.where(price < user % 4 / 4 + 0.1, 0.9, 0.1)
    return {
        "clicked": clicked,
        "bought": pa.array(np.where(bought, "yes", "no"), mask=~clicked),
        "user": [f"u{each}" for each in user],
        "item": [f"i{each}" for each in item],
        "price": price,
    }


RUN_FILE = """\
version: 1
name: shop
threads: 1
seed: 1
graph:
  name: log
  nodes:
    row:
      path: log.parquet
      id: null
      features: {clicked: boolean, bought: categorical, user: categorical, item: categorical, price: number}
tasks:
  click: {kind: click, node_type: row, label: clicked, also: [{label: bought, positive: "yes"}], group: user}
models:
  mmoe: {kind: mmoe, task: click, dim: 8, hidden: [16], experts: 3, tower: [8], batch_size: 128, epochs: 8,
         patience: null, dropout: 0.0, row_dropout: 0.0, row_decay: 0.001, learning_rate: 0.01,
         table_learning_rate: 0.1}
  deepfm: {kind: deepfm, task: click, dim: 8, hidden: [16], batch_size: 128, epochs: 2}
export:
  shop: {model: mmoe, parity_rows: 300}
bench: {seconds: 0.01, batch_sizes: [2]}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def report(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("tables")
    pq.write_table(pa.table(log_table()), folder / "log.parquet")
    (folder / "run.yaml").write_text(RUN_FILE)
    return run(folder / "run.yaml", (), workspace)


def rows_of(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return rows as a client writes them in JSON."""
    for user, item, price in zip(table["user"], table["item"], table["price"].tolist(), strict=True):
        yield {"user": user, "item": item, "price": price}


def test_each_label_is_learnt_beside_the_other(report: RunReport) -> None:
    mmoe, prior = report.metrics["click"]["mmoe"], report.baselines["click"]["prior"]
    linear = report.baselines["click"]["logistic_regression"]
    for label in ("", ".bought"):
        assert mmoe[f"auc{label}"] > 0.85
        assert mmoe[f"log_loss{label}"] < linear[f"log_loss{label}"] - 0.02
        assert linear[f"log_loss{label}"] < prior[f"log_loss{label}"] + 0.02
        assert prior[f"auc{label}"] == 0.5
    # Of the rows that were clicked alone, and so is their group.
    assert mmoe["impressions.bought"] == round(mmoe["click_rate"] * mmoe["impressions"])
    assert 0.5 < mmoe["grouped_auc.bought"] < 1
    assert set(report.metrics["click"]["deepfm"]) == {name for name in mmoe if "." not in name}


def test_figures_are_those_of_rows_with_the_label(workspace: Workspace, report: RunReport) -> None:
    assert report.path is not None
    split = load_split(report.path / "splits" / "click.npz")
    assert isinstance(split, ClickSplit)
    trained = load_trained(report.path, "mmoe")
    assert trained.click is not None
    table = log_table()
    found = trained.click.predict(pa.table(table))
    assert found.shape == (ROWS, 2)
    known = split.is_in("test") & table["clicked"]
    bought = np.array(table["bought"].to_pylist()) == "yes"
    expected = click_report(bought[known], found[known, 1])
    for name in ("auc", "log_loss", "calibration_ratio", "impressions"):
        assert report.metrics["click"]["mmoe"][f"{name}.bought"] == pytest.approx(expected[name], rel=1e-5)


def test_every_way_of_asking_has_a_probability_of_each_label(
    workspace: Workspace, report: RunReport, tmp_path: Path
) -> None:
    trained = load_trained(report.path, "mmoe")
    assert trained.click is not None
    table = log_table(40, seed=2)
    expected = trained.click.predict(pa.table(table))
    path = workspace.model("shop", 1).path
    with open_click(path) as model:
        answer = model.predict(list(rows_of(table)))
        np.testing.assert_allclose(answer.probabilities, expected, atol=1e-6)
        np.testing.assert_array_equal(answer.probability, answer.probabilities[:, 0])
        assert model.predict([]).probabilities.shape == (0, 2)
    form = Artifact.open(path).preprocess
    assert isinstance(form, FieldsForm)
    assert form.labels == ("clicked", "bought")
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    for name in ("shop", "last"):
        model_option = ["--model", "mmoe"] if name == "last" else []
        outcome = call_main(
            ["-C", str(workspace.root), "predict", name, *model_option, "-i", str(tmp_path / "rows.parquet"),
             "-o", str(tmp_path / "out.csv")]
        )  # fmt: skip
        assert outcome.code == 0, outcome.err
        with (tmp_path / "out.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert list(rows[0]) == ["row", "probability", "probability.bought"]
        written = [[float(row[each]) for each in ("probability", "probability.bought")] for row in rows]
        np.testing.assert_allclose(written, expected, atol=1e-6)
    server = start_process({"port": 0, "workspace": workspace.root}, tmp_path / "log")
    try:
        with server.client() as client:
            body = {"rows": list(rows_of(table))}
            rest = client.post("/api/v1/models/shop/predict?version=1", json=body).json()["predictions"]
            np.testing.assert_allclose([each["probability"] for each in rest], expected[:, 0], atol=1e-6)
            of_labels = [[each["probabilities"][name] for name in form.labels] for each in rest]
            np.testing.assert_allclose(of_labels, expected, atol=1e-6)
            example = json.loads((path / "example_request.json").read_text())
            outputs = client.post("/v2/models/shop/versions/1/infer", json=example).json()["outputs"]
            assert [each["name"] for each in outputs] == ["probability", "probability.bought"]
            assert {tuple(each["shape"]) for each in outputs} == {(16,)}
            metadata = client.get("/v2/models/shop/versions/1").json()
            assert [each["name"] for each in metadata["outputs"]] == ["probability", "probability.bought"]
    finally:
        assert server.stop() == 0
        if server.process.stdout is not None:
            server.process.stdout.close()


def test_a_compressed_version_has_both_labels(workspace: Workspace, report: RunReport) -> None:
    outcome = call_main(
        ["-C", str(workspace.root), "compress", "shop", "--tables", "int8", "--dense", "int8",
         "--json"]
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    table = log_table(200, seed=3)
    rows = list(rows_of(table))
    with open_click(workspace.model("shop", 1).path) as first:
        expected = first.predict(rows).probabilities
    with open_click(workspace.model("shop", 2).path) as smaller:
        found = smaller.predict(rows).probabilities
    assert found.shape == (200, 2)
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert not np.array_equal(found, expected)
    metrics = workspace.model("shop", 2).metrics["click"]
    assert metrics["auc.bought"] == pytest.approx(report.metrics["click"]["mmoe"]["auc.bought"], abs=0.01)


def graph_of(table: dict[str, Any], folder: Path) -> Graph:
    import_graph(
        GraphSource("log", {"row": NodeSource(pa.table(table), id=None, features=FEATURES)}, ()), folder
    )
    return Graph.open(folder)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(log_table(600), tmp_path_factory.mktemp("log") / "graph")


def split_of(graph: Graph, task: ClickTaskConfig = TASK) -> ClickSplit:
    split = make_split(graph, task, 0)
    assert isinstance(split, ClickSplit)
    return split


def trainer_of(graph: Graph, *, is_stream: bool = False, kind: str = "mmoe", **keys: Any) -> ClickTrainer:
    chosen = {"kind": kind, "task": "click", "dim": 4, "hidden": [8], "batch_size": 64, "dropout": 0.0}
    config = model_kind(kind).section.model_validate_json(json.dumps({**chosen, **keys}))
    split = None if is_stream else split_of(graph)
    make: Any = make_streaming_trainer if is_stream else make_trainer
    trainer = make(config, Assignment("model", GraphView(graph, split), split, TASK, seed=3, threads=1))
    assert isinstance(trainer, ClickTrainer)
    return trainer


def test_the_loss_is_the_sum_over_labels_that_rows_have(graph: Graph) -> None:
    trainer = trainer_of(graph, row_dropout=0.0, row_decay=0.0, loss_weights={"bought": 3.0})
    trainer.begin_epoch(0)
    fields, labels = trainer.draw(0, 0)
    found, count = trainer.loss((fields, labels), 0, 0)
    logits = trainer.network(trainer.network.fetch(fields), fields.numbers).detach()
    assert (labels[:, 1] == -1).any()
    np.testing.assert_array_equal(labels[:, 1] >= 0, labels[:, 0] == 1)
    expected = torch.zeros(())
    for row, (clicked, bought) in enumerate(labels.tolist()):
        expected += functional.binary_cross_entropy_with_logits(logits[row, 0], torch.tensor(clicked))
        if bought >= 0:
            expected += 3 * functional.binary_cross_entropy_with_logits(logits[row, 1], torch.tensor(bought))
    assert count == len(labels)
    assert found.item() == pytest.approx(expected.item() / count, rel=1e-5)
    trainer.close()


def test_the_first_epoch_starts_from_the_rate_of_each_label(graph: Graph) -> None:
    trainer = trainer_of(graph)
    trainer.begin_epoch(0)
    trainer.draw(0, 0)
    split = split_of(graph)
    clicked = split.labels[split.is_in("train")]
    assert split.further_labels is not None
    bought = split.further_labels[split.is_in("train"), 0]
    rates = [clicked.mean(), (bought == 1).sum() / (bought >= 0).sum()]
    np.testing.assert_allclose(torch.sigmoid(trainer.network.bias.detach()), rates, rtol=1e-5)
    trainer.close()


def test_other_kinds_learn_the_first_label_and_read_none(graph: Graph) -> None:
    trainer = trainer_of(graph, kind="deepfm")
    trainer.begin_epoch(0)
    _, labels = trainer.draw(0, 0)
    assert labels.shape[1] == 1
    assert [each.name for each in trainer._fields.fields] == ["user", "item", "price"]
    trainer.close()
    with pytest.raises(UsageError, match=r"does not read what it is to predict, received .*bought"):
        trainer_of(graph, features=["user", "bought"])
    with pytest.raises(UsageError, match="is to predict"):
        GraphView(graph, split_of(graph)).feature_rows("row", "bought", 0, 1)


def test_weights_of_no_label_are_refused(graph: Graph) -> None:
    with pytest.raises(
        UsageError, match="weights of the labels clicked, bought, received one of `bougt`"
    ) as error:
        trainer_of(graph, loss_weights={"bougt": 2.0})
    assert error.value.where == "models.model.loss_weights"
    assert "bought" in str(error.value.hint)


def test_a_stream_is_scored_by_its_first_label(tmp_path: Path) -> None:
    graph = graph_of(log_table(), tmp_path / "graph")
    rates: dict[str, Any] = {"learning_rate": 0.01, "table_learning_rate": 0.2, "initial_row_scale": 0.5}
    trainer = trainer_of(graph, is_stream=True, batch_size=16, row_dropout=0.0, row_decay=0.0, **rates)
    chunks = [
        Chunk(number, f"chunk {number}", GraphView(graph, None), {"row": nodes}, {})
        for number, nodes in enumerate(np.array_split(np.arange(ROWS), 4))
    ]
    scored = [scores for _, scores in score_then_learn(trainer, chunks)]
    assert scored[0] is None
    last = scored[-1]
    assert last is not None
    np.testing.assert_array_equal(last.labels, graph.feature("row", "clicked")[3 * ROWS // 4 :])
    assert click_report(last.labels, last.scores)["auc"] > 0.7
    trained = trainer.trained("model", GraphView(graph, None)).click
    assert trained is not None
    assert trained.labels == ("clicked", "bought")


def test_a_split_keeps_the_labels(graph: Graph, tmp_path: Path) -> None:
    split = split_of(graph)
    save_split(split, tmp_path / "split.npz")
    loaded = load_split(tmp_path / "split.npz")
    assert isinstance(loaded, ClickSplit)
    np.testing.assert_array_equal(loaded.all_labels(), split.all_labels())
    assert loaded.also == ("bought",)
    plain = ClickTaskConfig(kind="click", node_type="row", label="clicked")
    one = split_of(graph, plain)
    assert one.further_labels is None
    assert one.all_labels().shape == (600, 1)
    assert one.digest != split.digest
    np.testing.assert_array_equal(one.fold, split.fold)


def test_a_label_that_a_fold_lacks_is_refused(tmp_path: Path) -> None:
    table = log_table(600)
    rare = np.array(["no"] * 600, object)
    rare[:2] = "yes"
    graph = graph_of({**table, "bought": pa.array(rare)}, tmp_path / "graph")
    with pytest.raises(DataError, match="in each fold") as error:
        make_split(graph, TASK, 0)
    assert error.value.where == "node type row, label `bought`"


def test_a_label_is_given_once() -> None:
    with pytest.raises(ValidationError, match="each label once, received `clicked`"):
        ClickTaskConfig(
            kind="click", node_type="row", label="clicked", also=(FurtherLabelConfig(label="clicked"),)
        )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tasks.click.also=[{label: bougt}]", "there is no feature `bougt` of `row`"),
        ("tasks.click.also=[{label: price}]", "expected a categorical or boolean feature, received `price`"),
        ("models.mmoe.loss_weights={bougt: 2}", "there is no label `bougt`"),
        ("models.mmoe.loss_weights={bought: 0}", "greater than 0"),
        ("models.mmoe.features=[user, bought]", "does not predict, received its label `bought`"),
        ("models.mmoe.experts=0", "expected a number of at least 1"),
    ],
)
def test_check_tells_what_labels_and_weights_are_not(tmp_path: Path, override: str, message: str) -> None:
    pq.write_table(pa.table(log_table(50)), tmp_path / "log.parquet")
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    outcome = call_main(["-C", str(tmp_path / "w"), "check", str(tmp_path / "run.yaml"), override])
    assert outcome.code == 2
    assert message in outcome.err
