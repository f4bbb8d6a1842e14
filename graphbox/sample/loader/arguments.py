"""Arguments of loaders: checks that several of them share, and help for those of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError, did_you_mean
from graphbox.native import Int64Array, integer_array
from graphbox.sample.adjacency import GraphLike, edge_column, edge_type_name, is_tiered, lists_of
from graphbox.sample.device import DeviceGraph


@runtime_checkable
class _WithRemoved(Protocol):
    """Some node indices are those of removed nodes; :class:`graphbox.graph.Graph` says which."""

    def removed_nodes(self, node_type: str) -> Int64Array: ...


class _Column(Protocol):
    """See :class:`graphbox.graph.columns.Column`."""

    @property
    def kind(self) -> str: ...
    @property
    def values(self) -> npt.NDArray[Any]: ...


@runtime_checkable
class _WithTimes(Protocol):
    """Lists its features; :class:`graphbox.graph.Graph` does."""

    def node_columns(self, node_type: str) -> Mapping[str, _Column]: ...


_THREADS = "threads of this process sample ahead: give their number as num_threads"
_ELSEWHERE = {
    "num_workers": _THREADS,
    "persistent_workers": "leave it out: there are no worker processes to keep; " + _THREADS,
    "prefetch_factor": "give prefetch, the batches for each thread that may wait",
    "multiprocessing_context": _THREADS,
    "worker_init_fn": _THREADS,
    "generator": "give seed: an integer that decides all random draws",
    "pin_memory": "give device: batches are then copied there ahead of their use",
    "directed": "leave it out: sampled edges lead towards the seeds",
    "subgraph_type": "leave it out: sampled edges lead towards the seeds",
    "is_sorted": "leave it out: the graph keeps its edges sorted",
    "filter_per_worker": "leave it out: features are fetched in the loader's threads",
    "custom_cls": "give transform to make another object of each batch",
    "transform_sampler_output": "give transform, or output='numpy' for the sample itself",
    "neighbor_sampler": "leave it out, or give it to PyTorch Geometric's NodeLoader",
    "collate_fn": "give transform to make another object of each batch",
    "sampler": "give the seeds in the order you want, with shuffle=False",
    "batch_sampler": "give the seeds in the order you want, with shuffle=False",
    "is_hetero": "leave it out: the graph says it",
}
_MEANS_NOTHING = {"num_workers": 0, "persistent_workers": False, "directed": True, "is_sorted": True}


def refuse_unknown(unknown: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Raise for arguments a loader does not have, with what to give instead.

    Those of PyTorch and PyTorch Geometric whose value asks for what is done anyway (``num_workers=0``) are
    accepted.

    Raises:
        UsageError: there is one.
    """
    for name, value in unknown.items():
        if value is None or (name in _MEANS_NOTHING and value == _MEANS_NOTHING[name]):
            continue
        hint = _ELSEWHERE.get(name) or did_you_mean(name, known) or f"there are: {', '.join(known)}"
        raise UsageError(f"the loader has no such argument, received {value!r}", where=name, hint=hint)


def graph_to_sample(graph: Any) -> Any:
    """Return the graph itself, or the one built from PyTorch Geometric's ``Data`` or ``HeteroData``.

    Raises:
        UsageError: see :meth:`graphbox.graph.Graph.from_pyg`.
    """
    # Both have this method. HeteroData also has the methods of a `GraphLike`, with other meanings.
    if not hasattr(graph, "is_coalesced"):
        return graph
    from graphbox.graph import Graph

    return Graph.from_pyg(graph)


def untiered(graph: object) -> GraphLike:
    """Return what says which nodes and edges there are: the graph in host memory, or memory-mapped.

    Of one in tiers or on a device it is the one it was made of.

    Raises:
        UsageError: it is none.
    """
    whole = graph.graph if is_tiered(graph) or isinstance(graph, DeviceGraph) else graph
    if not isinstance(whole, GraphLike):
        raise UsageError(f"expected a graph, received {type(graph).__name__}", where="graph")
    return whole


def positive_integer(value: object, name: str) -> int:
    """Return an integer of 1 or more.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(f"expected an integer, 1 or more, received {value!r}", where=name)
    return int(value)


def part_numbers(value: object) -> tuple[int, int]:
    """Return the number of a part, from 0, and how many there are.

    Raises:
        UsageError: it is none.
    """
    if (
        not isinstance(value, tuple | list)
        or len(value) != 2
        or not all(isinstance(each, int) and not isinstance(each, bool) for each in value)
        or not 0 <= value[0] < value[1]
    ):
        raise UsageError(
            f"expected two integers, a part's number from 0 and how many there are, received {value!r}",
            where="part",
        )
    return value[0], value[1]


def seconds(value: object, name: str) -> float:
    """Return a finite number of seconds, 0 or more.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise UsageError(f"expected a number of seconds, 0 for no limit, received {value!r}", where=name)
    return float(value)


