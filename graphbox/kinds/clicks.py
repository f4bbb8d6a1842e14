"""Kinds of click models: DeepFM, DCN-v2, Wide & Deep, DIN, MMoE."""

from __future__ import annotations

from graphbox.config import (
    ClickModelSection,
    DCNConfig,
    DeepFMConfig,
    DINConfig,
    MMoEConfig,
    ModelKind,
    WideAndDeepConfig,
)
from graphbox.config.model_kind import TORCH_OPTIMIZERS


def _click_model(section: type[ClickModelSection]) -> ModelKind:
    """Return the kind of a section: probability of a click, from the features of a row."""
    return ModelKind(
        section,
        "graphbox.train.click.trainer:ClickTrainer",
        streaming_trainer="graphbox.train.click.trainer:ClickTrainer",
        footprint="graphbox.train.click.footprint:ClickFootprint",
        libraries=(TORCH_OPTIMIZERS,),
    )


deepfm = _click_model(DeepFMConfig)
dcn = _click_model(DCNConfig)
wide_and_deep = _click_model(WideAndDeepConfig)
din = _click_model(DINConfig)
mmoe = _click_model(MMoEConfig)
