"""Models of clicks as artifacts: the same probabilities as trained, from rows of the user's own columns."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact, FieldsForm
from graphbox.compress.dense import layers_of
from graphbox.compress.recipe import Recipe
from graphbox.compress.search import Target, Workbench
from graphbox.deploy import DeployedClick, open_click, open_encoder
from graphbox.deploy.field_columns import columns_of_rows
from graphbox.errors import InvalidRequestError, UnsupportedError
from graphbox.pipeline import RunReport, run
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stages.compress import quality_of
from graphbox.pipeline.training_queries import training_queries
from graphbox.train import ClickSplit, load_trained
from graphbox.workspace import Workspace
from tests.pipeline.deployed_figures import deployed_figures
from tests.server.server_process import start_process
from tests.train.test_click import log_table

RUN_FILE = """\
version: 1
name: log
threads: 1
graph:
  name: log
  nodes:
    row:
      path: log.parquet
      id: null
      features: {clicked: boolean, user: categorical, item: categorical, words: slots, tags: slots,
                 price: number, hour: integer, fresh: boolean, look: vector}
tasks:
  click: {kind: click, node_type: row, label: clicked, baselines: [prior]}
models:
  fm: {kind: deepfm, task: click, epochs: 1, dim: 4, hidden: [8], average_decay: 0.9}
  cross: {kind: dcn, task: click, epochs: 1, dim: 4, hidden: [8], rank: 3, structure: stacked}
  wide: {kind: wide_and_deep, task: click, epochs: 1, dim: 4, hidden: [32, 24], crosses: [[user, hour]],
         features: [user, hour, words]}
export:
  log-fm: {model: fm, parity_rows: 50}
  log-cross: {model: cross, parity_rows: 50}
  log-wide: {model: wide, parity_rows: 50}
compress:
  log-fm: {max_drop: 0.5}
