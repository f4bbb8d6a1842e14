"""What a training takes beyond its libraries, kind by kind.

What is counted is what the code holds at its worst moment. The bytes for each node, edge, number of a vector
and value of a feature were measured on graphs of other sizes than those that ``benchmarks/plan_training.py``
compares plans with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphbox.config import (
    ClickTaskConfig,
    DeepWalkConfig,
    GraphNetworkConfig,
    LightGCNConfig,
    LineConfig,
    MatrixFactorizationConfig,
    MemoryConfig,
    Metapath2VecConfig,
    ModelConfig,
    RecommendTaskConfig,
    RunConfig,
    SageConfig,
    TaskConfig,
    TemporalConfig,
    WideAndDeepConfig,
)
from graphbox.config.models.clicks import ClickModelSection
from graphbox.config.models.knowledge_graph import KnowledgeGraphSection, TranslationSection
from graphbox.graph.schema import EdgeType
from graphbox.metrics.blocks import rows_and_threads
from graphbox.metrics.ranking import RANKED_ROWS
from graphbox.train.plan.counts import GraphCounts

__all__ = ["MESSAGE_BYTES", "Demand", "demand_of", "part_of_batches", "task_ends", "tower_sources"]

_MB = 1_000_000
_VECTORS_PER_CALL = 4096
_FILTERED_BLOCK_BYTES = 64 << 20

_MAPPED_BYTES = 32 << 20
"""The system's allocator gives memory back at once from this size on; of less it keeps what was freed."""

MESSAGE_BYTES = {
    "appnp": 4.8,
    "gat": 19.0,
    "gatv2": 34.0,
    "gcn": 5.5,
    "gcn2": 5.5,
    "gin": 0.8,
    "hgt": 38.0,
    "lightgcn": 3.5,
    "rgcn": 2.0,
    "sage": 0.0,
    "transformer": 33.0,
}
"""Bytes that a layer of a graph network keeps for each edge and number of a vector until it has its gradient,
beyond what `sage` does."""


@dataclass(frozen=True)
class Demand:
    """What a training takes of memory beyond libraries.

    Attributes:
        nodes_bytes: what grows with the nodes, and what is fixed.
        edges_bytes: what grows with the edges.
        rows_bytes: of ``nodes_bytes``, what several processes divide among them.
    """

    nodes_bytes: float
    edges_bytes: float
    rows_bytes: float = 0.0


def demand_of(model: ModelConfig, counts: GraphCounts, config: RunConfig) -> Demand | None:
    """Return what a training takes; None of a kind, or of layers, that were not measured.

    Args:
        model: the model's section of the run file.
        counts: how large the graph is.
        config: the run file.
    """
    task = None if model.task is None else config.tasks[model.task]
    match model:
        case DeepWalkConfig():
            demand: Demand | None = _walks(model, counts, config.memory)
        case LineConfig():
            demand = _line(model, counts, config.memory)
        case Metapath2VecConfig():
            demand = _metapaths(model, counts, config.memory)
        case LightGCNConfig() | MatrixFactorizationConfig() | SageConfig():
            demand = _ranked(model, counts, task, config)
        case GraphNetworkConfig():
            demand = _network(model, counts, task, config)
        case KnowledgeGraphSection():
            demand = _triples(model, counts)
        case TemporalConfig():
            demand = _events(model, counts, task)
        case ClickModelSection():
            demand = _clicks(model, counts, task, config.memory)
        case _:
            demand = None
    return demand


