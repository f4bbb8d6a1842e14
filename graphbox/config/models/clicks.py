"""Models of clicks over the features of rows: DeepFM, DCN-v2, Wide & Deep, DIN, MMoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from graphbox.config.choices import Choices, Interval
from graphbox.config.models.learnt_parts import LearntParts
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import Name, PositiveFloat, PositiveInt, Section

_Share = Annotated[float, Field(ge=0.0, lt=1.0)]
_NotNegative = Annotated[float, Field(ge=0.0)]


def _each_once(features: tuple[str, ...]) -> tuple[str, ...]:
    twice = [name for place, name in enumerate(features) if name in features[:place]]
    if twice:
        raise PydanticCustomError(
            "duplicate",
            "expected each feature once, received `{name}` more than once",
            {"name": twice[0], "hint": "leave the others out"},
        )
    return features


class InterestConfig(Section):
    """A history, and what of a row it is compared with."""

    history: str
    """Feature of kind `slots`: what was dealt with before, in the order of time."""
    target: str
    """Feature of kind `categorical` or `integer`: what the row is about, named as in the history."""


class ClickModelSection(LearntParts, ModelSection, OptimizationSection):
    """Model of the probability of a click, by the features of a row.

    Each feature is a field of vectors: of its category, of its slots (their mean), or of the two knots that
    its number lies between. Numbers also enter the network as they are, standardized.
    """

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("click",)
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ()
    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
    NETWORK: ClassVar[str]
    """Import path of the kind's :class:`graphbox.models.click_network.ClickNetwork`."""
    LEARNS_ALL_LABELS: ClassVar[bool] = False
    """Whether the network has a logit for each label of the task; else it has one, of the first."""
    DIVIDES: ClassVar[bool] = True
    PREDICTS: ClassVar[bool] = True
    WARM_STARTS: ClassVar[bool] = True
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "dim": (8, 16, 32),
        "dropout": Interval(0.0, 0.6),
        "row_dropout": Interval(0.0, 0.4),
        "row_decay": Interval(1e-4, 0.1, logarithmic=True),
        "learning_rate": Interval(5e-4, 0.01, logarithmic=True),
        "table_learning_rate": Interval(0.01, 0.2, logarithmic=True),
    }

    task: Name
    """Task of kind `click` that the model is trained and evaluated on."""
    features: Annotated[tuple[str, ...], AfterValidator(_each_once)] | None = None
    """Features of the task's node type to read; without it all but the labels of the task and those that the
    split is told by."""
    dim: PositiveInt = 16
    """Length of the vector of a field."""
    knots: Annotated[int, Field(ge=2)] = 32
    """Most knots of a number: values that have a vector of their own, the others lying between two of them.
    Frequent values are knots, the other knots share the rest of the rows alike."""
    hidden: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (128, 64)
    """Widths of the layers of the network."""
    dropout: _Share = 0.2
    """Share of the values after each layer of the network that is left out in training."""
    row_dropout: _Share = 0.1
    """Share of the fields that is left out in training, so that values unseen there are no surprise."""
    row_decay: _NotNegative = 0.01
    """Weight of the squares of a row's vectors in the loss (L2)."""
    weight_decay: _NotNegative = 0.0
    """Weight decay of the parameters."""
    initial_row_scale: PositiveFloat = 0.05
    """New table rows are uniform between plus and minus this."""
    select_by: Literal["auc", "log_loss"] = "auc"
    """Figure on the validation part that says which epoch was best."""
    epochs: PositiveInt = 20
    """Most passes over the training part."""
    batch_size: PositiveInt = 512
    """Rows in a batch."""
    learning_rate: PositiveFloat = 0.002
    """Learning rate of the parameters (Adam)."""
    table_learning_rate: PositiveFloat = 0.05
    """Learning rate of the embedding tables (Adagrad)."""
    patience: PositiveInt | None = 3
    """Epochs in a row without a better figure on the validation part after which training ends."""

    @property
    def combinations(self) -> tuple[tuple[str, ...], ...]:
        """Lists of features each combination of whose values has a row."""
        return ()

    @property
    def histories(self) -> tuple[InterestConfig, ...]:
        """Features that are read event by event, and what they have vectors in common with."""
        return ()

    @property
    def history_window(self) -> int:
        """Number of events of a history that are read: the last ones."""
        return 0

    @property
    def events(self) -> int:
        """Largest number of events of histories that are read of a row."""
        return len(self.histories) * self.history_window

    @property
    def network_arguments(self) -> Mapping[str, Any]:
        """Constructor arguments of the network, beside its sizes and tables."""
        return {}

    @property
    def event_floats(self) -> int:
        """Number of floats that the network computes for an event."""
        return 0

    @property
    def label_weights(self) -> Mapping[str, float]:
        """Weights of labels in the loss; of those that are left out 1."""
        return {}

    @property
    def num_networks(self) -> int:
        """Number of networks with layers of the widths ``hidden``."""
        return 1


