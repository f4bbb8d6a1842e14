"""Sections `tasks`: what embeddings are for, and what is held out to measure it.

A new kind of task is a module here with a section and a :class:`TaskKind`, which names what holds out and
what measures; both are listed below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from graphbox.config.tasks import classify, click, complete, predict_links, recommend
from graphbox.config.tasks import next as next_event
from graphbox.config.tasks.classify import ClassifyTaskConfig
from graphbox.config.tasks.click import ClickTaskConfig, FurtherLabelConfig, RowTimeSplitConfig
from graphbox.config.tasks.complete import CompleteTaskConfig
from graphbox.config.tasks.next import NextTaskConfig
from graphbox.config.tasks.predict_links import PredictLinksTaskConfig
from graphbox.config.tasks.recommend import RecommendTaskConfig
from graphbox.config.tasks.splits import (
    GivenSplitConfig,
    HeldOutFractions,
    LeaveLastOutSplitConfig,
    RandomSplitConfig,
    TimeSplitConfig,
)
from graphbox.config.tasks.task_kind import TaskKind

__all__ = [
    "TASK_KINDS",
    "ClassifyTaskConfig",
    "ClickTaskConfig",
    "CompleteTaskConfig",
    "FurtherLabelConfig",
    "GivenSplitConfig",
    "HeldOutFractions",
    "LeaveLastOutSplitConfig",
    "NextTaskConfig",
    "PredictLinksTaskConfig",
    "RandomSplitConfig",
    "RecommendTaskConfig",
    "RowTimeSplitConfig",
    "TaskConfig",
    "TaskKind",
    "TimeSplitConfig",
]

TaskConfig = Annotated[
    ClassifyTaskConfig
    | CompleteTaskConfig
    | RecommendTaskConfig
    | NextTaskConfig
    | PredictLinksTaskConfig
    | ClickTaskConfig,
    Field(discriminator="kind"),
]

TASK_KINDS: Mapping[str, TaskKind] = {
    module.KIND.name: module.KIND
    for module in (classify, complete, recommend, next_event, predict_links, click)
}
"""The kinds of tasks by name."""
