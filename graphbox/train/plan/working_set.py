"""What computing takes of the memory of a GPU, beside the graph and the tables that may be kept there."""

from __future__ import annotations

import math
from math import prod

from graphbox.config import (
    DeepWalkConfig,
    GraphNetworkConfig,
    LightGCNConfig,
    LineConfig,
    MatrixFactorizationConfig,
    Metapath2VecConfig,
    ModelConfig,
    RecommendTaskConfig,
    RunConfig,
    SageConfig,
    TemporalConfig,
)
from graphbox.config.models.clicks import ClickModelSection
from graphbox.config.models.knowledge_graph import KnowledgeGraphSection
from graphbox.graph.tiered_graph import DEFAULT_PASS_BYTES
from graphbox.metrics.blocks import rows_and_threads
from graphbox.metrics.ranking import DEVICE_ROWS
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.demand import MESSAGE_BYTES, task_ends, tower_sources
from graphbox.train.plan.walks import batches_bytes, walks_of

__all__ = ["working_bytes"]

_CONTEXT_BYTES = 1 << 30
"""What CUDA, its libraries and the caches of PyTorch's allocator take, about."""
_TRANSPORT_BYTES = 1 << 30
"""What NCCL takes of each GPU that talks to others, about."""
_COPIES = 6.0
"""How often a vector of a batch is there: itself, what layers make of it, gradients, batches ahead."""
_INFERENCE_NODES = 8192
_BATCHES_THERE = 3.0
"""The features of a batch, and of those that loaders have made ahead."""
_DROPPED_COPIES = 2.0
"""Of features some of which are left out: what is left, and which."""
_EDGE_NUMBERS = 8.0
"""Ends, position and place of an edge while it is sampled."""
_RANKED_NUMBERS = 7.0
"""A score of a block that is ranked, its bits, what it is sorted by, and what sorting takes."""


def working_bytes(model: ModelConfig, counts: GraphCounts, config: RunConfig) -> int | None:
    """Return what a training takes of the GPU's memory whatever is kept there; None of a kind not known.

    Args:
        model: the model's section of the run file; of several processes with their part of a batch.
        counts: how large the graph is.
        config: the run file.
    """
    task = None if model.task is None else config.tasks[model.task]
    asked, answer = task_ends(task)
    queries, candidates = counts.nodes.get(asked, 0), counts.nodes.get(answer, 0)
    edges = sum(counts.edges.values())
    match model:
        case GraphNetworkConfig():
            numbers = _network(model, counts) + _passes_ahead(model, config) / 4.0
            if isinstance(task, RecommendTaskConfig):
                numbers = max(numbers, 2.0 * model.dim * (queries + candidates) + _ranking(candidates))
        case LightGCNConfig():
            kept = 10.0 * edges
            of_batch = 12.0 * model.dim * (queries + candidates)
            numbers = kept + max(of_batch, 6.0 * model.dim * (queries + candidates) + _ranking(candidates))
        case MatrixFactorizationConfig():
            drawn = model.batch_size * (1 + edges / max(queries, 1)) + model.candidates
            of_batch = _COPIES * model.dim * drawn + 4.0 * model.batch_size * model.candidates
            numbers = max(of_batch, 3.0 * model.dim * (queries + candidates) + _ranking(candidates))
        case SageConfig():
            walks = walks_of(model)
            of_walks = 0 if walks is None else batches_bytes(walks, counts)
            numbers = max(_towers(model, counts, asked), of_walks / 4.0)  # one after the other
        case KnowledgeGraphSection():
            drawn = (
                sum(counts.nodes.values()) if model.loss == "softmax" else model.candidates + model.batch_size
            )
            of_batch = 5.0 * model.batch_size * drawn + _COPIES * model.dim * (drawn + model.batch_size)
            of_ranks = model.dim * sum(counts.nodes.values()) + _ranking(
                max(counts.nodes.values(), default=0)
            )
            numbers = max(of_batch, of_ranks)
        case TemporalConfig():
            numbers = 2.2 * model.batch_size * (1 + model.negatives) * model.recent * model.dim
        case ClickModelSection():
            numbers = 16.5 * model.batch_size * model.dim * max(1, sum(map(len, counts.values.values())))
        case DeepWalkConfig() | Metapath2VecConfig() | LineConfig():
            return _CONTEXT_BYTES + batches_bytes(model, counts)
        case _:
            return None
    fixed = _CONTEXT_BYTES + (_TRANSPORT_BYTES if config.processes > 1 else 0)
    return round(fixed + 4.0 * numbers)


def _passes_ahead(model: GraphNetworkConfig, config: RunConfig) -> int:
    """Return the bytes of what is sampled ahead where the graph is read in tiers."""
    memory = config.memory
    if model.num_neighbors is None or (memory.topology is None and memory.features is None):
        return 0
    return DEFAULT_PASS_BYTES if memory.passes is None else memory.passes


def _network(model: GraphNetworkConfig, counts: GraphCounts) -> float:
    """Return the numbers that layers keep: of all nodes and edges, or of those of a batch."""
    relations = model.relations or tuple(counts.edges)
    types = {end for each in relations for end in (each[0], each[2])}
    nodes = sum(counts.nodes.get(name, 0) for name in types)
    edges = sum(counts.edges.get(each, 0) for each in relations) * (2 if model.reverse else 1)
    stored = sum(counts.feature_bytes.get(name, 0) for name in types) / 4.0
    dropped = _DROPPED_COPIES * stored if model.input_dropout else 0.0
    messages = (MESSAGE_BYTES.get(model.layer, max(MESSAGE_BYTES.values())) / 4.0 + 1.0) * model.dim
    if model.num_neighbors is None:
        layers = (15.0 + 7.0 * model.layers) * model.dim * nodes + (6.0 + messages * model.layers) * edges
        return layers + stored + dropped
    drawn = model.batch_size * sum(prod(model.num_neighbors[:hop]) for hop in range(model.layers + 1))
    met = nodes * -math.expm1(-drawn / max(nodes, 1))
    mean_degree = edges / max(nodes, 1)
    of_block = _INFERENCE_NODES * mean_degree * (messages + 6.0)  # all neighbours of a block of nodes
    features = (_BATCHES_THERE * stored + dropped) * met / max(nodes, 1)
    return max(17.5 * model.dim * met + messages * model.layers * min(drawn, edges) + features, of_block)


def _towers(model: SageConfig, counts: GraphCounts, node_type: str) -> float:
    """Return the numbers of a batch or, where all nodes are encoded, of these; and of an average."""
    sources = tower_sources(model, counts, node_type)
    nodes = sum(counts.nodes.get(name, 0) for name in {node_type, *sources})
    candidates = counts.nodes.get(node_type, 0)
    seeds = 2.0 * (model.batch_size + model.candidates)  # positives of queries are candidates, too
    edges = seeds * len(sources) * model.num_neighbors
    of_batch = (
        _COPIES * model.dim * (seeds + edges)
        + _EDGE_NUMBERS * edges
        + 4.0 * model.batch_size * model.candidates
    )
    of_block = _INFERENCE_NODES * len(sources) * (model.num_neighbors * _EDGE_NUMBERS + 2.0 * model.dim)
    of_all = 2.0 * model.dim * (nodes + candidates)
    kept = model.dim * nodes * (1.0 + (model.pretrain is not None))
    return kept + max(of_batch, of_all + max(of_block, _ranking(candidates)))


def _ranking(candidates: int) -> float:
    """Return the numbers that ranking a block of queries takes."""
    rows, _ = rows_and_threads(DEVICE_ROWS, candidates, 1)
    return _RANKED_NUMBERS * rows * candidates
