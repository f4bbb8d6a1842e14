"""RecBole's atomic files, imported through a run file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphbox.graph import Graph
from tests.cli.conftest import Call

RUN_FILE = """\
version: 1
name: ml
graph:
  name: ml
  nodes:
    user: {path: ml.user, id: user_id, features: {age: number, occupation: categorical}}
    movie: {path: ml.item, id: item_id, features: {class: slots, embedding: vector}}
  edges:
    - type: [user, rates, movie]
      path: ml.inter
      source: user_id
      target: item_id
      weight: rating
      timestamp: timestamp
      reverse: rated_by
    - {type: [user, trusts, user], path: ml.net, source: source_id, target: target_id}
"""


def write(path: Path, *rows: str) -> None:
    path.write_text("".join("\t".join(row.split("|")) + "\n" for row in rows))


def test_import(folder: Path, graphbox: Call) -> None:
    write(
        folder / "ml.user",
        "user_id:token|age:float|occupation:token",
        "1|24|writer",
        "2||artist",
        "7|33|writer",
    )
    write(
        folder / "ml.item",
        "item_id:token|movie_title:token_seq|class:token_seq|embedding:float_seq",
        "m1|Toy Story|Animation Comedy|0.5 1 -2",
        "m2|GoldenEye||1e-2 0 3",
        "m3||Drama|1 1 1",
    )
    write(
        folder / "ml.inter",
        "user_id:token|item_id:token|rating:float|timestamp:float",
        "1|m2|3.0|881250949",
        "7|m1|4.5|881250950",
        "2|m1|1.0|881250951",
        "2|m9|1.0|881250952",
        "2|m1",
    )
    write(folder / "ml.net", "source_id:token|target_id:token", "1|2", "2|7")
    (folder / "ml.yaml").write_text(RUN_FILE)
    assert graphbox("check", "ml.yaml").code == 0
    outcome = graphbox("import", "ml.yaml", "-q")
    assert outcome.code == 0, outcome.err

    graph = Graph.open(folder / "workspace" / "graphs" / "ml")
    assert graph.ids("user").tolist() == [1, 2, 7]
    assert list(graph.ids("movie")) == ["m1", "m2", "m3"]
    np.testing.assert_array_equal(graph.feature("user", "age"), [24, np.nan, 33])
    embedding = np.array([[0.5, 1, -2], [0.01, 0, 3], [1, 1, 1]], np.float32)
    np.testing.assert_array_equal(graph.feature("movie", "embedding"), embedding)
    classes = graph.node_table("movie").features["class"]
    assert classes.offsets is not None
    assert np.diff(classes.offsets).tolist() == [2, 0, 1]
    assert len(np.unique(classes.values)) == 3
    csc = graph.csc(("user", "rates", "movie"))
    assert csc.weight is not None
    assert csc.timestamp is not None
    rated = {
        (int(graph.ids("user")[s]), str(graph.ids("movie")[t]), float(weight), int(time))
        for s, t, weight, time in zip(*csc.coo(), csc.weight, csc.timestamp, strict=True)
    }
    assert rated == {(1, "m2", 3.0, 881250949), (7, "m1", 4.5, 881250950), (2, "m1", 1.0, 881250951)}
    assert graph.num_edges(("user", "trusts", "user")) == 2
    edges = graphbox("describe", "ml", "--json").json["edge_types"][0]
    assert edges["imported"]["skipped"] == {"wrong number of cells": 1}
    assert edges["imported"]["dangling_edges"] == 1
