"""Writes models under tests/formats/artifact-1, and their answers: clicks, knowledge graph, tensors, rows.

python -m tests.artifact.format_files
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.artifact import Artifact, ArtifactWriter
from graphbox.compress.parts import commit_version
from graphbox.compress.tables import with_popularity
from graphbox.deploy import (
    DeployedClick,
    DeployedKnowledgeGraph,
    DeployedModel,
    DeployedTensors,
    open_click,
    open_knowledge_graph,
    open_model,
)
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.model_import import add_model
from graphbox.pipeline import run
from graphbox.row_codecs import row_codec
from graphbox.workspace import Workspace
from tests.row_codecs.reference import CODECS
from tests.train.atlas import facts
from tests.train.test_click import log_table

FOLDER = Path(__file__).parents[1] / "formats" / "artifact-1"
RUN_FILE = """\
version: 1
name: formats
threads: 1
graph:
  name: formats
  nodes:
    row:
      path: log.parquet
      id: null
      features: {clicked: boolean, user: categorical, item: categorical, tags: slots, price: number,
                 hour: integer, fresh: boolean, look: vector}
    place: {}
  edges:
    - {type: [place, known, place], path: train.txt.gz, columns: [source, relation, target],
       features: {relation: categorical}, keep_duplicates: true}
    - {type: [place, last, place], path: test.txt.gz, columns: [source, relation, target],
       features: {relation: categorical}, keep_duplicates: true}
tasks:
  clicks: {kind: click, node_type: row, label: clicked, baselines: [prior]}
  missing: {kind: complete, relation_feature: relation, split: {kind: given, test_relations: [last]},
            baselines: [popular]}
models:
  wide: {kind: wide_and_deep, task: clicks, epochs: 1, dim: 2, hidden: [4], crosses: [[user, hour]]}
  turns: {kind: rotate, task: missing, dim: 4, epochs: 2, reciprocal: false}
export:
  click: {model: wide, parity_rows: 20}
  knowledge_graph: {model: turns}
