"""What trainings take of memory before they are run: the most that the process will hold, model by model.

The bytes for each node, edge and number of a vector are those that trainings of graphs of 40,000 to 80,000
nodes with 4 to 12 edges each, and vectors of 32 to 128 numbers, were measured to take; what the libraries
take by themselves is measured where the plan is made. ``benchmarks/plan_training.py`` compares plans with
trainings of other sizes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from graphbox.config import (
    DeepWalkConfig,
    GraphNetworkConfig,
    LightGCNConfig,
    MatrixFactorizationConfig,
    MemoryConfig,
    Metapath2VecConfig,
    ModelConfig,
    RunConfig,
    SageConfig,
)
from graphbox.errors import BackendMissingError, TimeLimitError
from graphbox.graph.schema import EdgeType
from graphbox.train.registry import TRAINERS

__all__ = ["GraphCounts", "TrainingPlan", "plan_trainings"]

_MB = 1_000_000
_PIPELINE = ("graphbox.cli.app", "graphbox.pipeline.stages", "graphbox.workspace", "graphbox.graph.ingest")
_MEASURE_TIMEOUT_S = 600.0
"""Importing takes seconds, and minutes where packages come over a slow network."""

_MEASURE = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
from graphbox.memory import resident_bytes
print(resident_bytes())
"""


@dataclass(frozen=True)
class GraphCounts:
    """How large a graph is, or will be.

    Attributes:
        nodes: number of nodes by type.
        edges: number of edges by type, without reverse types.
        node_bytes: bytes of the nodes' ids and features on disk, by type.
    """

    nodes: Mapping[str, int]
    edges: Mapping[EdgeType, int]
    node_bytes: Mapping[str, int]


