"""The kinds of networks of nodes: over the edges of a graph, and of a node's own features and rows alone."""

from __future__ import annotations

from graphbox.config import GraphNetworkConfig, MlpConfig, ModelKind
from graphbox.config.model_kind import TORCH_OPTIMIZERS

_TRAINER = "graphbox.train.network.classify:make_graph_network_trainer"

gnn = ModelKind(
    GraphNetworkConfig,
    _TRAINER,
    footprint="graphbox.train.network.footprint:GraphNetworkFootprint",
    libraries=(TORCH_OPTIMIZERS, "torch_geometric.nn"),
)
mlp = ModelKind(
    MlpConfig,
    _TRAINER,
    footprint="graphbox.train.network.footprint:MlpFootprint",
    libraries=(TORCH_OPTIMIZERS,),
)
