"""Loaders on a device over a graph of the store, by Triton's interpreter, as PyTorch Geometric's data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="graphs need pyarrow, which is not installed")
pytest.importorskip("torch_geometric", reason="batches are of PyTorch Geometric, which is not installed")

from graphbox.errors import NotFoundError
from graphbox.graph import Graph
from graphbox.sample import DeviceFeatures, DeviceGraph, LinkNeighborLoader
from tests.sample.device_loaders import assert_same_batch

pytestmark = pytest.mark.gpu_kernel


def test_batches_and_features_of_a_graph() -> None:
    device = torch.device("cpu")
    source, target = np.random.default_rng(0).integers(0, 50, (2, 300))
    graph = Graph.from_coo(
        source,
        target,
        num_nodes=50,
        node_features={"x": np.eye(50, 3, dtype=np.float32), "kind": np.arange(50) % 3},
    )
    common: dict[str, Any] = {"num_neighbors": [3], "batch_size": 20, "edge_label_index": None, "seed": 1}
    loader = LinkNeighborLoader(DeviceGraph(graph, device), **common)
    for batch, expected in zip(loader, LinkNeighborLoader(graph, **common), strict=True):
        assert_same_batch(batch, expected, device)
    with pytest.raises(NotFoundError, match="there is no feature `z` of `node`"):
        DeviceFeatures(graph, device, ["z"])
