"""Guarantees of loaders on a device: the batches of their twins in host memory, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from graphbox.bandwidth import Bandwidths
from graphbox.errors import UsageError
from graphbox.sample import DeviceFeatures, DeviceGraph, LinkNeighborLoader, NeighborLoader
from tests.sample.device_sampling import ONE_TYPE, Lists, TimedCsc, random_csc

NODES = 300
KNOWN_OF_LISTS = 20 * (NODES + 1)
KNOWN_OF_ROWS = 12 * NODES
SLOW_PINNED = Bandwidths("any", 1e12, 1e9, (1e12,) * 3, (1e11,) * 3, 1e11, 1e11, 1e12)


class Papers(Lists):
    """One type, with features of several widths, and edges with weights and times."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        csc = random_csc(rng, NODES, NODES, [0, 2, 8, 20])
        timed = TimedCsc(csc.indptr, csc.indices, csc.weight, rng.integers(0, 99, len(csc.indices)))
        super().__init__({"node": NODES}, {ONE_TYPE: timed})
        self.features: dict[str, np.ndarray] = {
            "y": rng.integers(0, 4, NODES).astype(np.int32),
            "x": rng.normal(size=(NODES, 5)).astype(np.float32),
            "year": rng.integers(1990, 2020, NODES),
            "half": rng.normal(size=(NODES, 3)).astype(np.float16),
        }

    def feature(self, node_type: str, name: str) -> np.ndarray:
        return self.features[name]


class DatedPapers(Papers):
    """The same with times of nodes."""

    def node_columns(self, node_type: str) -> dict[str, Any]:
        return {"year": SimpleNamespace(kind="integer", values=self.features["year"])}


