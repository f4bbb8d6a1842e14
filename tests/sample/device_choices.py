"""Guarantees of samplers on a device for trees, times and excluded edges: the bits of the host."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from graphbox.bandwidth import Bandwidths
from graphbox.errors import DoesNotFitError, UsageError
from graphbox.sample import DeviceGraph, ExcludedEdges, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType
from tests.sample.device_sampling import (
    ONE_TYPE,
    Csc,
    Lists,
    TimedCsc,
    assert_same,
    one_type,
    random_csc,
)

NODES = 30
DEGREES = [0, 1, 3, 12, 66]
LATEST = 2**63 - 1
SLOW_PINNED = Bandwidths("any", 1e12, 1e9, (1e12,) * 3, (1e11,) * 3, 1e11, 1e11, 1e12)

SHARED: list[dict[str, Any]] = [
    {"weight_attr": "weight"},
    {"weight_attr": "weight", "replace": True},
]
"""Samples whose trees share nodes."""
IN_TREES: list[dict[str, Any]] = [
    {},
    {"replace": True},
    {"weight_attr": "weight"},
    {"weight_attr": "weight", "replace": True},
]
"""Samples that can have trees, and times."""
LAST: dict[str, Any] = {"temporal_strategy": "last"}


def timed_csc(
    rng: np.random.Generator,
    rows: int = NODES,
    columns: int = NODES,
    *,
    degrees: list[int] = DEGREES,
    dtype: Any = np.int32,
    times: int = 7,
) -> TimedCsc:
    """Return ascending lists with parallel edges and equal times; the first node is a hub."""
    csc = random_csc(rng, rows, columns, degrees, dtype)
    for row in range(rows):
        csc.indices[csc.indptr[row] : csc.indptr[row + 1]].sort()
    return TimedCsc(csc.indptr, csc.indices, csc.weight, rng.integers(0, times, len(csc.indices)))


def some_pairs(rng: np.random.Generator, csc: Csc, count: int = 40) -> np.ndarray:
    """Return pairs that edges join, some of them twice, and pairs that none joins."""
    rows, columns = len(csc.indptr) - 1, max(int(csc.indices.max(initial=0)), 1)
    edges = rng.integers(0, len(csc.indices), count)
    targets = np.repeat(np.arange(rows), np.diff(csc.indptr))
    joined = np.stack([csc.indices[edges].astype(np.int64), targets[edges]])
    others = np.stack([rng.integers(0, columns, count), rng.integers(0, rows, count)])
    return np.concatenate([joined, joined[:, :5], others], axis=1)


def check(
    device: torch.device, csc: Csc, seeds: Any, num_neighbors: list[int], *, batches: int = 1, **drawn: Any
) -> None:
    """Compare samples of a graph on a device with the host's."""
    graph = DeviceGraph(one_type(csc), device)
    for batch in range(batches):  # later ones find what the first has left
        expected = sample_neighbors(csc, seeds, num_neighbors, seed=5, batch=batch, **drawn)
        sample = sample_neighbors(graph, seeds, num_neighbors, seed=5, batch=batch, **drawn)
        assert_same(sample, expected, device)


