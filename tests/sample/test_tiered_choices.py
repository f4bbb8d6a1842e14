"""Passes over a graph on disk by weight, time, in trees, without some edges: the same as in memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import DataError, DoesNotFitError, UsageError
from graphbox.graph import EdgeType, Graph
from graphbox.graph.format import FolderWriter
from graphbox.graph.merge import write_edges, write_nodes
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.native import Int64Array
from graphbox.sample import sample_heterogeneous
from graphbox.sample.excluded import ExcludedEdges
from graphbox.sample.tiered_neighbor import PassSample
from tests.graph.test_tiered_graph import TO, change, make_graph
from tests.sample.passes import sample_pass
from tests.sample.test_tiered_neighbor import BUYS, FROM, KNOWS, SHOWN, same

LATEST = 10**12
WAYS: list[dict[str, Any]] = [
    {},
    {"replace": True},
    {"weight_attr": "weight"},
    {"weight_attr": "weight", "replace": True},
    {"disjoint": True},
    {"disjoint": True, "weight_attr": "weight"},
    {"temporal": True},
    {"temporal": True, "replace": True},
    {"temporal": True, "temporal_strategy": "last"},
    {"temporal": True, "weight_attr": "weight"},
    {"temporal": True, "weight_attr": "weight", "replace": True},
]


def times_of(seeds: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Int64Array]:
    return {name: rng.integers(0, LATEST, len(nodes)) for name, nodes in seeds.items() if len(nodes)}


def some_edges(
    graph: Graph, seeds: Mapping[str, Any], rng: np.random.Generator, *, disjoint: bool
) -> dict[EdgeType, ExcludedEdges]:
    """Return edges of seeds, and pairs that are none, some of them in some trees only."""
    excluded = {}
    trees = sum(len(nodes) for nodes in seeds.values())
    for edge_type in graph.edge_types:
        csc, targets = graph.csc(edge_type), np.asarray(seeds.get(edge_type[2], ()), np.int64)
        degree = csc.indptr[targets + 1] - csc.indptr[targets]
        rows = np.repeat(targets[degree > 0], 2)
        at = csc.indptr[rows] + (rng.random(len(rows)) * np.repeat(degree[degree > 0], 2)).astype(np.int64)
        sources = np.where(rng.random(len(rows)) < 0.8, csc.indices[at] if len(at) else rows, 0)
        groups = (rng.integers(0, 3, len(rows)), rng.integers(0, 3, trees)) if disjoint and trees else ()
        excluded[edge_type] = ExcludedEdges(np.stack([sources, rows]), *groups)
    return excluded


def check(
    graph: Graph,
    seeds: Sequence[Mapping[str, Any]],
    num_neighbors: Any,
    *,
    way: Mapping[str, Any],
    exclude: bool = False,
    edge_attributes: Sequence[Any] = (),
    threads: int = 2,
    **budgets: Any,
) -> PassSample:
    rng = np.random.default_rng(len(seeds))
    options = dict(way)
    disjoint = options.get("disjoint", False) or options.get("temporal", False)
    times = [times_of(each, rng) for each in seeds] if options.pop("temporal", False) else None
    excluded = [some_edges(graph, each, rng, disjoint=disjoint) for each in seeds] if exclude else None
    sampled = sample_pass(
        graph.tiered(**budgets),
        seeds,
        num_neighbors,
        input_time=times,
        excluded_edges=excluded,
        edge_attributes=edge_attributes,
        seed=7,
        epoch=3,
        num_threads=threads,
        **options,
    )
    for number, each in enumerate(seeds):
        expected: Any = sample_heterogeneous(
            graph,
            each,
            num_neighbors,
            input_time=None if times is None else times[number],
            excluded_edges=None if excluded is None else excluded[number],
            edge_attributes=edge_attributes,
            seed=7,
            epoch=3,
            batch=number,
            **options,
        )
        same(sampled[number], expected)
        for node_type in graph.node_types:
            assert np.array_equal(sampled.nodes(node_type)[number], expected.nodes[node_type])
    return sampled


def batches(num_nodes: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{"node": rng.integers(0, num_nodes, size)} for size in (1, 0, 100, 30)]


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_samples_are_those_of_the_graph_in_memory(tmp_path: Path, way: dict[str, Any], exclude: bool) -> None:
    graph = make_graph(tmp_path / "graph")
    seeds = batches(graph.num_nodes("node"))
    for num_neighbors in ([6, 4], [-1, 2], [3, 0, 2]):
        check(graph, seeds, num_neighbors, way=way, exclude=exclude)
    # With lists that go through memory part by part.
    attributes = ("weight", "timestamp")
    parts: dict[str, Any] = {"pass_bytes": 200_000, "topology_bytes": 40_000, "threads": 1}
    sampled = check(graph, seeds, [6, 4], way=way, exclude=exclude, edge_attributes=attributes, **parts)
    assert sampled.list_bytes <= 100_000
    assert (sampled.list_bytes > 0) == (exclude or bool({"weight_attr", "temporal"} & set(way)))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_changed_graphs_and_reverse_edge_types(tmp_path: Path, way: dict[str, Any]) -> None:
    make_graph(tmp_path / "graph", csr=True)
    graph = change(tmp_path / "graph")
    assert set(graph.edge_types) == {TO, FROM}
    seeds = batches(graph.num_nodes("node"))
    check(graph, seeds, [5, 4], way=way, topology_bytes=2 << 20)
    check(graph, seeds, [5, 4], way=way, exclude=True, topology_bytes=2 << 20, pass_bytes=300_000)
    check(graph, seeds, {FROM: [5, 5]}, way=way, exclude=True, topology_bytes=2 << 20)


def shop(path: Path, seed: int, *, csr: bool = False) -> Graph:
    """Save a random graph of several types, where not all edges have weights or timestamps."""
    rng = np.random.default_rng(seed)
    counts = {"user": int(rng.integers(2, 300)), "item": int(rng.integers(1, 90))}
    edges = {}
    for name in (KNOWS, BUYS, SHOWN):
        num_edges = int(rng.integers(1, 4) * rng.integers(1, 900))
        source, target = (
            (rng.pareto(1.0, num_edges) * 9).astype(np.int64) % counts[name[side]] for side in (0, 2)
        )
        payload: dict[str, Any] = {}
        if name != KNOWS:
            payload["weight"] = np.asarray(rng.random(num_edges) + 0.1, np.float32)
        if name != SHOWN:
            payload["timestamp"] = rng.integers(0, LATEST, num_edges)
        edges[name] = edge_table(source, target, counts[name[0]], counts[name[2]], **payload)
    graph = Graph("shop", {name: numbered_nodes(count) for name, count in counts.items()}, edges)
    graph.save(path)
    return save_with_csr(graph, path) if csr else Graph.open(path)


def save_with_csr(graph: Graph, path: Path) -> Graph:
    """Save a graph with the out-neighbours of its edge types, as imports with ``csr: true`` do."""
    with FolderWriter(path) as writer:
        edges = []
        for edge_type in graph.edge_types:
            table, entry = graph.csr(edge_type), write_edges(writer, edge_type, graph.own_edges(edge_type))
            for name, array in (
                ("indptr", table.indptr),
                ("indices", table.indices),
                ("edge-ids", table.edge_ids),
            ):
                entry[f"csr-{name}"] = writer.add(f"edges/{'-'.join(edge_type)}-csr-{name}", array)
            edges.append(entry)
        nodes = [write_nodes(writer, name, graph.node_table(name)) for name in graph.node_types]
        writer.commit({"name": graph.name, "node_types": nodes, "edge_types": edges})
    return Graph.open(path)


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_of_several_types(tmp_path: Path, seed: int) -> None:
    graph = shop(tmp_path / "graph", seed)
    rng = np.random.default_rng(seed)
    seeds = [
        {name: rng.integers(0, graph.num_nodes(name), rng.integers(0, 20)) for name in graph.node_types}
        for _ in range(4)
    ]
    for way, exclude in itertools.product(WAYS, (False, True)):
        check(graph, seeds, [3, 2, 4], way=way, exclude=exclude)
        check(graph, [{"item": seeds[0]["item"]}, {}], {BUYS: [2, 1]}, way=way, exclude=exclude)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_random_graphs_in_small_parts(tmp_path: Path, seed: int) -> None:
    graph = shop(tmp_path / "graph", seed, csr=True)
    rng = np.random.default_rng(seed)
    seeds = [
        {name: rng.integers(0, graph.num_nodes(name), rng.integers(0, 60)) for name in graph.node_types}
        for _ in range(int(rng.integers(1, 7)))
    ]
    most = max(int(np.diff(graph.csc(edge_type).indptr).max()) for edge_type in graph.edge_types)
    for way, exclude in itertools.product(WAYS, (False, True)):
        hops = rng.integers(-1, 9, int(rng.integers(1, 4))).tolist()
        budgets: dict[str, Any] = {
            "topology_bytes": int(rng.integers(0, 60_000)),
            "pass_bytes": 200 * most + 1000,
        }
        check(graph, seeds, hops, way=way, exclude=exclude, threads=int(rng.integers(1, 4)), **budgets)


def test_only_lists_that_must_be_whole_are_read(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    seeds = [{"node": np.arange(500)}]
    degree = np.diff(graph.csc(TO).indptr)
    most = int(degree.max())
    tiered = graph.tiered()
    for wanted in (-1, most):
        assert sample_pass(tiered, seeds, [wanted], weight_attr="weight").list_bytes == 0
    assert sample_pass(tiered, seeds, [most - 1], weight_attr="weight").list_bytes > 0


def test_a_list_that_does_not_fit_is_named_with_what_helps(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    hub = int(np.argmax(np.diff(graph.csc(TO).indptr)))
    seeds = [{"node": [hub]}]
    tiered = graph.tiered(pass_bytes=1000)
    with pytest.raises(DoesNotFitError, match=rf"node {hub} with .* edges takes") as caught:
        sample_pass(tiered, seeds, [2], weight_attr="weight")
    needed = int(str(caught.value.hint).split("pass_bytes of ")[1].split(" ")[0].replace(",", ""))
    assert len(sample_pass(tiered, seeds, [2])) == 1
    assert len(sample_pass(graph.tiered(pass_bytes=needed), seeds, [2], weight_attr="weight")) == 1
    with pytest.raises(DoesNotFitError):
        sample_pass(graph.tiered(pass_bytes=needed - 2), seeds, [2], weight_attr="weight")


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered, seeds = graph.tiered(), [{"node": [0, 1]}]
    Graph.from_coo([0], [1]).save(tmp_path / "bare")
    bare = Graph.open(tmp_path / "bare").tiered()
    with pytest.raises(UsageError, match="no sampled edges have a weight"):
        sample_pass(bare, seeds, [2], weight_attr="weight")
    with pytest.raises(UsageError, match="expected 'weight' or None, received 'taste'"):
        sample_pass(tiered, seeds, [2], weight_attr="taste")
    wrong: Any = {"weighted": True}
    with pytest.raises(UsageError, match="weighted: unknown keyword argument"):
        sample_pass(tiered, seeds, [2], **wrong)
    times = [{"node": [1, 2]}]
    with pytest.raises(UsageError, match="no sampled edges have a timestamp"):
        sample_pass(bare, seeds, [2], input_time=times)
    with pytest.raises(UsageError, match="a time for each of 2 seeds, received 1"):
        sample_pass(tiered, seeds, [2], input_time=[{"node": [1]}])
    with pytest.raises(UsageError, match="times for the node types with seeds"):
        sample_pass(tiered, seeds, [2], input_time=[{}])
    with pytest.raises(UsageError, match="expected uniform or last"):
        sample_pass(tiered, seeds, [2], input_time=times, temporal_strategy="first")
    with pytest.raises(UsageError, match="cannot be drawn with replacement"):
        sample_pass(tiered, seeds, [2], replace=True, input_time=times, temporal_strategy="last")
    with pytest.raises(UsageError, match="their weights cannot count"):
        sample_pass(tiered, seeds, [2], weight_attr="weight", input_time=times, temporal_strategy="last")
    outside = {TO: ExcludedEdges(np.array([[0], [2000]]))}
    with pytest.raises(UsageError, match=r"node indices in \[0, 2000\), received 2000"):
        sample_pass(tiered, seeds, [2], excluded_edges=[outside])


def test_weights_that_are_none_are_errors(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    last = int(np.flatnonzero(np.diff(graph.csc(TO).indptr) > 1)[-1])
    file = graph.array_file(TO, "weight")
    with file.path.open("r+b") as writer:
        writer.seek(file.offset + 4 * int(graph.csc(TO).indptr[last]))
        writer.write(np.float32(-1).tobytes())
    edge = int(graph.csc(TO).indptr[last])
    with pytest.raises(DataError, match=rf"edge {edge} of node {last} has -1.0"):
        sample_pass(graph.tiered(), [{"node": [last]}], [1], weight_attr="weight")
