"""The run file as typed, frozen models: one class for each section, one field for each key.

The docstring under a field is its help text: it becomes the description in the JSON Schema
(``graphbox check --schema``), which editors use for completion.

Edge types are written as a list of three names, ``[source type, relation, target type]``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphbox.config.compression import CompressConfig
from graphbox.config.device import DeviceName
from graphbox.config.graph import GraphConfig
from graphbox.config.kinds import ModelConfig
from graphbox.config.memory import MemoryConfig
from graphbox.config.section import Name, PositiveFloat, PositiveInt, Section
from graphbox.config.stream import StreamConfig
from graphbox.config.tasks import TaskConfig
from graphbox.config.track import TrackConfig

PromotionRule = Literal["never", "if_better", "always"]


class ExportConfig(Section):
    """Export of a trained model to an artifact."""

    model: Name
    """Trained model, a key of `models`."""
    form: Literal["vectors", "encoder"] | None = None
    """Form that is served: stored `vectors` of all nodes, looked up; or an `encoder` that computes them
    from rows and neighbours. `gnn` has both, by default `vectors`; its encoder computes those of nodes that
    were never seen, too. `mlp` and `two_tower` are encoders by default, `sage` always; other models of nodes
    are vectors."""
    tower: Literal["query", "candidate"] = "query"
    """Nodes that the encoder of a `two_tower` computes vectors of: queries, which are ranked against the
    stored vectors of candidates; or candidates, which are ranked against each other. Both take known nodes by
    id, and new ones by features."""
    max_neighbors: PositiveInt | None = None
    """Neighbours that the encoder of a `gnn` keeps of each node in each relation, drawn by the seed of the
    run, without it all. What is served is then measured on the task, too."""
    unknown_ids: Literal["refuse", "zero", "mean"] = "refuse"
    """Answer of stored vectors for an id that has none: an error (`refuse`), a vector of zeros (`zero`), or
    the mean of all vectors of its node type (`mean`). Neighbours of such an id are refused."""
    parity_rows: PositiveInt = 1000
    """Real inputs on which the exported model is compared with the trained one."""
    max_absolute_error: PositiveFloat = 1e-4
    """Largest absolute difference of an output element that is accepted."""
    max_relative_error: PositiveFloat = 1e-3
    """Largest difference relative to the largest absolute output that is accepted."""
    promote: PromotionRule = "never"
    """Whether the version that a run makes becomes active, which servers then serve: `never`, unless it comes
    from the first run of that name; `if_better`, when the metric of its task is higher than that of the
    active version, measured on the same test part of the same graph; or `always`. Where the artifact is
    compressed, this is decided of the compressed version."""


class BenchConfig(Section):
    """Measurements of each artifact of the run."""

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
    """Seed of every random choice: the same seed gives the same samples and walks with any number of threads,
    and the same model with the same number."""
    threads: PositiveInt | None = None
    """Threads for sampling and training; all CPUs of the process when absent."""
    device: DeviceName = "auto"
    """Where models are trained: `cpu`; `cuda`, a GPU, or `cuda:1` and so on where there are several; or
    `auto`: the GPU where there is one that works and Triton is installed (`graphbox[gpu]`), else the CPU. A
    run can be resumed with another one, though not to the same bits."""
    processes: PositiveInt = 1
    """Processes that train a model together, each on its part of every batch: on GPUs one on each, on the CPU
    they share its cores. For graph networks that classify nodes with `num_neighbors` and for models of
    clicks. A run can be resumed with another number, though not to the same bits."""
    graph: GraphConfig
    """The graph and its source files."""
    tasks: dict[Name, TaskConfig] = Field(default_factory=dict)
    """Tasks of the embeddings, by name."""
    models: dict[Name, ModelConfig] = Field(default_factory=dict)
    """Models to train, by name, in this order; without any the run ends with the imported graph."""
    stream: StreamConfig = StreamConfig()
    """New data that a model learns from as it comes, with `graphbox train --follow`."""
    memory: MemoryConfig = MemoryConfig()
    """Budgets of what training reads from disk; without any all is in memory."""
    track: TrackConfig = TrackConfig()
    """Where figures of trainings are sent, besides the store of the run itself."""
    export: dict[Name, ExportConfig] = Field(default_factory=dict)
    """Artifacts to write, by the name they get in the workspace."""
    compress: dict[Name, CompressConfig] = Field(default_factory=dict)
    """Artifacts to compress, each a key of `export`."""
    bench: BenchConfig = BenchConfig()
    """Measurement of latency and throughput."""
    serve: ServeConfig = ServeConfig()
    """Where to serve."""
