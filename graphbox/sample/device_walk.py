"""Walks on a device: the arguments of :func:`graphbox.sample.random_walk`, checked, as kernels take them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphbox.errors import UnsupportedError, UsageError
from graphbox.sample.adjacency import Direction, EdgeType, directed_steps, edge_type_name
from graphbox.sample.device import DeviceGraph
from graphbox.sample.node_tensor import node_tensor
from graphbox.sample.walk_plan import (
    check_weighted,
    node2vec_parameter,
    probability,
    refuse_several_types,
    several_metapaths,
    step_count,
    weighted_steps,
)

if TYPE_CHECKING:
    import torch

    from graphbox.sample.walk_gpu import DeviceWalk, DeviceWalker

__all__ = [
    "DeviceWalkers",
    "device_walkers",
    "plan_device_walk",
    "refuse_unknown",
    "walk_device_graph",
]

DirectedStep = tuple[EdgeType, Direction, str]


def walk_device_graph(
    graph: DeviceGraph,
    start: object,
    length: int,
    p: float,
    q: float,
    metapath: Sequence[EdgeType] | None,
    key: tuple[int, int, int],
    *,
    metapaths: Sequence[Sequence[EdgeType]] | None,
    metapath_of: object | None,
    weighted: bool | Collection[EdgeType],
    restart_probability: float,
    unknown: Mapping[str, object],
) -> torch.Tensor:
    """Walk on the device of ``graph``: see :func:`graphbox.sample.random_walk`.

    Args:
        graph: where to walk.
        start: as there.
        length: as there.
        p: as there.
        q: as there.
        metapath: as there.
        key: seed, epoch, batch.
        metapaths: as there.
        metapath_of: as there.
        weighted: as there.
        restart_probability: as there.
        unknown: arguments that walks on a device do not know, by name; they must be empty.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: an argument that walks on a device do not know.
    """
    refuse_unknown(unknown)
    plan = device_walkers(
        graph,
        start,
        length,
        p,
        q,
        several_metapaths(metapath, metapaths),
        metapath_of,
        weighted,
        restart_probability,
    )
    with graph.reading():
        return plan.walker.walk(plan.start, plan.path_of, key)


def refuse_unknown(unknown: Mapping[str, object]) -> None:
    """Raise UnsupportedError unless arguments that walks on a device do not know are empty."""
    for name, value in unknown.items():
        if value is not None and value is not False:
            raise UnsupportedError(
                f"walks on a device know no {name}",
                where=name,
                hint="walk along the graph itself instead of its DeviceGraph",
            )


class DeviceWalkers(NamedTuple):
    """Who walks on a device, and how.

    Attributes:
        walker: makes the walks.
        start: int64 [n] on the device.
        path_of: int64 [n], the number of the metapath of each; None where there is one.
        types: of each metapath the node types of the columns of its walks.
    """

    walker: DeviceWalker
    start: torch.Tensor
    path_of: torch.Tensor | None
    types: list[list[str]]


def device_walkers(
    graph: DeviceGraph,
    start: object,
    length: int,
    p: float,
    q: float,
    metapaths: Sequence[Sequence[EdgeType] | None],
    metapath_of: object | None,
    weighted: bool | Collection[EdgeType],
    restart_probability: float,
) -> DeviceWalkers:
    """Return walkers, their arguments checked: see :func:`graphbox.sample.random_walk`.

    Raises:
        UsageError: a wrong argument.
    """
    from graphbox.sample.walk_gpu import DeviceWalker  # Triton, where it is used

    walk, followed = plan_device_walk(graph, length, p, q, metapaths, weighted, restart_probability)
    walkers, path_of = _walkers(graph, start, metapath_of, followed)
    types = [_column_types(path, walk.length) for path in followed]
    return DeviceWalkers(DeviceWalker(walk, graph.device), walkers, path_of, types)


def _column_types(path: Sequence[DirectedStep], length: int) -> list[str]:
    """Return the node type of each column of walks along a metapath."""
    ends = [edge_type[:: 2 if direction == "out" else -2] for edge_type, direction, _ in path]
    return [ends[0][0], *(ends[step % len(path)][1] for step in range(length))]


def plan_device_walk(
    graph: DeviceGraph,
    length: int,
    p: float,
    q: float,
    metapaths: Sequence[Sequence[EdgeType] | None],
    weighted: bool | Collection[EdgeType],
    restart_probability: float = 0.0,
) -> tuple[DeviceWalk, list[list[DirectedStep]]]:
    """Return what walkers do, as kernels take it, and of each metapath its steps.

    Args:
        graph: where to walk; lists and weights that are needed come to the device.
        length: see :func:`graphbox.sample.random_walk`, as for the rest.
        p: node2vec's return parameter.
        q: node2vec's in-out parameter.
        metapaths: edge types of the steps of each; ``[None]``: the only edge type.
        weighted: which edge types are followed in proportion to their weights.
        restart_probability: as there.

    Raises:
        UsageError: a wrong argument.
    """
    from graphbox.sample.walk_gpu import DeviceWalk, DeviceWalkStep

    length = step_count(length)
    p, q = node2vec_parameter(p, "p"), node2vec_parameter(q, "q")
    restart_probability = probability(restart_probability)
    looks_back = (p, q) != (1.0, 1.0)
    if looks_back or restart_probability > 0:
        refuse_several_types(metapaths)
    followed = [_directed_path(graph, path, length) for path in metapaths]
    check_weighted(weighted, [name for path in followed for _, _, name in path])
    by_weight = [weighted_steps(weighted, [name for _, _, name in path]) for path in followed]
    graph.hold(
        [step[:2] for path in followed for step in path],
        [
            step[:2]
            for path, chosen in zip(followed, by_weight, strict=True)
            for step, is_chosen in zip(path, chosen, strict=True)
            if is_chosen
        ],
    )
    walk = DeviceWalk(
        [
            [
                DeviceWalkStep(
                    graph.csc(edge_type) if direction == "in" else graph.csr(edge_type),
                    graph.weights(edge_type, direction) if is_chosen else None,
                )
                for (edge_type, direction, _), is_chosen in zip(path, chosen, strict=True)
            ]
            for path, chosen in zip(followed, by_weight, strict=True)
        ],
        length,
        p,
        q,
        graph.most_parallel(*followed[0][0][:2]) if looks_back else 1,
        restart_probability,
    )
    return walk, followed


def _directed_path(
    graph: DeviceGraph, metapath: Sequence[EdgeType] | None, length: int
) -> list[DirectedStep]:
    if metapath is not None:
        return directed_steps(graph.edge_types, metapath, length)
    if len(graph.edge_types) == 1 and graph.edge_types[0][0] == graph.edge_types[0][2]:
        (edge_type,) = graph.edge_types
        return [(edge_type, "out", edge_type_name(edge_type))]
    raise UsageError(
        f"expected a metapath, since the graph has {len(graph.edge_types)} edge types: "
        + ", ".join(map(edge_type_name, graph.edge_types)),
        where="metapath",
    )


def _walkers(
    graph: DeviceGraph, start: object, metapath_of: Any, followed: Sequence[Sequence[DirectedStep]]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return where each walker starts, and the number of its metapath where there are several."""
    import torch

    counts = []
    for (edge_type, direction, _), *_ in followed:
        counts.append(graph.num_nodes(edge_type[0] if direction == "out" else edge_type[2]))
    nodes = node_tensor(start, max(counts), graph.device, "start")
    if metapath_of is not None:
        path_of = node_tensor(metapath_of, len(followed), graph.device, "metapath_of")
        if len(path_of) != len(nodes):
            raise UsageError(
                f"expected one for each of {len(nodes)} walkers, received {len(path_of)}", where="metapath_of"
            )
    else:
        path_of = torch.arange(len(nodes), device=graph.device) % len(followed)
    for number, count in enumerate(counts):
        if count < max(counts):
            node_tensor(nodes[path_of == number], count, graph.device, "start")
    return nodes, path_of if len(followed) > 1 else None
