"""Graphs from and to PyTorch Geometric, and the stores its loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, TensorAttr

from graphbox.errors import UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.graph.columns import Column
from graphbox.graph.live_nodes import LiveNodeTable, NodeChange
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable
from graphbox.graph.tables import edge_table, numbered_nodes

BUYS = ("user", "buys", "item")


@pytest.fixture
def hetero() -> HeteroData:
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["user"].x = torch.rand(5, 3, generator=generator)
    data["user"].ids = ["ann", "bob", "cid", "dan", "eve"]
    data["user"].train_mask = torch.tensor([True, False, True, True, False])
    data["item"].num_nodes = 4
    data["item"].y = torch.tensor([2, 0, 1, 1])
    data["item"].price = torch.tensor([1.5, 2.0, 0.25, 8.0], dtype=torch.float64)
    data["item"].words = torch.tensor([7, 8, -9, 2**62])
    data["item"].words_ptr = torch.tensor([0, 2, 2, 3, 4])
    data["item"].ids = torch.tensor([10, -3, 0, 4])
    data[BUYS].edge_index = torch.tensor([[4, 0, 1, 0, 4], [3, 3, 0, 1, 3]])
    data[BUYS].edge_weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    data[BUYS].time = torch.tensor([50, 40, 30, 20, 10])
    data[BUYS].edge_attr = torch.arange(10.0).reshape(5, 2)
    return data


def _edges(store: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return the edges with some attributes, in an order of their own."""
    columns = [store.edge_index[0], store.edge_index[1], *(store[name] for name in names)]
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_heterogeneous_data_comes_back(hetero: HeteroData, tmp_path: Path) -> None:
    graph = Graph.from_pyg(hetero, name="shop")
    graph.save(tmp_path / "shop")
    back = Graph.open(tmp_path / "shop").to_pyg()
    assert isinstance(back, HeteroData)
    assert back.validate()
    assert (back.node_types, back.edge_types) == (["user", "item"], [BUYS])
    assert torch.equal(back["user"].x, hetero["user"].x)
    assert back["user"].ids == hetero["user"].ids
    assert torch.equal(back["user"].train_mask, hetero["user"].train_mask)
    for name in ("y", "words", "words_ptr", "ids"):
        assert torch.equal(back["item"][name], hetero["item"][name]), name
    assert torch.equal(back["item"].price, hetero["item"].price.float())
    assert _edges(back[BUYS], "edge_weight", "edge_time", "edge_attr") == _edges(
        hetero[BUYS], "edge_weight", "time", "edge_attr"
    )
    again = Graph.from_pyg(back)
    assert again.describe().as_dict()["node_types"] == graph.describe().as_dict()["node_types"]


def test_homogeneous_data_comes_back() -> None:
    data = Data(
        x=torch.rand(6, 2),
        y=torch.arange(6),
        edge_index=torch.tensor([[0, 1, 2, 5, 1], [1, 2, 0, 0, 2]]),
        edge_attr=torch.arange(5.0).reshape(5, 1),
        edge_time=torch.arange(5),
    )
    back = Graph.from_pyg(data).to_pyg()
    assert isinstance(back, Data)
    assert torch.equal(back.x, data.x)
    assert torch.equal(back.y, data.y)
    assert torch.equal(back.ids, torch.arange(6))
    assert _edges(back, "edge_attr", "edge_time") == _edges(data, "edge_attr", "edge_time")
    assert isinstance(Graph.from_pyg(data).to_pyg(heterogeneous=True), HeteroData)


def test_views_and_reverse_edges_convert_too(hetero: HeteroData) -> None:
    back = Graph.from_pyg(hetero).with_reverse_edges().to_pyg()
    forward, reverse = back[BUYS], back["item", "rev_buys", "user"]
    turned = sorted((b, a, *rest) for a, b, *rest in _edges(forward, "edge_weight", "edge_attr"))
    assert _edges(reverse, "edge_weight", "edge_attr") == turned


