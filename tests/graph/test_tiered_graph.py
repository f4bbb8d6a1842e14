"""A graph read in tiers says what the graph says, changed or not, and opens at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.errors import DoesNotFitError, NotFoundError, UsageError
from graphbox.graph import CSC, CSR, EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.delta import append, remove
from graphbox.graph.format import FolderWriter
from graphbox.graph.merge import write_edges, write_nodes
from graphbox.graph.tier import TierOptions
from graphbox.graph.tiered_edges import Payload, TieredEdges
from graphbox.graph.tiered_graph import TieredGraph

NODES, EDGES = 2000, 30_000
TO = ("node", "to", "node")


def make_graph(path: Path, *, csr: bool = False) -> Graph:
    """Save a graph with every kind of payload and feature, and open it."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 6, NODES)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    graph = Graph.from_coo(
        rng.integers(0, NODES, EDGES),
        (rng.pareto(1.0, EDGES) * 20).astype(np.int64) % NODES,
        num_nodes=NODES,
        weight=rng.random(EDGES).astype(np.float32) + 0.5,
        timestamp=rng.integers(0, 10**12, EDGES),
        node_features={
            "age": rng.random(NODES).astype(np.float32),
            "paid": rng.random(NODES) < 0.5,
            "taste": rng.random((NODES, 40)).astype(np.float32),
            "words": (offsets, rng.integers(-(10**18), 10**18, offsets[-1])),
        },
    )
    if not csr:
        graph.save(path)
        return Graph.open(path)
    table, edges = graph.csr(TO), graph.own_edges(TO)
    with FolderWriter(path) as writer:
        entry = write_edges(writer, TO, edges)
        entry["reverse"] = "from"
        for name, array in (
            ("indptr", table.indptr),
            ("indices", table.indices),
            ("edge-ids", table.edge_ids),
        ):
            entry[f"csr-{name}"] = writer.add(f"edges/csr-{name}", array)
        nodes = write_nodes(writer, "node", graph.node_table("node"))
        writer.commit({"name": "graph", "node_types": [nodes], "edge_types": [entry]})
    return Graph.open(path)


def change(path: Path) -> Graph:
    """Append nodes, edges and new values to the graph, remove some of both, and open it."""
    rng = np.random.default_rng(1)
    new = np.arange(NODES, NODES + 50)
    changed = rng.choice(NODES, 70, replace=False)
    ids = np.concatenate([changed, new])
    taste = rng.random((len(ids), 40)).astype(np.float32)
    tables = {
        "id": ids,
        "age": rng.random(len(ids)).astype(np.float32),
        "paid": rng.random(len(ids)) < 0.5,
        "taste": pa.FixedSizeListArray.from_arrays(pa.array(taste.reshape(-1)), 40),
    }
    source = GraphSource(
        "graph",
        {
            "node": NodeSource(
                pa.table({name: pa.array(values) for name, values in tables.items()}),
                features={"age": "number", "paid": "boolean", "taste": "vector"},
            )
        },
        (
            EdgeSource(
                TO,
                pa.table(
                    {
                        "source": pa.array(rng.integers(0, NODES + 50, 800)),
                        "target": pa.array(rng.integers(0, NODES + 50, 800)),
                        "w": pa.array(rng.random(800) + 0.5),
                        "t": pa.array(rng.integers(0, 10**12, 800)),
                    }
                ),
                weight="w",
                timestamp="t",
            ),
        ),
    )
    append(path, source, compact="never")
    graph = Graph.open(path)
    some = rng.choice(graph.num_edges(TO), 300, replace=False)
    sources, targets = graph.csc(TO).coo()
    ends = graph.ids("node", sources[some]), graph.ids("node", targets[some])
    remove(path, {"node": list(rng.choice(NODES, 20, replace=False))}, {TO: ends})
    return Graph.open(path)


