"""The kind of models whose trainer a run file names by an import path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from graphbox.config import CustomConfig, ModelKind

if TYPE_CHECKING:
    from graphbox.train.registry import Assignment
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

__all__ = ["custom"]


class _Custom(ModelKind[CustomConfig]):
    """A trainer of the user's own; its footprint is unknown."""

    def trainer(self) -> Callable[[CustomConfig, Assignment], Trainer]:
        from graphbox.train.custom import make_custom_trainer

        return make_custom_trainer

    def streaming_trainer(self) -> Callable[[CustomConfig, Assignment], StreamingTrainer]:
        # The registry checks what is made: whether it is one is known then.
        return cast("Callable[[CustomConfig, Assignment], StreamingTrainer]", self.trainer())


custom = _Custom(CustomConfig)
