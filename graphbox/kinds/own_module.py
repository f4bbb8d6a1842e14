"""The kind of a user's own ``torch.nn.Module``; its footprint is unknown."""

from __future__ import annotations

from graphbox.config import ModelKind, OwnModuleConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

module = ModelKind(
    OwnModuleConfig,
    "graphbox.train.own_module.trainer:make_own_module_trainer",
    libraries=(TORCH_OPTIMIZERS, "torch_geometric.nn"),
)
