"""Models of knowledge graphs as artifacts: the same answers as trained, on disk and over the network."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.deploy import open_knowledge_graph
from graphbox.errors import NotFoundError
from graphbox.pipeline import RunReport, run
from graphbox.pipeline.run_data import RunData
from graphbox.train import CompleteSplit, likely_answers
from graphbox.workspace import Workspace
from tests.pipeline.deployed_figures import deployed_figures
from tests.server.server_process import start_process
from tests.train.atlas import facts

RUN_FILE = """\
version: 1
name: atlas
threads: 1
graph:
  name: atlas
  nodes: {place: {}}
  edges:
    - {type: [place, known, place], path: train.txt.gz, columns: [source, relation, target],
       features: {relation: categorical}, keep_duplicates: true}
    - {type: [place, last, place], path: test.txt.gz, columns: [source, relation, target],
       features: {relation: categorical}, keep_duplicates: true}
tasks:
  missing: {kind: complete, relation_feature: relation, split: {kind: given, test_relations: [last]}}
models:
  products: {kind: complex, task: missing, dim: 8, epochs: 2}
  turns: {kind: rotate, task: missing, dim: 8, epochs: 2, distance: sum, reciprocal: false}
  moves: {kind: transe, task: missing, dim: 8, epochs: 2, distance: euclidean, reciprocal: false}
export:
  atlas-products: {model: products}
  atlas-turns: {model: turns}
  atlas-moves: {model: moves}
compress:
  atlas-products: {max_drop: 0.5}
bench: {seconds: 0.01, batch_sizes: [1, 3]}
"""
MODELS = {"atlas-products": "products", "atlas-turns": "turns", "atlas-moves": "moves"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def report(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("tables")
    parts = facts()
    for name, triples in (("train", [*parts["train"], *parts["valid"]]), ("test", parts["test"])):
        with gzip.open(folder / f"{name}.txt.gz", "wt") as stream:
            stream.writelines("\t".join(triple) + "\n" for triple in triples)
    (folder / "run.yaml").write_text(RUN_FILE)
    return run(folder / "run.yaml", (), workspace)


def as_trained(workspace: Workspace, report: RunReport, model: str, **question: Any) -> list[Any]:
    data = RunData.open(workspace, report.run)
    split = data.split("missing")
    assert isinstance(split, CompleteSplit)
    return likely_answers(data.graph, split, data.trained(model), **question)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("end", ["head", "tail"])
@pytest.mark.parametrize("with_known", [False, True])
def test_answers_are_those_of_the_trained_model(
    workspace: Workspace, report: RunReport, name: str, end: str, with_known: bool
) -> None:
    with open_knowledge_graph(workspace.model(name, 1).path) as model:
        ids = model.artifact.ids("place")
        for relation in ("east", "opposite"):
            question: Any = {"relation": relation, end: "p2-3", "k": 7, "with_known": with_known}
            expected = as_trained(workspace, report, MODELS[name], **question)
            found = model.answer(relation, ["p2-3"], 7, to_heads=end == "tail", with_known=with_known)[0]
            assert ids.take(found.index) == [each.id for each in expected]
            assert found.known.tolist() == [each.known for each in expected]
            np.testing.assert_allclose(found.score, [each.score for each in expected], rtol=1e-4, atol=1e-5)


def test_many_questions_at_once_have_the_answers_of_each(workspace: Workspace, report: RunReport) -> None:
    assert report.export
    with open_knowledge_graph(workspace.model("atlas-turns").path) as model:
        ids = ["p0-0", "p3-3", "p0-0"]
        together = model.answer("north", ids, 5)
        for name, found in zip(ids, together, strict=True):
            alone = model.answer("north", [name], 5)[0]
            np.testing.assert_array_equal(found.index, alone.index)
        assert len(model.answer("north", ["p0-0"], 10_000)[0].index) == 49 - 1  # but the one that is known
        assert model.answer("north", [], 5) == []
        with pytest.raises(NotFoundError, match="received `nord`") as error:
            model.answer("nord", ["p0-0"], 5)
        assert error.value.hint is not None
        with pytest.raises(NotFoundError, match="received `p9-9`"):
            model.answer("north", ["p9-9"], 5)


def test_what_is_served_reaches_what_was_trained(workspace: Workspace, report: RunReport) -> None:
    trained = report.metrics["missing"]["products"]["mrr"]
    served = deployed_figures(workspace, report, "atlas-products", "test")["mrr"]
    assert served == pytest.approx(trained, abs=1e-6)


def test_fewer_bits_are_judged_on_the_validation_part(workspace: Workspace, report: RunReport) -> None:
    measured = report.compress["atlas-products"]
    assert measured["metric"]["name"] == "mrr"
    before = deployed_figures(workspace, report, "atlas-products", "validation")["mrr"]
    assert measured["metric"]["before"] == pytest.approx(before)
    trained = report.metrics["missing"]["products"]["mrr"]
    assert measured["metrics_test"]["mrr"] == pytest.approx(trained, abs=0.05)
    assert report.bench["atlas-turns"][0]["batches"][0]["operation"] == "answers"


def test_a_server_answers_questions(workspace: Workspace, report: RunReport, tmp_path: Path) -> None:
    server = start_process({"port": 0, "workspace": workspace.root}, tmp_path / "log")
    try:
        with server.client() as client:
            path = "/api/v1/models/atlas-products/answers"
            for end in ("head", "tail"):
                question: Any = {"relation": "west", end: "p5-1", "k": 4}
                answer = client.get(path, params={**question, "version": 1})
                assert answer.status_code == 200, answer.text
                expected = as_trained(workspace, report, "products", **question)
                assert [each["id"] for each in answer.json()["answers"]] == [each.id for each in expected]
            assert client.get(path, params={"relation": "west"}).status_code == 400
            assert client.get(path, params={"relation": "wets", "head": "p5-1"}).status_code == 404
            assert client.get("/api/v1/models/atlas-products/neighbors?id=p5-1").status_code == 400
            relations = client.get("/api/v1/models/atlas-products/relations").json()["relations"]
            assert {"name": "west", "head_type": "place", "tail_type": "place"} in relations
            assert client.get("/api/v1/models/atlas-products/ids?prefix=p5").json()["ids"]

            infer = "/v2/models/atlas-products/versions/1/infer"
            example = json.loads(
                (workspace.model("atlas-products", 1).path / "example_request.json").read_text()
            )
            assert client.post(infer, json=example).json()["outputs"][0]["shape"] == [2, 10]
            asked = {
                "inputs": [
                    {"name": "id", "datatype": "BYTES", "shape": [2], "data": ["p5-1", "p0-0"]},
                    {"name": "relation", "datatype": "BYTES", "shape": [2], "data": ["west", "east"]},
                ],
                "parameters": {"k": 3, "asked": "head", "known": True},
            }
            outputs = {each["name"]: each for each in client.post(infer, json=asked).json()["outputs"]}
            for place, (relation, tail) in enumerate((("west", "p5-1"), ("east", "p0-0"))):
                expected = as_trained(
                    workspace, report, "products", relation=relation, tail=tail, k=3, with_known=True
                )
                found = outputs["answer"]["data"][3 * place : 3 * place + 3]
                assert found == [each.id for each in expected]
            asked["parameters"] = {"k": 10_000}
            refused = client.post(infer, json=asked)
            assert (refused.status_code, "parameters.k" in refused.text) == (400, True)
    finally:
        assert server.stop() == 0
        if server.process.stdout is not None:
            server.process.stdout.close()
