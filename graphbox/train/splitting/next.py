"""Orders the events of a task of kind `next` in time, and holds the last of them out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import NextTaskConfig
from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.train.splitting.edges import ends_of, timestamps, together, why_empty
from graphbox.train.splitting.groups import node_groups
from graphbox.train.splitting.parts import TEST, TRAIN, VALIDATION, digest_of, latest_parts, unit_hash
from graphbox.train.tasks import NextSplit

_ORDER_SEED = 0
"""Of the hash that orders events of one time: their order does not change with the seed of a run."""

_LEAST_EVENTS = 3
"""Events of a node of which the last is held out for test, the one before it for validation."""


@dataclass(frozen=True, eq=False)
class _Events:
    """The events of a task, ordered by node, then by time.

    Attributes:
        ends: int64 [e, 2], node and item.
        time: int64 [e].
        edges: int64 [e, 2], the number of the relation and the edge id.
    """

    ends: NDArray[np.int64]
    time: NDArray[np.int64]
    edges: NDArray[np.int64]


def split_next(
    graph: Graph,
    task: NextTaskConfig,
    seed: int,
    folder: Path | None = None,  # noqa: ARG001 - the interface of splits
) -> NextSplit:
    """Split the events of the task; see :func:`graphbox.train.make_split`.

    Raises:
        UsageError: a relation has no timestamps.
        DataError: a fold stays without an event to predict.
    """
    events = _ordered(graph, task)
    nodes = graph.num_nodes(task.node_type)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(events.ends[:, 0], minlength=nodes))])
    by_time = task.split.kind == "time"
    fold = latest_parts(events.time, task) if by_time else _last_of_each(offsets)
    place = np.arange(len(fold)) - offsets[events.ends[:, 0]]
    is_tested = place > 0
    if not task.repeat:
        is_tested &= ~_is_repeated(events.ends)
    validation, test = (np.flatnonzero(is_tested & (fold == part)) for part in (VALIDATION, TEST))
    for name, found in (
        ("train", np.flatnonzero((fold == TRAIN) & (place > 0))),
        ("validation", validation),
        ("test", test),
    ):
        if not len(found):
            raise DataError(
                f"expected events of {', '.join(task.relations)} with a history in each fold, received none "
                f"in {name}",
                where=f"{task.node_type} to {task.candidate_type}",
                hint=why_empty(task.split.kind),
            )
    items = np.ascontiguousarray(events.ends[:, 1])
    return NextSplit(
        node_type=task.node_type,
        target_type=task.candidate_type,
        relations=task.relations,
        offsets=offsets,
        items=items,
        fold=fold,
        edges=events.edges,
        validation=validation,
        test=test,
        untested=int(np.count_nonzero(fold != TRAIN)) - len(validation) - len(test),
        digest=digest_of(task.model_dump_json(), seed, offsets, items, fold),
    )


def _ordered(graph: Graph, task: NextTaskConfig) -> _Events:
    """Return the events by node, then by time, those of one time by the hash of their ids."""
    ends, times, edges = [], [], []
    for number, relation in enumerate(task.relations):
        edge_type = (task.node_type, relation, task.candidate_type)
        csc = graph.csc(edge_type)
        ends.append(ends_of(csc))
        times.append(timestamps(csc, edge_type, task.split.kind))
        ids = csc.ids_at(np.arange(csc.num_edges))
        edges.append(np.stack([np.full(len(ids), number), ids], axis=1))
    events = _Events(together(ends), np.asarray(together(times)), together(edges))
    order = np.lexsort((_tie_break(graph, task, events), events.time, events.ends[:, 0]))
    return _Events(events.ends[order], events.time[order], events.edges[order])


def _tie_break(graph: Graph, task: NextTaskConfig, events: _Events) -> NDArray[np.float64]:
    """Return the number by which events of one node and time are ordered; 0 of others: float64 [e]."""
    order = np.lexsort((events.time, events.ends[:, 0]))
    node, time = events.ends[order, 0], events.time[order]
    as_before = (node[1:] == node[:-1]) & (time[1:] == time[:-1])
    tied = np.zeros(len(order), bool)
    tied[order[1:]] |= as_before
    tied[order[:-1]] |= as_before
    rows = np.flatnonzero(tied)
    number = np.zeros(len(order))
    sides = [
        node_groups(graph, name, None).texts(events.ends[rows, side])
        for side, name in enumerate((task.node_type, task.candidate_type))
    ]
    number[rows] = unit_hash(_ORDER_SEED, ("\0".join(both) for both in zip(*sides, strict=True)))
    return number


def _last_of_each(offsets: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return test for the last event of each node, validation for the one before it; see the constants."""
    fold = np.full(int(offsets[-1]), TRAIN, np.int8)
    ends = offsets[1:][np.diff(offsets) >= _LEAST_EVENTS]
    fold[ends - 2] = VALIDATION
    fold[ends - 1] = TEST
    return fold


def _is_repeated(ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which events have the item of an earlier event of their node: bool [e]."""
    order = np.lexsort((ends[:, 1], ends[:, 0]))  # stable: of equal pairs the first event comes first
    repeated = np.zeros(len(ends), bool)
    repeated[order[1:]] = (ends[order[1:]] == ends[order[:-1]]).all(axis=1)
    return repeated