class DeepFMConfig(ClickModelSection):
    """A factorization machine and a network over the same vectors (Guo et al., IJCAI 2017)."""

    NETWORK: ClassVar[str] = "graphbox.models.deepfm:DeepFM"

    kind: Literal["deepfm"]
    """Kind of model."""


class DCNConfig(ClickModelSection):
    """Cross layers, each of which lets interactions of one more field in (DCN-v2, Wang et al., WWW 2021)."""

    NETWORK: ClassVar[str] = "graphbox.models.dcn:DCN"

    kind: Literal["dcn"]
    """Kind of model."""
    cross_layers: PositiveInt = 3
    """Number of cross layers."""
    rank: PositiveInt | None = None
    """Rank of the matrices of cross layers; without it they are full."""
    structure: Literal["stacked", "parallel"] = "parallel"
    """The network takes what the cross layers give, or stands beside them."""

    @property
    def network_arguments(self) -> Mapping[str, Any]:
        """See :attr:`ClickModelSection.network_arguments`."""
        return {"cross_layers": self.cross_layers, "rank": self.rank, "structure": self.structure}


class WideAndDeepConfig(ClickModelSection):
    """A linear model of fields and of their crosses beside a network (Cheng et al., DLRS 2016)."""

    NETWORK: ClassVar[str] = "graphbox.models.wide_and_deep:WideAndDeep"

    kind: Literal["wide_and_deep"]
    """Kind of model."""
    crosses: tuple[Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(_each_once)], ...] = ()
    """Lists of features each combination of whose values has a weight of its own in the linear model."""

    @property
    def combinations(self) -> tuple[tuple[str, ...], ...]:
        """See :attr:`ClickModelSection.combinations`."""
        return self.crosses


def _with_own_histories(interests: tuple[InterestConfig, ...]) -> tuple[InterestConfig, ...]:
    targets = {interest.target for interest in interests}
    _each_once(tuple(interest.history for interest in interests))
    both = [interest.history for interest in interests if interest.history in targets]
    if both:
        raise PydanticCustomError(
            "history",
            "expected a feature as history or as target, received `{name}` as both",
            {"name": both[0], "hint": "the target is what the row is about: one item"},
        )
    return interests


class DINConfig(ClickModelSection):
    """Attention of what a row is about to the events before it (DIN, Zhou et al., KDD 2018)."""

    NETWORK: ClassVar[str] = "graphbox.models.din:DIN"

    kind: Literal["din"]
    """Kind of model."""
    interests: Annotated[tuple[InterestConfig, ...], Field(min_length=1), AfterValidator(_with_own_histories)]
    """Histories, each with the feature it is compared with. Histories of the same target have vectors in
    common."""
    window: PositiveInt = 50
    """Number of events of a history that are read: the last ones."""
    attention: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (64, 16)
    """Widths of the layers that weigh an event."""

    @property
    def histories(self) -> tuple[InterestConfig, ...]:
        """See :attr:`ClickModelSection.histories`."""
        return self.interests

    @property
    def history_window(self) -> int:
        """See :attr:`ClickModelSection.history_window`."""
        return self.window

    @property
    def network_arguments(self) -> Mapping[str, Any]:
        """See :attr:`ClickModelSection.network_arguments`."""
        pairs = tuple((interest.history, interest.target) for interest in self.interests)
        return {"interests": pairs, "attention": self.attention}

    @property
    def event_floats(self) -> int:
        """See :attr:`ClickModelSection.event_floats`."""
        return 5 * self.dim + 2 * sum(self.attention)


class MMoEConfig(ClickModelSection):
    """Experts that all labels of a task share, mixed by a gate for each label (MMoE, Ma et al., KDD 2018)."""

    NETWORK: ClassVar[str] = "graphbox.models.mmoe:MMoE"
    LEARNS_ALL_LABELS: ClassVar[bool] = True

    kind: Literal["mmoe"]
    """Kind of model."""
    experts: PositiveInt = 4
    """Number of experts: networks with layers of the widths `hidden`."""
    tower: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (32,)
    """Widths of the layers of each label's own network, above the mixture of experts."""
    loss_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Weights of labels in the loss, by label; of those that are left out 1."""

    @property
    def label_weights(self) -> Mapping[str, float]:
        """See :attr:`ClickModelSection.label_weights`."""
        return self.loss_weights

    @property
    def network_arguments(self) -> Mapping[str, Any]:
        """See :attr:`ClickModelSection.network_arguments`."""
        return {"experts": self.experts, "tower": self.tower}

    @property
    def num_networks(self) -> int:
        """See :attr:`ClickModelSection.num_networks`."""
        return self.experts
