"""What decides which edges of an edge type are sampled: weights and times, checked and made into tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array
from graphbox.sample.adjacency import Adjacency, EdgeType, edge_column, edge_type_name
from graphbox.sample.derived import times_of, weight_sums_of, weights_of

__all__ = [
    "TemporalStrategy",
    "alias_tables",
    "check_temporal",
    "sample_until",
    "set_times",
    "time_array",
    "times_of_trees",
    "weighted_types",
]

TemporalStrategy: TypeAlias = Literal["uniform", "last"]


def weighted_types(
    weighted: bool | Collection[EdgeType], sampled: Collection[EdgeType]
) -> Collection[EdgeType]:
    """Return the edge types to draw by weight.

    Args:
        weighted: all or none, or which.
        sampled: the edge types that are sampled.

    Raises:
        UsageError: one that is not sampled.
    """
    if isinstance(weighted, bool):
        return sampled if weighted else ()
    for edge_type in weighted:
        if edge_type not in sampled:
            raise UsageError(
                f"expected edge types that are sampled: {', '.join(map(edge_type_name, sampled))}; received "
                f"{edge_type!r}",
                where="weighted",
            )
    return weighted


def alias_tables(
    adjacency: Adjacency, name: str, weighted: bool, is_temporal: bool, threads: int | None
) -> tuple[_core.AliasTables | None, _core.AliasTables | None]:
    """Return what an edge type is drawn by weight with, unless that depends on the time."""
    if not weighted or (is_temporal and edge_column(adjacency, "timestamp", name) is not None):
        return None, None
    return weights_of(adjacency, name, threads)


def sample_until(
    relations: Sequence[tuple[_core.Relation, Adjacency, str, bool]],
    strategy: TemporalStrategy,
    replace: bool,
    threads: int | None,
) -> None:
    """Make the relations whose edges have timestamps sample only those not later than their tree's time.

    Args:
        relations: with their adjacency, its name, and whether to draw in proportion to weights.
        strategy: to draw, or to take the last.
        replace: whether to draw with replacement.
        threads: for the tables.
    """
    with_times = [
        (relation, adjacency, name, weighted)
        for relation, adjacency, name, weighted in relations
        if edge_column(adjacency, "timestamp", name) is not None
    ]
    check_temporal(
        [name for _, _, name, _ in relations],
        [weighted for *_, weighted in with_times],
        strategy,
        replace=replace,
    )
    for relation, adjacency, name, weighted in with_times:
        set_times(relation, adjacency, name, weighted, threads)


def set_times(
    relation: _core.Relation, adjacency: Adjacency, name: str, weighted: bool, threads: int | None
) -> None:
    """Make a relation whose edges have timestamps sample only those not later than their tree's time."""
    sums = weight_sums_of(adjacency, name, threads) if weighted else (None, None)
    relation.sample_until(*times_of(adjacency, name, threads), *sums)


def check_temporal(
    names: Sequence[str], weighted: Sequence[bool], strategy: TemporalStrategy, *, replace: bool
) -> None:
    """Raise where neighbours up to a time cannot be sampled as asked.

    Args:
        names: of all edge types that are sampled.
        weighted: of each whose edges have timestamps, whether it is drawn in proportion to weights.
        strategy: to draw, or to take the last.
        replace: whether to draw with replacement.

    Raises:
        UsageError: they cannot.
    """
    if strategy not in ("uniform", "last"):
        raise UsageError(f"expected uniform or last, received {strategy!r}", where="temporal_strategy")
    if strategy == "last" and replace:
        raise UsageError("the last neighbours cannot be drawn with replacement", where="replace")
    if names and not weighted:
        raise UsageError(
            f"no sampled edges have a timestamp: {', '.join(names)}",
            where="input_time",
            hint="import them with a timestamp column",
        )
    if strategy == "last" and any(weighted):
        raise UsageError(
            "the last neighbours are not drawn, so their weights cannot count",
            where="weighted",
            hint="temporal_strategy='uniform' draws by weight among the edges that are not later",
        )


def times_of_trees(
    input_time: Mapping[str, Any], seeds: Mapping[str, Any], node_types: Sequence[str]
) -> Int64Array:
    """Return the time of each tree of a disjoint sample: those of its seeds, type after type.

    Raises:
        UsageError: other node types than those with seeds, or another number of times than seeds.
    """
    if set(input_time) != {name for name, nodes in seeds.items() if len(nodes)}:
        raise UsageError(
            f"expected times for the node types with seeds: {', '.join(seeds)}; received "
            f"{', '.join(input_time)}",
            where="input_time",
        )
    in_order = [
        time_array(input_time[name], seeds[name], f"input_time[{name!r}]")
        for name in node_types
        if name in input_time
    ]
    return np.concatenate([np.zeros(0, np.int64), *in_order])


def time_array(times: Any, seeds: Any, where: str) -> Int64Array:
    """Return the times of seeds.

    Raises:
        UsageError: another number of times, or no integers.
    """
    array = integer_array(times, where)
    if len(array) != len(seeds):
        raise UsageError(
            f"expected a time for each of {len(seeds)} seeds, received {len(array)}", where=where
        )
    return array
