"""The kind of a user's own ``torch.nn.Module``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import ModelKind, OwnModuleConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

if TYPE_CHECKING:
    from graphbox.train.registry import Assignment
    from graphbox.train.trainer import Trainer

__all__ = ["module"]


class _OwnModule(ModelKind[OwnModuleConfig]):
    """A module of the user's own; its footprint is unknown."""

    LIBRARIES = (TORCH_OPTIMIZERS, "torch_geometric.nn")

    def trainer(self) -> Callable[[OwnModuleConfig, Assignment], Trainer]:
        from graphbox.train.own_module.trainer import make_own_module_trainer

        return make_own_module_trainer


module = _OwnModule(OwnModuleConfig)
