"""PinSAGE (Ying et al., KDD 2018): its section of the run file and its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config import Choices, Interval, ModelKind, ModelSection
from graphbox.config.model_kind import TORCH_OPTIMIZERS
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.section import EdgeTypeList, Fraction, Name, PositiveFloat, PositiveInt, TypeName


class PinSageConfig(ModelSection, OptimizationSection):
    """Convolutions over the nodes that walks with restarts visit most (Ying et al., KDD 2018)."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("recommend",)
    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
    DIVIDES: ClassVar[bool] = True
    WARM_STARTS: ClassVar[bool] = True
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "dim": (32, 64, 128),
        "margin": Interval(0.05, 1.0, logarithmic=True),
        "negative_exponent": Interval(0.0, 1.0),
        "learning_rate": Interval(5e-4, 0.02, logarithmic=True),
        "table_learning_rate": Interval(0.02, 0.5, logarithmic=True),
    }

    kind: Literal["pinsage"]
    """Kind of model."""
    task: Name
    """Task of kind `recommend` that the model is trained and evaluated on."""
    dim: PositiveInt = 64
    """Length of an embedding, of what is between layers, and of a table row."""
    layers: PositiveInt = 2
    """Number of convolutions."""
    edge_types: tuple[EdgeTypeList, ...] = ()
    """Edge types that walks follow, in both directions; none means all."""
    features: dict[TypeName, tuple[str, ...]] | None = None
    """Features that the model reads, by node type. Default: all but those that the task hides."""
    embeddings: tuple[TypeName, ...] | None = None
    """Node types whose nodes have a learnt row of a table. Default: all that walks visit."""
    num_neighbors: PositiveInt = 10
    """Neighbours of a node: the nodes that walks from it visit most, weighted by their visits."""
    walks_per_node: PositiveInt = 64
    """Walks that find the neighbours of a node."""
    walk_length: PositiveInt = 16
    """Steps of a walk."""
    restart_probability: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.15
    """Probability that a step leads back to the start of the walk."""
    holdout_fraction: Fraction = 0.3
    """Share of the training links that an epoch holds out of the graph and learns to find."""
    negatives: PositiveInt = 500
    """Candidates drawn for each batch; all its links share them."""
    negative_exponent: Annotated[float, Field(ge=0.0)] = 0.5
    """Negatives are drawn by in-degree to this power; 0: uniformly, as published."""
    hard_negatives: Annotated[int, Field(ge=0)] = 6
    """Most hard negatives of a query: the first epoch has none, each later epoch one more."""
    hard_negative_ranks: tuple[PositiveInt, PositiveInt] = (50, 500)
    """First and last rank of hard negatives among the nodes that walks from a query visit most."""
    margin: PositiveFloat = 0.3
    """Distance by which the score of a link is to exceed those of its negatives."""
    batch_size: PositiveInt = 256
    """Links in a batch."""
    learning_rate: PositiveFloat = 0.003
    """Learning rate of the parameters (Adam)."""
    table_learning_rate: PositiveFloat = 0.2
    """Learning rate of the embedding tables (row-wise Adagrad)."""

    @model_validator(mode="after")
    def _check_ranks(self) -> PinSageConfig:
        first, last = self.hard_negative_ranks
        if not first <= last <= self.walks_per_node * self.walk_length:
            raise PydanticCustomError(
                "hard_negative_ranks",
                "expected ranks [first, last] that ascend up to {visits} visits of a node's walks, received "
                "[{first}, {last}]",
                {"visits": self.walks_per_node * self.walk_length, "first": first, "last": last},
            )
        return self


pinsage = ModelKind(
    PinSageConfig,
    "graphbox.train.recommendation.pinsage:PinSageTrainer",
    footprint="graphbox.train.recommendation.pinsage_footprint:PinSageFootprint",
    libraries=(TORCH_OPTIMIZERS,),
)
