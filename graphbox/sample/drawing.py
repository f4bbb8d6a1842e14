"""Times up to which neighbours are sampled: checked, and by tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array

TemporalStrategy: TypeAlias = Literal["uniform", "last"]


def of_type(argument: str, node_type: str) -> str:
    """Return what messages call the part of an argument for a node type; the only one has no name."""
    return f"{argument}[{node_type!r}]" if node_type else argument


def check_temporal(
    names: Sequence[str],
    weighted: Sequence[bool],
    strategy: TemporalStrategy,
    *,
    replace: bool,
    by_nodes: bool = False,
) -> None:
    """Raise where neighbours up to a time cannot be sampled as asked.

    Args:
        names: of all edge types that are sampled.
        weighted: of each whose edges have times, whether it is drawn in proportion to weights.
        strategy: to draw, or to take the last.
        replace: whether to draw with replacement.
        by_nodes: times are those of nodes.

    Raises:
        UsageError: they cannot.
    """
    if strategy == "last" and replace:
        raise UsageError("the last neighbours cannot be drawn with replacement", where="replace")
    if names and not weighted and by_nodes:
        raise UsageError(
            f"no sampled edges lead from nodes with times: {', '.join(names)}",
            where="node_time",
            hint="give times of a source type",
        )
    if names and not weighted:
        raise UsageError(
            f"no sampled edges have a timestamp: {', '.join(names)}",
            where="input_time",
            hint="import them with a timestamp column",
        )
    if strategy == "last" and any(weighted):
        raise UsageError(
            "the last neighbours are not drawn, so their weights cannot count",
            where="weight_attr",
            hint="temporal_strategy='uniform' draws by weight among the edges that are not later",
        )


def times_of_nodes(
    node_time: Mapping[str, Any] | None, num_nodes: Mapping[str, int]
) -> dict[str, Int64Array] | None:
    """Return the time of each node by type, for the types whose nodes have times; None where none are given.

    Args:
        node_time: by node type.
        num_nodes: of all types, -1: unknown.

    Raises:
        UsageError: an unknown type, another number of times than nodes, or no integers.
    """
    if node_time is None:
        return None
    times = {}
    for node_type, values in node_time.items():
        where = of_type("node_time", node_type)
        if node_type not in num_nodes:
            raise UsageError(f"unknown node type; the graph has: {', '.join(num_nodes)}", where=where)
        times[node_type] = integer_array(values, where)
        if num_nodes[node_type] >= 0 and len(times[node_type]) != num_nodes[node_type]:
            raise UsageError(
                f"expected a time for each of {num_nodes[node_type]} nodes, received {len(times[node_type])}",
                where=where,
            )
    return times


def times_of_seeds(node_time: Mapping[str, Int64Array], seeds: Mapping[str, Any]) -> dict[str, Int64Array]:
    """Return the times that seeds have as nodes.

    Raises:
        UsageError: seeds of a type without times, or that are no nodes.
    """
    times = {}
    for node_type, given in seeds.items():
        nodes = integer_array(given, "seeds")
        if not len(nodes):
            continue
        if node_type not in node_time:
            raise UsageError(
                f"expected times of the seeds, since nodes of type `{node_type}` have none",
                where="input_time",
                hint="give a time for each seed",
            )
        own = node_time[node_type]
        wrong = (nodes < 0) | (nodes >= len(own))
        if wrong.any():
            position = int(np.argmax(wrong))
            raise UsageError(
                f"seeds must be node indices in [0, {len(own)}), received {nodes[position]} at position "
                f"{position}",
                where="seeds",
            )
        times[node_type] = own[nodes]
    return times


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
        time_array(input_time[name], seeds[name], of_type("input_time", name))
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
