"""Weights and timestamps of sampled edges: those of the edges with the sampled ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.snapshot import LiveEdgeTable
from graphbox.sample import NeighborLoader, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeColumnName
from tests.sample.test_live import BACKWARD, FORWARD, alone, graph_of, live_table

BOTH: tuple[EdgeColumnName, ...] = ("weight", "timestamp")


def columns_by_id(table: LiveEdgeTable) -> dict[str, np.ndarray]:
    """Return the weight and timestamp of each edge id."""
    parts: list[Any] = [*([] if table.base is None else [table.base.csc]), *table.changes]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in BOTH}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_of_a_graph(replace: bool, weighted: bool, threads: int) -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(
        *rng.integers(0, 3000, (2, 200_000)),
        weight=rng.random(200_000) + 0.1,
        timestamp=rng.integers(-5, 2**40, 200_000),
    )
    csc = graph.csc()
    assert csc.weight is not None
    assert csc.timestamp is not None
    sample = sample_neighbors(
        graph,
        np.arange(2900),
        [30, 3],
        replace=replace,
        weight_attr="weight" if weighted else None,
        edge_attributes=BOTH,
        num_threads=threads,
    )
    assert len(sample.edge_ids) > 65_536
    assert sample.weight is not None
    assert sample.timestamp is not None
    assert sample.weight.dtype == np.float32
    np.testing.assert_array_equal(sample.weight, csc.weight[sample.edge_ids])
    np.testing.assert_array_equal(sample.timestamp, csc.timestamp[sample.edge_ids])
    np.testing.assert_array_equal(csc.indices[sample.edge_ids], sample.nodes[sample.row])


def test_only_what_is_asked_for() -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0], weight=[1, 2, 3], timestamp=[7, 8, 9])
    sample = sample_neighbors(graph, torch.tensor([1]), [2], edge_attributes=["timestamp"])
    assert sample.weight is None
    assert sample.timestamp.tolist() == [7]
    assert isinstance(sample.timestamp, torch.Tensor)
    assert sample_neighbors(graph, [1], [2]).timestamp is None
    nothing = sample_neighbors(graph, [], [2], edge_attributes=BOTH)
    assert nothing.weight.shape == nothing.timestamp.shape == (0,)


@pytest.mark.parametrize("base", [0, 400])
@pytest.mark.parametrize("seed", range(5))
def test_of_a_changed_graph(base: int, seed: int) -> None:
    table = live_table(seed, base=base, columns=True)
    expected = columns_by_id(table)
    sample = sample_neighbors(alone(table), np.arange(50), [4, 3], edge_attributes=BOTH, seed=seed)
    assert len(sample.edge_ids) > 0
    np.testing.assert_array_equal(sample.weight, expected["weight"][sample.edge_ids])
    np.testing.assert_array_equal(sample.timestamp, expected["timestamp"][sample.edge_ids])


@pytest.mark.parametrize("seed", range(5))
def test_of_reverse_edge_types_of_a_changed_graph(seed: int) -> None:
    graph = graph_of(live_table(seed, columns=True))
    seeds = {"a": np.arange(30), "b": np.arange(30)}
    live = sample_heterogeneous(graph, seeds, [4, 2], edge_attributes=BOTH, weight_attr="weight", seed=seed)
    cscs = {edge_type: graph.csc(edge_type) for edge_type in (FORWARD, BACKWARD)}
    merged = sample_heterogeneous(cscs, seeds, [4, 2], edge_attributes=BOTH, weight_attr="weight", seed=seed)
    for edge_type in cscs:
        np.testing.assert_array_equal(live.row[edge_type], merged.row[edge_type])
        for name in BOTH:
            np.testing.assert_array_equal(getattr(live, name)[edge_type], getattr(merged, name)[edge_type])
            column = getattr(cscs[edge_type], name)[merged.edge_ids[edge_type]]
            np.testing.assert_array_equal(getattr(live, name)[edge_type], column)


def test_edge_types_without() -> None:
    @dataclass
    class Csc:
        indptr: Any
        indices: Any
        weight: Any = None

    indptr, indices = np.array([0, 2]), np.zeros(2, np.int32)
    cscs = {
        ("a", "x", "a"): Csc(indptr, indices),
        ("a", "y", "a"): Csc(indptr, indices, np.ones(2, np.float32)),
    }
    sample = sample_heterogeneous(cscs, {"a": [0]}, [2], edge_attributes=["weight"])
    assert list(sample.weight) == [("a", "y", "a")]
    assert sample.timestamp == {}
    with pytest.raises(UsageError, match="no sampled edges have a timestamp: a x a, a y a"):
        sample_heterogeneous(cscs, {"a": [0]}, [2], edge_attributes=["timestamp"])
    wrong: Any
    for wrong in (["time"], "weight"):
        with pytest.raises(UsageError, match="expected some of weight, timestamp in a sequence"):
            sample_heterogeneous(cscs, {"a": [0]}, [2], edge_attributes=wrong)
    with pytest.raises(UsageError, match="weight must be float32 with one dimension, received float64"):
        sample_neighbors(Csc(indptr, indices, np.ones(2)), [0], [2], edge_attributes=["weight"])
    with pytest.raises(UsageError, match="weight must have an entry for each of 2 and 0 edges, received 3"):
        sample_neighbors(Csc(indptr, indices, np.ones(3, np.float32)), [0], [2], edge_attributes=["weight"])


def test_loader() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(
        *rng.integers(0, 30, (2, 600)), num_nodes=30, weight=rng.random(600) + 0.1, timestamp=np.arange(600)
    )
    csc = graph.csc()
    assert csc.weight is not None
    assert csc.timestamp is not None
    for batch in NeighborLoader(graph, [5], batch_size=7, weight_attr="weight", edge_attributes=BOTH):
        np.testing.assert_array_equal(batch.edge_weight, csc.weight[batch.e_id])
        np.testing.assert_array_equal(batch.edge_time, csc.timestamp[batch.e_id])
    hetero = graph_of(live_table(0, columns=True))
    for batch in NeighborLoader(hetero, [5, 2], "a", batch_size=9, edge_attributes=["weight"]):
        for edge_type in hetero.edge_types:
            assert len(batch[edge_type].edge_weight) == len(batch[edge_type].e_id)
            assert "edge_time" not in batch[edge_type]
