"""Sections `tasks`: what embeddings are for, and what is held out to measure it.

A new kind of task is a class in a module here, a member of ``TaskConfig``, a class in
:mod:`graphbox.train.tasks` and a function in :mod:`graphbox.train.splitting` that hold out, and functions in
:mod:`graphbox.train.evaluate` that measure; each is listed once, in the ``__init__`` or module named.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from graphbox.config.tasks.classify import ClassifyTaskConfig
from graphbox.config.tasks.click import ClickTaskConfig, RowTimeSplitConfig
from graphbox.config.tasks.complete import CompleteTaskConfig
from graphbox.config.tasks.predict_links import PredictLinksTaskConfig
from graphbox.config.tasks.recommend import RecommendTaskConfig
from graphbox.config.tasks.splits import (
    GivenSplitConfig,
    HeldOutFractions,
    LeaveLastOutSplitConfig,
    RandomSplitConfig,
    TimeSplitConfig,
)

__all__ = [
    "TASK_KINDS",
    "ClassifyTaskConfig",
    "ClickTaskConfig",
    "CompleteTaskConfig",
    "GivenSplitConfig",
    "HeldOutFractions",
    "LeaveLastOutSplitConfig",
    "PredictLinksTaskConfig",
    "RandomSplitConfig",
    "RecommendTaskConfig",
    "RowTimeSplitConfig",
    "TaskConfig",
    "TimeSplitConfig",
]

TaskConfig = Annotated[
    ClassifyTaskConfig | CompleteTaskConfig | RecommendTaskConfig | PredictLinksTaskConfig | ClickTaskConfig,
    Field(discriminator="kind"),
]

TASK_KINDS: tuple[str, ...] = tuple(
    get_args(section.model_fields["kind"].annotation)[0] for section in get_args(get_args(TaskConfig)[0])
)
"""The kinds of tasks."""
