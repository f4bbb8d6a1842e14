"""Models of recommendation: LightGCN, and matrix factorization trained in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from graphbox.config.choices import Candidate, Choices, DataFacts, Interval
from graphbox.config.models.distillation import RankingDistillationSection
from graphbox.config.models.learnt_parts import LearntParts
from graphbox.config.models.optimization import LearningRateSchedule
from graphbox.config.models.section import ModelSection
from graphbox.config.section import Name, PositiveFloat, PositiveInt

_TEMPERATURES = (0.1, 0.15, 0.22, 0.32)
_COMPARED_EPOCHS = 5
"""Epochs of a comparison: on MovieLens-100k temperatures ranked as after 30."""
_COMPARED_EDGES = 5_000_000
"""Edges up to which temperatures are compared."""

NotNegative = Annotated[float, Field(ge=0.0)]


class RecommendationSection(LearntParts, ModelSection, LearningRateSchedule):
    """Model of vectors of queries and candidates, learnt from the answers of a recommend task."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("recommend",)
    TEACHES: ClassVar[tuple[str, ...]] = ("recommend",)
    WARM_STARTS: ClassVar[bool] = True
    CHOSEN: ClassVar[tuple[str, ...]] = ("temperature",)
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "temperature": Interval(0.05, 0.3, logarithmic=True),
        "popularity": Interval(0.0, 1.0),
        "epochs": (15, 30, 60, 120),
        "learning_rate": Interval(0.005, 0.05, logarithmic=True),
        "popularity_exponent": Interval(0.0, 1.0),
    }

    task: Name
    """Task of kind `recommend` that the model is trained and evaluated on."""
    distil: RankingDistillationSection | None = None
    """Learn from models that are trained already."""
    dim: Annotated[int, Field(ge=2)] = 64
    """Length of a vector; one of its numbers holds the popularity of a candidate where that counts."""
    loss: Literal["sampled_softmax", "bpr", "hinge", "nce", "sigmoid"] = "sampled_softmax"
    """Softmax over all candidates, estimated from those drawn; or each answer against one drawn candidate:
    `bpr` (Rendle et al., UAI 2009), `hinge`, `nce` (Gutmann and Hyvärinen, AISTATS 2010), `sigmoid`."""
    temperature: PositiveFloat | None = None
    """Divisor of cosines that gives logits. When absent some are compared on the validation part; where that
    is empty, or the graph large, the mean number of answers decides."""
    popularity: NotNegative = 0.5
    """A candidate's logit has the logarithm of its in-degree, times this, in training and in ranking."""
    candidates: PositiveInt = 4096
    """Candidates drawn for each batch; all its queries share them."""
    popularity_exponent: NotNegative = 0.5
    """Candidates are drawn by in-degree to this power; the loss corrects for it."""
    contrast: NotNegative = 0.0
    """Weight of a second loss, which tells nodes apart by two noisy views of each (SimGCL, SIGIR 2022)."""
    contrast_noise: PositiveFloat = 0.1
    """Length of the noise of a view; vectors have length 1."""
    epochs: PositiveInt = 30
    """Passes over all queries."""
    batch_size: PositiveInt = 512
    """Queries in a batch, each with all its answers."""
    learning_rate: PositiveFloat = 0.02
    """Learning rate of the rows (Adam)."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Schedule of the learning rate, from its start to `final_learning_rate` of it."""
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the learning rate that is left at the end of the schedule."""
    initial_row_scale: PositiveFloat = 0.03
    """New rows are uniform between plus and minus this."""
    validate_every: PositiveInt = 5
    """Epochs between measurements on the validation part."""

    def suggestions(self, facts: DataFacts) -> tuple[Candidate, ...]:
        """See :meth:`ModelSection.suggestions`: temperatures, which a few epochs tell apart."""
        if self.distil is not None or not facts.validation or facts.edges > _COMPARED_EDGES:
            return ()
        epochs = {"epochs": min(self.epochs, _COMPARED_EPOCHS), "validate_every": _COMPARED_EPOCHS}
        return tuple(
            Candidate({"temperature": each}, f"temperature {each}", epochs) for each in _TEMPERATURES
        )


class LightGCNConfig(RecommendationSection):
    """Rows smoothed over the graph of queries and candidates, nothing else (He et al., SIGIR 2020)."""

    IN_MEMORY: ClassVar[Mapping[str, str]] = {
        "topology": "each batch smooths the rows of all nodes over all edges, about 60 bytes each; a `gnn` "
        "with `layer: lightgcn` and `num_neighbors` draws some of them",
        "tables": "each batch smooths the rows of all nodes",
    }

    SPACE: ClassVar[Mapping[str, Choices]] = {**RecommendationSection.SPACE, "layers": (1, 2, 3)}

    kind: Literal["lightgcn"]
    """Kind of model."""
    layers: PositiveInt = 2
    """Steps over the graph; a vector is the mean of the rows after each and before the first."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """See :meth:`ModelSection.undivided`."""
        return "each batch smooths the rows of all nodes over the whole graph, which parts would do again"


class MatrixFactorizationConfig(RecommendationSection):
    """A row for each query and candidate, without a graph between them."""

    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
    IN_MEMORY: ClassVar[Mapping[str, str]] = {
        "topology": "it reads no edges but the answers of its task, about 12 bytes each"
    }
    DIVIDES: ClassVar[bool] = True

    kind: Literal["matrix_factorization"]
    """Kind of model."""
