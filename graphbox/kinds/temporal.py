"""The kind of temporal models of streams: scores of events, from the latest events of both ends."""

from __future__ import annotations

from graphbox.config import ModelKind, TemporalConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

temporal = ModelKind(
    TemporalConfig,
    "graphbox.train.temporal.trainer:TemporalTrainer",
    streaming_trainer="graphbox.train.temporal.trainer:TemporalTrainer",
    footprint="graphbox.train.temporal.footprint:TemporalFootprint",
    libraries=(TORCH_OPTIMIZERS,),
)
