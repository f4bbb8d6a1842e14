"""Tasks of kind `classify`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import TypeName
from graphbox.config.tasks.splits import RANDOM_SPLIT, GivenSplitConfig, HeldOutSection, RandomSplitConfig
from graphbox.config.tasks.task_kind import TaskKind

NodeBaselineName = Literal["majority", "neighbors_vote", "label_propagation", "sgc"]
"""What classifies without training by gradients on batches."""


class ClassifyTaskConfig(HeldOutSection):
    """Predict the classes of nodes: by logistic regression on embeddings, or by the model."""

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"neighbors", "neighbor_classes", "baselines"})
    """Keys that can change without training again."""

    kind: Literal["classify"]
    """Kind of task."""
    node_type: TypeName
    """Node type to classify."""
    label: str
    """Categorical or integer node feature to predict; models of this task do not read it. Of integers each
    value is a class, and negative ones mean that the class is unknown."""
    split: Annotated[RandomSplitConfig | GivenSplitConfig, Field(discriminator="kind")] = RANDOM_SPLIT
    """Which nodes are held out."""
    neighbors: bool = False
    """Let the logistic regression read the mean embedding of a node's neighbours, too, of each node type that
    edges join to it. Models that predict classes themselves do not ask."""
    neighbor_classes: bool = False
    """Let the logistic regression read the known classes around a node, too: of training nodes alone, and
    never its own or those of its `group`."""
    baselines: tuple[NodeBaselineName, ...] | None = None
    """Baselines reported beside the models. When absent: all that find what they read, but those that would
    take more than a minute on the graph, or too much memory; the report says which."""

    @property
    def deciding_metric(self) -> str:
        """The figure of the report that says which of two models is better."""
        return "accuracy"

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_split(self.split.kind)
        if isinstance(self.split, GivenSplitConfig) and self.split.test_relations:
            raise PydanticCustomError(
                "not_together",
                "a task of kind classify holds out nodes: `split` needs a `feature` of theirs",
                {"hint": "name the column that says train, validation or test"},
            )
        return self


KIND = TaskKind(
    ClassifyTaskConfig,
    held_out="graphbox.train.tasks.classify:ClassifySplit",
    splitting="graphbox.train.splitting.classify:split_classify",
    evaluation="graphbox.train.evaluate:evaluate_classes",
    baselines="graphbox.train.node_baselines:classify_baselines",
)