def test_what_has_no_form_is_refused(hetero: HeteroData) -> None:
    graph = Graph.from_pyg(hetero)
    with pytest.raises(UsageError, match="expected one node type and one edge type"):
        graph.to_pyg(heterogeneous=False)
    with pytest.raises(UsageError, match="`edge_index`, received Data"):
        Graph.from_pyg(Data(x=torch.ones(2, 2)))
    with pytest.raises(UsageError, match=r"`edge_index`.*expected integers \[2, num_edges\]"):
        Graph.from_pyg(Data(edge_index=torch.zeros(2, 3), num_nodes=2))
    with pytest.raises(UsageError, match="expected indices from 0 to 1"):
        Graph.from_pyg(Data(edge_index=torch.tensor([[0, 7], [1, 1]]), num_nodes=2))
    hetero["user", "likes", "item"].edge_weight = torch.ones(2)
    with pytest.raises(UsageError, match="user__likes__item: expected `edge_index`, received none"):
        Graph.from_pyg(hetero)
    del hetero["user", "likes", "item"]
    hetero["item"].cube = torch.zeros(4, 2, 2)
    with pytest.raises(UsageError, match=r"feature `cube` of nodes of type `item`"):
        Graph.from_pyg(hetero)
    del hetero["item"].cube
    hetero["user"].ids = ["ann", 2, "cid", "dan", "eve"]
    with pytest.raises(UsageError, match="all strings or all 64-bit integers"):
        Graph.from_pyg(hetero)
    same = Graph.from_coo([0, 1], [1, 0], node_features={"a": [1.0, 2.0]}, edge_features={"a": [3.0, 4.0]})
    with pytest.raises(UsageError, match="expected one attribute `a`, received two"):
        same.to_pyg()


def test_from_coo_takes_features_and_timestamps() -> None:
    graph = Graph.from_coo(
        [2, 0, 1],
        [0, 1, 0],
        timestamp=[30, 10, 20],
        node_features={
            "kind": ["b", "a", "b"],
            "tags": (np.array([0, 2, 2, 3]), np.array([5, 6, 7])),
            "pair": np.array([[1, 2], [3, 4], [5, 6]]),
        },
        edge_features={"v": np.array([[1, 2], [3, 4], [5, 6]], np.float32), "old": [True, False, True]},
    )
    csc = graph.csc()
    source, target = csc.coo()
    assert csc.timestamp is not None
    assert list(zip(source.tolist(), target.tolist(), csc.timestamp.tolist(), strict=True)) == [
        (1, 0, 20),
        (2, 0, 30),
        (0, 1, 10),
    ]
    assert graph.edge_feature(None, "v").tolist() == [[5, 6], [1, 2], [3, 4]]
    assert graph.edge_feature(None, "old").tolist() == [True, True, False]
    assert graph.features("node")["kind"].categories == ("a", "b")
    columns = graph.node_columns("node")
    assert columns["tags"].offsets is not None
    assert columns["tags"].offsets.tolist() == [0, 2, 2, 3]
    assert columns["pair"].kind == "slots"
    for wrong, message in (
        ({"node_features": {"a": [1.0]}}, "expected 3 rows"),
        ({"edge_features": {"a": [1j, 2, 3]}}, "received complex128"),
        ({"node_features": {"a": (np.array([0, 2]), np.array([1, 2]))}}, "expected 4 rising offsets"),
        ({"timestamp": [1.5, 2, 3]}, "expected integers"),
        ({"timestamp": [1]}, "expected 3 timestamps"),
    ):
        with pytest.raises(UsageError, match=message):
            Graph.from_coo([2, 0, 1], [0, 1, 0], **wrong)


# Stores


def test_the_feature_store_gathers_rows(hetero: HeteroData, tmp_path: Path) -> None:
    Graph.from_pyg(hetero).save(tmp_path / "shop")
    graph = Graph.open(tmp_path / "shop")
    features, _ = graph.pyg_stores()
    rows = torch.tensor([3, 0, 3])
    assert torch.equal(features["user", "x", rows], hetero["user"].x[rows])
    assert torch.equal(features["user", "x", None], hetero["user"].x)
    assert torch.equal(features["user", "x"][1:3], hetero["user"].x[1:3])
    # A slice is a copy as well: writing into what was given leaves the graph as it is.
    features["user", "x", None].zero_()
    assert torch.equal(features["user", "x", None], hetero["user"].x)
    assert features.get_tensor_size("user", "x") == (5, 3)
    edge_ids = torch.tensor([0, 2])
    expected = torch.from_numpy(graph.edge_feature(BUYS, "edge_attr")[[0, 2]])
    assert torch.equal(features[BUYS, "edge_attr", edge_ids], expected)
    listed = {(attr.group_name, attr.attr_name) for attr in features.get_all_tensor_attrs()}
    assert listed == {("user", "x"), ("user", "train_mask"), ("item", "y"), ("item", "price")}
    for missing in (("user", "z"), ("nobody", "x"), ("item", "words")):
        assert features.get_tensor(TensorAttr(*missing, index=None)) is None
    bare, _ = Graph.from_coo([0, 1], [1, 2]).pyg_stores()
    assert [(attr.group_name, attr.attr_name) for attr in bare.get_all_tensor_attrs()] == [("node", "n_id")]
    assert bare["node", "n_id", None].tolist() == [0, 1, 2]
    assert bare["node", "n_id"][1:].tolist() == [1, 2]
    assert bare["node", "n_id", torch.tensor([2, 0])].tolist() == [2, 0]
    assert bare.get_tensor_size("node", "n_id") == (3,)
    with pytest.raises(UnsupportedError, match="import --append"):
        features["user", "x", None] = torch.ones(5, 3)
    with pytest.raises(UnsupportedError, match="remove `x`"):
        del features["user", "x", None]


