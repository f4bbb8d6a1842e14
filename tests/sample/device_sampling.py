"""Guarantees of samplers on a device: the samples of their twins in host memory, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch

from graphbox.errors import DataError, UnsupportedError, UsageError
from graphbox.sample import DeviceGraph, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType

ONE_TYPE: EdgeType = ("node", "to", "node")


@dataclass(eq=False)
class Csc:
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None = None


@dataclass(eq=False)
class TimedCsc(Csc):
    timestamp: np.ndarray | None = None


class Lists:
    """A graph of in-neighbours; unless `turn_around` makes out-neighbours of them, these serve as such."""

    def __init__(self, num_nodes: dict[str, int], cscs: dict[EdgeType, Csc]) -> None:
        self._num_nodes, self._cscs, self._csrs = num_nodes, cscs, cscs
        self.node_types, self.edge_types = list(num_nodes), list(cscs)

    def turn_around(self) -> None:
        self._csrs = {name: turned(csc, self._num_nodes[name[0]]) for name, csc in self._cscs.items()}

    def num_nodes(self, node_type: str) -> int:
        return self._num_nodes[node_type]

    def csc(self, edge_type: EdgeType) -> Csc:
        return self._cscs[edge_type]

    def csr(self, edge_type: EdgeType) -> Csc:
        return self._csrs[edge_type]


def turned(csc: Csc, columns: int) -> Csc:
    order = np.argsort(csc.indices, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(csc.indices, minlength=columns))]).astype(np.int64)
    targets = np.repeat(np.arange(len(csc.indptr) - 1), np.diff(csc.indptr))
    weight = None if csc.weight is None else csc.weight[order]
    return Csc(indptr, targets[order].astype(csc.indices.dtype), weight)


def random_csc(
    rng: np.random.Generator, rows: int, columns: int, degrees: list[int], dtype: Any = np.int32
) -> Csc:
    indptr = np.concatenate([[0], np.cumsum(rng.choice(degrees, rows))]).astype(np.int64)
    weight = np.exp(rng.normal(0, 2, indptr[-1])).astype(np.float32)
    return Csc(indptr, rng.integers(0, columns, indptr[-1]).astype(dtype), weight)


def one_type(csc: Csc) -> Lists:
    return Lists({"node": len(csc.indptr) - 1}, {ONE_TYPE: csc})


def assert_same(sample: Any, expected: Any, device: torch.device) -> None:
    for name in ("nodes", "row", "col", "edge_ids", "trees"):
        ours, theirs = getattr(sample, name), getattr(expected, name)
        assert (ours is None) == (theirs is None)
        if not isinstance(theirs, dict):
            ours, theirs = ({"": ours}, {"": theirs}) if theirs is not None else ({}, {})
        assert list(ours) == list(theirs)
        for key in theirs:
            assert ours[key].device.type == device.type
            assert ours[key].dtype == torch.int64
            np.testing.assert_array_equal(ours[key].cpu().numpy(), theirs[key], err_msg=f"{name} {key}")
    assert sample.num_sampled_nodes == expected.num_sampled_nodes
    assert sample.num_sampled_edges == expected.num_sampled_edges


class DeviceSampling:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    @pytest.mark.parametrize("replace", [False, True])
    @pytest.mark.parametrize("num_neighbors", [[3, 2], [5], [-1, 2], [0, 2], [1, 1, 1, 1], [70], [2, -1]])
    def test_uniform(self, device: torch.device, num_neighbors: list[int], replace: bool, dtype: Any) -> None:
        rng = np.random.default_rng(sum(num_neighbors))
        csc = random_csc(rng, 90, 90, [0, 1, 2, 5, 20, 64, 65, 80], dtype)
        seeds = rng.integers(0, 90, 17)
        graph = DeviceGraph(one_type(csc), device)
        for batch in (0, 2**40):  # the second finds what the first has left
            drawn: dict[str, Any] = {"replace": replace, "seed": 2**63 + 5, "epoch": 3, "batch": batch}
            expected = sample_neighbors(csc, seeds, num_neighbors, **drawn)
            sample = sample_neighbors(graph, torch.from_numpy(seeds).to(device), num_neighbors, **drawn)
            assert_same(sample, expected, device)

    @pytest.mark.parametrize(
        ("degree", "wanted"), [(5, 4), (63, 62), (64, 40), (65, 33), (200, 9), (70, 40), (3, 1)]
    )
    def test_weighted_without_replacement(self, device: torch.device, degree: int, wanted: int) -> None:
        rng = np.random.default_rng(degree * wanted)
        csc = random_csc(rng, 6, 6, [degree, 1, 0])
        seeds = np.arange(6)
        expected = sample_neighbors(csc, seeds, [wanted], weight_attr="weight", seed=7)
        sample = sample_neighbors(
            DeviceGraph(one_type(csc), device), seeds, [wanted], weight_attr="weight", seed=7
        )
        assert_same(sample, expected, device)

    def test_rare_weights_are_found_by_keys(self, device: torch.device) -> None:
        """Draws meet a heavy edge again and again, so that what is left is taken by exponential keys."""
        csc = random_csc(np.random.default_rng(0), 3, 3, [70])
        assert csc.weight is not None
        csc.weight[::7] = 1e30
        expected = sample_neighbors(csc, [0, 1, 2], [13], weight_attr="weight", seed=1)
        sample = sample_neighbors(
            DeviceGraph(one_type(csc), device), [0, 1, 2], [13], weight_attr="weight", seed=1
        )
        assert_same(sample, expected, device)

    @pytest.mark.parametrize("wanted", [1, 3, 4, 100])
    def test_weighted_with_replacement(self, device: torch.device, wanted: int) -> None:
        csc = random_csc(np.random.default_rng(wanted), 50, 50, [0, 1, 9, 300])
        drawn: dict[str, Any] = {"replace": True, "weight_attr": "weight", "seed": 7, "epoch": 1}
        expected = sample_neighbors(csc, np.arange(20), [wanted, 2], **drawn)
        sample = sample_neighbors(DeviceGraph(one_type(csc), device), np.arange(20), [wanted, 2], **drawn)
        assert_same(sample, expected, device)

    @pytest.mark.parametrize("indices_in", ["device", "pinned"])
    def test_types(self, device: torch.device, indices_in: Literal["device", "pinned"]) -> None:
        rng = np.random.default_rng(4)
        users, items = 40, 70
        cscs = {
            ("user", "buys", "item"): random_csc(rng, items, users, [0, 3, 12]),
            ("item", "bought_by", "user"): random_csc(rng, users, items, [1, 4, 9], np.int64),
            ("item", "like", "item"): random_csc(rng, items, items, [0, 2, 30]),
        }
        for edge_type in (("user", "buys", "item"), ("item", "like", "item")):
            cscs[edge_type].weight = None
        graph = Lists({"user": users, "item": items, "shop": 3}, cscs)
        numbers = {
            ("user", "buys", "item"): [3, 2],
            ("item", "bought_by", "user"): [2, 0],
            ("item", "like", "item"): [-1, 5],
        }
        seeds = {"item": rng.integers(0, items, 9), "user": np.array([3, 3])}
        drawn: dict[str, Any] = {"weight_attr": "weight", "seed": 11, "batch": 4}
        expected = sample_heterogeneous(graph, seeds, numbers, **drawn)
        on_device = DeviceGraph(graph, device, indices_in=indices_in)
        assert_same(sample_heterogeneous(on_device, seeds, numbers, **drawn), expected, device)
        held = on_device.device_bytes + on_device.pinned_bytes
        indices = sum(csc.indices.nbytes for csc in cscs.values())
        weights = 12 * len(cscs["item", "bought_by", "user"].indices)
        assert held == sum(csc.indptr.nbytes for csc in cscs.values()) + indices + weights
        assert on_device.pinned_bytes == (indices + weights if indices_in == "pinned" else 0)

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    def test_positions_by_a_hash_table(self, device: torch.device, dtype: Any) -> None:
        """Of a type with too many nodes for an array; the table grows within samples and between them."""
        csc = random_csc(np.random.default_rng(5), 3000, 3000, [0, 2, 40], dtype)
        graph = DeviceGraph(one_type(csc), device, relabel_bytes=0)
        all_seeds: list[Any] = [[4, 4, 2999], np.arange(200), [], np.arange(60, 70)]
        for batch, seeds in enumerate(all_seeds):
            expected = sample_neighbors(csc, seeds, [20, 3], batch=batch)
            assert_same(sample_neighbors(graph, seeds, [20, 3], batch=batch), expected, device)

    def test_nothing_to_sample(self, device: torch.device) -> None:
        none = DeviceGraph(one_type(Csc(np.zeros(1, np.int64), np.zeros(0, np.int32))), device)
        alone = DeviceGraph(one_type(Csc(np.zeros(4, np.int64), np.zeros(0, np.int32))), device)
        for graph, seeds in ((none, []), (alone, []), (alone, [2, 0, 2])):
            sample = sample_neighbors(graph, seeds, [2, -1])
            assert sample.nodes.tolist() == seeds
            assert sample.num_sampled_nodes == [len(seeds), 0, 0]
            assert sample.num_sampled_edges == [0, 0]

    def test_refusals(self, device: torch.device) -> None:
        csc = random_csc(np.random.default_rng(0), 9, 9, [3])
        graph = DeviceGraph(one_type(csc), device)
        with pytest.raises(UsageError, match="expected node indices from 0 to 8, received 9"):
            sample_neighbors(graph, [9], [1])
        with pytest.raises(UsageError, match="expected integers that fit int64, received float32"):
            sample_neighbors(graph, torch.ones(3), [1])
        with pytest.raises(UsageError, match="the graph has: node"):
            sample_heterogeneous(graph, {"nodes": [1]}, [1])
        with pytest.raises(UnsupportedError, match="at most 512 neighbours"):
            sample_neighbors(graph, [1], [513])
        with pytest.raises(UsageError, match="expected device or pinned"):
            DeviceGraph(one_type(csc), device, indices_in="ssd")  # type: ignore[arg-type]
        csc.indices[2] = 9
        with pytest.raises(DataError, match="expected neighbours from 0 to 8, found"):
            sample_neighbors(DeviceGraph(one_type(csc), device), [1], [1])
        csc.indices[2] = 0
        csc.indptr[1] = 40
        with pytest.raises(DataError, match="rise from 0 to the number of edges, 27"):
            sample_neighbors(DeviceGraph(one_type(csc), device), [1], [1])