class DeviceChoices:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    @pytest.mark.parametrize("drawn", IN_TREES)
    def test_trees(self, device: torch.device, drawn: dict[str, Any], dtype: Any) -> None:
        rng = np.random.default_rng(1)
        csc = timed_csc(rng, dtype=dtype)
        seeds = np.concatenate([rng.integers(0, NODES, 6), [3, 3]])
        check(device, csc, seeds, [3, 2, -1], batches=2, disjoint=True, **drawn)

    def test_trees_of_several_types(self, device: torch.device) -> None:
        """Two relations add nodes of a type in a hop, in an order that trees take no part in."""
        rng = np.random.default_rng(2)
        users, items = 20, 30
        cscs: dict[EdgeType, Csc] = {
            ("user", "buys", "item"): timed_csc(rng, items, users, degrees=[0, 2, 9]),
            ("item", "like", "item"): timed_csc(rng, items, items, degrees=[1, 5]),
            ("item", "bought_by", "user"): random_csc(rng, users, items, [0, 4], np.int64),
        }
        graph = Lists({"user": users, "shop": 2, "item": items}, cscs)
        seeds = {"item": rng.integers(0, items, 5), "user": np.array([3, 3, 7])}
        times = {name: rng.integers(0, 7, len(nodes)) for name, nodes in seeds.items()}
        on_device = DeviceGraph(graph, device)
        for drawn in (
            {"disjoint": True},
            {"disjoint": True, "weight_attr": "weight"},
            {"input_time": times, "weight_attr": "weight"},
            {"input_time": times, "node_time": {"item": rng.integers(0, 7, items)}},
        ):
            expected = sample_heterogeneous(graph, seeds, [2, 3], seed=4, **drawn)
            assert_same(sample_heterogeneous(on_device, seeds, [2, 3], seed=4, **drawn), expected, device)

    @pytest.mark.parametrize("by_nodes", [False, True])
    @pytest.mark.parametrize("drawn", [*IN_TREES, LAST])
    @pytest.mark.parametrize("num_neighbors", [[4, -1], [25]])
    def test_times(
        self, device: torch.device, drawn: dict[str, Any], num_neighbors: list[int], by_nodes: bool
    ) -> None:
        rng = np.random.default_rng(sum(num_neighbors))
        csc = timed_csc(rng)
        seeds = rng.integers(0, NODES, 7)
        times = np.array([0, 3, LATEST, -1, 6, -(2**63), 2])
        if by_nodes:
            drawn = {**drawn, "node_time": rng.integers(0, 7, NODES)}
        check(device, csc, seeds, num_neighbors, input_time=times, **drawn)

    def test_seeds_have_their_own_times(self, device: torch.device) -> None:
        rng = np.random.default_rng(3)
        csc = timed_csc(rng)
        graph = DeviceGraph(one_type(csc), device)
        seeds = rng.integers(0, NODES, 6)
        for _ in range(2):  # other times, another order
            times = rng.integers(0, 7, NODES)
            expected = sample_neighbors(csc, seeds, [3, 2], node_time=times)
            for own in (times, times.copy()):
                sample = sample_neighbors(
                    graph, torch.from_numpy(seeds).to(device), [3, 2], node_time=torch.from_numpy(own)
                )
                assert_same(sample, expected, device)
            held = graph.device_bytes
            sample_neighbors(graph, seeds, [1], node_time=times.copy())
            assert graph.device_bytes == held

    @pytest.mark.parametrize("drawn", SHARED)
    @pytest.mark.parametrize("num_neighbors", [[5, -1], [20]])
    def test_excluded(self, device: torch.device, drawn: dict[str, Any], num_neighbors: list[int]) -> None:
        rng = np.random.default_rng(sum(num_neighbors))
        csc = timed_csc(rng)
        excluded = ExcludedEdges(some_pairs(rng, csc))
        seeds = np.unique(excluded.edge_index[1][:9])
        check(device, csc, seeds, num_neighbors, excluded_edges=excluded, **drawn)

    @pytest.mark.parametrize("timed", [False, True])
    @pytest.mark.parametrize("drawn", [*IN_TREES, LAST])
    def test_excluded_in_the_trees_of_groups(
        self, device: torch.device, drawn: dict[str, Any], timed: bool
    ) -> None:
        rng = np.random.default_rng(4)
        csc = timed_csc(rng)
        pairs = some_pairs(rng, csc)
        seeds = np.concatenate([pairs[1][:6], pairs[1][:2]])
        groups: np.ndarray = rng.integers(-2, 3, pairs.shape[1:])
        excluded = ExcludedEdges(pairs, groups, np.concatenate([groups[:6], [7, 9]]))
        if timed:
            drawn = {**drawn, "input_time": rng.integers(2, 7, 8)}
        elif drawn is LAST:
            pytest.skip("without times none is the last")
        check(device, csc, seeds, [4, 3], disjoint=True, excluded_edges=excluded, **drawn)

    @pytest.mark.parametrize("drawn", [*IN_TREES, LAST])
    def test_excluded_by_times_of_nodes(self, device: torch.device, drawn: dict[str, Any]) -> None:
        rng = np.random.default_rng(5)
        csc = timed_csc(rng)
        excluded = ExcludedEdges(some_pairs(rng, csc))
        seeds = excluded.edge_index[1][:6]
        times: dict[str, Any] = {"node_time": rng.integers(0, 7, NODES), "input_time": rng.integers(2, 7, 6)}
        check(device, csc, seeds, [4, -1], excluded_edges=excluded, **times, **drawn)

    @pytest.mark.parametrize("replace", [False, True])
    @pytest.mark.parametrize("timed", [False, True])
    def test_nearly_all_weight_is_excluded(self, device: torch.device, replace: bool, timed: bool) -> None:
        """Draws do not find what is left, which is drawn from the sums of its weights, or by its keys."""
        rng = np.random.default_rng(6)
        csc = timed_csc(rng, 4, 90, degrees=[70])
        assert csc.weight is not None
        pairs = some_pairs(rng, csc)
        csc.weight[np.isin(csc.indices, pairs[0])] = 1e30
        targets = np.repeat(np.arange(4), np.diff(csc.indptr))
        heavy = csc.weight == np.float32(1e30)
        excluded = ExcludedEdges(np.stack([csc.indices[heavy].astype(np.int64), targets[heavy]]))
        graph = Lists({"a": 90, "b": 4}, {("a", "to", "b"): csc})
        drawn: dict[str, Any] = {"weight_attr": "weight", "replace": replace, "seed": 2}
        drawn["excluded_edges"] = {("a", "to", "b"): excluded}
        if timed:
            drawn["input_time"] = {"b": [6, 5, 6]}
        for wanted in (3, 17):
            expected = sample_heterogeneous(graph, {"b": [0, 1, 3]}, [wanted], **drawn)
            sample = sample_heterogeneous(DeviceGraph(graph, device), {"b": [0, 1, 3]}, [wanted], **drawn)
            assert_same(sample, expected, device)

    @pytest.mark.parametrize("indices_in", ["device", "pinned"])
    def test_places_of_lists(self, device: torch.device, indices_in: Literal["device", "pinned"]) -> None:
        rng = np.random.default_rng(10)
        csc = timed_csc(rng)
        graph = DeviceGraph(one_type(csc), device, indices_in=indices_in)
        drawn: dict[str, Any] = {"input_time": [3, 5, 6], "weight_attr": "weight"}
        expected = sample_neighbors(csc, [1, 2, 3], [4, 2], **drawn)
        assert_same(sample_neighbors(graph, [1, 2, 3], [4, 2], **drawn), expected, device)
        far_bytes = len(csc.indices) * (4 + 8 + 4 + 8 + 4)
        assert graph.pinned_bytes == (far_bytes if indices_in == "pinned" else 0)

    @pytest.mark.parametrize(
        "drawn",
        [
            {"input_time": [3, 5, 6], "weight_attr": "weight"},
            {"input_time": [3, 5, 6], "temporal_strategy": "last"},
            {"node_time": np.arange(NODES) % 7, "replace": True},
            {"disjoint": True, "weight_attr": "weight"},
            {"weight_attr": "weight", "replace": True},
        ],
    )
    def test_budgets(self, device: torch.device, drawn: dict[str, Any]) -> None:
        """Lists of all columns are resident or not, and excluded edges are found in them."""
        rng = np.random.default_rng(11)
        csc = timed_csc(rng, dtype=np.int64)
        excluded = ExcludedEdges(some_pairs(rng, csc, 12))
        budget = 70 * (NODES + 1) + 1_500
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=budget, bandwidths=SLOW_PINNED)
        seeds = np.array([3, 4, 5])
        for batch in range(2):
            for excluded_edges in (None, excluded):
                both: dict[str, Any] = {**drawn, "excluded_edges": excluded_edges, "batch": batch}
                expected = sample_neighbors(csc, seeds, [4, 1], **both)
                assert_same(sample_neighbors(graph, seeds, [4, 1], **both), expected, device)
            statistics = graph.end_pass()
            assert graph.device_bytes <= budget
        assert graph.csc(ONE_TYPE).residents is not None
        assert statistics.lists > 5

    def test_nothing_to_sample(self, device: torch.device) -> None:
        none = np.zeros(0, np.int64)
        alone = TimedCsc(np.zeros(4, np.int64), np.zeros(0, np.int32), none.astype(np.float32), none)
        graph = DeviceGraph(one_type(alone), device)
        excluded = ExcludedEdges(np.array([[1, 2], [2, 0]]))
        for seeds in ([], [2, 0, 2]):
            times = np.arange(len(seeds))
            for drawn in (
                {"disjoint": True},
                {"input_time": times},
                {"input_time": times, "weight_attr": "weight"},
            ):
                both: dict[str, Any] = {**drawn, "excluded_edges": excluded}
                sample = sample_neighbors(graph, seeds, [2, -1], **both)
                assert sample.nodes.tolist() == seeds
                assert sample.trees.tolist() == [*range(len(seeds))]
                assert sample.num_sampled_edges == [0, 0]

    def test_refusals(self, device: torch.device) -> None:
        rng = np.random.default_rng(12)
        csc = timed_csc(rng)
        graph = DeviceGraph(one_type(csc), device)
        with pytest.raises(UsageError, match="expected a time for each of 2 seeds, received 1"):
            sample_neighbors(graph, [1, 2], [1], input_time=[3])
        with pytest.raises(UsageError, match="cannot be drawn with replacement"):
            sample_neighbors(graph, [1], [1], input_time=[3], replace=True, temporal_strategy="last")
        groups = ExcludedEdges([[1], [2]], [0], [0, 0, 0])
        with pytest.raises(UsageError, match="expected the group of each of 2 trees, received 3"):
            sample_neighbors(graph, [1, 2], [1], disjoint=True, excluded_edges=groups)
        untimed = DeviceGraph(one_type(random_csc(rng, 5, 5, [2])), device)
        with pytest.raises(UsageError, match="no sampled edges have a timestamp"):
            sample_neighbors(untimed, [1], [1], input_time=[3])
        empty = Csc(np.zeros(3, np.int64), np.zeros(0, np.int64))
        huge = Lists({"a": 2**62, "b": 2}, {("a", "to", "b"): empty})
        with pytest.raises(DoesNotFitError, match="seeds times nodes below"):
            sample_heterogeneous(DeviceGraph(huge, device), {"b": [0, 1]}, [1], disjoint=True)
