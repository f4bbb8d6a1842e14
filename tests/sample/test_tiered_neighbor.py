"""Sampling a pass of batches from a graph on disk: bit for bit what is sampled in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox import _core
from graphbox.errors import DataError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.graph.tier import TierOptions
from graphbox.sample import HeteroSample, sample_heterogeneous
from tests.graph.test_tiered_graph import change, make_graph
from tests.sample.passes import sample_pass

FROM = ("node", "from", "node")
KNOWS = ("user", "knows", "user")
BUYS = ("user", "buys", "item")
SHOWN = ("item", "shown_to", "user")
HOPS: list[Any] = [[5], [15, 10, 5], [-1, 3], [4, 0, 4], [0]]


def same(one: HeteroSample[Any], other: HeteroSample[Any]) -> None:
    for name in ("nodes", "row", "col", "edge_ids", "weight", "timestamp", "trees"):
        left, right = getattr(one, name), getattr(other, name)
        assert list(left) == list(right), name
        for key, values in left.items():
            assert values.dtype == right[key].dtype, (name, key)
            assert np.array_equal(values, right[key]), (name, key)
    assert one.num_sampled_nodes == other.num_sampled_nodes
    assert one.num_sampled_edges == other.num_sampled_edges


def check(
    graph: Graph,
    seeds: Sequence[Mapping[str, npt.ArrayLike]],
    num_neighbors: Any,
    *,
    topology_bytes: int = 0,
    replace: bool = False,
    edge_attributes: Sequence[Any] = (),
    options: TierOptions | None = None,
) -> None:
    tiered = graph.tiered(topology_bytes=topology_bytes, options=options)
    sampled = sample_pass(
        tiered,
        seeds,
        num_neighbors,
        epoch=3,
        first_batch=10,
        replace=replace,
        edge_attributes=edge_attributes,
        seed=7,
    )
    assert len(sampled) == len(seeds)
    for number, each in enumerate(seeds):
        expected: HeteroSample[Any] = sample_heterogeneous(
            graph,
            each,
            num_neighbors,
            replace=replace,
            edge_attributes=edge_attributes,
            seed=7,
            epoch=3,
            batch=10 + number,
        )
        same(sampled[number], expected)
        for node_type in graph.node_types:
            assert np.array_equal(sampled.nodes(node_type)[number], expected.nodes[node_type])


def batches(num_nodes: int, count: int = 5) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{"node": rng.integers(0, num_nodes, size)} for size in [1, 0, 200, 64, 7][:count]]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("num_neighbors", HOPS)
def test_samples_are_those_of_the_graph_in_memory(
    tmp_path: Path, num_neighbors: list[int], replace: bool
) -> None:
    graph = make_graph(tmp_path / "graph")
    for budget in (0, 40_000, 10 << 20):
        seeds = batches(graph.num_nodes("node"))
        check(graph, seeds, num_neighbors, topology_bytes=budget, replace=replace)


def test_weights_and_timestamps_of_sampled_edges(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    attributes = ("weight", "timestamp")
    check(graph, batches(graph.num_nodes("node")), [6, 4], edge_attributes=attributes)


@pytest.mark.parametrize("csr", [False, True])
def test_changed_graphs_and_reverse_edge_types(tmp_path: Path, csr: bool) -> None:
    make_graph(tmp_path / "graph", csr=csr)
    graph = change(tmp_path / "graph")
    assert (FROM in graph.edge_types) == csr
    seeds = [*batches(graph.num_nodes("node")), {"node": np.arange(graph.num_nodes("node"))[::-3]}]
    for num_neighbors in ([10, 5], [-1], [3, -1, 2]):
        for replace in (False, True):
            check(graph, seeds, num_neighbors, topology_bytes=2 << 20, replace=replace)
    attributes = ("weight", "timestamp")
    check(graph, seeds, [4, 4], topology_bytes=8 << 20, edge_attributes=attributes)
    if csr:
        check(graph, seeds, {FROM: [5, 5]}, topology_bytes=2 << 20, edge_attributes=attributes)


def heterogeneous(path: Path, seed: int) -> Graph:
    """Save a random graph of two node types and three edge types, one of them empty now and then."""
    rng = np.random.default_rng(seed)
    counts = {"user": int(rng.integers(1, 300)), "item": int(rng.integers(1, 90))}
    edges = {}
    for name in (KNOWS, BUYS, SHOWN):
        num_edges = int(rng.integers(0, 4) * rng.integers(0, 900))
        source, target = (
            (rng.pareto(1.0, num_edges) * 9).astype(np.int64) % counts[name[side]] for side in (0, 2)
        )
        weight = np.asarray(rng.random(num_edges) + 0.1, np.float32) if name == BUYS else None
        edges[name] = edge_table(source, target, counts[name[0]], counts[name[2]], weight=weight)
    nodes = {name: numbered_nodes(count) for name, count in counts.items()}
    Graph("shop", nodes, edges).save(path)
    return Graph.open(path)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_of_several_types(tmp_path: Path, seed: int) -> None:
    graph = heterogeneous(tmp_path / "graph", seed)
    rng = np.random.default_rng(seed)
    seeds = [
        {name: rng.integers(0, graph.num_nodes(name), rng.integers(0, 20)) for name in graph.node_types}
        for _ in range(4)
    ]
    check(graph, seeds, [3, 2, 4], options=TierOptions("threads", depth=4))
    check(graph, seeds, [-1, -1], topology_bytes=1 << 16)
    check(graph, seeds, {BUYS: [3, 2], KNOWS: [0, 5]}, replace=True)
    check(graph, [{"item": seeds[0]["item"]}], {SHOWN: [2], BUYS: [2]}, edge_attributes=("weight",))
    check(graph, [{}, {"user": [0, 0]}], [2])
    check(graph, [], [2])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_number_of_threads_changes_nothing(tmp_path: Path, threads: int) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered(topology_bytes=50_000, options=TierOptions(threads=threads))
    sampled = sample_pass(tiered, batches(2000), [10, 10], num_threads=threads)
    for batch, seeds in enumerate(batches(2000)):
        same(sampled[batch], sample_heterogeneous(graph, seeds, [10, 10], batch=batch))
    same(sampled[-1], sampled[4])
    same(sampled[1:3][1], sampled[2])
    assert sampled.size_bytes > 0
    with pytest.raises(IndexError):
        sampled[5]


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    tiered = make_graph(tmp_path / "graph").tiered()
    seeds = [{"node": [0, 1]}]
    with pytest.raises(UsageError, match="received 2000 at position 1"):
        sample_pass(tiered, [{"node": [0, 2000]}], [2])
    with pytest.raises(UsageError, match="unknown node type"):
        sample_pass(tiered, [{"person": [0]}], [2])
    with pytest.raises(UsageError, match="unknown edge type"):
        sample_pass(tiered, seeds, {FROM: [2]})
    with pytest.raises(UsageError, match="from -1"):
        sample_pass(tiered, seeds, [-2])
    with pytest.raises(UsageError, match="some of weight, timestamp"):
        sample_pass(tiered, seeds, [2], edge_attributes="weight")
    bare = Graph.from_coo([0], [1])
    bare.save(tmp_path / "bare")
    with pytest.raises(UsageError, match="no sampled edges have a weight"):
        sample_pass(Graph.open(tmp_path / "bare").tiered(), seeds, [2], edge_attributes=["weight"])
    turned = Graph.open(tmp_path / "bare").with_reverse_edges()
    with pytest.raises(NotFoundError, match="no out-neighbours on disk"):
        sample_pass(turned.tiered(), seeds, [2])


def native_pass(
    relations: Any, num_nodes: Any, batches: Any, hops: int, *, disjoint: bool = False
) -> _core.NeighborPass:
    return _core.NeighborPass(relations, num_nodes, batches, hops, False, disjoint, False, 0, 1)


def test_the_native_pass_refuses_what_does_not_belong_to_it() -> None:
    nodes = np.array([0, 3, 1])

    def start(hops: int = 1) -> _core.NeighborPass:
        wanted = [2] * hops
        return native_pass([(0, 0, wanted, "to")], [5], [(0, 0, [nodes], None, [])], hops)

    sampled = start()
    with pytest.raises(UsageError, match="numbers for 3 nodes"):
        sampled.draw(0, np.zeros(4, np.int64))
    with pytest.raises(UsageError, match="neighbours of each relation"):
        sampled.end_hop()
    with pytest.raises(DataError, match="goes from 4 to 2 at node 3"):
        sampled.draw(0, np.array([0, 1, 4, 2, 5, 6]))
    with pytest.raises(DataError, match="goes from -1 to 2 at node 0"):
        sampled.draw(0, np.array([-1, 2, 2, 3, 5, 6]))
    positions = sampled.draw(0, np.array([0, 1, 2, 4, 5, 5]))
    with pytest.raises(UsageError, match="expected one draw"):  # which would free the positions
        sampled.draw(0, np.array([0, 1, 2, 4, 5, 5]))
    with pytest.raises(UsageError, match="hops are done"):
        sampled.nodes(0, 0)
    assert positions.tolist() == [0, 2, 3]
    with pytest.raises(UsageError, match="each of 3 positions, received 2"):
        sampled.add(0, np.zeros(2, np.int32))
    with pytest.raises(UsageError, match="int32 or int64"):
        sampled.add(0, np.zeros(3, np.float32))
    with pytest.raises(DataError, match="leads to node -1"):
        sampled.add(0, np.array([0, -1, 0], np.int32))
    for dtype in (np.int32, np.int64):
        damaged = start()
        damaged.draw(0, np.array([0, 1, 2, 4, 5, 5]))
        damaged.add(0, np.array([0, 5, 0], dtype))
        with pytest.raises(DataError, match="leads to node 5"):
            damaged.end_hop()
        with pytest.raises(UsageError, match="before its neighbours"):
            damaged.add(0, np.array([0, 5, 0], dtype))
    with pytest.raises(UsageError, match="hops are done"):
        sampled.batch(0)
    for relation in (-1, 1):
        with pytest.raises(UsageError, match="expected a relation"):
            sampled.frontier(relation)
    wide = start()
    wide.draw(0, np.array([0, 1, 2, 4, 5, 5]))
    wide.add(0, np.array([4, 4, 0], np.int64))
    wide.end_hop()
    (found, per_hop, trees), *_ = wide.batch(0)[0]
    assert (found.tolist(), per_hop, trees.tolist()) == ([0, 3, 1, 4], [3, 1], [])
    rows, cols, edges, per_hop = wide.batch(0)[1][0]
    assert (rows.tolist(), cols.tolist(), edges.tolist()) == ([3, 3, 0], [0, 1, 1], [0, 2, 3])
    with pytest.raises(UsageError, match="expected a relation"):
        wide.end_hop()
    for arguments in (([(0, 1, [2], "to")], [5]), ([(0, 0, [2, 2], "to")], [5]), ([(0, 0, [-2], "to")], [5])):
        with pytest.raises(UsageError, match="up to 255 hops"):
            native_pass(*arguments, [(0, 0, [nodes], None, [])], 1)


def fetched(rows: list[int], *, num_rows: int = 5, types: tuple[int, int] = (0, 0)) -> _core.Relation:
    """Return lists of two edges each, to nodes 4 and 0, whose positions are 10 times the row and the next."""
    indptr = np.arange(0, 2 * len(rows) + 1, 2)
    positions = np.array([[10 * row, 10 * row + 1] for row in rows]).reshape(-1)
    indices = np.tile(np.array([4, 0], np.int32), len(rows))
    overlay = _core.Overlay(np.array(rows), indptr, indices, positions, num_rows)
    return _core.Relation(np.zeros(1, np.int64), indices[:0], *types, [], "to", overlay)


def test_the_native_pass_chooses_in_lists_what_they_have() -> None:
    nodes = np.array([0, 3, 1, 3])
    sampled = native_pass([(0, 0, [-1], "to")], [5], [(0, 0, [nodes], None, [])], 1)
    for lists in (fetched([3], num_rows=4), fetched([3], types=(0, 1))):
        with pytest.raises(UsageError, match="expected lists of"):
            sampled.draw_in(0, lists)
    for row in (3, 0, 2):
        sampled.draw_in(0, fetched([row]))
    with pytest.raises(UsageError, match="8 numbers for 1 nodes"):
        sampled.draw(0, np.zeros(8, np.int64))
    with pytest.raises(UsageError, match="before its neighbours"):
        sampled.add(0, np.zeros(0, np.int32))
    assert sampled.draw(0, np.array([70, 71])).tolist() == [70]
    with pytest.raises(UsageError, match="expected one draw"):
        sampled.draw_in(0, fetched([1]))
    with pytest.raises(UsageError, match="neighbours are added"):
        sampled.positions(0)
    sampled.add(0, np.array([2], np.int32))
    positions = sampled.positions(0)
    assert positions.tolist() == [0, 1, 30, 31, 70, 30, 31]
    assert not positions.flags.writeable
    sampled.end_hop()
    rows, cols, edges, per_hop = sampled.batch(0)[1][0]
    assert edges.tolist() == positions.tolist()
    assert sampled.batch(0)[0][0][0][rows].tolist() == [4, 0, 4, 0, 2, 4, 0]
    assert (cols.tolist(), per_hop) == ([0, 0, 1, 1, 2, 3, 3], [7])


def test_the_native_pass_refuses_edges_and_times_that_fit_nothing() -> None:
    relations, nodes, none = [(0, 0, [2], "to")], np.array([0, 3]), np.zeros(0, np.int64)

    def start(excluded: Any, **options: bool) -> _core.NeighborPass:
        return native_pass(relations, [5], [(0, 0, [nodes], None, excluded)], 1, **options)

    one, two = np.array([1]), np.array([1, 2])
    with pytest.raises(UsageError, match=r"node indices in \[0, 5\), received 5"):
        start([(0, np.array([5]), one, none, none)])
    with pytest.raises(UsageError, match="a source for each of 1"):
        start([(0, one, two, none, none)])
    with pytest.raises(UsageError, match="group of each of 2 trees, received 1"):
        start([(0, one, one, one, one)], disjoint=True)
    with pytest.raises(UsageError, match="one of 1 relations, received number 1"):
        start([(1, one, one, none, none)])
    temporal = fetched([0])
    temporal.sample_until(
        _core.TimeOrder(np.zeros(1, np.int64), none, "to", 1),
        _core.TimeOrder(np.array([0, 2]), np.array([5, 6]), "to", 1),
    )
    with pytest.raises(UsageError, match="disjoint trees with a time for each"):
        start([], disjoint=True).draw_in(0, temporal)
