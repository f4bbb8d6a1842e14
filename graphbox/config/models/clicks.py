"""Models of clicks over the features of rows: DeepFM, DCN-v2, Wide & Deep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from graphbox.config.choices import Choices, Interval
from graphbox.config.models.learnt_parts import LearntParts
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import Name, PositiveFloat, PositiveInt

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


class ClickModelSection(LearntParts, ModelSection, OptimizationSection):
    """How the probability of a click is learnt from the features of a row.

    Each feature is a field of vectors: of its category, of its slots (their mean), or of the two knots that
    its number lies between. Numbers also enter the network as they are, standardized.
    """

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("click",)
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ()
    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
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
    """Features of the task's node type to read; without it all but the label and those that the split is told
    by."""
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


class DeepFMConfig(ClickModelSection):
    """A factorization machine and a network over the same vectors (Guo et al., IJCAI 2017)."""

    kind: Literal["deepfm"]
    """Kind of model."""


class DCNConfig(ClickModelSection):
    """Cross layers, each of which lets interactions of one more field in (DCN-v2, Wang et al., WWW 2021)."""

    kind: Literal["dcn"]
    """Kind of model."""
    cross_layers: PositiveInt = 3
    """Number of cross layers."""
    rank: PositiveInt | None = None
    """Rank of the matrices of cross layers; without it they are full."""
    structure: Literal["stacked", "parallel"] = "parallel"
    """The network takes what the cross layers give, or stands beside them."""


class WideAndDeepConfig(ClickModelSection):
    """A linear model of fields and of their crosses beside a network (Cheng et al., DLRS 2016)."""

    kind: Literal["wide_and_deep"]
    """Kind of model."""
    crosses: tuple[Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(_each_once)], ...] = ()
    """Lists of features each combination of whose values has a weight of its own in the linear model."""

    @property
    def combinations(self) -> tuple[tuple[str, ...], ...]:
        """See :attr:`ClickModelSection.combinations`."""
        return self.crosses