def nodes_of_type(graph: GraphLike, input_nodes: Any) -> tuple[str, Int64Array]:
    """Return the node type and the node indices that ``input_nodes`` stands for.

    Args:
        graph: has the nodes.
        input_nodes: (node type, indices), indices where there is one type, a node type or None for all its
            nodes; indices can be a mask, with a boolean for each node.

    Raises:
        UsageError: it is none of these.
    """
    node_type: Any = None
    indices: Any = None
    if isinstance(input_nodes, str):
        node_type = input_nodes
    elif isinstance(input_nodes, tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str):
        node_type, indices = input_nodes
    else:
        indices = input_nodes
    known = ", ".join(graph.node_types)
    if node_type is None:
        if len(graph.node_types) != 1:
            raise UsageError(f"expected (node type, node indices) with one of: {known}", where="input_nodes")
        node_type = graph.node_types[0]
    if node_type not in graph.node_types:
        raise UsageError(f"unknown node type {node_type!r}; the graph has: {known}", where="input_nodes")
    if indices is None:
        return node_type, present_nodes(graph, node_type)
    array = np.asarray(indices)
    if array.dtype == np.bool_:
        if array.shape != (graph.num_nodes(node_type),):
            raise UsageError(
                f"a mask must have one entry for each of the {graph.num_nodes(node_type)} nodes, received "
                f"{array.shape}",
                where="input_nodes",
            )
        return node_type, np.flatnonzero(array)
    return node_type, integer_array(indices, "input_nodes")


def present_nodes(graph: GraphLike, node_type: str) -> Int64Array:
    """Return the node indices of a type, ascending; not those of nodes that were removed."""
    nodes = np.arange(graph.num_nodes(node_type), dtype=np.int64)
    return np.delete(nodes, graph.removed_nodes(node_type)) if isinstance(graph, _WithRemoved) else nodes


def times_of(
    times: Any, time_attr: str | None, node_times: NodeTimes | None, seeds: int, name: str
) -> Int64Array | None:
    """Return the times of seeds, None where none are given.

    Args:
        times: integers [seeds], or None.
        time_attr: ``timestamp`` with times, a feature of nodes, or None without times.
        node_times: those that ``time_attr`` names, see :func:`node_times_of`.
        seeds: how many seeds there are.
        name: of the argument with the times.

    Raises:
        UsageError: ``time_attr`` does not go with the times, or another number of times.
    """
    if times is None and (time_attr is None or node_times is not None):
        return None
    if times is None or (time_attr != "timestamp" and node_times is None):
        raise UsageError(
            f"expected both {name} and time_attr='timestamp', or an integer feature of nodes as time_attr; "
            f"received time_attr={time_attr!r} and {'no' if times is None else 'an'} {name}",
            where="time_attr",
        )
    array = integer_array(times, name)
    if len(array) != seeds:
        raise UsageError(f"expected a time for each of {seeds} seeds, received {len(array)}", where=name)
    return array


class NodeTimes(NamedTuple):
    """Times that belong to nodes.

    Attributes:
        name: of the feature that has them.
        by_type: int64, by node type, of those that have it.
    """

    name: str
    by_type: Mapping[str, Int64Array]


def node_times_of(graph: GraphLike, time_attr: str | None) -> NodeTimes | None:
    """Return the times of nodes that ``time_attr`` names; None where it names none, or those of edges.

    Raises:
        UsageError: the feature is not one of integers, or edges have times of that name, too.
    """
    if time_attr is None or not isinstance(graph, _WithTimes):
        return None
    found = {}
    for node_type in graph.node_types:
        column = graph.node_columns(node_type).get(time_attr)
        if column is None:
            continue
        if column.kind != "integer":
            raise UsageError(
                f"expected an integer feature, `{time_attr}` of `{node_type}` is of kind {column.kind}",
                where="time_attr",
                hint="import the column with kind integer",
            )
        found[node_type] = integer_array(column.values, "time_attr")
    if not found:
        return None
    if time_attr == "timestamp":
        for edge_type in graph.edge_types:
            name = edge_type_name(edge_type)
            if edge_column(lists_of(graph, edge_type, "in"), "timestamp", name) is not None:
                raise UsageError(
                    f"both nodes ({', '.join(found)}) and edges ({name}) have times called `timestamp`",
                    where="time_attr",
                    hint="give the feature of nodes another name",
                )
    return NodeTimes(time_attr, found)