def check_neighbors(
    edges: TieredEdges, expected: CSC | CSR, index: np.ndarray, *, payload: Sequence[Payload] = ()
) -> None:
    """Compare lists, whole ones and edge by edge, with those in memory."""
    rows = [slice(*expected.indptr[[i, i + 1]]) for i in index]

    def wanted(values: Any) -> np.ndarray:
        return np.concatenate([values[:0], *(values[row] for row in rows)])

    offsets, neighbors = edges.neighbor_lists(index)
    assert (np.diff(offsets) == [row.stop - row.start for row in rows]).all()
    assert np.array_equal(neighbors, wanted(expected.indices))
    bounds = edges.bounds(index)
    used = bounds[:, 0] < bounds[:, 1]
    positions, columns = edges.lists_between(index[used], bounds[used], payload)
    for name in ("indices", *payload):
        assert np.array_equal(columns[name], wanted(getattr(expected, name))), name
    assert np.array_equal(edges.neighbors(positions), wanted(expected.indices))
    for column in payload:
        assert np.array_equal(edges.payload(column, positions), wanted(getattr(expected, column)))
    if isinstance(expected, CSC):
        ids = np.arange(len(expected.indices)) if expected.edge_ids is None else expected.edge_ids
        assert np.array_equal(edges.edge_ids(positions), wanted(ids))


def check_graph(tiered: TieredGraph, graph: Graph) -> None:
    """Compare everything with what the graph has in memory."""
    rng = np.random.default_rng(2)
    num_nodes = graph.num_nodes("node")
    csc = graph.csc(TO)
    offsets, words = graph.node_columns("node")["words"].offsets, graph.feature("node", "words")
    assert offsets is not None
    for _ in range(2):
        for index in (
            rng.integers(0, num_nodes, 500),
            np.arange(num_nodes),
            np.full(20, num_nodes - 1),
            np.zeros(0, np.int64),
        ):
            check_neighbors(tiered.edges("to"), csc, index, payload=("weight", "timestamp"))
            for name in ("age", "paid", "taste"):
                expected = graph.feature("node", name)[index]
                assert np.array_equal(
                    tiered.feature_rows("node", name, index), expected, equal_nan=name == "age"
                )
                out = np.empty_like(expected)
                assert tiered.feature_rows("node", name, index, out=out) is out
                assert np.array_equal(out, expected, equal_nan=name == "age")
            found_offsets, found_words = tiered.slot_lists("node", "words", index)
            assert np.array_equal(np.diff(found_offsets), np.diff(offsets)[index])
            assert np.array_equal(
                found_words, np.concatenate([words[:0], *(words[offsets[i] : offsets[i + 1]] for i in index)])
            )


@pytest.mark.parametrize("budget", [0, 100_000, 64 << 20])
def test_a_graph_in_tiers_is_the_graph(tmp_path: Path, budget: int) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered(topology_bytes=budget, feature_bytes=budget, options=TierOptions(depth=16))
    check_graph(tiered, graph)
    stats = tiered.stats
    assert set(stats) == {"topology", "node/age", "node/paid", "node/taste", "node/words"}
    assert stats.pop("topology").resident_bytes <= budget
    assert sum(each.budget_bytes for each in stats.values()) <= budget
    assert all(each.resident_bytes <= each.budget_bytes for each in stats.values())
    assert "io_uring" in tiered.backend


@pytest.mark.parametrize("budget", [0, 100_000, 64 << 20])
def test_a_changed_graph_in_tiers_is_the_graph(tmp_path: Path, budget: int) -> None:
    base = make_graph(tmp_path / "graph")
    graph = change(tmp_path / "graph")
    assert graph.num_nodes("node") == NODES + 50
    assert graph.num_edges(TO) != base.num_edges(TO)
    topology_bytes = changed_bytes(graph) + budget
    tiered = graph.tiered(topology_bytes=topology_bytes, feature_bytes=budget)
    check_graph(tiered, graph)
    stats = tiered.stats["topology"]
    assert stats.budget_bytes == topology_bytes
    assert changed_bytes(graph) // 2 < stats.resident_bytes <= topology_bytes


