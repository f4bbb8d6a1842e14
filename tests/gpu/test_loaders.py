"""Loaders on a GPU, with compiled kernels and streams of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="graphs need pyarrow, which is not installed")

from graphbox.graph import Graph
from graphbox.sample import DeviceFeatures, DeviceGraph, NeighborLoader
from tests.sample.device_loaders import DeviceLoaders, assert_same_batch

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceLoaders):
    pass


@pytest.mark.parametrize("num_threads", [1, 2])
def test_batches_are_whole_when_the_loop_gets_them(device: torch.device, num_threads: int) -> None:
    """Memory that batches gave back is used by those that are made ahead, while the loop still computes."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 100_000, (2, 2_000_000))
    x = rng.normal(size=(100_000, 128)).astype(np.float32)
    graph = Graph.from_coo(source, target, num_nodes=100_000, node_features={"x": x})
    loader = NeighborLoader(
        DeviceGraph(graph, device, hbm_bytes=20 * 100_001 + (2 << 20)),
        [10, 5],
        np.arange(50_000),
        batch_size=512,
        shuffle=True,
        fetch=DeviceFeatures(graph, device, hbm_bytes=12 * 100_000 + (8 << 20)),
        num_threads=num_threads,
        prefetch=4,
        pass_batches=16,
    )
    reference = NeighborLoader(graph, [10, 5], np.arange(50_000), batch_size=512, shuffle=True)
    busy = torch.ones(4096, 4096, device=device)
    for batch, expected in zip(loader, reference, strict=True):
        for _ in range(4):  # so that the loop's stream is behind
            busy = busy @ busy * 0
        assert_same_batch(batch, expected, device)
