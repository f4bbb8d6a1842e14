"""The temporal model of streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from graphbox.config.choices import Choices, Interval
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import EdgeTypeList, PositiveFloat, PositiveInt

_Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class TemporalConfig(ModelSection, OptimizationSection):
    """Scores an event by what both its ends did last; learns as events go by."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("predict_links",)
    PARTS_IN_TIME: ClassVar[bool] = True
    IN_MEMORY: ClassVar[Mapping[str, str]] = {
        "topology": "it takes the events of its task in the order of time, 32 bytes each"
    }
    WARM_STARTS: ClassVar[bool] = True
    READS_KNOWN_LINKS: ClassVar[bool] = True
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "recent": (16, 32, 64),
        "dim": (32, 64, 128),
        "dropout": Interval(0.0, 0.4),
        "learning_rate": Interval(5e-4, 0.01, logarithmic=True),
        "epochs": (1, 3, 6),
    }

    kind: Literal["temporal"]
    """Kind of model."""
    relations: tuple[EdgeTypeList, ...] = ()
    """Edge types with a timestamp whose edges are the events, all between the same two node types. None means
    those of the task, and without a task all that have a timestamp."""
    recent: PositiveInt = 32
    """Events of each node that the model remembers, the latest."""
    dim: PositiveInt = 64
    """Length of what is between layers; an embedding is twice as long."""
    row_dim: Annotated[int, Field(ge=0)] = 0
    """Length of a table row for each node; 0: nodes are told apart by what they did alone, and the model is
    the same for nodes that it never met."""
    dropout: _Share = 0.1
    """Share of the values between layers that is left out while it trains."""
    negatives: PositiveInt = 1
    """Other targets drawn for each event that it learns."""
    historical_negatives: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of them that are drawn among those of the source's latest partners, instead of all nodes: for
    evaluations whose negatives are such."""
    learn_online: bool = True
    """Go on learning the parameters, too, in the validation and test parts; the memory always does."""

    epochs: PositiveInt = 3
    """Most passes over the events of the training part."""
    batch_size: PositiveInt = 200
    """Events that are scored and learnt before they are remembered."""
    learning_rate: PositiveFloat = 0.003
    """Learning rate of the parameters (Adam)."""
    patience: PositiveInt | None = 3
    """Measurements on the validation part in a row without a better one after which training ends."""
