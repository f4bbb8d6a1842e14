"""Networks that map the features and rows of nodes to embeddings: along edges, or without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from graphbox.config.models.distillation import DistillationSection
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import (
    EdgeTypeList,
    Fraction,
    Name,
    PositiveFloat,
    PositiveInt,
    Section,
    TypeName,
)

_Share = Annotated[float, Field(ge=0.0, lt=1.0)]
_Decay = Annotated[float, Field(ge=0.0)]


class LinkTrainingSection(Section):
    """How a graph network learns links, for a task of kind `recommend` or `predict_links`."""

    loss: Literal["sampled_softmax", "sigmoid"] | None = None
    """Softmax over all candidates, estimated from those drawn, or each pair told to be a link or none.
    Without a word softmax for `recommend`, the other for `predict_links`."""
    holdout_fraction: Fraction = 0.3
    """Share of the training links that an epoch holds out of the graph and learns to find."""
    negatives: PositiveInt = 1024
    """Candidates drawn for each batch; all its links share them."""
    negative_exponent: Annotated[float, Field(ge=0.0)] | None = None
    """Candidates are drawn by in-degree to this power; without it 0.5 for `recommend`, and as the task draws
    its negatives for `predict_links`."""
    initial_scale: PositiveFloat = 10.0
    """Factor between cosines and logits at the start; it is learnt."""


class NetworkSection(ModelSection, OptimizationSection):
    """Settings of networks of nodes, with edges or without."""

    WARM_STARTS: ClassVar[bool] = True
    BUDGETS: ClassVar[tuple[str, ...]] = ("topology", "features", "tables")
    DIVIDES: ClassVar[bool] = True
    PREDICTS: ClassVar[bool] = True
    EMBEDS_OTHER_GRAPHS: ClassVar[bool] = True
    TEACHES: ClassVar[tuple[str, ...]] = ("classify",)

    task: Name
    """Task that the model is trained and evaluated on."""
    distil: DistillationSection | None = None
    """Learn from models that are trained already, in a task of kind `classify`."""
    dim: PositiveInt = 64
    """Length of an embedding, of what is between layers, and of a table row."""
    layers: PositiveInt = 2
    """Number of layers, or of steps of propagation."""
    features: dict[TypeName, tuple[str, ...]] | None = None
    """Features that the network reads, by node type; without it all but the task's label."""
    embeddings: tuple[TypeName, ...] | None = None
    """Node types whose nodes have a learnt row of a table; without it those without features."""
    dropout: _Share = 0.5
    """Share of the values between layers that is left out in training."""
    input_dropout: _Share = 0.0
    """Share of the values of features that is left out in training."""
    row_dropout: _Share = 0.0
    """Share of the rows of nodes that is left out in training, so that nodes unseen there have to do
    without."""
    normalize: bool = False
    """Normalize what is between layers (layer normalization)."""
    residual: bool = False
    """Add what goes into a layer to what comes out."""
    weight_decay: _Decay = 5e-4
    """Weight decay of the parameters that features are mapped by."""
    layer_weight_decay: _Decay = 0.0
    """Weight decay of the parameters of the layers."""


class GraphNetworkConfig(NetworkSection):
    """A graph neural network of layers of one kind, trained for its task from end to end."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("classify", "recommend", "predict_links")
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ("vectors", "encoder")
    READS_KNOWN_LINKS: ClassVar[bool] = True

    positions: ClassVar[None] = None

    kind: Literal["gnn"]
    """Kind of model."""
    layer: str = "sage"
    """`sage`, `gcn`, `gat`, `gatv2`, `gin`, `gcn2`, `appnp`, `transformer`, `rgcn`, `hgt` or `lightgcn`; or
    the import path (`package.module:Class`) of your own convolution, a PyTorch Geometric `MessagePassing`."""
    layer_options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Arguments of the layer's class beyond its sizes, like `heads: 4` or `aggr: max`."""
    relations: tuple[EdgeTypeList, ...] = ()
    """Edge types along which messages go; none means all."""
    reverse: bool = True
    """Let messages also go against the edges, of those types that have no reverse type in the graph."""
    merge_relations: bool | None = None
    """Take all edge types between two node types as one, and all edges of a pair of nodes as one edge with
    the sum of their weights; without a word where there is one node type with several edge types."""
    edge_weights: bool = False
    """Give the edges' weights to the layer, of the edge types that have them."""
    num_neighbors: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None = None
    """Neighbours that are drawn at each hop, one number for each layer; without it the whole graph is one
    batch."""
    links: LinkTrainingSection = Field(default_factory=LinkTrainingSection)
    """Training on links, for tasks about them."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """See :meth:`ModelSection.undivided`."""
        if values.get("num_neighbors") is None:
            return "the whole graph is its one batch; with `num_neighbors` there are parts to divide"
        return None

    @classmethod
    def budget_refusal(cls, budget: str, model: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """See :meth:`ModelSection.budget_refusal`."""
        if budget == "tables":
            return super().budget_refusal(budget, model, values)
        if values.get("num_neighbors") is None:
            return (
                (
                    f"expected models that are trained on batches of sampled neighbours, received `{model}`, "
                    "which is trained on the whole graph"
                ),
                f"give `models.{model}` some `num_neighbors`, like [10, 10], or leave the budget out",
            )
        return None

    @classmethod
    def import_paths(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """See :meth:`ModelSection.import_paths`."""
        layer = values.get("layer")
        return {"layer": layer} if isinstance(layer, str) and ":" in layer else {}


class MlpConfig(NetworkSection):
    """A network that reads no edges: a node's features, and its row of another model, through dense layers.

    It answers without its neighbours. Alone it knows little of them; taught by a graph network (`distil`) it
    does about as well (Zhang et al., GLNN, ICLR 2022), and with `positions` it may do better (Tian et al.,
    NOSMOG, ICLR 2023).
    """

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("classify",)
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ("encoder", "vectors")

    layer: ClassVar[str] = "linear"
    layer_options: ClassVar[Mapping[str, str | int | float | bool]] = {}
    relations: ClassVar[tuple[EdgeTypeList, ...]] = ()
    reverse: ClassVar[bool] = False
    merge_relations: ClassVar[bool] = False
    edge_weights: ClassVar[bool] = False
    num_neighbors: ClassVar[tuple[int, ...]] = ()

    kind: Literal["mlp"]
    """Kind of model."""
    layers: PositiveInt = 1
    """Layers between the one that maps features and rows to `dim` numbers and the one that tells classes."""
    positions: Name | None = None
    """Model that comes before it in the run file, whose embeddings of the nodes are an input: what the graph
    says of where a node is, like `deepwalk`. Nodes that it has none of enter without."""


NetworkConfig = GraphNetworkConfig | MlpConfig
"""Sections of all kinds of networks of nodes."""
