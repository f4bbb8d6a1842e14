"""The kind of graph neural networks: layers of PyTorch Geometric, trained for a task."""

from __future__ import annotations

from graphbox.config import GraphNetworkConfig, ModelKind
from graphbox.config.model_kind import TORCH_OPTIMIZERS

gnn = ModelKind(
    GraphNetworkConfig,
    "graphbox.train.network.classify:make_graph_network_trainer",
    footprint="graphbox.train.network.footprint:GraphNetworkFootprint",
    libraries=(TORCH_OPTIMIZERS, "torch_geometric.nn"),
)