def changed_bytes(graph: Graph) -> int:
    """Return what the lists that changes touched take, as the error of too small a budget says."""
    with pytest.raises(DoesNotFitError, match="which the lists that changes touched take") as caught:
        graph.tiered()
    assert "graphbox compact" in str(caught.value.hint)
    needed = re.search(r"topology_bytes of ([\d,]+) bytes", caught.value.message)
    assert needed is not None
    needed_bytes = int(needed[1].replace(",", ""))
    with pytest.raises(DoesNotFitError, match=f"received {needed_bytes - 1:,}"):
        graph.tiered(topology_bytes=needed_bytes - 1)
    return needed_bytes


@pytest.mark.parametrize("changed", [False, True])
def test_out_neighbors_where_they_are_on_disk(tmp_path: Path, changed: bool) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    graph = change(tmp_path / "graph") if changed else graph
    tiered = graph.tiered(topology_bytes=2_000_000)
    index = np.random.default_rng(0).integers(0, graph.num_nodes("node"), 900)
    check_neighbors(tiered.edges(TO, "out"), graph.csr(TO), index)
    check_neighbors(tiered.edges(TO), graph.csc(TO), index)
    back = ("node", "from", "node")
    check_neighbors(tiered.edges(back), graph.csc(back), index, payload=("weight", "timestamp"))
    check_neighbors(tiered.edges(back), graph.csc(back), index)
    with pytest.raises(UsageError, match="received a reverse one") as caught:
        tiered.edges(back, "out")
    assert "the in-neighbours of node__to__node" in str(caught.value.hint)


def test_types_that_only_a_change_has(tmp_path: Path) -> None:
    make_graph(tmp_path / "graph")
    likes = ("node", "likes", "tag")
    table = pa.table({"source": pa.array([5, 7, 5]), "target": pa.array(["x", "x", "y"])})
    tags = pa.table({"id": pa.array(["x", "y", "z"]), "size": pa.array([1.0, 2.0, 3.0])})
    source = GraphSource(
        "graph", {"tag": NodeSource(tags, features={"size": "number"})}, (EdgeSource(likes, table),)
    )
    append(tmp_path / "graph", source, compact="never")
    graph = Graph.open(tmp_path / "graph")
    tiered = graph.tiered(topology_bytes=changed_bytes(graph))
    index = np.array([1, 0, 2])
    check_neighbors(tiered.edges(likes), graph.csc(likes), index)
    check_neighbors(tiered.edges(likes, "out"), graph.csr(likes), np.array([5, 6, 7]))
    assert tiered.feature_rows("tag", "size", [1, 0, 2]).tolist() == [2.0, 1.0, 3.0]


def test_errors_of_a_graph_in_tiers(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered()
    with pytest.raises(UsageError, match="from 0 to 1999, received 2000 at position 1"):
        tiered.edges(TO).neighbor_lists(np.array([0, 2000]))
    with pytest.raises(UsageError, match="received -1 at position 0"):
        tiered.feature_rows("node", "age", [-1])
    with pytest.raises(NotFoundError, match="no out-neighbours on disk") as caught:
        tiered.edges(TO, "out")
    assert "csr: true" in str(caught.value.hint)
    with pytest.raises(NotFoundError, match="no feature `agee`"):
        tiered.feature_rows("node", "agee", [0])
    with pytest.raises(UsageError, match="received slots"):
        tiered.feature_rows("node", "words", [0])
    with pytest.raises(UsageError, match="expected slots"):
        tiered.slot_lists("node", "age", [0])
    with pytest.raises(NotFoundError, match="edge type"):
        tiered.edges(("node", "too", "node"))
    with pytest.raises(UsageError, match="built in memory"):
        Graph.from_coo([0], [1]).tiered()
    with pytest.raises(UsageError, match="topology_bytes: expected 0 bytes or more, received -1"):
        graph.tiered(topology_bytes=-1)
    with pytest.raises(UsageError, match="feature_bytes: expected 0 bytes or more, received -2"):
        graph.tiered(feature_bytes=-2)


def test_opening_reads_no_array(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered(topology_bytes=1 << 30, feature_bytes=1 << 30)
    assert all(each.read_bytes == 0 for each in tiered.stats.values())
    assert sum(each.resident_bytes for each in tiered.stats.values()) < 100_000
