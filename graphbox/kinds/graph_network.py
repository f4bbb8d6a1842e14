"""The kind of graph neural networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import GraphNetworkConfig, ModelKind, RunConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

if TYPE_CHECKING:
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.trainer import Trainer

__all__ = ["gnn"]


class _GraphNetwork(ModelKind[GraphNetworkConfig]):
    """Layers of PyTorch Geometric, trained for a task."""

    LIBRARIES = (TORCH_OPTIMIZERS, "torch_geometric.nn")

    def trainer(self) -> Callable[[GraphNetworkConfig, Assignment], Trainer]:
        from graphbox.train.network.classify import make_graph_network_trainer

        return make_graph_network_trainer

    def footprint(
        self, config: GraphNetworkConfig, counts: GraphCounts, run: RunConfig
    ) -> Footprint[GraphNetworkConfig]:
        from graphbox.train.network.footprint import GraphNetworkFootprint

        return GraphNetworkFootprint(config, counts, run)


gnn = _GraphNetwork(GraphNetworkConfig)
