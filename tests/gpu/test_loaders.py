"""Loaders on a GPU, with compiled kernels and streams of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceFeatures, DeviceGraph, NeighborLoader
from tests.sample.device_loaders import DeviceLoaders, assert_same_batch
from tests.sample.device_sampling import ONE_TYPE, Csc, Lists, random_csc

pytestmark = pytest.mark.gpu


class Featured(Lists):
    def __init__(self, csc: Csc) -> None:
        super().__init__({"node": len(csc.indptr) - 1}, {ONE_TYPE: csc})
        rng = np.random.default_rng(1)
        self.x = rng.normal(size=(len(csc.indptr) - 1, 128)).astype(np.float32)

    def feature(self, node_type: str, name: str) -> np.ndarray:
        return self.x


class TestCompiled(DeviceLoaders):
    pass


@pytest.mark.parametrize("num_threads", [1, 2])
def test_batches_are_whole_when_the_loop_gets_them(device: torch.device, num_threads: int) -> None:
    """Memory that batches gave back is used by those that are made ahead, while the loop still computes."""
    rng = np.random.default_rng(0)
    graph = Featured(random_csc(rng, 100_000, 100_000, [0, 10, 50]))
    common: dict[str, Any] = {
        "num_neighbors": [10, 5],
        "input_nodes": np.arange(50_000),
        "batch_size": 512,
        "shuffle": True,
        "features": ["x"],
        "output": "torch",
    }
    loader = NeighborLoader(
        DeviceGraph(graph, device, hbm_bytes=20 * 100_001 + (2 << 20)),
        **common,
        fetch=DeviceFeatures(graph, device, ["x"], hbm_bytes=12 * 100_000 + (8 << 20)),
        num_threads=num_threads,
        prefetch=4,
        pass_batches=16,
    )
    reference = NeighborLoader(graph, **common)
    busy = torch.ones(4096, 4096, device=device)
    for batch, expected in zip(loader, reference, strict=True):
        for _ in range(4):  # so that the loop's stream is behind
            busy = busy @ busy * 0
        assert_same_batch(batch, expected, device)
