"""The graph as its users see it: types, ids, features, views, saving, and what it says to wrong questions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import ConflictError, NotFoundError, UsageError
from graphbox.graph import CSC, EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.format import remove_graph
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import edge_type_from_text, edge_type_text

BUYS = ("user", "buys", "item")
BOUGHT_BY = ("item", "bought_by", "user")
KNOWS = ("user", "knows", "user")


@pytest.fixture
def shop(tmp_path: Path) -> Graph:
    """Three users (strings), four items (integers); `buys` has weights, a feature and a reverse."""
    (tmp_path / "user.csv").write_text("id,age,city\nann,31,Köln\nbob,,Ulm\ncid,25,\n")
    (tmp_path / "item.csv").write_text("id,new\n0,true\n-7,false\n12,true\n5,false\n")
    (tmp_path / "buys.csv").write_text("who,what,w,n\nann,0,2,1\nbob,12,.5,2\nann,-7,1,3\ncid,0,4,4\n")
    (tmp_path / "knows.csv").write_text("source,target\nann,bob\nbob,bob\n")
    source = GraphSource(
        "shop",
        {
            "user": NodeSource(tmp_path / "user.csv", features={"age": "number", "city": "categorical"}),
            "item": NodeSource(tmp_path / "item.csv", features={"new": "boolean"}),
        },
        (
            EdgeSource(
                BUYS,
                tmp_path / "buys.csv",
                "who",
                "what",
                weight="w",
                features={"n": "integer"},
                reverse="bought_by",
            ),
            EdgeSource(KNOWS, tmp_path / "knows.csv"),
        ),
    )
    import_graph(source, tmp_path / "shop")
    return Graph.open(tmp_path / "shop")


def test_types_and_counts(shop: Graph) -> None:
    assert shop.name == "shop"
    assert shop.node_types == ["user", "item"]
    assert shop.edge_types == [BUYS, BOUGHT_BY, KNOWS]
    assert (shop.num_nodes("user"), shop.num_nodes("item")) == (3, 4)
    assert (shop.num_edges(BUYS), shop.num_edges(BOUGHT_BY), shop.num_edges("knows")) == (4, 4, 2)
    assert (shop.reverse_type(BUYS), shop.reverse_type(BOUGHT_BY), shop.reverse_type(KNOWS)) == (
        BOUGHT_BY,
        BUYS,
        None,
    )
    assert [shop.is_reverse(each) for each in shop.edge_types] == [False, True, False]
    assert "user__buys__item: 4 edges" in repr(shop)


def test_adjacency_and_its_reverse(shop: Graph) -> None:
    csc = shop.csc(BUYS)
    assert csc.indptr.tolist() == [0, 2, 3, 4, 4]
    assert csc.indices.tolist() == [0, 2, 0, 1]
    assert csc.weight is not None
    assert csc.weight.tolist() == [2, 4, 1, 0.5]
    assert shop.edge_feature(BUYS, "n").tolist() == [1, 4, 3, 2]
    csr = shop.csr(BUYS)
    assert csr.indptr.tolist() == [0, 2, 3, 4]
    assert csr.indices.tolist() == [0, 1, 2, 0]
    assert csr.edge_ids.tolist() == [0, 2, 3, 1]
    assert shop.csr(BUYS) is csr
    backwards = shop.csc(BOUGHT_BY)
    assert backwards.indptr.tolist() == csr.indptr.tolist()
    assert backwards.indices.tolist() == csr.indices.tolist()
    assert shop.edge_feature(BOUGHT_BY, "n").tolist() == [1, 3, 2, 4]
    assert shop.csr(BOUGHT_BY).indices.tolist() == csc.indices.tolist()


def test_ids_and_features(shop: Graph) -> None:
    assert shop.ids("user").tolist() == ["ann", "bob", "cid"]
    assert shop.ids("item", [3, 0]).tolist() == [5, 0]
    assert [shop.ids(each).dtype.name for each in ("item", "user")] == ["int64", "object"]
    assert shop.index("user", ["cid", "ann"]).tolist() == [2, 0]
    assert shop.index("item", [-7, 8], missing=-1).tolist() == [1, -1]
    assert (shop.id_type("user"), shop.id_type("item")) == ("string", "int64")
    assert shop.arrow_ids("item").to_pylist() == [0, -7, 12, 5]
    np.testing.assert_array_equal(shop.feature("user", "age"), np.array([31, np.nan, 25], np.float32))
    assert shop.features("user")["city"].categories == ("Köln", "Ulm")
    assert shop.feature("user", "city").tolist() == [0, 1, -1]
    assert shop.feature("item", "new").tolist() == [True, False, True, False]
    assert shop.edge_features(BUYS)["n"].kind == "integer"


def test_arrays_of_an_opened_graph_cannot_be_written(shop: Graph) -> None:
    with pytest.raises(ValueError, match="read-only"):
        shop.csc(BUYS).indices[0] = 1


@pytest.mark.parametrize("given", [BUYS, "buys", "user__buys__item", list(BUYS)])
def test_an_edge_type_may_be_named_in_three_ways(shop: Graph, given: Any) -> None:
    assert shop.edge_type(given) == BUYS


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda g: g.csc("bys"),
            NotFoundError,
            r"no edge type `bys` in the graph `shop`\n.*did you mean `buys`",
        ),
        (lambda g: g.csc(("user", "buys", "user")), NotFoundError, r"no edge type `user__buys__user`"),
        (lambda g: g.csc(), UsageError, r"which of the 3 edge types"),
        (lambda g: g.num_nodes("usr"), NotFoundError, r"no node type `usr`.*\n.*did you mean `user`"),
        (lambda g: g.num_nodes(), UsageError, r"which of the node types user, item"),
        (
            lambda g: g.feature("user", "aeg"),
            NotFoundError,
            r"no feature `aeg` of `user`\n.*did you mean `age`",
        ),
        (
            lambda g: g.edge_feature(KNOWS, "w"),
            NotFoundError,
            r"no feature `w` of `user__knows__user`\n.*none",
        ),
        (lambda g: g.ids("user", [3]), UsageError, r"from 0 to 2 \(nodes of type `user`\), received 3"),
        (lambda g: g.ids("user", [-1]), UsageError, r"received -1"),
        (lambda g: g.ids("user", [0.5]), UsageError, r"expected integers \[n\], received float64"),
        (lambda g: g.index("user", ["bop"]), NotFoundError, r"received `bop`"),
        (lambda g: g.without_edges({BUYS: [4]}), UsageError, r"from 0 to 3"),
        (lambda g: g.without_edges({BOUGHT_BY: [0]}), UsageError, r"take them out of user__buys__item"),
    ],
)
def test_wrong_questions_are_answered(shop: Graph, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(shop)


def pairs(csc: CSC) -> list[tuple[int, int]]:
    sources, targets = csc.coo()
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


def test_held_out_edges_are_gone_in_both_directions(shop: Graph) -> None:
    held_out = [3, 0]
    rest = shop.without_edges({BUYS: np.array(held_out)})
    kept = [pair for position, pair in enumerate(pairs(shop.csc(BUYS))) if position not in held_out]
    assert pairs(rest.csc(BUYS)) == kept
    assert sorted(pairs(rest.csc(BOUGHT_BY))) == sorted(pair[::-1] for pair in kept)
    assert rest.edge_feature(BUYS, "n").tolist() == [4, 3]
    weight = rest.csc(BUYS).weight
    assert weight is not None
    assert weight.tolist() == [4, 1]
    assert rest.csc(KNOWS) is shop.csc(KNOWS)
    assert rest.edge_types == shop.edge_types
    assert shop.num_edges(BUYS) == 4
    assert rest.without_edges({KNOWS: [0, 1]}).num_edges(KNOWS) == 0


def test_reverse_edge_types_are_named_as_in_pyg(shop: Graph) -> None:
    both = shop.with_reverse_edges()
    assert both.edge_types == [BUYS, BOUGHT_BY, KNOWS, ("user", "rev_knows", "user")]
    assert pairs(both.csc("rev_knows")) == [(1, 0), (1, 1)]
    assert shop.with_reverse_edges([KNOWS]).edge_types == both.edge_types
    assert shop.with_reverse_edges([]).edge_types == shop.edge_types
    held_out = both.without_edges({KNOWS: [0]})
    assert pairs(held_out.csc("rev_knows")) == [(1, 1)]


def test_saved_graphs_open_again_equal(shop: Graph, tmp_path: Path) -> None:
    view = shop.without_edges({BUYS: [1]}).with_reverse_edges()
    view.save(tmp_path / "copy")
    again = Graph.open(tmp_path / "copy", verify_digests=True)
    assert again.edge_types == view.edge_types
    assert again.describe().as_dict() | {"path": None, "size_bytes": None} == view.describe().as_dict() | {
        "path": None
    }
    for edge_type in view.edge_types:
        assert pairs(again.csc(edge_type)) == pairs(view.csc(edge_type))
    assert again.features("user") == shop.features("user")
    assert again.ids("user").tolist() == shop.ids("user").tolist()
    again.save(tmp_path / "copy")  # onto itself: the open arrays outlive their files
    assert again.ids("user").tolist() == shop.ids("user").tolist()


def test_removed_graphs_are_gone_and_open_ones_still_readable(shop: Graph) -> None:
    assert shop.path is not None
    remove_graph(shop.path)
    assert not shop.path.exists()
    assert shop.csc(BUYS).num_edges == 4
    with pytest.raises(NotFoundError, match="no graph to remove"):
        remove_graph(shop.path)


def test_coordinates_make_a_graph_of_one_type() -> None:
    graph = Graph.from_coo([0, 1, 1], [2, 2, 2], weight=[1, 2, 3])
    assert (graph.num_nodes(), graph.num_edges(), graph.edge_types) == (3, 3, [("node", "to", "node")])
    assert graph.csc().indices.tolist() == [0, 1, 1]
    assert graph.ids("node").tolist() == [0, 1, 2]
    assert graph.index("node", [2]).tolist() == [2]
    assert Graph.from_coo(np.array([0]), np.array([1]), num_nodes=10).csr().indptr.tolist() == [0] + [1] * 10
    with pytest.raises(UsageError, match="opened from a folder"):
        graph.verify()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Graph.from_coo([0], [1, 2]), "as many targets as the 1 sources, received 2"),
        (lambda: Graph.from_coo([0], [5], num_nodes=5), r"from 0 to 4 \(target nodes\), received 5"),
        (lambda: Graph.from_coo([-1], [5]), "received -1"),
        (lambda: Graph.from_coo([0.5], [1]), r"source: expected integers \[n\], received float64"),
        (lambda: Graph.from_coo([], []), "at least one node, received 0"),
        (lambda: Graph.from_coo([0], [1], weight=[0.0]), "finite positive weights"),
        (lambda: Graph.from_coo([0], [1], weight=[1, 2]), r"1 weights, received shape \[2\]"),
        (lambda: Graph.from_pyg(object()), "expected a Data or HeteroData"),
    ],
)
def test_wrong_coordinates_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


# PyTorch Geometric scripts a few functions when it is imported.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_graphs_come_from_pyg() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    from torch_geometric.data import Data, HeteroData

    data = HeteroData()
    data["user"].x = torch.arange(6.0).reshape(3, 2)
    data["item"].num_nodes = 2
    data["user", "buys", "item"].edge_index = torch.tensor([[2, 0, 0], [1, 1, 0]])
    data["user", "buys", "item"].edge_weight = torch.tensor([3.0, 2.0, 1.0])
    graph = Graph.from_pyg(data)
    assert (graph.num_nodes("user"), graph.num_nodes("item")) == (3, 2)
    assert pairs(graph.csc(BUYS)) == [(0, 0), (0, 1), (2, 1)]
    weight = graph.csc(BUYS).weight
    assert weight is not None
    assert weight.tolist() == [1, 2, 3]
    assert (graph.features("user")["x"].kind, graph.features("user")["x"].dim) == ("vector", 2)
    assert graph.feature("user", "x").tolist() == [[0, 1], [2, 3], [4, 5]]

    homogeneous = Graph.from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3))
    assert (homogeneous.num_nodes(), homogeneous.num_edges()) == (3, 2)


def test_text_form_of_edge_types() -> None:
    assert edge_type_from_text(edge_type_text(BUYS)) == BUYS
    for wrong in ("buys", "a__b", "a__b__c__d", "a____c"):
        with pytest.raises(UsageError, match="source__relation__target"):
            edge_type_from_text(wrong)


@pytest.mark.parametrize("name", ["", "a__b", "_a", "a_", "a b", "a/b", "..", "a.b", "x" * 65, "é" * 33])
def test_names_that_no_folder_should_have_are_refused(name: str, tmp_path: Path) -> None:
    graph = Graph.from_coo([0], [1])
    named = Graph("x", {name: graph._nodes["node"]}, {})
    with pytest.raises(UsageError, match="node type: expected letters"):
        named.save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_foreign_folders_are_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"found `notes\.txt` in it"):
        Graph.from_coo([0], [1]).save(tmp_path)
    with pytest.raises(ConflictError, match="received a file"):
        Graph.from_coo([0], [1]).save(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_store_loads_no_torch() -> None:
    program = (
        "import sys, graphbox.graph, graphbox.graph.ingest, graphbox.graph.describe\n"
        "print(sorted({'torch', 'torch_geometric', 'rich', 'pydantic'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == "[]\n"