bench: {seconds: 0.01, batch_sizes: [1, 3]}
"""
MODELS = {"log-fm": "fm", "log-cross": "cross", "log-wide": "wide"}


def table() -> pa.Table:
    columns = {name: list(values) for name, values in log_table(600).items()}
    columns["words"] = [[f"word {tag}" for tag in tags] for tags in columns["tags"]]
    columns["user"][7] = None
    return pa.table(columns)


def rows_of(log: pa.Table) -> list[dict[str, Any]]:
    """Return rows as a client writes them in JSON."""
    rows = log.drop_columns(["clicked"]).to_pylist()
    for row in rows:
        row["price"] = None if math.isnan(row["price"]) else row["price"]
    copied: list[dict[str, Any]] = json.loads(json.dumps(rows, allow_nan=False))
    return copied


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def report(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("tables")
    pq.write_table(table(), folder / "log.parquet")
    (folder / "run.yaml").write_text(RUN_FILE)
    return run(folder / "run.yaml", (), workspace)


def opened(workspace: Workspace, name: str, version: int = 1) -> DeployedClick:
    return open_click(workspace.model(name, version).path)


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_json_have_the_probabilities_of_the_trained_model(
    workspace: Workspace, report: RunReport, name: str
) -> None:
    trained = load_trained(report.path, MODELS[name])
    assert trained.click is not None
    log = table()
    expected = trained.click.predict(log)
    with opened(workspace, name) as model:
        found = model.predict(rows_of(log))
        np.testing.assert_allclose(found.probability, expected, atol=1e-6)
        assert not found.unseen[np.arange(600) != 7].any()  # one user is missing in that row alone
        one = np.concatenate([model.predict([row]).probability for row in rows_of(log)[:20]])
        np.testing.assert_allclose(one, expected[:20], atol=1e-6)
        assert len(model.predict([]).probability) == 0
    parity = report.export[name]
    assert parity["rows"] > 50
    assert parity["max_absolute_error"] < 1e-5


def test_values_never_learnt_count_as_nothing_and_are_told(workspace: Workspace, report: RunReport) -> None:
    trained = load_trained(report.path, "fm")
    assert trained.click is not None
    row = {**rows_of(table())[3], "user": "nobody", "words": ["never", "heard"], "price": None}
    known = {**row, "price": math.nan, "look": row["look"]}
    strange = pa.table({name: [value] for name, value in known.items()})
    with opened(workspace, "log-fm") as model:
        found = model.predict([row, rows_of(table())[3]])
        np.testing.assert_allclose(found.probability[:1], trained.click.predict(strange), atol=1e-6)
        assert found.unseen_fields(0) == ["user", "words"]
        assert found.unseen_fields(1) == []


def test_the_artifact_says_what_a_row_is(workspace: Workspace, report: RunReport) -> None:
    artifact = Artifact.open(workspace.model("log-fm", report.export["log-fm"]["version"]).path)
    assert (artifact.manifest.kind, artifact.manifest.dim) == ("click", 1)
    assert {tensor.name: tensor.datatype for tensor in artifact.manifest.inputs} == {
        "user": "BYTES", "item": "BYTES", "words": "BYTES", "tags": "BYTES", "price": "FP32",
        "hour": "INT64", "fresh": "BOOL", "look": "FP32",
    }  # fmt: skip
    form = artifact.preprocess
    assert isinstance(form, FieldsForm)
    hour = next(field for field in form.fields if field.name == "hour")
    assert list(hour.knots) == list(range(24))
    with pytest.raises(UnsupportedError, match="gives embeddings, received `log-fm` of kind click"):
        open_encoder(artifact.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": "dear"}, "expected a number or null, received 'dear'"),
        ({"price": 1e300}, "finite number within the range of float32"),
        ({"price": True}, "expected a number or null, received True"),
        ({"hour": None}, "expected an integer of 64 bits, received None"),
        ({"hour": 2**63}, "expected an integer of 64 bits"),
        ({"fresh": 1}, "expected true or false, received 1"),
        ({"user": 1.5}, "expected a category"),
        ({"look": [1.0]}, "expected a list of 2 numbers"),
        ({"words": [""]}, "strings that are not empty"),
        ({"words": [[1]]}, "strings that are not empty"),
    ],
)
def test_what_cannot_be_read_is_told_with_row_and_column(
    workspace: Workspace, report: RunReport, change: dict[str, Any], message: str
) -> None:
    assert report.export
    rows = rows_of(table())[:2]
    with opened(workspace, "log-fm") as model, pytest.raises(InvalidRequestError, match=message) as error:
        model.predict([rows[0], rows[1] | change])
    assert error.value.where == f"row 1, column `{next(iter(change))}`"


def test_a_missing_column_is_told(workspace: Workspace, report: RunReport) -> None:
    assert report.export
    row = rows_of(table())[0]
    row["prize"] = row.pop("price")
    with opened(workspace, "log-fm") as model, pytest.raises(InvalidRequestError) as error:
        model.predict([row])
    assert "expected the column `price` in every row" in error.value.message
    assert (error.value.where, error.value.hint) == ("row 0", "did you mean `prize`?")


def test_what_is_served_reaches_what_was_trained(workspace: Workspace, report: RunReport) -> None:
    trained = report.metrics["click"]["fm"]["auc"]
    assert deployed_figures(workspace, report, "log-fm", "test")["auc"] == pytest.approx(trained, abs=1e-6)


def test_fewer_bits_are_judged_on_the_validation_part(workspace: Workspace, report: RunReport) -> None:
    measured = report.compress["log-fm"]
    assert measured["metric"]["name"] == "auc"
    before = deployed_figures(workspace, report, "log-fm", "validation")["auc"]
    assert measured["metric"]["before"] == pytest.approx(before)
    assert measured["metric"]["after"] == pytest.approx(before, abs=0.05)
    assert measured["metrics_test"]["auc"] == pytest.approx(report.metrics["click"]["fm"]["auc"], abs=0.05)
    operations = [{batch["operation"] for batch in each["batches"]} for each in report.bench["log-fm"]]
    assert operations == [{"infer", "program"}] * 2


def test_a_server_predicts_rows(workspace: Workspace, report: RunReport, tmp_path: Path) -> None:
    trained = load_trained(report.path, "fm")
    assert trained.click is not None
    log = table()
    expected = trained.click.predict(log)
    server = start_process({"port": 0, "workspace": workspace.root, "max_rows": 700}, tmp_path / "log")
    try:
        with server.client() as client:
            path = "/api/v1/models/log-fm/predict?version=1"
            answer = client.post(path, json={"rows": rows_of(log)})
            assert answer.status_code == 200, answer.text
            found = answer.json()["predictions"]
            np.testing.assert_allclose([each["probability"] for each in found], expected, atol=1e-6)
            wrong = client.post(path, json={"rows": [{"user": "u1"}]})
            assert (wrong.status_code, wrong.json()["where"]) == (400, "row 0")
            assert client.post(path, json={"rows": [{}] * 701}).status_code == 400
            assert client.get("/api/v1/models/log-fm/neighbors?id=u1").json()["code"] == "invalid_request"
            assert client.get("/api/v1/models/log-fm/ids").status_code == 400
            nan = client.post(
                path,
                content=b'{"rows": [' + json.dumps(rows_of(log)[0] | {"price": math.nan}).encode() + b"]}",
            )
            assert nan.status_code == 400
            row = json.dumps(rows_of(log)[0])
            for body, status, message in (
                (f'{{"rows": [{row[:-1]}, "user": "u2"}}]}}', 400, "`user` twice"),
                (f'{{"rows": [{row}], "row": []}}', 400, "`row`"),
                ('{"rows": {"user": "u1"}}', 400, "expected a list of objects"),
                ('{"rows": [1]}', 400, "expected a list of objects"),
                ("[]", 400, "expected a JSON object"),
                ('{"rows": [' + f"{row}," * 20_000 + f"{row}]}}", 413, "1048576 bytes of JSON"),
            ):
                refused = client.post(path, content=body)
                assert refused.status_code == status, body[:99]
                assert message in refused.json()["message"]

            example = json.loads((workspace.model("log-fm", 1).path / "example_request.json").read_text())
            infer = "/v2/models/log-fm/versions/1/infer"
            answer = client.post(infer, json=example)
            assert answer.status_code == 200, answer.text
            first = answer.json()["outputs"][0]
            assert (first["name"], first["shape"]) == ("probability", [16])
            example["inputs"][0]["shape"] = [2]
            example["inputs"][0]["data"] = ["u1", "u2"]
            uneven = client.post(infer, json=example)
            assert uneven.status_code == 400
            assert "expected 2 rows, as in input `user`, received 16" in uneven.json()["error"]
    finally:
        assert server.stop() == 0
        if server.process.stdout is not None:
            server.process.stdout.close()


def test_tensors_have_the_probabilities_of_the_rows(workspace: Workspace, report: RunReport) -> None:
    assert report.export
    rows = rows_of(table())[:40]
    tensors: dict[str, Any] = {
        "price": np.array([math.nan if row["price"] is None else row["price"] for row in rows], np.float32),
        "hour": np.array([row["hour"] for row in rows]),
        "fresh": np.array([row["fresh"] for row in rows]),
        "look": np.array([row["look"] for row in rows], np.float32),
    }
    for name in ("user", "item"):
        tensors[name] = np.array([(row[name] or "").encode() for row in rows], object)
    for name in ("tags", "words"):
        tensors[name] = np.array(["|".join(map(str, row[name])).encode() for row in rows], object)
    with opened(workspace, "log-fm") as model:
        expected = model.predict(rows).probability
        np.testing.assert_array_equal(model.predict_tensors(tensors).probability, expected)
        tensors["user"][3] = b"\xff"
        with pytest.raises(InvalidRequestError, match="expected text in UTF-8"):
            model.predict_tensors(tensors)


def test_training_queries_are_the_rows_of_the_training_part(workspace: Workspace, report: RunReport) -> None:
    parent = workspace.model("log-fm", 1)
    data = RunData.open(workspace, str(parent.run_id))
    split = data.split("click")
    assert isinstance(split, ClickSplit)
    find = training_queries(data.graph, split)
    assert find is not None
    rows, learned = rows_of(table()), split.rows("train")
    with open_click(parent.path) as model:
        queries = find(model)
        assert queries.count == len(learned) > 16 == model.num_queries
        numbers = np.array([queries.count - 1, 0, 17])
        received = queries.feeds(numbers)
        asked = columns_of_rows(model.form.fields, [rows[number] for number in learned[numbers]])
        expected = model.feeds(model.fields.prepare(asked))
    assert set(received) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(received[name], values)


def test_hidden_layers_of_a_version_are_narrowed_by_layer(
    workspace: Workspace, report: RunReport, tmp_path: Path
) -> None:
    """The version has no more weights than with half of each layer."""
    parent = workspace.model("log-wide", 1)
    quality = quality_of(workspace, parent)
    assert quality.evaluate is not None
    recipe = Recipe(kept_neurons=0.5, by_layer=True)
    with Workbench(
        Artifact.open(parent.path),
        tmp_path / "models",
        Target(),
        quality.evaluate,
        quality.metric,
        quality.queries,
    ) as bench:
        assert bench.can_prune
        with bench.built(recipe, "half") as built:
            before, after = (
                {each.name: each.columns for each in layers_of(artifact.onnx_bytes())}
                for artifact in (bench.parts.artifact, built)
            )
            step = built.manifest.lineage.steps[-2]
            assert built.manifest.lineage.steps[-1] == recipe.step
        trial = bench.try_recipe(recipe, "ladder")
    hidden = [name for name, columns in before.items() if columns in (32, 24)]
    assert step == f"neurons 50 % ({', '.join(f'{after[name]} of {before[name]}' for name in hidden)})"
    assert sum(after[name] for name in hidden) < 32 + 24
    assert trial.state == "measured"
    assert trial.size_bytes < parent.size_bytes
