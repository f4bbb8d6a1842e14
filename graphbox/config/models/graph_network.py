"""Networks that map the features and rows of nodes to embeddings: along edges, or without them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.choices import Candidate, Choices, DataFacts, Interval
from graphbox.config.models.distillation import DistillationSection
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import (
    EdgeTypeList,
    EdgeTypeText,
    Fraction,
    Name,
    PositiveFloat,
    PositiveInt,
    Section,
    TypeName,
)

_Share = Annotated[float, Field(ge=0.0, lt=1.0)]
_Decay = Annotated[float, Field(ge=0.0)]


_NETWORK_SPACE: Mapping[str, Choices] = {
    "dim": (64, 128, 256),
    "dropout": Interval(0.0, 0.8),
    "input_dropout": Interval(0.0, 0.8),
    "weight_decay": Interval(1e-5, 0.05, logarithmic=True),
    "learning_rate": Interval(0.002, 0.05, logarithmic=True),
}
"""Search space of `tune` for all networks."""

EDGE_FEATURE_LAYERS = ("gat", "gatv2", "gine", "transformer")
"""Layers that read features of edges."""

_COMPARED_EDGES = 200_000
"""Edges up to which settings are compared by trainings: a few minutes on one core."""
_COMPARED_LABELS = 50
"""Labels of the validation part below which a comparison says less than the homophily."""
_HOMOPHILOUS = 0.5

_PROPAGATION: Mapping[str, Any] = {
    "layer": "appnp",
    "layers": 10,
    "layer_options": {"dropout": 0.5},
    "dropout": 0.5,
    "input_dropout": 0.5,
    "epochs": 400,
    "validate_every": 4,
    "patience": 25,
}
"""APPNP (Gasteiger et al., ICLR 2019) with its steps and the shares that it leaves out. Weight decay is the
default of the section, a tenth of the paper's: on random cuts of Cora with 20 labels for each class accuracy
was .839 and .822 (.833 and .819 with the paper's), with 60 % of the labels .880 (.860); on the validation
part of IMDB, of several node types, both had accuracy .638, and macro-F1 .614 (.581). Either set alone
chooses the same."""

_ROWS_ALONE: Mapping[str, Any] = {"layer": "lightgcn", "validate_every": 4, "patience": 5}
"""Sums of rows without weights or nonlinearities: where nodes differ by their rows alone, both
only make learning harder (He et al., LightGCN, SIGIR 2020, sections 2.2 and 3.1.2). AUC of links held out at
random beside GraphSAGE, validation part, one seed: .956 and .919 on Wiki, .816 and .802 on CollegeMsg, .856
and .819 on Beauty. With what goes into a layer added to what comes out, as the paper has it, they had .957,
.806 and .818: so a short training of both decides."""
_SHORT: Mapping[str, Any] = {"epochs": 20}


class LinkTrainingSection(Section):
    """Training of a graph network on links, for a task of kind `recommend` or `predict_links`."""

    loss: Literal["sampled_softmax", "sigmoid"] | None = None
    """Softmax over all candidates, estimated from those drawn; or a sigmoid that classifies each pair as link
    or none. Default: `sampled_softmax` for `recommend`, `sigmoid` for `predict_links`."""
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
    CHOSEN: ClassVar[tuple[str, ...]] = (*_PROPAGATION, "embeddings", "residual")
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "layer": ("appnp", "sage", "gcn", "gcn2", "gat", "lightgcn"),
        "layers": (2, 4, 10, 16),
        **_NETWORK_SPACE,
        "layer_weight_decay": Interval(1e-5, 0.05, logarithmic=True),
    }

    kind: Literal["gnn"]
    """Kind of model."""
    layer: str = "sage"
    """`sage`, `gcn`, `gat`, `gatv2`, `gin`, `gine`, `gcn2`, `appnp`, `transformer`, `rgcn`, `hgt` or
    `lightgcn`; or the import path (`package.module:Class`) of your own convolution, a PyTorch Geometric
    `MessagePassing`."""
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
    edge_features: dict[EdgeTypeText, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Features of edges that `gat`, `gatv2`, `gine` or `transformer` read, by edge type
    (`user__rated__item: [stars, timestamp]`), in both directions. `weight` is the edge's weight, `timestamp`
    its age: how long before the latest edge of its type it came to be."""
    num_neighbors: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None = None
    """Neighbours that are drawn at each hop, one number for each layer; without it the whole graph is one
    batch."""
    links: LinkTrainingSection = Field(default_factory=LinkTrainingSection)
    """Training on links, for tasks about them."""

    @model_validator(mode="after")
    def _check_edge_features(self) -> Self:
        if not self.edge_features:
            if self.layer == "gine":
                raise PydanticCustomError(
                    "edge_features",
                    "expected `edge_features` beside `layer: gine`, received none",
                    {"hint": "name the features of edges that it reads, or take `gin`"},
                )
            return self
        layers = ", ".join(EDGE_FEATURE_LAYERS)
        layer = "one to be chosen" if "layer" in (self.auto or ()) else f"`{self.layer}`"
        if layer not in [f"`{each}`" for each in EDGE_FEATURE_LAYERS]:
            raise PydanticCustomError(
                "edge_features",
                "expected a layer that reads features of edges beside `edge_features`, received {layer}",
                {"layer": layer, "hint": f"write one of {layers} as `layer`, or leave `edge_features` out"},
            )
        if "edge_dim" in self.layer_options:
            raise PydanticCustomError(
                "edge_features",
                "expected no `edge_dim` among `layer_options` beside `edge_features`, which decide it",
                {"hint": "leave `edge_dim` out"},
            )
        for name, refused, instead in (
            ("edge_weights", self.edge_weights, "name `weight` among the features of an edge type"),
            ("merge_relations", self.merge_relations, "the edges of a pair are read one by one"),
        ):
            if refused:
                raise PydanticCustomError(
                    "edge_features",
                    "expected `edge_features` without `{name}`, received both",
                    {"name": name, "hint": f"leave `{name}` out: {instead}"},
                )
        return self

    @classmethod
    def left_out(cls, given: Collection[str], *, tuned: bool) -> tuple[str, ...]:
        """See :meth:`ModelSection.left_out`; where layer or batches are given nothing is compared."""
        found = super().left_out(given, tuned=tuned)
        if "layer" not in given and "num_neighbors" not in given:
            return found
        return tuple(name for name in found if name in cls.SPACE and name != "layers") if tuned else ()

    def suggestions(self, facts: DataFacts) -> tuple[Candidate, ...]:
        """See :meth:`ModelSection.suggestions`.

        Propagation of what features say does best where neighbours have equal classes and few are known;
        convolutions, where what is around a node says more than who is there. Where a comparison takes long
        or has few labels to measure, the homophily of the training part decides. Links between nodes without
        features are predicted from sums of rows.
        """
        if facts.links and not facts.features:
            alone = Candidate(_ROWS_ALONE, "sums of rows of neighbours, LightGCN", _SHORT)
            if facts.edges > _COMPARED_EDGES or facts.validation < _COMPARED_LABELS:
                return (alone,)
            both = Candidate({**_ROWS_ALONE, "residual": True}, "the same with a node's own row", _SHORT)
            return alone, both
        if not facts.labels or self.distil is not None:
            return ()
        settings = dict(_PROPAGATION)
        if facts.node_types > 1:
            del settings["layer_options"]  # a node of one type may have a single neighbour of another
            if facts.features:
                settings["embeddings"] = ()  # nodes of other types become what these make of them
        propagation = Candidate(settings, "propagation of features, APPNP")
        convolution = Candidate(
            {"epochs": 200, "validate_every": 4, "patience": 25}, "two convolutions, GraphSAGE"
        )
        if facts.edges <= _COMPARED_EDGES and facts.validation >= _COMPARED_LABELS:
            return propagation, convolution
        is_homophilous = facts.homophily is None or facts.homophily >= _HOMOPHILOUS
        return (propagation,) if is_homophilous else (convolution,)

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
        if values.get("edge_features"):
            return (
                f"expected models without `edge_features`, which are read in memory, received `{model}`",
                f"leave the budget out, or `models.{model}.edge_features`",
            )
        return None

    @classmethod
    def import_paths(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """See :meth:`ModelSection.import_paths`."""
        layer = values.get("layer")
        return {"layer": layer} if isinstance(layer, str) and ":" in layer else {}


class DenseNetworkSection(NetworkSection):
    """Networks that read no edges: a node's features and rows, through dense layers of its node type."""

    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ("encoder", "vectors")
    READS_NO_EDGES: ClassVar[bool] = True

    layer: ClassVar[str] = "linear"
    layer_options: ClassVar[Mapping[str, str | int | float | bool]] = {}
    relations: ClassVar[tuple[EdgeTypeList, ...]] = ()
    reverse: ClassVar[bool] = False
    merge_relations: ClassVar[bool] = False
    edge_weights: ClassVar[bool] = False
    edge_features: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    num_neighbors: ClassVar[tuple[int, ...]] = ()


class MlpConfig(DenseNetworkSection):
    """A network that reads no edges: a node's features, and its row of another model, through dense layers.

    It answers without its neighbours. Alone it knows little of them; taught by a graph network (`distil`) it
    does about as well (Zhang et al., GLNN, ICLR 2022), and with `positions` it may do better (Tian et al.,
    NOSMOG, ICLR 2023).
    """

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("classify",)

    SPACE: ClassVar[Mapping[str, Choices]] = {"layers": (1, 2, 3), **_NETWORK_SPACE}

    kind: Literal["mlp"]
    """Kind of model."""
    layers: PositiveInt = 1
    """Layers between the one that maps features and rows to `dim` numbers and the one that tells classes."""
    positions: Name | None = None
    """Model that comes before it in the run file, whose embeddings of the nodes are an input: what the graph
    says of where a node is, like `deepwalk`. Nodes that it has none of enter without."""


class TwoTowerConfig(DenseNetworkSection):
    """Two towers over features and ids, learnt by in-batch softmax with log-Q correction.

    Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", RecSys 2019.
    """

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("recommend",)
    TEACHES: ClassVar[tuple[str, ...]] = ()
    PREDICTS: ClassVar[bool] = False
    ENCODES_CANDIDATES: ClassVar[bool] = True
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "dim": (32, 64, 128),
        "layers": (1, 2, 3),
        "row_dropout": Interval(0.0, 0.6),
        "dropout": Interval(0.0, 0.5),
        "initial_scale": Interval(2.0, 20.0, logarithmic=True),
        "learning_rate": Interval(5e-4, 0.02, logarithmic=True),
        "table_learning_rate": Interval(0.01, 0.2, logarithmic=True),
    }

    positions: ClassVar[None] = None
    distil: ClassVar[None] = None  # type: ignore[misc]

    kind: Literal["two_tower"]
    """Kind of model."""
    layers: PositiveInt = 1
    """Hidden layers of a tower, each of `dim` numbers, between the one that maps features and rows to `dim`
    numbers and the vector."""
    embeddings: tuple[TypeName, ...] | None = None
    """Node types whose nodes have a learnt row of their id beside features. Default: both; `[]`: none."""
    dropout: _Share = 0.0
    """Share of the values between layers that is left out in training."""
    row_dropout: _Share = 0.2
    """Share of the rows of ids that is left out in training, so that nodes unseen there can do without."""
    weight_decay: _Decay = 0.0
    """Weight decay of the parameters that features are mapped by."""
    negatives: Annotated[int, Field(ge=0)] = 0
    """Candidates drawn for each batch beside the answers of its links (mixed negative sampling, Yang et al.,
    WWW 2020); 0: none."""
    negative_exponent: Annotated[float, Field(ge=0.0)] = 0.0
    """They are drawn by in-degree to this power; 0: all alike."""
    initial_scale: PositiveFloat = 5.0
    """Factor between cosines and logits at the start, one over the temperature; it is learnt."""
    epochs: PositiveInt = 50
    """Most passes over the links of the training part."""
    batch_size: PositiveInt = 1024
    """Links in a batch; their answers are negatives of each other's queries."""
    learning_rate: PositiveFloat = 0.003
    """Learning rate of the parameters (Adam)."""
    patience: PositiveInt | None = 10
    """Measurements on the validation part in a row without a better one after which training ends."""

    @classmethod
    def input_refusal(
        cls, node_type: str, has_features: bool, embeddings: Collection[str] | None
    ) -> tuple[str, str] | None:
        """See :meth:`ModelSection.input_refusal`."""
        if has_features or embeddings is None or node_type in embeddings:
            return None
        return (
            f"expected features or rows of ids for the tower of `{node_type}`, received neither",
            f"name features of `{node_type}` under `features`, or `{node_type}` under `embeddings`",
        )


NetworkConfig = GraphNetworkConfig | MlpConfig | TwoTowerConfig
"""Sections of all kinds of networks of nodes."""