class Shop(Lists):
    """Two types and a feature of one of them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        super().__init__(
            {"user": 50, "item": 80},
            {
                ("user", "buys", "item"): random_csc(rng, 80, 50, [0, 3, 9]),
                ("item", "like", "item"): random_csc(rng, 80, 80, [1, 5]),
                ("item", "rev_buys", "user"): random_csc(rng, 50, 80, [2, 4]),
            },
        )
        for csc in self._cscs.values():
            for row in range(len(csc.indptr) - 1):
                csc.indices[csc.indptr[row] : csc.indptr[row + 1]].sort()
        self.price = rng.normal(size=80)

    def feature(self, node_type: str, name: str) -> np.ndarray:
        assert (node_type, name) == ("item", "price")
        return self.price


def parts_of(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a batch, by its path."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, Mapping):
        for key in value:
            yield from parts_of(value[key], f"{name}.{key}")
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from parts_of(getattr(value, field.name), f"{name}.{field.name}")
    else:
        yield name, value


def assert_same_batch(batch: Any, expected: Any, device: torch.device) -> None:
    ours, theirs = dict(parts_of(batch)), dict(parts_of(expected))
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert ours[name].device.type == device.type, name
            assert ours[name].dtype == value.dtype, name
            assert torch.equal(ours[name].cpu(), value), name
        else:
            assert ours[name] == value, name


class DeviceLoaders:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("output", ["pyg", "torch"])
    @pytest.mark.parametrize(
        "options",
        [{"num_neighbors": [4, 3]}, {"num_neighbors": [3, -1], "weight_attr": "weight", "replace": True}],
    )
    def test_batches_are_the_same(
        self, device: torch.device, options: dict[str, Any], output: Literal["pyg", "torch"]
    ) -> None:
        graph = Papers()
        common: dict[str, Any] = {
            **options,
            "input_nodes": np.arange(10, 34),
            "batch_size": 16,
            "shuffle": True,
            "edge_attributes": ["weight", "timestamp"],
            "features": ["y", "x", "year", "half"],
            "output": output,
            "seed": 3,
        }
        if output == "pyg":
            pytest.importorskip("torch_geometric")
        on_device = DeviceGraph(graph, device)
        features = DeviceFeatures(graph, device, common["features"])
        loader = NeighborLoader(on_device, **common, fetch=features)
        reference = NeighborLoader(graph, **common)
        for _ in range(2):
            for batch, expected in zip(loader, reference, strict=True):
                assert_same_batch(batch, expected, device)

    @pytest.mark.parametrize(
        "options",
        [
            {"disjoint": True, "weight_attr": "weight"},
            {"time_attr": "timestamp", "input_time": np.arange(10, 24), "weight_attr": "weight"},
            {"time_attr": "timestamp", "input_time": np.arange(10, 24), "temporal_strategy": "last"},
            {"time_attr": "year"},
        ],
    )
    @pytest.mark.parametrize("output", ["pyg", "torch"])
    def test_other_choices(
        self, device: torch.device, options: dict[str, Any], output: Literal["pyg", "torch"]
    ) -> None:
        if output == "pyg":
            pytest.importorskip("torch_geometric")
        graph = DatedPapers()
        common: dict[str, Any] = {
            **options,
            "num_neighbors": [3, 2],
            "input_nodes": np.arange(30, 44),
            "batch_size": 7,
            "shuffle": True,
            "edge_attributes": ["weight", "timestamp"],
            "features": (),
            "output": output,
        }
        loader = NeighborLoader(DeviceGraph(graph, device), **common)
        for batch, expected in zip(loader, NeighborLoader(graph, **common), strict=True):
            assert_same_batch(batch, expected, device)

    @pytest.mark.parametrize(
        "options",
        [
            {"weight_attr": "weight"},
            {"disjoint": True, "weight_attr": "weight"},
            {"time_attr": "timestamp", "edge_label_time": np.arange(35, 45), "weight_attr": "weight"},
            {"time_attr": "timestamp", "edge_label_time": np.arange(35, 45), "temporal_strategy": "last"},
            {"time_attr": "year", "edge_label_time": np.arange(2000, 2010)},
        ],
    )
    def test_links_with_leakage_control(self, device: torch.device, options: dict[str, Any]) -> None:
        graph = DatedPapers()
        csc = graph.csc(ONE_TYPE)
        for row in range(NODES):
            csc.indices[csc.indptr[row] : csc.indptr[row + 1]].sort()
        targets = np.repeat(np.arange(NODES), np.diff(csc.indptr))
        common: dict[str, Any] = {
            **options,
            "num_neighbors": [3, 2],
            "edge_label_index": np.stack([csc.indices[40:50], targets[40:50]]),
            "batch_size": 5,
            "neg_sampling": "binary",
            "features": (),
            "output": "torch",
            "seed": 5,
        }
        loader = LinkNeighborLoader(DeviceGraph(graph, device), **common)
        for batch, expected in zip(loader, LinkNeighborLoader(graph, **common), strict=True):
            assert_same_batch(batch, expected, device)

    @pytest.mark.parametrize("misses", ["read", "copy"])
    def test_budgets_change_nothing(self, device: torch.device, misses: Literal["read", "copy"]) -> None:
        graph = Papers()
        common: dict[str, Any] = {
            "num_neighbors": [4, 3],
            "input_nodes": np.arange(24),
            "batch_size": 8,
            "shuffle": True,
            "features": ["y", "x", "year", "half"],
            "output": "torch",
            "seed": 3,
        }
        whole_bytes = sum(graph.feature("node", name).nbytes for name in ("y", "year", "half"))
        for extra_bytes in (0, 1_500):
            list_bytes = KNOWN_OF_LISTS + extra_bytes
            row_bytes = whole_bytes + KNOWN_OF_ROWS + extra_bytes
            on_device = DeviceGraph(graph, device, hbm_bytes=list_bytes, bandwidths=SLOW_PINNED)
            features = DeviceFeatures(graph, device, common["features"], hbm_bytes=row_bytes, misses=misses)
            loader = NeighborLoader(on_device, **common, fetch=features, pass_batches=2)
            reference = NeighborLoader(graph, **common)
            for _ in range(2):
                for batch, expected in zip(loader, reference, strict=True):
                    assert_same_batch(batch, expected, device)
                    assert on_device.device_bytes <= list_bytes
                    assert features.device_bytes <= row_bytes
            for statistics in (on_device.statistics, features.statistics):
                assert (statistics.lists > 0) == (extra_bytes == 1_500)
                assert statistics.passes == 4

    def test_several_types(self, device: torch.device) -> None:
        graph = Shop()
        common: dict[str, Any] = {
            "num_neighbors": [3, 2],
            "input_nodes": ("item", np.arange(30)),
            "batch_size": 12,
            "features": {"item": ["price"]},
            "output": "torch",
        }
        loader = NeighborLoader(DeviceGraph(graph, device), **common)
        for batch, expected in zip(loader, NeighborLoader(graph, **common), strict=True):
            assert_same_batch(batch, expected, device)

    @pytest.mark.parametrize("neg_sampling", [None, "binary", "triplet"])
    def test_links(self, device: torch.device, neg_sampling: Any) -> None:
        """With leakage control: no labelled pair has its edge in the batch."""
        graph = Shop()
        edge_type = ("user", "buys", "item")
        csc = graph.csc(edge_type)
        targets = np.repeat(np.arange(80), np.diff(csc.indptr))
        common: dict[str, Any] = {
            "num_neighbors": [3],
            "edge_label_index": (edge_type, np.stack([csc.indices[:60], targets[:60]])),
            "batch_size": 30,
            "neg_sampling": neg_sampling,
            "features": (),
            "output": "torch",
            "seed": 5,
        }
        loader = LinkNeighborLoader(DeviceGraph(graph, device), **common)
        batches = zip(loader, LinkNeighborLoader(graph, **common), strict=True)
        for batch, expected in batches:
            assert_same_batch(batch, expected, device)

    def test_epochs_resume(self, device: torch.device) -> None:
        graph = Papers()
        common: dict[str, Any] = {
            "num_neighbors": [3],
            "batch_size": 64,
            "shuffle": True,
            "features": ["x"],
            "output": "torch",
        }
        first = NeighborLoader(DeviceGraph(graph, device), **common)
        batches = iter(first)
        next(batches), next(batches)
        batches.close()  # since Triton's interpreter runs one kernel at a time
        second = NeighborLoader(DeviceGraph(graph, device), **common)
        second.load_state_dict(first.state_dict())
        rest = list(NeighborLoader(graph, **common))[2:]
        for batch, expected in zip(second, rest, strict=True):
            assert_same_batch(batch, expected, device)

    def test_batches_of_the_host_are_copied(self, device: torch.device) -> None:
        """Of a graph in host memory, which its threads sample."""
        graph = Papers()
        common: dict[str, Any] = {"num_neighbors": [3, 2], "batch_size": 100, "output": "torch"}
        times = {"input_time": np.arange(NODES), "time_attr": "timestamp"}
        for options in ({"replace": True}, times):
            loader = NeighborLoader(graph, **common, **options, device=device)
            for batch, expected in zip(loader, NeighborLoader(graph, **common, **options), strict=True):
                assert_same_batch(batch, expected, device)

    def test_rows(self, device: torch.device) -> None:
        graph = Papers()
        features = DeviceFeatures(graph, device, ["x", "year"])
        nodes = np.array([5, 5, 0, 299])
        x = features.rows("node", "x", nodes)
        assert torch.equal(x.cpu(), torch.from_numpy(graph.feature("node", "x")[nodes]))
        year = features.rows("node", "year", torch.tensor(nodes))
        np.testing.assert_array_equal(year.cpu().numpy(), graph.feature("node", "year")[nodes])
        assert features.rows("node", "x", []).shape == (0, 5)

    def test_refusals(self, device: torch.device) -> None:
        graph = Papers()
        on_device = DeviceGraph(graph, device)
        with pytest.raises(UsageError, match="expected pyg or torch for batches on"):
            NeighborLoader(on_device, [3], features=(), output="numpy")
        with pytest.raises(UsageError, match="expected read or copy, received 'both'"):
            DeviceFeatures(graph, device, ["x"], misses="both")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected 0 bytes or more, received -1"):
            DeviceFeatures(graph, device, ["x"], hbm_bytes=-1)
        features = DeviceFeatures(graph, device, ["x"])
        with pytest.raises(UsageError, match="expected one of `x` of `node`, received `y` of `node`"):
            features.rows("node", "y", [1])
        with pytest.raises(UsageError, match="expected node indices from 0 to 299, received 300"):
            features.rows("node", "x", [300])
