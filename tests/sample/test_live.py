"""Sampling from a changed graph: the same as from all its edges merged, without merging them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, CSR
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable, LiveLists
from graphbox.graph.tables import EdgeTable, edge_table, numbered_nodes
from graphbox.sample import random_walk, sample_heterogeneous, sample_neighbors

FORWARD = ("a", "to", "b")
BACKWARD = ("b", "from", "a")
ALONE = ("node", "to", "node")


def change(
    rng: np.random.Generator,
    first: int,
    count: int,
    num_sources: int,
    num_targets: int,
    columns: bool = False,
) -> EdgeChange:
    source, target = rng.integers(0, num_sources, count), rng.integers(0, num_targets, count)
    order = np.lexsort((source, target))
    removed = np.unique(rng.integers(0, first, count // 2)) if first else np.zeros(0, np.int64)
    return EdgeChange(
        first,
        source[order],
        target[order],
        random_weights(rng, count) if columns else None,
        rng.integers(0, 50, count) if columns else None,
        removed=removed,
    )


def random_weights(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.exp(rng.normal(0, 1, count)).astype(np.float32)


def live_table(
    seed: int, *, base: int = 400, nodes: int = 60, changes: int = 3, columns: bool = False
) -> LiveEdgeTable:
    """Return random edges with random changes, with weights and timestamps if asked; nodes were added too."""
    rng = np.random.default_rng(seed)
    table: EdgeTable | None = None
    if base:
        table = edge_table(
            rng.integers(0, nodes, base),
            rng.integers(0, nodes, base),
            nodes,
            nodes,
            weight=random_weights(rng, base) if columns else None,
            timestamp=rng.integers(0, 50, base) if columns else None,
        )
    made, first, gone = [], base, np.zeros(0, np.int64)
    for number in range(changes):
        one = change(rng, first, int(rng.integers(0, 40)), nodes + number, nodes + number, columns)
        one = replace(one, removed=np.setdiff1d(one.removed, gone))
        gone = np.union1d(gone, one.removed)
        first += one.num_added
        made.append(one)
    return LiveEdgeTable(table, made, nodes + changes, nodes + changes, reverse=BACKWARD)


def graph_of(table: LiveEdgeTable) -> Graph:
    return Graph(
        "live",
        {"a": numbered_nodes(table.num_sources), "b": numbered_nodes(table.num_targets)},
        {FORWARD: table},
    )


def alone(table: LiveEdgeTable) -> Graph:
    table.reverse = None
    return Graph("live", {"node": numbered_nodes(table.num_sources)}, {ALONE: table})


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    base=st.sampled_from([0, 1, 30, 400]),
    changes=st.integers(0, 4),
    with_replacement=st.booleans(),
    num_neighbors=st.lists(st.integers(-1, 6), min_size=1, max_size=3),
)
def test_as_from_the_merged_edges(
    seed: int, base: int, changes: int, with_replacement: bool, num_neighbors: list[int]
) -> None:
    graph = alone(live_table(seed, base=base, changes=changes))
    csc = graph.csc()
    seeds = np.random.default_rng(seed).choice(graph.num_nodes(), 20, replace=False)
    live = sample_neighbors(graph, seeds, num_neighbors, replace=with_replacement, seed=seed)
    merged = sample_neighbors(csc, seeds, num_neighbors, replace=with_replacement, seed=seed)
    np.testing.assert_array_equal(live.nodes, merged.nodes)
    np.testing.assert_array_equal(live.row, merged.row)
    np.testing.assert_array_equal(live.col, merged.col)
    expected = merged.edge_ids if csc.edge_ids is None else csc.edge_ids[merged.edge_ids]
    np.testing.assert_array_equal(live.edge_ids, expected)


@pytest.mark.parametrize("seed", range(10))
def test_reverse_edge_types(seed: int) -> None:
    graph = graph_of(live_table(seed))
    seeds = {"a": np.arange(30), "b": np.arange(10, 40)}
    live = sample_heterogeneous(graph, seeds, [5, 4], seed=seed)
    cscs = {edge_type: graph.csc(edge_type) for edge_type in graph.edge_types}
    merged = sample_heterogeneous(cscs, seeds, [5, 4], seed=seed)
    for edge_type, csc in cscs.items():
        np.testing.assert_array_equal(live.row[edge_type], merged.row[edge_type])
        np.testing.assert_array_equal(live.col[edge_type], merged.col[edge_type])
        assert csc.edge_ids is not None
        np.testing.assert_array_equal(live.edge_ids[edge_type], csc.edge_ids[merged.edge_ids[edge_type]])


@pytest.mark.parametrize("seed", range(10))
def test_walks(seed: int) -> None:
    graph = graph_of(live_table(seed))
    start = np.arange(graph.num_nodes("a"))
    path = [FORWARD, BACKWARD]
    merged = {edge_type: graph.csr(edge_type) for edge_type in path}

    class Merged:
        node_types = ("a", "b")
        edge_types = (FORWARD, BACKWARD)

        def num_nodes(self, node_type: str) -> int:
            return graph.num_nodes(node_type)

        def csc(self, edge_type: tuple[str, str, str]) -> CSC:
            return graph.csc(edge_type)

        def csr(self, edge_type: tuple[str, str, str]) -> CSR:
            return merged[edge_type]

    live = random_walk(graph, start, 9, metapath=path, seed=seed)
    np.testing.assert_array_equal(live, random_walk(Merged(), start, 9, metapath=path, seed=seed))
    assert (live[:, 1:] >= 0).any()


def test_any_number_of_threads() -> None:
    graph = alone(live_table(0, base=200_000, nodes=20_000, changes=3))
    seeds = np.arange(10_000)
    samples = [sample_neighbors(graph, seeds, [10, 5], seed=3, num_threads=threads) for threads in (1, 2, 4)]
    for sample in samples[1:]:
        np.testing.assert_array_equal(sample.nodes, samples[0].nodes)
        np.testing.assert_array_equal(sample.edge_ids, samples[0].edge_ids)


def test_nothing_is_merged() -> None:
    table = live_table(1)
    graph = alone(table)
    sample_neighbors(graph, [0, 1, 2], [5, 5])
    assert "csc" not in vars(table)
    assert isinstance(graph.lists(ALONE, "in"), LiveLists)


def test_an_unchanged_graph_gives_its_arrays() -> None:
    graph = Graph.from_coo([0, 1], [1, 2])
    assert graph.lists(None, "in") is graph.csc()
    assert graph.lists(None, "out") is graph.csr()


def overlay(rows: list[int], indptr: list[int], edges: int, num_rows: int) -> _core.Overlay:
    return _core.Overlay(
        np.array(rows, np.int64), np.array(indptr), np.zeros(edges, np.int32), np.arange(edges), num_rows
    )


@pytest.mark.parametrize(
    ("rows", "indptr", "edges"),
    [
        ([3, 2], [0, 1, 2], 2),
        ([2, 2], [0, 1, 2], 2),
        ([9], [0, 1], 1),
        ([-1], [0, 1], 1),
        ([1], [0, 2], 1),
        ([1], [1, 1], 1),
    ],
)
def test_damaged_changes_are_refused(rows: list[int], indptr: list[int], edges: int) -> None:
    with pytest.raises(DataError, match="must rise"):
        overlay(rows, indptr, edges, 9)


def test_indices_of_two_types_are_refused() -> None:
    class Csc:
        indptr = np.array([0, 1])
        indices = np.array([0], np.int64)
        overlay = overlay([0], [0, 1], 1, 1)

    with pytest.raises(UsageError, match="one dtype"):
        sample_neighbors(Csc, [0], [1])
