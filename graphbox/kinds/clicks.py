"""Kinds of click models: DeepFM, DCN-v2, Wide & Deep."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import (
    ClickModelSection,
    DCNConfig,
    DeepFMConfig,
    ModelKind,
    RunConfig,
    WideAndDeepConfig,
)
from graphbox.config.model_kind import TORCH_OPTIMIZERS

if TYPE_CHECKING:
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

__all__ = ["dcn", "deepfm", "wide_and_deep"]


class _ClickModel(ModelKind[ClickModelSection]):
    """Probability of a click, from the features of a row."""

    LIBRARIES = (TORCH_OPTIMIZERS,)

    def trainer(self) -> Callable[[ClickModelSection, Assignment], Trainer]:
        from graphbox.train.click.trainer import ClickTrainer

        return ClickTrainer

    def streaming_trainer(self) -> Callable[[ClickModelSection, Assignment], StreamingTrainer]:
        from graphbox.train.click.trainer import ClickTrainer

        return ClickTrainer

    def footprint(
        self, config: ClickModelSection, counts: GraphCounts, run: RunConfig
    ) -> Footprint[ClickModelSection]:
        from graphbox.train.click.footprint import ClickFootprint

        return ClickFootprint(config, counts, run)


deepfm = _ClickModel(DeepFMConfig)
dcn = _ClickModel(DCNConfig)
wide_and_deep = _ClickModel(WideAndDeepConfig)
