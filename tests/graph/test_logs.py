"""Logs: node types whose rows have no ids, in graphs without an edge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphbox.config import load_config
from graphbox.errors import ConfigError, UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.delta import append
from graphbox.graph.ingest import import_graph
from graphbox.graph.plan import plan_import

FEATURES = {"clicked": "boolean", "price": "number", "shop": "slots"}


def log_of(path: Path, text: str) -> NodeSource:
    path.write_text("clicked,price,shop\n" + text, encoding="utf-8")
    return NodeSource(path, id=None, features=FEATURES)  # type: ignore[arg-type]


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    rows = log_of(tmp_path / "log.csv", "true,1.5,a|b\nmaybe,2,c\nfalse,,\ntrue,3,7\n")
    path = tmp_path / "graph"
    import_graph(GraphSource("log", {"row": rows}, ()), path)
    return path


def test_usable_rows_are_numbered_in_order(graph_path: Path) -> None:
    graph = Graph.open(graph_path)
    assert graph.ids("row").tolist() == [0, 1, 2]
    assert graph.edge_types == []
    np.testing.assert_array_equal(graph.feature("row", "price"), np.array([1.5, np.nan, 3], np.float32))
    assert graph.node_table("row").imported["skipped"] == {"not a boolean": 1}


def test_a_graph_without_edges_is_described_and_planned(graph_path: Path, tmp_path: Path) -> None:
    description = Graph.open(graph_path).describe()
    assert (description.nodes, description.edges) == (3, 0)
    assert not [problem for problem in description.problems if problem.kind == "isolated_nodes"]
    rows = log_of(tmp_path / "log.csv", "true,1.5,a|b\nfalse,,\n")
    plan = plan_import(GraphSource("log", {"row": rows}, ()), tmp_path / "planned")
    assert plan.as_dict()


def test_rows_that_are_appended_go_on_from_there(graph_path: Path, tmp_path: Path) -> None:
    more = log_of(tmp_path / "more.csv", "true,9,\nfalse,8,b\n")
    report = append(graph_path, GraphSource("log", {"row": more}, ()), compact="never")
    assert report.nodes["row"].added == 2
    append(graph_path, GraphSource("log", {"row": more}, ()))
    graph = Graph.open(graph_path)
    assert graph.ids("row").tolist() == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(graph.feature("row", "price")[3:], [9, 8, 9, 8])
    rows = graph.feature_rows("row", "shop", 2, 5)
    assert rows.values[0] == 7
    assert rows.offsets is not None
    assert np.diff(rows.offsets).tolist() == [1, 0, 1]
    np.testing.assert_array_equal(graph.feature_rows("row", "price", 2, 4).values, [3, 9])


def test_rows_without_ids_do_not_go_to_nodes_that_have_some(tmp_path: Path) -> None:
    table = {"id": [3, 9], "clicked": [True, False]}
    source = GraphSource("log", {"row": NodeSource(table, features={"clicked": "boolean"})}, ())
    import_graph(source, tmp_path / "graph")
    numbered = NodeSource(table, id=None, features={"clicked": "boolean"})
    with pytest.raises(UsageError, match="a column of ids"):
        append(tmp_path / "graph", GraphSource("log", {"row": numbered}, ()))


@pytest.mark.parametrize(
    ("keys", "message"),
    [("", "need `features`"), ("features: {clicked: boolean}, id_type: string", "`id_type` has no meaning")],
)
def test_keys_that_rows_without_ids_have_no_use_for_are_refused(
    tmp_path: Path, keys: str, message: str
) -> None:
    run_file = tmp_path / "run.yaml"
    run_file.write_text(
        f"version: 1\nname: log\ngraph: {{name: log, nodes: {{row: {{path: log.csv, id: null, {keys}}}}}}}\n"
    )
    with pytest.raises(ConfigError, match=message):
        load_config(run_file)


def test_a_column_of_single_values_is_a_slot(tmp_path: Path) -> None:
    table = pa.table({"user": pa.array([5, None, -1]), "name": pa.array(["a", "b", None])})
    source = NodeSource(table, id=None, features={"user": "slots", "name": "slots"})
    import_graph(GraphSource("log", {"row": source}, ()), tmp_path / "graph")
    offsets, values = Graph.open(tmp_path / "graph").slot_lists("row", "user")
    assert (offsets.tolist(), values.tolist()) == ([0, 1, 1, 2], [5, -1])
    assert np.diff(Graph.open(tmp_path / "graph").slot_lists("row", "name")[0]).tolist() == [1, 1, 0]
