"""Graphs on disk sampled on a GPU, with compiled kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="graphs need pyarrow, which is not installed")

from graphbox.graph import Graph
from graphbox.sample import DeviceGraph, NeighborLoader
from tests.sample.device_loaders import assert_same_batch
from tests.sample.device_tiers import KNOWN, DeviceTiers

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceTiers):
    pass


def test_all_three_tiers_give_batches_while_the_loop_computes(device: torch.device, tmp_path: Path) -> None:
    """Passes come and go, and with them lists on the GPU and in pinned memory."""
    rng = np.random.default_rng(0)
    nodes = 100_000
    Graph.from_coo(
        rng.integers(0, nodes, 20 * nodes),
        (rng.pareto(1.0, 20 * nodes) * 1000).astype(np.int64) % nodes,
        num_nodes=nodes,
        node_features={"x": rng.random((nodes, 64)).astype(np.float32)},
    ).save(tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    common: dict[str, Any] = {
        "num_neighbors": [10, 5],
        "input_nodes": np.arange(0, nodes, 4),
        "batch_size": 512,
        "shuffle": True,
        "features": ["x"],
        "output": "torch",
    }
    hbm_bytes = KNOWN * (nodes + 1) + (1 << 20)
    tiered = graph.tiered(topology_bytes=2 << 20, feature_bytes=8 << 20, pass_bytes=32 << 20)
    on_device = DeviceGraph(tiered, device, hbm_bytes=hbm_bytes)
    loader, reference = NeighborLoader(on_device, **common), NeighborLoader(graph, **common)
    busy = torch.ones(4096, 4096, device=device)
    for _ in range(2):
        for batch, expected in zip(loader, reference, strict=True):
            for _ in range(4):  # so that the loop's stream is behind
                busy = busy @ busy * 0
            assert_same_batch(batch, expected, device)
    far = on_device.pinned_statistics
    assert far is not None
    assert on_device.statistics.lists > 0
    assert far.lists > 0
    assert on_device.device_bytes <= hbm_bytes
    assert on_device.pinned_bytes <= 2 << 20
