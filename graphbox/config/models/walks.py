"""Models that learn embeddings from walks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from graphbox.config.choices import Candidate, Choices, DataFacts, Interval
from graphbox.config.models.section import ModelSection
from graphbox.config.section import EdgeTypeList, PositiveFloat, PositiveInt, Section

Exponent = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


_LOCK_FREE: Mapping[str, str] = {"lock_free": "threads that do not wait for each other change any row"}


_ROW_SPACE: Mapping[str, Choices] = {
    "learning_rate": Interval(0.02, 0.4, logarithmic=True),
    "negative_exponent": Interval(0.0, 1.0),
    "negative_weight": Interval(1.0, 10.0, logarithmic=True),
}
"""Search space of `tune` that models of walks share."""


class _LearntInPlace(ModelSection):
    """A model whose rows one process learns where they are."""

    RANKS_OTHER_TYPES: ClassVar[bool] = False
    WARM_STARTS: ClassVar[bool] = True

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """See :meth:`ModelSection.undivided`."""
        return "one loop draws its pairs and learns their rows where they are, in the memory of one process"


class NegativeSamplingSection(Section):
    """Training of rows on pairs of nodes, with negative samples (Mikolov et al., NIPS 2013)."""

    weighted: bool = False
    """Take edges in proportion to their weights, instead of all alike."""
    negatives: PositiveInt = 256
    """Negatives drawn for each batch; all its pairs share them."""
    negative_weight: PositiveFloat = 2.0
    """Number of independent negatives that the shared ones count as, for each pair."""
    negative_exponent: Exponent = 1.0
    """Negatives are drawn by how often walks visit a node, to this power."""
    learning_rate: PositiveFloat = 0.2
    """Learning rate of the embedding tables (row-wise Adagrad)."""
    lock_free: bool = False
    """Let threads train batches side by side without waiting for each other: faster, but another result each
    time. Without it the result is the same for any number of threads."""


class SkipGramSection(NegativeSamplingSection):
    """Skip-gram with negative samples over metapath walks (Dong et al., KDD 2017)."""

    metapaths: Annotated[
        tuple[Annotated[tuple[EdgeTypeList, ...], Field(min_length=1)], ...], Field(min_length=1)
    ]
    """Each a list of edge types that a walk follows in turn, again and again."""
    walks_per_node: PositiveInt = 1
    """Walks from each node, for each metapath and epoch."""
    walk_length: PositiveInt = 8
    """Steps of a walk."""
    window: PositiveInt = 2
    """Largest distance, in steps, between a centre and its context."""
    subsample: Exponent = 1e-3
    """Visits of nodes that make up more than this share of all are thinned out (word2vec); 0: none are."""
    epochs: PositiveInt = 10
    """Passes over all start nodes."""
    batch_size: PositiveInt = 64
    """Walks of each metapath in a batch."""


class Metapath2VecConfig(_LearntInPlace, SkipGramSection):
    """Skip-gram with negative samples over metapath walks (Dong et al., KDD 2017)."""

    BUDGETS: ClassVar[tuple[str, ...]] = ("topology", "tables")
    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = _LOCK_FREE
    SPACE: ClassVar[Mapping[str, Choices]] = {
        **_ROW_SPACE,
        "dim": (32, 64, 128),
        "epochs": (5, 10, 20, 40),
        "walk_length": (4, 8, 16),
        "window": (1, 2, 4),
    }

    kind: Literal["metapath2vec"]
    """Kind of model."""
    dim: PositiveInt = 64
    """Length of an embedding."""


class OneTypeSection(_LearntInPlace, NegativeSamplingSection):
    """A model that takes all nodes and edges for those of one type; edges lead both ways."""

    BUDGETS: ClassVar[tuple[str, ...]] = ("tables",)
    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = _LOCK_FREE

    edge_types: tuple[EdgeTypeList, ...] = ()
    """Edge types that are followed; none means all. Edges of one pair of nodes are one."""
    dim: PositiveInt = 128
    """Length of an embedding."""
    negatives: PositiveInt = 128
    """Negatives drawn for each batch; all its pairs share them."""
    negative_weight: PositiveFloat = 5.0
    """Number of independent negatives that the shared ones count as, for each pair."""
    negative_exponent: Exponent = 0.75
    """Negatives are drawn by the degree of a node, to this power."""
    learning_rate: PositiveFloat = 0.1
    """Learning rate of the embedding tables (row-wise Adagrad)."""


_VISITS_OF_EDGE = 200
"""Chosen on block models with hubs (``benchmarks/walk_passes.py``; 2,000 nodes of mean degree 64), which no
table of results has: micro-F1 of 20 classes, half of the nodes known, was .73, .85, .92 and .95 after 2, 4, 8
and 16 passes."""
_LEAST_BATCHES = 3_000
"""As many as the default passes give on 2,400 nodes."""
_LEAST_EPOCHS, _MOST_EPOCHS = 4, 64
_MOST_STEPS = 200_000_000
"""Steps of walks beyond which passes are not added: minutes on one core."""


class DeepWalkConfig(OneTypeSection):
    """Skip-gram with negative samples over uniform walks (Perozzi et al., KDD 2014)."""

    BUDGETS: ClassVar[tuple[str, ...]] = ("topology", "tables")
    CHOSEN: ClassVar[tuple[str, ...]] = ("epochs",)
    SPACE: ClassVar[Mapping[str, Choices]] = {
        **_ROW_SPACE,
        "dim": (64, 128, 256),
        "epochs": (1, 2, 4, 8, 16),
        "walk_length": (20, 40, 80),
        "window": (3, 5, 10),
        "context_share": (0.0, 1.0),
    }

    kind: Literal["deepwalk"]
    """Kind of model."""
    walks_per_node: PositiveInt = 10
    """Walks from each node in an epoch."""
    walk_length: PositiveInt = 80
    """Steps of a walk."""
    window: PositiveInt = 10
    """Largest distance, in steps, between a centre and its context."""
    dynamic_window: bool = True
    """Draw each centre's window from 1 to ``window``, as word2vec does: the nearer a context, the more often.
    Without it all contexts within the window count alike."""
    negatives: PositiveInt = 64
    """Negatives drawn for each batch; all its pairs share them."""
    negative_exponent: Exponent = 0.5
    """Negatives are drawn by the degree of a node, to this power."""
    subsample: Exponent = 0.0
    """Visits of nodes that make up more than this share of all are thinned out (word2vec); 0: none are."""
    context_share: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """An embedding is the node's row as a centre and this share of its row as a context."""
    learning_rate: PositiveFloat = 0.05
    """Learning rate of the embedding tables (row-wise Adagrad); 0.1 for a single epoch."""
    epochs: PositiveInt = 4
    """Passes over all start nodes, each with walks of its own. When absent the graph decides: dense graphs
    and those of few nodes get more than 4. The first does most; on large graphs one may be enough."""
    batch_size: PositiveInt = 32
    """Walks in a batch."""

    def suggestions(self, facts: DataFacts) -> tuple[Candidate, ...]:
        """See :meth:`ModelSection.suggestions`.

        A pair of nodes with an edge is learnt as often as walks pass the edge, so that a dense graph takes
        more passes, up to ``_MOST_STEPS`` steps in all; and rows move as often as there are batches.
        """
        steps_per_pass = max(1, facts.nodes * self.walks_per_node * self.walk_length)
        by_edges = math.ceil(_VISITS_OF_EDGE * 2 * facts.pairs / steps_per_pass)
        by_batches = math.ceil(_LEAST_BATCHES * self.batch_size / max(1, facts.nodes * self.walks_per_node))
        affordable = max(_LEAST_EPOCHS, _MOST_STEPS // steps_per_pass)
        epochs = min(max(by_edges, by_batches, _LEAST_EPOCHS), _MOST_EPOCHS, affordable)
        if epochs == by_edges:
            why = f"walks pass each edge {_VISITS_OF_EDGE} times"
        else:
            why = f"at least {_LEAST_BATCHES:,} batches" if epochs == by_batches else "the usual passes"
        return (Candidate({"epochs": epochs}, why),)


class Node2VecConfig(DeepWalkConfig):
    """Skip-gram with negative samples over walks that look back (Grover and Leskovec, KDD 2016)."""

    SPACE: ClassVar[Mapping[str, Choices]] = {
        **DeepWalkConfig.SPACE,
        "p": Interval(0.25, 4.0, logarithmic=True),
        "q": Interval(0.25, 4.0, logarithmic=True),
    }

    kind: Literal["node2vec"]  # type: ignore[assignment]
    """Kind of model."""
    p: Annotated[float, Field(ge=1e-30, le=1e30)] = 1.0
    """Return parameter: the higher, the rarer a walk goes straight back."""
    q: Annotated[float, Field(ge=1e-30, le=1e30)] = 1.0
    """In-out parameter: the higher, the closer a walk stays to where it was."""


class LineConfig(OneTypeSection):
    """Embeddings of edges themselves (Tang et al., WWW 2015)."""

    IN_MEMORY: ClassVar[Mapping[str, str]] = {
        "topology": "an epoch takes all edges in a random order, about 24 bytes each"
    }

    SPACE: ClassVar[Mapping[str, Choices]] = {
        **_ROW_SPACE,
        "dim": (64, 128, 256),
        "epochs": (10, 20, 40, 80),
    }

    kind: Literal["line"]
    """Kind of model."""
    orders: Annotated[tuple[Literal[1, 2], ...], Field(min_length=1, max_length=2)] = (1, 2)
    """1: nodes with an edge are near each other; 2: nodes with the same neighbours are. Of both, each has
    half of the embedding, of length 1."""
    epochs: PositiveInt = 40
    """Passes over all edges, for each order."""
    batch_size: PositiveInt = 512
    """Edges in a batch."""
