"""The two-tower GraphSAGE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from graphbox.config.choices import Choices, Interval
from graphbox.config.models.optimization import LearningRateSchedule
from graphbox.config.models.section import ModelSection
from graphbox.config.models.walks import Metapath2VecConfig, SkipGramSection
from graphbox.config.section import EdgeTypeList, Fraction, Name, PositiveFloat, PositiveInt


class SageConfig(ModelSection, LearningRateSchedule):
    """Heterogeneous two-tower GraphSAGE over table embeddings and features."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("recommend",)
    RANKS_OTHER_TYPES: ClassVar[bool] = False
    BUDGETS: ClassVar[tuple[str, ...]] = ("topology", "tables")
    DIVIDES: ClassVar[bool] = True
    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = {
        "pretrain": "rows then start from embeddings of all nodes, which are in memory"
    }
    WARM_STARTS: ClassVar[bool] = True
    READS_KNOWN_LINKS: ClassVar[bool] = True
    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ("encoder",)
    SPACE: ClassVar[Mapping[str, Choices]] = {
        "dim": (32, 64, 128),
        "epochs": (10, 20, 40),
        "own_row_dropout": Interval(0.0, 0.8),
        "holdout_fraction": Interval(0.1, 0.6),
        "popularity_exponent": Interval(0.0, 1.0),
        "learning_rate": Interval(0.001, 0.02, logarithmic=True),
        "table_learning_rate": Interval(0.005, 0.1, logarithmic=True),
    }

    kind: Literal["sage"]
    """Kind of model."""
    task: Name
    """Task of kind `recommend` that the model is trained and evaluated on."""
    dim: PositiveInt = 64
    """Length of an embedding and of a table row."""
    num_neighbors: PositiveInt = 16
    """Most neighbours that are aggregated for each relation."""
    relations: tuple[EdgeTypeList, ...] = ()
    """Edge types that are aggregated; none means all that arrive at the task's node type."""
    features: tuple[str, ...] = ()
    """Features of the task's node type that the encoder reads."""
    epochs: PositiveInt = 20
    """Epochs; each holds out other training edges and learns to find them."""
    holdout_fraction: Fraction = 0.3
    """Share of the training edges that an epoch holds out."""
    batch_size: PositiveInt = 64
    """Query nodes in a batch, each with all its held-out edges."""
    candidates: PositiveInt = 2048
    """Nodes drawn for each batch, against which its positives are ranked."""
    popularity_exponent: Annotated[float, Field(ge=0.0)] = 0.75
    """Candidates are drawn by in-degree to this power."""
    own_row_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Probability that a query's own row is left out in training, so that its neighbours have to do."""
    learning_rate: PositiveFloat = 0.005
    """Learning rate of the dense parameters (Adam)."""
    table_learning_rate: PositiveFloat = 0.02
    """Learning rate of the embedding tables (row-wise Adagrad)."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Schedule of both learning rates, from their start to `final_learning_rate` of it."""
    final_learning_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of the learning rates that is left at the end of the schedule."""
    initial_row_scale: PositiveFloat = 0.17
    """New embedding rows are uniform between plus and minus this; those learnt before get the same spread."""
    pretrain: SkipGramSection | None = None
    """Learn embeddings by skip-gram first, which the rows start from; without it they start at random."""
    average_after: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.33
    """Share of the epochs after which the model is the average of what it was at the end of each."""
    initial_scale: PositiveFloat = 15.0
    """Factor between cosines and logits at the start; it is learnt."""
    validate_every: PositiveInt = 5
    """Epochs between measurements on the validation part."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """See :meth:`ModelSection.undivided`."""
        return None if values.get("pretrain") is None else "the walks that it learns first are not divided"

    def pretraining(self) -> Metapath2VecConfig | None:
        """Return the model whose embeddings rows start from; None: they start at random."""
        if self.pretrain is None:
            return None
        return Metapath2VecConfig(kind="metapath2vec", dim=self.dim, **self.pretrain.model_dump())
