"""The kind of temporal models of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import ModelKind, RunConfig, TemporalConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

if TYPE_CHECKING:
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

__all__ = ["temporal"]


class _Temporal(ModelKind[TemporalConfig]):
    """Scores of events, from the latest events of both ends."""

    LIBRARIES = (TORCH_OPTIMIZERS,)

    def trainer(self) -> Callable[[TemporalConfig, Assignment], Trainer]:
        from graphbox.train.temporal.trainer import TemporalTrainer

        return TemporalTrainer

    def streaming_trainer(self) -> Callable[[TemporalConfig, Assignment], StreamingTrainer]:
        from graphbox.train.temporal.trainer import TemporalTrainer

        return TemporalTrainer

    def footprint(
        self, config: TemporalConfig, counts: GraphCounts, run: RunConfig
    ) -> Footprint[TemporalConfig]:
        from graphbox.train.temporal.footprint import TemporalFootprint

        return TemporalFootprint(config, counts, run)


temporal = _Temporal(TemporalConfig)
