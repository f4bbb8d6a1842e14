"""What skip-gram on walks and edges takes of the memory of a GPU, and of host memory, as it is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from graphbox.config import (
    DeepWalkConfig,
    LineConfig,
    MemoryConfig,
    Metapath2VecConfig,
    ModelConfig,
    SageConfig,
)
from graphbox.skip_gram.group_size import GroupSize, batches_of_group, batches_side_by_side, group_bytes
from graphbox.skip_gram.row_bytes import ROOM_FOR_ROWS, RowRoom, rows_without_room
from graphbox.skip_gram.tile_shapes import MOST_VALUES, tile_shape
from graphbox.train.plan.counts import GraphCounts

__all__ = [
    "WalkModel",
    "batches_bytes",
    "group_size",
    "host_bytes",
    "room_for_pinned_rows",
    "row_problem",
    "row_rooms",
    "walks_of",
]

WalkModel: TypeAlias = DeepWalkConfig | Metapath2VecConfig | LineConfig

_NUMBER_BYTES = 8
"""Of a walker's start, its second node or its path; of what negatives, or subsampling, know of a key."""


def walks_of(model: ModelConfig) -> WalkModel | None:
    """Return the section of what a model learns on walks: its own, or what it learns first; None: nothing."""
    if isinstance(model, SageConfig) and model.pretrain is not None:
        return Metapath2VecConfig(kind="metapath2vec", dim=model.dim, **model.pretrain.model_dump())
    return model if isinstance(model, DeepWalkConfig | Metapath2VecConfig | LineConfig) else None


def row_rooms(
    model: WalkModel, counts: GraphCounts, memory: MemoryConfig, device_bytes: int | None = None
) -> list[RowRoom]:
    """Return the room for rows of each training of a model: of each order of LINE, of all others the one.

    Args:
        model: the model's section of the run file.
        counts: how large the graph is.
        memory: budgets of host memory.
        device_bytes: the budget of rows in the GPU's memory; None: there is room for all.
    """
    keys = sum(counts.nodes.values())
    tables = [2 if order == 2 else 1 for order in model.orders] if isinstance(model, LineConfig) else [2]
    shares = [each / sum(tables) for each in tables]
    return [
        RowRoom(keys, each, model.dim // len(tables), _part(device_bytes, share), _part(memory.tables, share))
        for each, share in zip(tables, shares, strict=True)
    ]


def room_for_pinned_rows(model: WalkModel, counts: GraphCounts, memory: MemoryConfig) -> int | None:
    """Return what the budget of tables leaves to pinned rows; None: there is no budget."""
    if memory.tables is None:
        return None
    rooms = row_rooms(model, counts, memory)
    return max(0, memory.tables - sum(each.least_table_bytes for each in rooms))


def row_problem(
    model: WalkModel, counts: GraphCounts, memory: MemoryConfig, device_bytes: int
) -> tuple[str, str] | None:
    """Return why a model cannot be trained on a GPU, and what would help; None: it can.

    Args:
        model: the model's section of the run file.
        counts: how large the graph is.
        memory: budgets of host memory.
        device_bytes: the budget of rows in the GPU's memory.
    """
    rooms = row_rooms(model, counts, memory, device_bytes)
    dim = rooms[0].dim
    if dim > MOST_VALUES:
        return (
            f"expected rows of at most {MOST_VALUES} values on a GPU, received dim {dim}",
            "lower dim, or train on the CPU with `device: cpu`",
        )
    for room in rooms:
        if room.lacking_bytes:
            return rows_without_room(room), ROOM_FOR_ROWS
    return None


def host_bytes(model: WalkModel, counts: GraphCounts, memory: MemoryConfig, device_bytes: int) -> int:
    """Return what pinned rows take of host memory beside the tables, within a budget of tables."""
    found = 0
    for room in row_rooms(model, counts, memory, device_bytes):
        pinned, budget = room.pinned_bytes, room.host_budget_bytes
        if budget is not None:  # the tables have what it leaves
            held = 4 * room.tables * room.num_keys * room.dim
            pinned = min(pinned, max(0, budget - held))
        found += pinned
    return found


def batches_bytes(model: WalkModel, counts: GraphCounts) -> int:
    """Return what walkers, negatives and groups of batches take of the GPU's memory."""
    size, keys = group_size(model, counts), sum(counts.nodes.values())
    walkers, _ = _walkers(model, counts)
    several_paths = isinstance(model, Metapath2VecConfig) and len(model.metapaths) > 1
    known_of_walker = 2 if isinstance(model, LineConfig) or several_paths else 1
    known_of_key = 1 if isinstance(model, LineConfig) or not model.subsample else 2
    numbers = known_of_walker * walkers + known_of_key * keys
    rooms = row_rooms(model, counts, MemoryConfig())
    dim, side = rooms[0].dim, batches_side_by_side(size, lock_free=model.lock_free)
    of_group = group_bytes(size, dim, tile_shape(min(dim, MOST_VALUES)), side)
    return len(rooms) * (_NUMBER_BYTES * numbers + of_group)


def group_size(model: WalkModel, counts: GraphCounts) -> GroupSize:
    """Return how large groups of batches are, where walks start at all nodes that they may start at."""
    walkers, batches = _walkers(model, counts)
    paths = len(model.metapaths) if isinstance(model, Metapath2VecConfig) else 1
    width = 2 if isinstance(model, LineConfig) else model.walk_length + 1
    group, batch_walkers = batches_of_group(walkers, batches), min(walkers, model.batch_size * paths)
    return GroupSize(group, width, model.negatives, min(walkers, group * batch_walkers), batch_walkers)


def _walkers(model: WalkModel, counts: GraphCounts) -> tuple[int, int]:
    """Return how many walkers an epoch has at most, and in how many batches."""
    if isinstance(model, Metapath2VecConfig):
        starts = [counts.nodes.get(path[0][0], 0) * model.walks_per_node for path in model.metapaths]
        return sum(starts), max(math.ceil(each / model.batch_size) for each in starts)
    if isinstance(model, LineConfig):
        walkers = _edges(model, counts.edges)
    else:
        types = {end for each in model.edge_types or counts.edges for end in (each[0], each[2])}
        nodes = sum(counts.nodes.get(name, 0) for name in types) or sum(counts.nodes.values())
        walkers = nodes * model.walks_per_node
    return walkers, math.ceil(walkers / model.batch_size)


def _edges(model: LineConfig, edges: Mapping[tuple[str, str, str], int]) -> int:
    return sum(edges.get(each, 0) for each in model.edge_types or edges)


def _part(budget: int | None, share: float) -> int | None:
    return None if budget is None else int(budget * share)
