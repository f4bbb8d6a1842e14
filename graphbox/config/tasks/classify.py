"""Tasks of kind `classify`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import EdgeTypeList, TypeName
from graphbox.config.tasks.splits import RANDOM_SPLIT, GivenSplitConfig, HeldOutSection, RandomSplitConfig
from graphbox.config.tasks.task_kind import TaskKind

NodeBaselineName = Literal["majority", "neighbors_vote", "label_propagation", "sgc"]
"""Baselines of classification: none trains by gradients on batches."""


class ClassifyTaskConfig(HeldOutSection):
    """Predict the classes of nodes: by logistic regression on embeddings, or by the model."""

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"neighbors", "neighbor_classes", "baselines"})
    """Keys that can change without training again."""

    kind: Literal["classify"]
    """Kind of task."""
    node_type: TypeName
    """Node type to classify."""
    label: str | None = None
    """Categorical or integer node feature to predict; models of this task do not read it. Of integers each
    value is a class, and negative ones mean that the class is unknown. A node has one class."""
    labels: str | None = None
    """In its place: node feature of kind slots, whose values are the classes of a node. A node has several,
    or one; one without any is not learnt from, and not tested."""
    memberships: EdgeTypeList | None = None
    """In its place: edge type from `node_type` to a node type whose nodes are the classes, each named by its
    id. A node has those that such edges lead to; models of this task do not see the edges."""
    split: Annotated[RandomSplitConfig | GivenSplitConfig, Field(discriminator="kind")] = RANDOM_SPLIT
    """Rule by which nodes are held out."""
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
        return "micro_f1" if self.has_several else "accuracy"

    @property
    def has_several(self) -> bool:
        """Whether a node can have several classes."""
        return self.label is None

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_split(self.split.kind)
        given = [name for name in ("label", "labels", "memberships") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "not_together",
                "expected one of `label`, `labels` and `memberships`, received {received}",
                {
                    "received": " and ".join(given) or "none",
                    "hint": "`label` is a column with one class, `labels` one with a list of classes, "
                    "`memberships` an edge type to nodes that are classes",
                },
            )
        if self.memberships is not None and self.memberships[0] != self.node_type:
            raise PydanticCustomError(
                "not_together",
                "expected `memberships` that leave from `{node_type}`, received those of `{received}`",
                {
                    "node_type": self.node_type,
                    "received": self.memberships[0],
                    "hint": "its first name is the type of the nodes that are classified",
                },
            )
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