def part_of_batches(model: ModelConfig, processes: int) -> ModelConfig:
    """Return the section of a model with the part of a batch that each of several processes has."""
    whole = getattr(model, "batch_size", None)
    if processes == 1 or whole is None:
        return model
    return model.model_copy(update={"batch_size": -(-whole // processes)})


# Each sum below is of what is fixed, and of tables, vectors and what is made of the graph.


def _walks(model: DeepWalkConfig, counts: GraphCounts, memory: MemoryConfig) -> Demand:
    nodes = sum(counts.nodes.values())
    by_node = 15.0 * model.walks_per_node + 19.2 * model.dim
    nodes_bytes = 40 * _MB + by_node * nodes - _on_disk(2 * nodes, model.dim, memory)
    return Demand(nodes_bytes, 77.0 * _edges(counts, model.edge_types))


def _line(model: LineConfig, counts: GraphCounts, memory: MemoryConfig) -> Demand:
    nodes = sum(counts.nodes.values())
    batch = 27.0 * model.batch_size * model.dim
    rows = 19.0 * model.dim * nodes - _on_disk(2 * nodes, model.dim, memory)
    return Demand(20 * _MB + batch + rows, 107.0 * _edges(counts, model.edge_types))


def _metapaths(model: Metapath2VecConfig, counts: GraphCounts, memory: MemoryConfig) -> Demand:
    nodes = sum(counts.nodes.values())
    by_node = 240.0 + 25.0 * model.walks_per_node * len(model.metapaths) + 19.0 * model.dim
    steps = [step for path in model.metapaths for step in path]
    nodes_bytes = 34 * _MB + by_node * nodes - _on_disk(2 * nodes, model.dim, memory)
    return Demand(nodes_bytes, 16.0 * _edges(counts, steps))


def _ranked(
    model: LightGCNConfig | MatrixFactorizationConfig | SageConfig,
    counts: GraphCounts,
    task: TaskConfig | None,
    config: RunConfig,
) -> Demand:
    """Count rows, the answers of a batch, and what measuring takes: scores, and known candidates."""
    memory = config.memory
    query_type, target_type = task_ends(task)
    candidates = counts.nodes.get(target_type, 0)
    edges = _edges_between(counts, query_type, target_type)
    if isinstance(model, SageConfig):
        nodes = sum(counts.nodes.values())
        return Demand(
            130 * _MB
            + _scores_bytes(candidates, config.threads)
            + 38.5 * model.dim * nodes
            - _on_disk(nodes, model.dim, memory),
            164.0 * edges,
        )
    nodes = sum(counts.nodes.get(name, 0) for name in {query_type, target_type})
    queries = counts.nodes.get(query_type, 0)
    answers = min(model.batch_size, queries) * edges / max(queries, 1)
    # Nothing is measured before the end where the validation part is learnt too.
    scores = 0.0 if model.sees_validation else _scores_bytes(candidates, config.threads)
    if isinstance(model, LightGCNConfig):
        rows = 48.0 * model.dim * nodes + 7.4 * model.dim * answers
        return Demand(165 * _MB + scores + rows, 220.0 * edges)
    batch = 25.0 * model.dim * answers
    return Demand(
        120 * _MB + batch + scores + 20.0 * model.dim * nodes - _on_disk(3 * nodes, model.dim, memory),
        250.0 * edges,
        12.0 * model.dim * nodes - _on_disk(3 * nodes, model.dim, memory),
    )


def _network(
    model: GraphNetworkConfig, counts: GraphCounts, task: TaskConfig | None, config: RunConfig
) -> Demand | None:
    if model.layer not in MESSAGE_BYTES:
        return None
    memory = config.memory
    edges = _edges(counts, model.relations)
    touched = model.relations or tuple(counts.edges)
    types = {end for edge_type in touched for end in (edge_type[0], edge_type[2])}
    nodes = sum(counts.nodes.get(name, 0) for name in types)
    stored = sum(counts.feature_bytes.get(name, 0) for name in types)
    # Of the files that are mapped, and as they are read: by the host, or by a GPU from pinned memory.
    features = 2 * stored if memory.features is None else memory.features + 24 * nodes
    scores = 0.0
    if isinstance(task, RecommendTaskConfig):
        scores = _scores_bytes(counts.nodes.get(task_ends(task)[1], 0), config.threads)
    messages = MESSAGE_BYTES[model.layer] * model.dim * model.layers
    if model.num_neighbors is None:
        # Vectors before and after each layer with their gradients, and the edges in both directions.
        numbers = (60.0 + 28.0 * model.layers) * (0.75 if scores else 1.0)
        by_edge = 200.0 + 90.0 * model.layers + messages
        return Demand(55 * _MB + features + scores + numbers * model.dim * nodes, by_edge * edges)
    drawn = model.batch_size * sum(prod(model.num_neighbors[:hop]) for hop in range(model.layers + 1))
    met = nodes * -math.expm1(-drawn / max(nodes, 1))
    batches = 70.0 * model.dim * met + messages * min(drawn, edges)
    rows = 8.0 * model.dim * nodes
    if memory.tables is not None:
        rows = min(rows, float(memory.tables))
    vectors = 8.0 * model.dim * nodes
    return Demand(75 * _MB + features + scores + batches + rows + vectors, 140.0 * edges, rows)


def _triples(model: KnowledgeGraphSection, counts: GraphCounts) -> Demand:
    """Count the rows of entities, queries in both directions, and the scores of a block of triples."""
    nodes = sum(counts.nodes.values())
    drawn = nodes if model.loss == "softmax" else model.candidates + 1.3 * model.batch_size
    scores = 20.0 * model.batch_size * drawn
    if isinstance(model, TranslationSection):
        block_bytes = min(512.0 * nodes, _FILTERED_BLOCK_BYTES)
        kept = 14.0 if block_bytes < _MAPPED_BYTES else 2.0
        scores += 40 * _MB + kept * block_bytes
    rows = 8.0 * model.dim * nodes
    return Demand(48 * _MB + scores + 54.0 * model.dim * nodes, 285.0 * _edges(counts, ()), rows)


def _events(model: TemporalConfig, counts: GraphCounts, task: TaskConfig | None) -> Demand:
    """Count the latest events of all nodes, their vectors, and those that are made at once."""
    if task is None:
        types = {end for each in model.relations or counts.edges for end in (each[0], each[2])}
    else:
        types = set(task_ends(task))
    nodes = sum(counts.nodes.get(name, 0) for name in types)
    edges = _edges(counts, model.relations)
    by_node = 62.0 * model.recent + 16.0 * model.dim + 40.0 * model.row_dim
    pairs = max(_VECTORS_PER_CALL, model.batch_size * (1 + model.negatives))
    return Demand(100 * _MB + 8.7 * pairs * model.recent * model.dim + by_node * nodes, 150.0 * edges)


def _clicks(
    model: ClickModelSection, counts: GraphCounts, task: TaskConfig | None, memory: MemoryConfig
) -> Demand:
    """Count a row of the table for each value of a feature, and a batch; of the log a window is held."""
    assert isinstance(task, ClickTaskConfig)  # noqa: S101 - checked with the run file
    known = counts.values.get(task.node_type, {})
    read = set(known) if model.features is None else set(model.features) & set(known)
    values = sum(known[name] for name in read - {task.label})
    rows = counts.nodes.get(task.node_type, 0)
    combined = 0.0
    if isinstance(model, WideAndDeepConfig):
        combined = sum(min(rows, prod(known.get(name, 32) for name in cross)) for cross in model.crosses)
    by_value = 20.0 + 15.0 * model.dim
    batch = 66.0 * model.batch_size * model.dim
    table = by_value * values + 110.0 * combined - _on_disk(2 * values, model.dim, memory)
    return Demand(92 * _MB + batch + table, 0.0, table)


def _scores_bytes(candidates: int, threads: int | None) -> float:
    """Return the bytes of the scores of all candidates for blocks of queries, and of their ranking."""
    rows, side_by_side = rows_and_threads(RANKED_ROWS, candidates, threads)
    return 2.0 * 4.0 * rows * candidates * side_by_side


def _on_disk(rows: float, dim: int, memory: MemoryConfig) -> float:
    """Return the bytes of rows of so many numbers that a budget of tables has no room for."""
    return 0.0 if memory.tables is None else max(0.0, 4.0 * rows * dim - memory.tables)


def task_ends(task: TaskConfig | None) -> tuple[str, str]:
    """Return the node types of a task's queries and candidates."""
    query_type = getattr(task, "node_type", "")
    return query_type, getattr(task, "candidate_type", query_type)


def tower_sources(model: SageConfig, counts: GraphCounts, node_type: str) -> list[str]:
    """Return the source type of each relation that towers over nodes of a type take in, reverse ones too."""
    if model.relations:
        return [each[0] for each in model.relations]
    arriving = [each[0] for each in counts.edges if each[2] == node_type]
    return arriving + [each[2] for each in counts.edges if each[0] == node_type]


def _edges_between(counts: GraphCounts, source: str, target: str) -> int:
    return sum(count for each, count in counts.edges.items() if (each[0], each[2]) == (source, target))


def _edges(counts: GraphCounts, edge_types: Sequence[EdgeType]) -> int:
    """Return the number of edges of some types, of all where none is named; reverse types are not counted."""
    return sum(counts.edges.get(each, 0) for each in set(edge_types) or set(counts.edges))
