"""DIN learns what of a history bears on a row, is exported and served, and tells what it cannot read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from graphbox.artifact import Artifact, FieldsForm
from graphbox.config import ClickTaskConfig, DINConfig
from graphbox.deploy import open_click
from graphbox.errors import UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.pipeline import RunReport, run
from graphbox.train import GraphView, load_trained, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.tasks import ClickSplit
from graphbox.workspace import Workspace
from tests.server.server_process import start_process

ROWS, ITEMS = 4000, 30
FEATURES: dict[str, Any] = {
    "clicked": "boolean",
    "item": "categorical",
    "shop": "integer",
    "items": "slots",
    "shops": "slots",
}
TASK = ClickTaskConfig(kind="click", node_type="row", label="clicked")
INTERESTS = [{"history": "items", "target": "item"}, {"history": "shops", "target": "shop"}]


def log_table(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Return a log in which those click who had the very item before, or its shop: item modulo 5, often."""
    random = np.random.default_rng(seed)
    item = random.integers(0, ITEMS, rows)
    history = [random.integers(0, ITEMS, random.integers(0, 7)) for _ in range(rows)]
    had = np.array([each in events for each, events in zip(item, history, strict=True)])
    times = np.array([(events % 5 == each % 5).sum() for each, events in zip(item, history, strict=True)])
    chance = 1 / (1 + np.exp(2.5 - 2.0 * times - 2.0 * had))
    return {
        "clicked": random.random(rows) < chance,
        "item": [f"i{each}" for each in item],
        "shop": item % 5,
        "items": [[f"i{each}" for each in events] for events in history],
        "shops": [(events % 5).tolist() for events in history],
    }


