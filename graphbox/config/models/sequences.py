"""Models of sequences, which predict the next event: SASRec, GRU4Rec and ComiRec."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.choices import Candidate, Choices, DataFacts, Interval
from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import Name, PositiveFloat, PositiveInt

NotNegative = Annotated[float, Field(ge=0.0)]
Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]

_BATCHES_OF_EPOCH = 32
"""Wanted in an epoch: with fewer, rows of a small log hardly move before the schedule has ended."""
_LEAST_HISTORIES, _MOST_HISTORIES = 32, 512
"""Of a batch that the data chooses."""


class SequenceSection(ModelSection, OptimizationSection):
    """Model of vectors of histories, and of the items that follow them, learnt from events in order."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("next",)
    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
    IN_MEMORY: ClassVar[Mapping[str, str]] = {
        "topology": "it reads no edges but the events of its task, about 40 bytes each"
    }
    DIVIDES: ClassVar[bool] = True
    WARM_STARTS: ClassVar[bool] = True
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ("encoder", "vectors")
    CHOSEN: ClassVar[tuple[str, ...]] = ("batch_size",)
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "dropout": Interval(0.0, 0.6),
        "learning_rate": Interval(5e-4, 0.01, logarithmic=True),
        "table_learning_rate": Interval(0.002, 0.05, logarithmic=True),
        "popularity_exponent": Interval(0.0, 1.0),
        "epochs": (15, 30, 60),
    }
    NETWORK: ClassVar[str]
    """Import path of the class of the network, derived from
    :class:`graphbox.models.sequence_blocks.SequenceNetwork`."""

    task: Name
    """Task of kind `next` that the model is trained and evaluated on."""
    train_on: Literal["train", "train_and_validation"] = "train"
    """Parts of the task to learn from. Choose the settings with `train`, which measures on the validation
    part as it goes, and train the final model with `train_and_validation`, for as many epochs."""
    dim: PositiveInt = 64
    """Length of a vector, and of the row of an item."""
    window: Annotated[int, Field(ge=1, le=4096)] = 50
    """Events of a history that are read at most: the last ones."""
    candidates: PositiveInt = 2048
    """Items drawn for each batch; all its events share them, and the softmax over all items is estimated from
    them. With as many as there are items or more it is computed over all."""
    popularity_exponent: NotNegative = 0.5
    """Candidates are drawn by how often an item occurs to this power; the loss corrects for it."""
    dropout: Dropout = 0.2
    """Share of values that are left out in training: of rows of items, and between layers."""
    epochs: PositiveInt = 30
    """Most passes over all events."""
    batch_size: PositiveInt = _MOST_HISTORIES
    """Histories in a batch, each with all its events. Without it as many as give an epoch 32 batches, from 32
    to 512."""
    learning_rate: PositiveFloat = 0.002
    """Learning rate of the parameters (Adam)."""
    table_learning_rate: PositiveFloat = 0.01
    """Learning rate of the rows of items (Adam)."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Schedule of the learning rates, from their start to `final_learning_rate` of it."""
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the learning rates that is left at the end of the schedule."""
    initial_row_scale: PositiveFloat = 0.05
    """New rows are uniform between plus and minus this."""
    patience: PositiveInt | None = 5
    """Measurements on the validation part in a row without a better one after which training ends."""
    validate_every: PositiveInt = 2
    """Epochs between measurements on the validation part; the model ends as it was at the best of them."""

    def suggestions(self, facts: DataFacts) -> tuple[Candidate, ...]:
        """See :meth:`ModelSection.suggestions`: small logs are learnt in small batches."""
        wanted = facts.histories // _BATCHES_OF_EPOCH
        size = min(max(wanted, _LEAST_HISTORIES), _MOST_HISTORIES)
        why = f"{_BATCHES_OF_EPOCH} batches an epoch" if size == wanted else "the usual batch"
        return (Candidate({"batch_size": size}, why),)

    @property
    @abstractmethod
    def kept_numbers(self) -> float:
        """Numbers that the network keeps of an event for its gradient, and those gradients, about."""

    @property
    def vectors(self) -> int:
        """Vectors of a history."""
        return 1

    @property
    def sees_validation(self) -> bool:
        """Whether the final model learns from the validation part as well."""
        return self.train_on == "train_and_validation"


class SASRecConfig(SequenceSection):
    """Self-attention over the events so far (Kang and McAuley, ICDM 2018), with layers normed first."""

    NETWORK: ClassVar[str] = "graphbox.models.sasrec:SASRec"
    SPACE: ClassVar[Mapping[str, Choices]] = {**SequenceSection.SPACE, "layers": (1, 2, 3)}

    kind: Literal["sasrec"]
    """Kind of model."""
    layers: PositiveInt = 2
    """Blocks of attention and a network of two layers."""
    heads: PositiveInt = 1
    """Heads of attention; they divide `dim`."""

    @property
    def kept_numbers(self) -> float:
        """See :attr:`SequenceSection.kept_numbers`."""
        return 16.0 * self.dim * self.layers

    @model_validator(mode="after")
    def _check_heads(self) -> SASRecConfig:
        if self.dim % self.heads:
            raise PydanticCustomError(
                "heads",
                "expected `heads` that divide `dim`, received {heads} of {dim}",
                {"heads": self.heads, "dim": self.dim, "hint": "1, 2 or 4 divide 64"},
            )
        return self


class GRU4RecConfig(SequenceSection):
    """Gated recurrent units over the events so far (Hidasi et al., ICLR 2016), with a sampled softmax."""

    NETWORK: ClassVar[str] = "graphbox.models.gru4rec:GRU4Rec"
    SPACE: ClassVar[Mapping[str, Choices]] = {**SequenceSection.SPACE, "hidden": (64, 128, 256)}

    kind: Literal["gru4rec"]
    """Kind of model."""
    hidden: PositiveInt = 128
    """Recurrent units."""

    @property
    def kept_numbers(self) -> float:
        """See :attr:`SequenceSection.kept_numbers`."""
        return 6.0 * self.dim + 8.0 * self.hidden


class ComiRecConfig(SequenceSection):
    """Several vectors of a history by attention, one for each interest (ComiRec-SA, Cen et al., KDD 2020)."""

    NETWORK: ClassVar[str] = "graphbox.models.comirec:ComiRec"
    SPACE: ClassVar[Mapping[str, Choices]] = {**SequenceSection.SPACE, "interests": (1, 2, 4)}

    kind: Literal["comirec"]
    """Kind of model."""
    interests: PositiveInt = 4  # as published
    """Vectors of a history; the score of an item is the largest of its inner products with them."""
    hidden: PositiveInt = 256  # as in the authors' code: four times a `dim` of 64
    """Hidden units of the attention."""

    @property
    def kept_numbers(self) -> float:
        """See :attr:`SequenceSection.kept_numbers`."""
        return 2.0 * self.dim * (1 + 2 * self.interests) + 2.0 * self.hidden

    @property
    def vectors(self) -> int:
        """One for each interest."""
        return self.interests
