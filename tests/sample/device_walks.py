"""Guarantees of walks on a device: the walks in host memory, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox.errors import UnsupportedError, UsageError
from graphbox.sample import DeviceGraph, random_walk
from tests.sample.device_sampling import Lists, one_type, random_csc

TYPES = {
    ("user", "buys", "item"): ("user", "item"),
    ("item", "like", "item"): ("item", "item"),
}
COUNTS = {"user": 30, "item": 50}


class DeviceWalks:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    @pytest.mark.parametrize("length", [0, 1, 7])
    @pytest.mark.parametrize("options", [{}, {"weighted": True}, {"restart_probability": 0.3}])
    def test_along_one_edge_type(
        self, device: torch.device, length: int, options: dict[str, Any], dtype: Any
    ) -> None:
        csr = random_csc(np.random.default_rng(1), 60, 60, [0, 1, 2, 3, 30], dtype)
        start = np.random.default_rng(2).integers(0, 60, 150)
        expected = random_walk(csr, start, length, seed=2**63 + 1, epoch=2, batch=2**40, **options)
        graph = DeviceGraph(one_type(csr), device)
        walks: Any = random_walk(graph, start, length, seed=2**63 + 1, epoch=2, batch=2**40, **options)
        assert walks.device.type == device.type
        np.testing.assert_array_equal(walks.cpu().numpy(), expected)

    @pytest.mark.parametrize(
        ("p", "q", "walkers", "options"),
        [
            (0.25, 4.0, 40, {}),
            (4.0, 0.25, 40, {"restart_probability": 0.2}),
            (0.25, 4.0, 30, {"weighted": True}),
            (1e-20, 1.0, 3, {}),  # every dart misses
            (1e20, 1e20, 3, {"weighted": True}),
        ],
    )
    def test_looking_back(
        self, device: torch.device, p: float, q: float, walkers: int, options: dict[str, Any]
    ) -> None:
        csr = random_csc(np.random.default_rng(3), 40, 40, [0, 1, 2, 3, 12])
        for row in range(40):
            csr.indices[csr.indptr[row] : csr.indptr[row + 1]].sort()  # parallel edges among them
        start = np.random.default_rng(4).integers(0, 40, walkers)
        expected = random_walk(csr, start, 5, p, q, seed=5, **options)
        walks: Any = random_walk(DeviceGraph(one_type(csr), device), start, 5, p, q, seed=5, **options)
        np.testing.assert_array_equal(walks.cpu().numpy(), expected)

    def test_along_metapaths(self, device: torch.device) -> None:
        rng = np.random.default_rng(6)
        graph = Lists(
            COUNTS,
            {
                edge_type: random_csc(rng, COUNTS[target], COUNTS[source], [0, 2, 9], np.int64)
                for edge_type, (source, target) in TYPES.items()
            },
        )
        graph.turn_around()
        metapaths = [
            [("user", "buys", "item"), ("item", "rev_buys", "user")],
            [("item", "rev_like", "item")],
            [("user", "buys", "item"), ("item", "like", "item"), ("item", "rev_buys", "user")],
        ]
        start = rng.integers(0, 30, 50)
        options: dict[str, Any] = {"metapaths": metapaths, "weighted": [("item", "like", "item")], "seed": 8}
        expected = random_walk(graph, start, 7, **options)
        on_device = DeviceGraph(graph, device)
        walks: Any = random_walk(on_device, start, 7, **options)
        np.testing.assert_array_equal(walks.cpu().numpy(), expected)
        options["metapath_of"] = rng.integers(0, 3, 50)
        expected = random_walk(graph, start, 7, **options)
        walks = random_walk(on_device, start, 7, **options)
        np.testing.assert_array_equal(walks.cpu().numpy(), expected)
        with pytest.raises(UsageError, match="expected node indices from 0 to 29, received 40"):
            random_walk(on_device, [0, 40], 2, metapaths=metapaths[:2], metapath_of=[1, 0])
        with pytest.raises(UsageError, match="expected one for each of 2 walkers, received 1"):
            random_walk(on_device, [0, 1], 2, metapaths=metapaths, metapath_of=[1])
        with pytest.raises(UsageError, match="expected a metapath, since the graph has 2 edge types"):
            random_walk(on_device, [0, 1], 2)

    def test_refusals(self, device: torch.device) -> None:
        csr = random_csc(np.random.default_rng(0), 9, 9, [3])
        graph = DeviceGraph(one_type(csr), device)
        assert random_walk(graph, [], 3).shape == (0, 4)
        with pytest.raises(UsageError, match="expected node indices from 0 to 8, received -1"):
            random_walk(graph, [-1], 3)
        with pytest.raises(UnsupportedError, match="walks on a device know no second"):
            random_walk(graph, [1], 3, second=[2])
        with pytest.raises(UnsupportedError, match="walks on a device know no temporal_strategy"):
            random_walk(graph, [1], 3, temporal_strategy="linear")
        csr.indices[:3] = [5, 4, 3]
        with pytest.raises(UsageError, match="lists that ascend"):
            random_walk(DeviceGraph(one_type(csr), device), [1], 3, 0.5)