@dataclass(frozen=True)
class TrainingPlan:
    """What the training of a model takes.

    Attributes:
        model: its name in the run file.
        kind: its kind.
        libraries_bytes: what the process holds before it trains.
        nodes_bytes: what grows with the nodes: rows, vectors, scores of candidates; and what is fixed.
        edges_bytes: what grows with the edges.
    """

    model: str
    kind: str
    libraries_bytes: int
    nodes_bytes: int
    edges_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most resident memory."""
        return self.libraries_bytes + self.nodes_bytes + self.edges_bytes

    def as_dict(self) -> dict[str, int | str]:
        """Return plain values for ``--json``."""
        return {
            "kind": self.kind,
            "peak_bytes": self.peak_bytes,
            "libraries_bytes": self.libraries_bytes,
            "nodes_bytes": self.nodes_bytes,
            "edges_bytes": self.edges_bytes,
        }


def plan_trainings(config: RunConfig, counts: GraphCounts) -> dict[str, TrainingPlan | None]:
    """Return the plan of each model of a run file by name; None where its kind has none.

    Starts a process that imports what the trainings do, to know what that takes.

    Raises:
        BackendMissingError: what they import is not there.
        TimeLimitError: importing it does not end.
    """
    libraries = _libraries_bytes(frozenset(model.kind for model in config.models.values()))
    plans: dict[str, TrainingPlan | None] = {}
    for name, model in config.models.items():
        taken = _taken(model, counts, config)
        plans[name] = None if taken is None else TrainingPlan(name, model.kind, libraries, *map(round, taken))
    return plans


@cache
def _libraries_bytes(kinds: frozenset[str]) -> int:
    """Return what a process holds that trains models of these kinds, before it does."""
    modules = [*_PIPELINE, *sorted({TRAINERS[kind].partition(":")[0] for kind in kinds})]
    if "gnn" in kinds:
        modules.append("torch_geometric.nn")
    what = f"to import what trains {', '.join(sorted(kinds))}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, *modules],
            capture_output=True,
            text=True,
            check=False,
            timeout=_MEASURE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise TimeLimitError(
            f"expected {what} within {_MEASURE_TIMEOUT_S:g} seconds, the process that does is still at it",
            hint="a file system that is slow or hangs may hold the packages: see which with "
            "`python -X importtime -c 'import torch'`",
        ) from None
    if done.returncode < 0:
        raise BackendMissingError(
            f"expected {what}, the process that does was ended by {_signal_name(-done.returncode)}",
            hint="SIGKILL is what the kernel sends where memory ends; `graphbox doctor` says what is there",
        )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"nothing but exit code {done.returncode}"
        raise BackendMissingError(
            f"expected {what}, received: {last}",
            hint="`graphbox doctor` says what is installed; training needs `pip install 'graphbox[train]'`",
        )
    return int(done.stdout)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time
        return f"signal {number}"


def _taken(model: ModelConfig, counts: GraphCounts, config: RunConfig) -> tuple[float, float] | None:
    """Return what a training takes for nodes and for edges; None of a kind that was not measured."""
    match model:
        case DeepWalkConfig():
            return _walks(model, _edges(counts, model.edge_types), counts, by_edge=55.7, by_number=17.0)
        case Metapath2VecConfig():
            steps = [step for path in model.metapaths for step in path]
            return _walks(model, _edges(counts, steps), counts, by_edge=7.7, by_number=13.0)
        case LightGCNConfig() | MatrixFactorizationConfig() | SageConfig():
            return _ranked(model, counts, config)
        case GraphNetworkConfig():
            return _network(model, counts, config.memory)
        case _:
            return None


def _walks(
    model: DeepWalkConfig | Metapath2VecConfig,
    edges: int,
    counts: GraphCounts,
    *,
    by_edge: float,
    by_number: float,
) -> tuple[float, float]:
    nodes = sum(counts.nodes.values())
    # Rows of two tables with their index, and the orders of the starts of walks.
    by_node = 970.0 + 40.0 * model.walks_per_node + by_number * model.dim
    return 16 * _MB + by_node * nodes, by_edge * edges


def _ranked(
    model: LightGCNConfig | MatrixFactorizationConfig | SageConfig, counts: GraphCounts, config: RunConfig
) -> tuple[float, float]:
    """Count rows, and the scores of all candidates for a block of queries, which measuring takes."""
    task = config.tasks[model.task]
    query_type = getattr(task, "node_type", "")
    target_type = getattr(task, "candidate_type", query_type)
    if isinstance(model, SageConfig):
        nodes = sum(counts.nodes.values())
        scored, number, edge = 7700.0, 35.4, 0.0
    else:
        nodes = sum(counts.nodes.get(name, 0) for name in {query_type, target_type})
        scored, number, edge = 7090.0, 42.0, 47.0
        if config.models and model.sees_validation:
            scored = 300.0  # nothing is measured before the end
    edges = _edges(counts, [each for each in counts.edges if (each[0], each[2]) == (query_type, target_type)])
    candidates = counts.nodes.get(target_type, 0)
    return 100 * _MB + scored * candidates + number * model.dim * nodes, edge * edges


def _network(model: GraphNetworkConfig, counts: GraphCounts, memory: MemoryConfig) -> tuple[float, float]:
    edges = _edges(counts, model.relations)
    touched = model.relations or tuple(counts.edges)
    types = {end for edge_type in touched for end in (edge_type[0], edge_type[2])}
    nodes = sum(counts.nodes.get(name, 0) for name in types)
    stored = sum(counts.node_bytes.get(name, 0) for name in types)
    features = 2 * stored if memory.features is None else memory.features + 24 * nodes
    if model.num_neighbors is None:
        # Vectors before and after each layer with their gradients, and the edges in both directions.
        return 18 * _MB + features + (
            26.0 + 46.0 * model.layers
        ) * model.dim * nodes, 140.0 * model.layers * edges
    drawn = model.batch_size * sum(prod(model.num_neighbors[:hop]) for hop in range(model.layers + 1))
    batches = 40.0 * model.dim * min(drawn, nodes)
    rows = 20.0 * model.dim * nodes
    if memory.tables is not None:
        rows = min(rows, float(memory.tables))
    return 60 * _MB + features + batches + rows + 24.0 * model.dim * nodes, 60.0 * edges


def _edges(counts: GraphCounts, edge_types: Sequence[EdgeType]) -> int:
    """Return the number of edges of some types, of all where none is named; reverse types are not counted."""
    return sum(counts.edges.get(each, 0) for each in set(edge_types) or set(counts.edges))
