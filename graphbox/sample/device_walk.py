"""Walks on a device: the arguments of :func:`graphbox.sample.random_walk`, checked, as kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphbox.errors import UsageError
from graphbox.sample.adjacency import Direction, EdgeType, directed_steps, edge_type_name
from graphbox.sample.device import DeviceGraph
from graphbox.sample.node_tensor import node_tensor
from graphbox.sample.walk_plan import WalkOptions, check_weighted, step_count, weighted_steps

if TYPE_CHECKING:
    import torch

    from graphbox.sample.walk_gpu import DeviceWalk

DirectedStep = tuple[EdgeType, Direction, str]


_NOT_ON_A_DEVICE = ("second", "temporal", "start_time", "time_window", "strictly_later", "temporal_strategy")


def walk_device_graph(
    graph: DeviceGraph, start: object, length: int, options: WalkOptions, key: tuple[int, int, int]
) -> torch.Tensor:
    """Walk on the device of ``graph``: see :func:`graphbox.sample.random_walk`.

    Args:
        graph: where to walk.
        start: as there.
        length: as there.
        options: as there.
        key: seed, epoch, batch.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: an option that walks on a device do not know.
    """
    from graphbox.sample.walk_gpu import DeviceWalker  # Triton, where it is used

    options.refuse(
        _NOT_ON_A_DEVICE,
        "walks on a device know no {name}",
        "walk along the graph itself instead of its DeviceGraph",
    )
    walk, followed = plan_device_walk(graph, length, options)
    nodes, path_of = _walkers(graph, start, options.metapath_of, followed)
    with graph.reading():
        return DeviceWalker(walk, graph.device).walk(nodes, path_of, key)


def plan_device_walk(
    graph: DeviceGraph, length: int, options: WalkOptions
) -> tuple[DeviceWalk, list[list[DirectedStep]]]:
    """Return what walkers do, as kernels take it, and of each metapath its steps.

    Args:
        graph: where to walk; lists and weights that are needed come to the device.
        length: see :func:`graphbox.sample.random_walk`.
        options: see there.

    Raises:
        UsageError: a wrong argument.
    """
    from graphbox.sample.walk_gpu import DeviceWalk, DeviceWalkStep

    length = step_count(length)
    p, q, restart_probability = options.checked_bias()
    looks_back = (p, q) != (1.0, 1.0)
    followed = [_directed_path(graph, path, length) for path in options.paths]
    check_weighted(options.weighted, [name for path in followed for _, _, name in path])
    by_weight = [weighted_steps(options.weighted, [name for _, _, name in path]) for path in followed]
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
