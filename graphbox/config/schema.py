"""The run file as typed, frozen models: one class for each section, one field for each key.

The docstring under a field is its help text: it becomes the description in the JSON Schema
(``graphbox check --schema``), which editors use for completion.

Edge types are written as a list of three names, ``[source type, relation, target type]``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphbox.config.graph import GraphConfig
from graphbox.config.section import (
    EdgeTypeList,
    Fraction,
    Name,
    PositiveFloat,
    PositiveInt,
    Section,
    TypeName,
)

__all__ = [
    "BenchConfig",
    "ClassifyTaskConfig",
    "CompressConfig",
    "ExportConfig",
    "Metapath2VecConfig",
    "ModelConfig",
    "RecommendTaskConfig",
    "RunConfig",
    "SageConfig",
    "ServeConfig",
    "SkipGramSection",
    "TaskConfig",
]

# ---------------------------------------------------------------------------------------- tasks


class SplitConfig(Section):
    """What every task needs to know to hold data out."""

    group: EdgeTypeList | None = None
    """Edge type whose target groups nodes; a group is never split between train, validation and test."""
    validation_fraction: Fraction = 0.1
    """Share held out for choosing among epochs."""
    test_fraction: Fraction = 0.2
    """Share held out for the figures that are reported."""


class ClassifyTaskConfig(SplitConfig):
    """Predict a categorical feature of a node from its frozen embedding, by logistic regression."""

    kind: Literal["classify"]
    """Kind of task."""
    node_type: TypeName
    """Node type to classify."""
    label: str
    """Categorical node feature to predict; models of this task do not read it."""
    baselines: tuple[Literal["majority", "neighbors_vote"], ...] = ("majority", "neighbors_vote")
    """Baselines reported beside the models."""


class RecommendTaskConfig(SplitConfig):
    """Rank nodes as targets of held-out edges."""

    kind: Literal["recommend"]
    """Kind of task."""
    node_type: TypeName
    """Node type of queries and candidates."""
    relations: Annotated[tuple[TypeName, ...], Field(min_length=1)]
    """Relations from `node_type` to `node_type` whose edges are held out."""
    exclude_relations: tuple[TypeName, ...] = ()
    """A pair of groups joined by one of these relations is not tested: the answer would leak."""
    alternative: str | None = None
    """Edge feature that numbers groups of alternatives; only single alternatives are tested."""
    category: str | None = None
    """Categorical node feature for the baseline `popular_within_category`."""
    k: PositiveInt = 20
    """Length of the ranked lists for recall@k and ndcg@k."""
    baselines: tuple[
        Literal["popular", "popular_within_category", "adamic_adar", "personalized_pagerank", "user_knn"], ...
    ] = ("popular", "popular_within_category", "adamic_adar", "personalized_pagerank", "user_knn")
    """Baselines reported beside the models."""


TaskConfig = Annotated[ClassifyTaskConfig | RecommendTaskConfig, Field(discriminator="kind")]


# --------------------------------------------------------------------------------------- models


class SkipGramSection(Section):
    """How skip-gram with negative samples learns from metapath walks (Dong et al., KDD 2017)."""

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
    negatives: PositiveInt = 256
    """Negatives drawn for each batch; all its pairs share them."""
    negative_weight: PositiveFloat = 2.0
    """How many independent negatives the shared ones count as, for each pair."""
    negative_exponent: Annotated[float, Field(ge=0.0)] = 1.0
    """Negatives are drawn by how often walks visit a node, to this power."""
    subsample: Annotated[float, Field(ge=0.0)] = 1e-3
    """Visits of nodes that make up more than this share of all are thinned out (word2vec); 0: none are."""
    epochs: PositiveInt = 10
    """Passes over all start nodes."""
    batch_size: PositiveInt = 64
    """Walks of each metapath in a batch."""
    learning_rate: PositiveFloat = 0.2
    """Learning rate of the embedding tables (row-wise Adagrad)."""


class Metapath2VecConfig(SkipGramSection):
    """Skip-gram with negative samples over metapath walks (Dong et al., KDD 2017)."""

    kind: Literal["metapath2vec"]
    """Kind of model."""
    task: Name | None = None
    """Task the model is evaluated on, and whose held-out data it does not see; without one it sees the whole
    graph and is not evaluated."""
    dim: PositiveInt = 64
    """Length of an embedding."""


class SageConfig(Section):
    """Heterogeneous two-tower GraphSAGE over table embeddings and features."""

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
    """Learning rate of the dense parameters (Adam) at the start; it falls linearly to half."""
    table_learning_rate: PositiveFloat = 0.02
    """Learning rate of the embedding tables (row-wise Adagrad) at the start; it falls linearly to half."""
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


ModelConfig = Annotated[Metapath2VecConfig | SageConfig, Field(discriminator="kind")]


# ------------------------------------------------------------------------------ after training


class ExportConfig(Section):
    """How a trained model becomes an artifact."""

    model: Name
    """Trained model, a key of `models`."""
    parity_rows: PositiveInt = 1000
    """Real inputs on which the exported model is compared with the trained one."""
    max_absolute_error: PositiveFloat = 1e-4
    """Largest absolute difference of an output element that is accepted."""
    max_relative_error: PositiveFloat = 1e-3
    """Largest difference relative to the largest absolute output that is accepted."""


class CompressConfig(Section):
    """How an artifact becomes smaller, and how much worse it may become."""

    dense: Literal["float32", "int8"] = "int8"
    """Precision of the ONNX model's weights; int8 is dynamic quantization."""
    tables: Literal["float32", "int8"] = "int8"
    """Precision of the embedding rows; int8 has a scale and an offset for each row."""
    max_drop: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Largest allowed loss of the task's first metric, absolute; more is refused with exit code 6."""


class BenchConfig(Section):
    """What is measured on each artifact of the run."""

    batch_sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1, 32, 256)
    """Batch sizes."""
    seconds: PositiveFloat = 1.0
    """Time for each batch size."""
    target: str = "auto"
    """Adapter to run on; `graphbox targets` lists them."""
    threads: PositiveInt = 1
    """Threads of the adapter."""


class ServeConfig(Section):
    """Where `graphbox serve` and `graphbox demo` listen."""

    host: str = "127.0.0.1"
    """Address; anything but loopback needs a token."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8710
    """Port."""


class RunConfig(Section):
    """A run file: the whole pipeline, from tables to served models."""

    version: Literal[1]
    """Version of the run file's format."""
    name: Name
    """Name of the run."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random choice; the same seed gives the same result with any number of threads."""
    threads: PositiveInt | None = None
    """Threads for sampling and training; all CPUs of the process when absent."""
    graph: GraphConfig
    """The graph and its source files."""
    tasks: dict[Name, TaskConfig] = Field(default_factory=dict)
    """What the embeddings are for, by name."""
    models: dict[Name, ModelConfig] = Field(default_factory=dict)
    """Models to train, by name, in this order; without any the run ends with the imported graph."""
    export: dict[Name, ExportConfig] = Field(default_factory=dict)
    """Artifacts to write, by the name they get in the workspace."""
    compress: dict[Name, CompressConfig] = Field(default_factory=dict)
    """Artifacts to compress, each a key of `export`."""
    bench: BenchConfig = BenchConfig()
    """Measurement of latency and throughput."""
    serve: ServeConfig = ServeConfig()
    """Where to serve."""
