"""A knowledge graph from a table without a header to answers, on the command line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.cli.nodes import original_id
from graphbox.errors import UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from tests.cli.conftest import Call
from tests.train.atlas import facts

RUN_FILE = """\
version: 1
name: atlas
threads: 1
graph:
  name: atlas
  nodes: {place: {}}
  edges:
    - type: [place, known, place]
      path: train.txt.gz
      columns: [source, relation, target]
      features: {relation: categorical}
      keep_duplicates: true
    - type: [place, last, place]
      path: test.txt.gz
      columns: [source, relation, target]
      features: {relation: categorical}
      keep_duplicates: true
tasks:
  missing:
    kind: complete
    relation_feature: relation
    split: {kind: given, test_relations: [last]}
models:
  transe: {kind: transe, task: missing, dim: 16, epochs: 5}
  hasty: {kind: distmult, task: missing, dim: 2, epochs: 1}
"""


def test_from_triples_to_answers(folder: Path, graphbox: Call) -> None:
    parts = facts()
    # Another relation between two places that have one: both are kept.
    extra = [*parts["train"], *parts["valid"], ("p0-0", "beside", "p1-0")]
    for name, triples in (("train", extra), ("test", parts["test"])):
        with gzip.open(folder / f"{name}.txt.gz", "wt") as stream:
            stream.writelines("\t".join(triple) + "\n" for triple in triples)
    (folder / "run.yaml").write_text(RUN_FILE)
    outcome = graphbox("run", "run.yaml", "--json", "-q")
    assert outcome.code == 0, outcome.err
    models = outcome.json["metrics"]["missing"]
    assert models["transe"]["mrr"] > models["hasty"]["mrr"]
    report = models["transe"]
    assert report["queries"] == 2 * len(parts["test"])
    assert report["queries_relation_northeast"] > 0
    assert set(outcome.json["baselines"]["missing"]) == {"popular", "rules"}
    shown = graphbox("eval", "last").out
    assert "hits@10" in shown
    assert "_relation_" not in shown

    assert graphbox("embed", "export", "last", "-o", "out", "--format", "npy").code == 0
    names = (folder / "out/relations/relations.ids.txt").read_text().splitlines()
    assert {"beside", "east", "east (backwards)"} <= set(names)

    outcome = graphbox(
        "embed", "answers", "last", "east", "--head", "p0-0", "-k", "3", "--with-known", "--json"
    )
    assert outcome.code == 0, outcome.err
    assert len(outcome.json["answers"]) == 3
    assert outcome.json["model"] == "transe"  # the best, not the last
    other = graphbox("embed", "answers", "last", "east", "--head", "p0-0", "--model", "hasty", "--json")
    assert other.json["model"] == "hasty"
    wrong = graphbox("embed", "answers", "last", "eats", "--head", "p0-0")
    assert wrong.code == 2
    assert "there is no relation `eats`" in wrong.err

    asked = ("embed", "answers", "last", "east", "--head", "p0-0", "--json")
    before = graphbox(*asked).json
    removal = graphbox("import", "--remove", "--name", "atlas", "--node", "place", "p6-6", "-q")
    assert removal.code == 0, removal.err
    assert "is gone" in graphbox("eval", "last").err
    assert graphbox(*asked).json == before, "the run has all that answers need"
    assert graphbox("graphs", "rm", "atlas", "-q").code == 0
    assert graphbox(*asked).json == before


def test_ids_are_read_as_the_node_type_has_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [-5, 7]}), tmp_path / "number.parquet")
    pq.write_table(pa.table({"id": ["-5", "--5"]}), tmp_path / "word.parquet")
    nodes = {name: NodeSource(tmp_path / f"{name}.parquet") for name in ("number", "word")}
    import_graph(GraphSource("ids", nodes, ()), tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert original_id(graph, "number", "-5", "--head") == -5
    assert original_id(graph, "word", "--5", "--head") == "--5"
    for text in ("--5", "five", "5.0", str(2**63)):
        with pytest.raises(UsageError, match="--head: expected an integer id of `number`"):
            original_id(graph, "number", text, "--head")
