"""The run file as typed, frozen models: one class for each section, one field for each key.

The docstring under a field is its help text: it becomes the description in the JSON Schema
(``graphbox check --schema``), which editors use for completion.

Edge types are written as a list of three names, ``[source type, relation, target type]``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from graphbox.errors import ConfigError

__all__ = [
    "BenchConfig",
    "ClassifyTaskConfig",
    "CompressConfig",
    "EdgeTypeList",
    "EdgesConfig",
    "ExportConfig",
    "FeatureKind",
    "GraphConfig",
    "Metapath2VecConfig",
    "ModelConfig",
    "Name",
    "NodesConfig",
    "RecommendTaskConfig",
    "RunConfig",
    "SageConfig",
    "Section",
    "ServeConfig",
    "SkipGramSection",
    "TaskConfig",
]

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
"""What graphs, tasks, models and runs may be called: they become names of folders."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

_TYPE_NAME = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")


def _check_type_name(name: str) -> str:
    # The same rule as `graphbox.graph.schema.check_type_name`, which this layer may not import.
    if _TYPE_NAME.fullmatch(name) and "__" not in name and len(name.encode()) <= 64:
        return name
    raise PydanticCustomError(
        "type_name",
        "expected letters, digits, `-` and single `_` (at most 64 bytes, a letter or digit at both ends)",
    )


TypeName = Annotated[str, AfterValidator(_check_type_name)]
EdgeTypeList = tuple[TypeName, TypeName, TypeName]
FeatureKind = Literal["number", "integer", "categorical", "boolean", "vector"]

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]


class Section(BaseModel):
    """Base of every section: unknown keys are errors, values are not coerced, objects are frozen."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


# ---------------------------------------------------------------------------------------- graph


class NodesConfig(Section):
    """One node type: a table with a row for each node."""

    path: str
    """Parquet, CSV or TSV file (the last two also gzipped), relative to `graph.root`."""
    id: str = "id"
    """Column that holds the original id (string or 64-bit integer), unique within the node type."""
    id_type: Literal["string", "int64"] | None = None
    """What the ids are; without it the column decides (in CSV and TSV: int64 when all are plain integers)."""
    features: dict[str, FeatureKind] = {}
    """Columns to import as node features, and how each is read."""


class EdgesConfig(Section):
    """One edge type: a table with a row for each edge."""

    type: EdgeTypeList
    """Edge type as `[source type, relation, target type]`."""
    path: str
    """Parquet, CSV or TSV file (the last two also gzipped), relative to `graph.root`."""
    source: str = "source"
    """Column that holds the id of the edge's source."""
    target: str = "target"
    """Column that holds the id of the edge's target."""
    weight: str | None = None
    """Column that holds the edge's weight, a positive number; without it all edges weigh 1."""
    timestamp: str | None = None
    """Column that holds when the edge came to be: integers of any unit, or timestamps."""
    features: dict[str, FeatureKind] = {}
    """Columns to import as edge features, and how each is read."""
    reverse: TypeName | None = None
    """Also add every edge backwards, as the edge type `[target type, reverse, source type]`."""
    keep_duplicates: bool = False
    """Keep every edge of a repeated pair of source and target, instead of the first."""


class GraphConfig(Section):
    """Where the graph comes from."""

    name: Name
    """Name of the graph in the workspace."""
    root: str = "."
    """Folder of the files below, relative to the run file; `package://graphbox.demo` is the bundled data."""
    nodes: Annotated[dict[TypeName, NodesConfig], Field(min_length=1)]
    """Node types by name."""
    edges: Annotated[tuple[EdgesConfig, ...], Field(min_length=1)]
    """Edge types."""
    strict: bool = False
    """Refuse the import at the first edge whose end is no node, instead of counting and skipping it."""

    PACKAGE_SCHEME: ClassVar[str] = "package://"
    _PACKAGES: ClassVar[tuple[str, ...]] = ("graphbox.demo",)

    @staticmethod
    def folder(root: str, base: Path = Path()) -> Path:
        """Return the folder that ``root`` names, relative to ``base`` unless it is absolute.

        Raises:
            ConfigError: ``root`` names a package that carries no data.
        """
        if not root.startswith(GraphConfig.PACKAGE_SCHEME):
            return base / root
        package = root.removeprefix(GraphConfig.PACKAGE_SCHEME)
        if package not in GraphConfig._PACKAGES:
            raise ConfigError(
                f"expected `{GraphConfig.PACKAGE_SCHEME}{GraphConfig._PACKAGES[0]}`, received `{root}`",
                where="graph.root",
                hint="name a folder instead",
            )
        return Path(__file__).parent.parent.joinpath(*package.split(".")[1:])

    def locate(self, path: str) -> Path:
        """Return where the source file ``path`` is."""
        return self.folder(self.root) / path


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
    task: Name
    """Task the model is evaluated on, and whose held-out data it does not see."""
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
    tasks: Annotated[dict[Name, TaskConfig], Field(min_length=1)]
    """What the embeddings are for, by name."""
    models: Annotated[dict[Name, ModelConfig], Field(min_length=1)]
    """Models to train, by name, in this order."""
    export: dict[Name, ExportConfig] = {}
    """Artifacts to write, by the name they get in the workspace."""
    compress: dict[Name, CompressConfig] = {}
    """Artifacts to compress, each a key of `export`."""
    bench: BenchConfig = BenchConfig()
    """Measurement of latency and throughput."""
    serve: ServeConfig = ServeConfig()
    """Where to serve."""
