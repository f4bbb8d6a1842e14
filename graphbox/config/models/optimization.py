"""Optimization of parameters and table rows: keys for models that torch optimizers train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphbox.config.section import PositiveFloat, PositiveInt, Section

_Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class LearningRateSchedule(Section):
    """Schedule of the learning rates of a training."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Schedule of the learning rates, from their start to `final_learning_rate` of it."""
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the learning rates that is left at the end of the schedule."""
    warmup: _Share = 0.0
    """Share of the training in which the learning rates rise from nothing."""


class OptimizationSection(LearningRateSchedule):
    """Learning rates, their schedule, and which state of the model is kept."""

    epochs: PositiveInt = 100
    """Most passes over the training part."""
    batch_size: PositiveInt = 1024
    """Training nodes or links in a batch."""
    learning_rate: PositiveFloat = 0.01
    """Learning rate of the parameters (Adam)."""
    table_learning_rate: PositiveFloat = 0.05
    """Learning rate of the embedding tables (row-wise Adagrad)."""
    clip_norm: PositiveFloat | None = None
    """Longest gradient of all parameters together; longer ones are shortened. Rows are not meant: their
    optimizer brings each to a scale of its own."""
    average_decay: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """Measure and keep the moving average of the parameters, in which each step counts this much less than
    the next; without it the parameters themselves."""
    patience: PositiveInt | None = 100
    """Measurements on the validation part in a row without a better one after which training ends."""
    validate_every: PositiveInt = 1
    """Epochs between measurements on the validation part; the model ends as it was at the best of them."""
