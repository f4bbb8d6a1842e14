"""Models of knowledge graphs: DistMult, ComplEx, TransE and RotatE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from graphbox.config.choices import Choices, Interval
from graphbox.config.models.learnt_parts import LearntParts
from graphbox.config.models.optimization import LearningRateSchedule
from graphbox.config.models.section import ModelSection
from graphbox.config.section import Name, PositiveFloat, PositiveInt

_NotNegative = Annotated[float, Field(ge=0.0)]
_Even = Annotated[int, Field(ge=2, multiple_of=2)]


class KnowledgeGraphSection(LearntParts, ModelSection, LearningRateSchedule):
    """Model of the rows of entities and relations, learnt from the triples of a complete task."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("complete",)
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ()
    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
    IN_MEMORY: ClassVar[Mapping[str, str]] = {
        "topology": "it reads no edges but the triples of its task, about 40 bytes each"
    }
    DIVIDES: ClassVar[bool] = True
    WARM_STARTS: ClassVar[bool] = True
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "dim": (100, 200, 400),
        "regularization": Interval(1e-3, 0.3, logarithmic=True),
        "learning_rate": Interval(0.03, 0.5, logarithmic=True),
        "dropout": Interval(0.0, 0.5),
        "batch_size": (128, 256, 512),
        "epochs": (10, 20, 40),
    }

    task: Name
    """Task of kind `complete` that the model is trained and evaluated on."""
    dim: PositiveInt = 200
    """Length of an entity's row."""
    loss: Literal["softmax", "sampled_softmax", "self_adversarial"] = "sampled_softmax"
    """Softmax over all entities; the same, estimated from those drawn; or true against drawn triples one by
    one, the likelier weighing more (Sun et al., ICLR 2019)."""
    candidates: PositiveInt = 1024
    """Entities drawn for each batch, which all its queries share; without a meaning for `softmax`."""
    adversarial_temperature: _NotNegative = 1.0
    """Degree to which likelier drawn triples weigh more in `self_adversarial`; 0: all alike."""
    reciprocal: bool = True
    """Give each relation a second row, by which heads are found."""
    regularization: _NotNegative = 0.0
    """Weight of the cubes of the sizes of the rows' numbers (N3; Lacroix et al., ICML 2018)."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the numbers of a query's vector that is left out in training."""
    epochs: PositiveInt = 40
    """Most passes over all queries."""
    batch_size: PositiveInt = 128
    """Queries in a batch, each with all its answers."""
    learning_rate: PositiveFloat = 0.1
    """Learning rate of the rows (Adagrad)."""
    initial_row_scale: PositiveFloat = 0.001
    """New rows are uniform between plus and minus this."""
    validate_every: PositiveInt = 5
    """Epochs between measurements on the validation part; the model ends as it was at the best of them."""
    patience: PositiveInt | None = 5
    """Measurements on the validation part in a row without a better one after which training ends."""

    @classmethod
    def budget_refusal(cls, budget: str, model: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """See :meth:`ModelSection.budget_refusal`."""
        if budget == "tables" and values.get("loss") == "softmax":
            reason = "each batch is compared with the rows of all entities"
            return (
                f"expected tables that can have a budget, received `{model}` with `loss: softmax`: {reason}",
                f"give `models.{model}` `loss: sampled_softmax`, or leave the budget out",
            )
        return super().budget_refusal(budget, model, values)


class BilinearSection(KnowledgeGraphSection):
    """A model whose scores are products."""

    regularization: _NotNegative = 0.1
    """Weight of the cubes of the sizes of the rows' numbers (N3; Lacroix et al., ICML 2018)."""
    learning_rate: PositiveFloat = 0.3
    """Learning rate of the rows (Adagrad)."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Schedule of the learning rate, from its start to `final_learning_rate` of it."""
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the learning rate that is left at the end of the schedule."""


class DistMultConfig(BilinearSection):
    """Products of three rows, number by number (Yang et al., ICLR 2015); relations look both ways alike."""

    kind: Literal["distmult"]
    """Kind of model."""


class ComplExConfig(BilinearSection):
    """Products of three rows of complex numbers (Trouillon et al., ICML 2016)."""

    kind: Literal["complex"]
    """Kind of model."""
    dim: _Even = 200
    """Length of an entity's row: half real parts, half imaginary ones."""


class TranslationSection(KnowledgeGraphSection):
    """A model whose scores are a margin less a distance."""

    distance: Literal["sum", "euclidean", "squared"] = "squared"
    """Sum of the sizes of differences, as published; root of the sum of their squares; or that sum itself,
    many times as fast as the first."""
    margin: _NotNegative = 6.0
    """Score of a triple whose distance is 0; counts for `self_adversarial` alone."""
    initial_row_scale: PositiveFloat = 0.1
    """New rows are uniform between plus and minus this."""


class TransEConfig(TranslationSection):
    """A relation moves heads towards tails (Bordes et al., NeurIPS 2013)."""

    kind: Literal["transe"]
    """Kind of model."""


class RotatEConfig(TranslationSection):
    """A relation turns heads, complex numbers, towards tails (Sun et al., ICLR 2019)."""

    kind: Literal["rotate"]
    """Kind of model."""
    dim: _Even = 200
    """Length of an entity's row: half real parts, half imaginary ones."""
