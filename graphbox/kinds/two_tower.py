"""The kind of two towers over features and ids (Yi et al., RecSys 2019)."""

from __future__ import annotations

from graphbox.config import ModelKind, TwoTowerConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

two_tower = ModelKind(
    TwoTowerConfig,
    "graphbox.train.network.two_towers:make_two_tower_trainer",
    footprint="graphbox.train.network.footprint:TwoTowerFootprint",
    libraries=(TORCH_OPTIMIZERS,),
)