"""
ROWS = 8
ITEMS, ITEM_DIM = 400, 11
QUESTIONS: list[dict[str, Any]] = [
    {"relation": "east", "id": "p2-3", "k": 3, "to_heads": False, "with_known": True},
    {"relation": "opposite", "id": "p0-0", "k": 4, "to_heads": True, "with_known": False},
]


def click_answers(model: DeployedClick, rows: list[dict[str, Any]]) -> list[float]:
    """Return the probability of each row."""
    return [float(each) for each in model.predict(rows).probability]


def graph_answers(model: DeployedKnowledgeGraph, questions: list[dict[str, Any]]) -> list[Any]:
    """Return ids and scores of the answers to each question."""
    ids, found = model.artifact.ids("place"), []
    for each in questions:
        asked = {name: each[name] for name in ("to_heads", "with_known")}
        answers = model.answer(each["relation"], [each["id"]], each["k"], **asked)[0]
        found.append([ids.take(answers.index), [float(score) for score in answers.score]])
    return found


def write(folder: Path) -> dict[str, Any]:
    """Write the models of clicks and of a knowledge graph; return what they answer, by path."""
    with tempfile.TemporaryDirectory() as made:
        tables = Path(made)
        log = pa.table({name: list(values) for name, values in log_table(200).items()})
        pq.write_table(log, tables / "log.parquet")
        parts = facts()
        for name, triples in (("train", [*parts["train"], *parts["valid"]]), ("test", parts["test"])):
            with gzip.open(tables / f"{name}.txt.gz", "wt") as stream:
                stream.writelines("\t".join(triple) + "\n" for triple in triples)
        (tables / "run.yaml").write_text(RUN_FILE)
        workspace = Workspace(tables / "workspace")
        run(tables / "run.yaml", (), workspace)
        for name in ("click", "knowledge_graph"):
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(workspace.model(name, 1).path, folder / name / "1")
    rows = log.drop_columns(["clicked"]).slice(0, ROWS).to_pylist()
    rows = [row | {"price": None if row["price"] != row["price"] else row["price"]} for row in rows]
    with open_click(folder / "click" / "1") as clicks:
        of_clicks = {
            "digest": clicks.manifest.digest,
            "rows": rows,
            "probabilities": click_answers(clicks, rows),
        }
    with open_knowledge_graph(folder / "knowledge_graph" / "1") as graph:
        of_graph = {
            "digest": graph.manifest.digest,
            "questions": QUESTIONS,
            "answers": graph_answers(graph, QUESTIONS),
        }
    return {"click/1": of_clicks, "knowledge_graph/1": of_graph}


def write_tensors(folder: Path) -> dict[str, Any]:
    """Write the model of bare tensors and return what it answers to its example, by path."""
    shutil.rmtree(folder / "tensors", ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "model.onnx"
        file.write_bytes(
            write_onnx(
                [Node("Gather", ["rows", "at"], ["own"]), Node("MatMul", ["own", "weights"], ["score"])],
                {"rows": (np.float32, ["n", 3]), "at": (np.int64, ["batch"])},
                {"score": (np.float32, ["batch", 2])},
                {"weights": np.arange(6, dtype=np.float32).reshape(3, 2)},
            )
        )
        add_model(file, "onnx", folder / "tensors" / "1", "tensors", 1)
    with open_model(folder / "tensors" / "1") as model:
        return {"tensors/1": {"digest": model.manifest.digest, "outputs": tensor_answers(model)}}


def write_rows(folder: Path, number: int, codecs: Iterable[str]) -> dict[str, Any]:
    """Write a table in each of some codecs; return what its first rows decode to, by path. Needs faiss."""
    path = folder / "rows" / str(number)
    shutil.rmtree(path, ignore_errors=True)
    rows = np.random.default_rng(0).standard_normal((ITEMS, ITEM_DIM), np.float32)
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", range(ITEMS))
        for place, name in enumerate(codecs):
            codec = with_popularity(row_codec(name), np.arange(ITEMS) % 7)
            writer.add_table(f"rows-{place}", "item", rows, codec)
        writer.set_lookup("item", {"item": "rows-0"}, "refuse")
        version = writer.commit(
            name="rows", version=number, kind="embedding", task=None, dim=ITEM_DIM, targets={}
        )
    return {f"rows/{number}": {"digest": version.manifest.digest, "tables": row_answers(version)}}


def write_packed(folder: Path) -> dict[str, Any]:
    """Write an encoder as compressed versions are, with its neighbour lists in Parquet files."""
    original = Artifact.open(folder / "encoder" / "1")
    shutil.rmtree(folder / "encoder" / "3", ignore_errors=True)
    with ArtifactWriter(folder / "encoder" / "3") as writer:
        for node_type in original.node_types:
            writer.add_ids(node_type, original.ids(node_type).to_arrow())
        for name in original.manifest.tables:
            writer.copy_table(original, name)
        writer.copy_onnx(original)
        writer.copy_rest(original)
        version = commit_version(original, writer, 3, [])
    answers = json.loads((folder / "expected.json").read_text())["encoder/1"]
    return {"encoder/3": answers | {"digest": version.manifest.digest}}


def row_answers(artifact: Artifact) -> dict[str, list[list[float]]]:
    """Return the first rows of each table, by its codec."""
    tables = artifact.manifest.tables
    return {tables[name].codec: artifact.table(name).block(0, 8).tolist() for name in sorted(tables)}


def tensor_answers(model: DeployedModel) -> dict[str, Any]:
    """Return the outputs for the example request."""
    assert isinstance(model, DeployedTensors)
    return {name: array.tolist() for name, array in model.run(model.example_feeds()).items()}


if __name__ == "__main__":
    path = FOLDER / "expected.json"
    expected = json.loads(path.read_text()) | write(FOLDER) | write_tensors(FOLDER)
    expected |= write_packed(FOLDER)
    for number, codecs in enumerate((CODECS[:9], CODECS[9:12], CODECS[12:]), start=1):
        expected |= write_rows(FOLDER, number, codecs)
    path.write_text(json.dumps(expected, indent=1) + "\n")