def test_the_graph_store_gives_every_layout(hetero: HeteroData, tmp_path: Path) -> None:
    Graph.from_pyg(hetero).with_reverse_edges().save(tmp_path / "shop")
    _, edges = Graph.open(tmp_path / "shop").pyg_stores()
    assert [attr.edge_type for attr in edges.get_all_edge_attrs()] == [BUYS, ("item", "rev_buys", "user")]
    assert edges.get_all_edge_attrs()[0].size == (5, 4)
    expected = sorted(zip(*hetero[BUYS].edge_index.tolist(), strict=True))
    row, col = edges.get_edge_index(BUYS, "coo")
    assert sorted(zip(row.tolist(), col.tolist(), strict=True)) == expected
    row, colptr = edges.get_edge_index(BUYS, "csc")
    cols = torch.repeat_interleave(torch.arange(4), colptr.diff())
    assert sorted(zip(row.tolist(), cols.tolist(), strict=True)) == expected
    rowptr, col = edges.get_edge_index(BUYS, "csr")
    rows = torch.repeat_interleave(torch.arange(5), rowptr.diff())
    assert sorted(zip(rows.tolist(), col.tolist(), strict=True)) == expected
    with pytest.raises(KeyError):
        edges.get_edge_index(("a", "b", "c"), "coo")
    with pytest.raises(UnsupportedError):
        edges.put_edge_index((row, row), BUYS, "coo")
    with pytest.raises(UnsupportedError):
        edges.remove_edge_index(BUYS, "coo")


def test_a_changed_graph_converts_with_its_changes() -> None:
    numbers = Column("number", np.array([10, 20], np.float32))
    base = edge_table(np.array([0, 1]), np.array([1, 2]), 3, 3, features={"n": numbers})
    change = EdgeChange(
        2,
        np.array([2]),
        np.array([0]),
        features={"n": Column("number", np.array([30], np.float32))},
        removed=np.array([0]),
    )
    edges = {("node", "to", "node"): LiveEdgeTable(base, [change], 3, 3)}
    graph = Graph("changed", {"node": numbered_nodes(3)}, edges)
    assert _edges(graph.to_pyg(), "n") == [(1, 2, 20), (2, 0, 30)]
    assert sorted(graph.to_networkx().edges(data="n")) == [(1, 2, 20), (2, 0, 30)]
    features, _ = graph.pyg_stores()
    ids = torch.from_numpy(graph.csc().ids_at(np.arange(2)))
    assert features.get_tensor(("node", "to", "node"), "n", ids).tolist() == [30, 20]


def test_removed_nodes_are_left_out() -> None:
    base = numbered_nodes(4, {"n": Column("number", np.arange(4, dtype=np.float32))})
    nodes = {"node": LiveNodeTable(base, [NodeChange(first=4, removed=np.array([1]))])}
    edges = {("node", "to", "node"): edge_table(np.array([0, 3]), np.array([2, 0]), 4, 4)}
    data = Graph("changed", nodes, edges).to_pyg()
    assert data.num_nodes == 3
    assert data.ids.tolist() == [0, 2, 3]
    assert data.n.tolist() == [0, 2, 3]
    assert _edges(data) == [(0, 1), (2, 0)]
    converted = Graph("changed", nodes, edges).to_networkx()
    assert list(converted.nodes) == [0, 2, 3]
    assert sorted(converted.edges()) == [(0, 2), (3, 0)]