RUN_FILE = """\
version: 1
name: shop
threads: 1
seed: 1
graph:
  name: log
  nodes:
    row: {path: log.parquet, id: null,
          features: {clicked: boolean, item: categorical, shop: integer, items: slots, shops: slots}}
tasks:
  click: {kind: click, node_type: row, label: clicked, baselines: [logistic_regression]}
models:
  din:
    kind: din
    task: click
    dim: 8
    hidden: [16]
    attention: [16]
    window: 5
    interests: [{history: items, target: item}, {history: shops, target: shop}]
    batch_size: 128
    epochs: 6
    patience: null
    dropout: 0.0
    row_dropout: 0.0
    row_decay: 0.0
    learning_rate: 0.01
    table_learning_rate: 0.1
  deepfm: {kind: deepfm, task: click, dim: 8, hidden: [16], batch_size: 128, epochs: 6, patience: null,
           dropout: 0.0, row_dropout: 0.0, learning_rate: 0.01, table_learning_rate: 0.1}
export:
  shop: {model: din, parity_rows: 300}
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
    for item, shop, items, shops in zip(*(table[name] for name in list(FEATURES)[1:]), strict=True):
        yield {"item": item, "shop": int(shop), "items": items, "shops": shops}


def test_it_learns_that_a_history_contains_the_target(report: RunReport) -> None:
    figures = report.metrics["click"]
    assert figures["din"]["auc"] > 0.84
    assert figures["din"]["auc"] > figures["deepfm"]["auc"] + 0.02
    assert figures["din"]["log_loss"] < figures["deepfm"]["log_loss"]


def test_rows_of_json_have_the_probabilities_of_the_trained_model(
    workspace: Workspace, report: RunReport
) -> None:
    trained = load_trained(report.path, "din")
    assert trained.click is not None
    table = log_table(300, seed=1)
    expected = trained.click.predict(pa.table(table))
    with open_click(workspace.model("shop", 1).path) as model:
        rows = list(rows_of(table))
        np.testing.assert_allclose(model.predict(rows).probability, expected, atol=1e-6)
        one = np.concatenate([model.predict([row]).probability for row in rows[:10]])
        np.testing.assert_allclose(one, expected[:10], atol=1e-6)
        known = next(row for row in rows if len(row["items"]) > 1)
        had = {**known, "items": [known["item"]] * 3, "shops": [known["shop"]] * 3}
        never = {**known, "items": ["i999"], "shops": []}
        found = model.predict([had, never, {**known, "items": [], "shops": []}])
        assert found.probability[0] > 0.8
        assert found.probability[1] < 0.3
        assert found.probability[1] == pytest.approx(float(found.probability[2]), abs=1e-6)
        assert (found.unseen_fields(1), found.unseen_fields(2)) == (["items"], [])
        # Only the last five events are read.
        longer = {**had, "items": ["i999", "i998", *["i997"] * 2, *had["items"]]}
        shorter = {**had, "items": longer["items"][-5:]}
        pair = model.predict([longer, shorter]).probability
        assert pair[0] == pytest.approx(float(pair[1]), abs=1e-7)
    parity = report.export["shop"]
    assert parity["max_absolute_error"] < 1e-5


def test_the_artifact_names_what_columns_have_in_common(workspace: Workspace, report: RunReport) -> None:
    assert report.export
    artifact = Artifact.open(workspace.model("shop", 1).path)
    form = artifact.preprocess
    assert isinstance(form, FieldsForm)
    assert {each.name: (each.window, each.items) for each in form.fields} == {
        "item": (None, "item"), "shop": (None, "shop"), "items": (5, "item"), "shops": (5, "shop"),
    }  # fmt: skip
    assert form.numbers is None


def test_a_server_answers(workspace: Workspace, report: RunReport, tmp_path: Path) -> None:
    trained = load_trained(report.path, "din")
    assert trained.click is not None
    table = log_table(20, seed=2)
    expected = trained.click.predict(pa.table(table))
    server = start_process({"port": 0, "workspace": workspace.root}, tmp_path / "log")
    try:
        with server.client() as client:
            answer = client.post("/api/v1/models/shop/predict?version=1", json={"rows": list(rows_of(table))})
            assert answer.status_code == 200, answer.text
            found = [each["probability"] for each in answer.json()["predictions"]]
            np.testing.assert_allclose(found, expected, atol=1e-6)
            example = json.loads((workspace.model("shop", 1).path / "example_request.json").read_text())
            answer = client.post("/v2/models/shop/versions/1/infer", json=example)
            assert answer.status_code == 200, answer.text
            assert answer.json()["outputs"][0]["name"] == "probability"
    finally:
        assert server.stop() == 0
        if server.process.stdout is not None:
            server.process.stdout.close()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("log") / "graph"
    nodes = NodeSource(pa.table(log_table(100)), id=None, features=FEATURES)
    import_graph(GraphSource("log", {"row": nodes}, ()), folder)
    return Graph.open(folder)


def section(**settings: Any) -> DINConfig:
    chosen = {"kind": "din", "task": "click", "interests": INTERESTS, **settings}
    return DINConfig.model_validate_json(json.dumps(chosen))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"interests": [{"history": "item", "target": "shop"}]},
            r"expected as history a feature of kind slots .*, received `item` \(categorical\)",
        ),
        (
            {"interests": [{"history": "items", "target": "clicked"}]},
            "expected as target a feature of kind categorical or integer .*, received `clicked`",
        ),
        ({"features": ["item", "shop", "shops"]}, "expected as history .* received `items`"),
        ({"interests": [{"history": "itemz", "target": "item"}]}, "received `itemz`"),
    ],
)
def test_features_that_are_no_interests_are_told(
    graph: Graph, settings: dict[str, Any], message: str
) -> None:
    split = make_split(graph, TASK, 0)
    assert isinstance(split, ClickSplit)
    assignment = Assignment("model", GraphView(graph, split), split, TASK, seed=3, threads=1)
    with pytest.raises(UsageError, match=message) as error:
        make_trainer(section(**settings), assignment)
    assert error.value.where == "models.model.interests"


@pytest.mark.parametrize(
    ("interests", "message"),
    [
        ([], "at least 1 item"),
        ([INTERESTS[0], INTERESTS[0]], "each feature once, received `items`"),
        ([INTERESTS[0], {"history": "item", "target": "shop"}], "received `item` as both"),
    ],
)
def test_interests_that_contradict_each_other_are_refused(interests: list[Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        section(interests=interests)


def test_histories_that_name_things_otherwise_are_refused(tmp_path: Path) -> None:
    """A category of digits is an integer, a text of digits in a typed list is none."""
    table = log_table(600)
    table["item"] = [each[1:] for each in table["item"]]
    table["items"] = [[each[1:] for each in events] for events in table["items"]]
    for name, events in (
        ("texts", table["items"]),
        ("integers", [list(map(int, e)) for e in table["items"]]),
    ):
        nodes = NodeSource(pa.table({**table, "items": events}), id=None, features=FEATURES)
        import_graph(GraphSource("log", {"row": nodes}, ()), tmp_path / name)
        graph = Graph.open(tmp_path / name)
        split = make_split(graph, TASK, 0)
        assert isinstance(split, ClickSplit)
        assignment = Assignment("model", GraphView(graph, split), split, TASK, seed=3, threads=1)
        trainer = make_trainer(section(interests=INTERESTS[:1]), assignment)
        trainer.open_epoch(0)  # type: ignore[attr-defined]
        if name == "integers":
            trainer.draw(0, 0)  # type: ignore[attr-defined]
        else:
            with pytest.raises(UsageError, match="expected a history `items` of what `item` names"):
                trainer.draw(0, 0)  # type: ignore[attr-defined]
        trainer.close()


def test_histories_of_one_target_have_vectors_in_common(graph: Graph) -> None:
    split = make_split(graph, TASK, 0)
    assert isinstance(split, ClickSplit)
    both = [INTERESTS[0], {"history": "shops", "target": "item"}]
    assignment = Assignment("model", GraphView(graph, split), split, TASK, seed=3, threads=1)
    trainer = make_trainer(section(interests=both), assignment)
    assert {each.name: each.items for each in trainer._fields.fields} == {  # type: ignore[attr-defined]
        "item": "item", "shop": None, "items": "item", "shops": "item",
    }  # fmt: skip
