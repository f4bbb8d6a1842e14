"""Random walks along out-edges: uniform, looking back a step (node2vec), with restarts, along metapaths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import (
    Int64Array,
    batch_number,
    epoch_number,
    integer_array,
    like,
    seed_number,
    thread_count,
)
from graphbox.sample.adjacency import (
    Adjacency,
    Arrays,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_type_name,
    lists_of,
    steps_of_metapath,
)
from graphbox.sample.list_order import most_parallel_edges

if TYPE_CHECKING:
    import torch

__all__ = ["WalkPlan", "metapath_walk", "plan_walk", "random_walk"]

_LONGEST_WALK = 2**31 - 1


@overload
def random_walk(
    graph: GraphLike | Adjacency,
    start: torch.Tensor,
    length: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    *,
    restart_probability: float = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> torch.Tensor: ...


@overload
def random_walk(
    graph: GraphLike | Adjacency,
    start: npt.ArrayLike,
    length: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    *,
    restart_probability: float = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> Int64Array: ...


def random_walk(
    graph: GraphLike | Adjacency,
    start: Any,
    length: int,
    p: float = 1.0,
    q: float = 1.0,
    metapath: Sequence[EdgeType] | None = None,
    *,
    restart_probability: float = 0.0,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
) -> Any:
    """Walk ``length`` steps from each start, every out-edge equally likely unless ``p`` or ``q`` is given.

    With ``p`` or ``q`` other than 1 a walker that came from ``t`` to ``v`` takes an edge from ``v`` to
    ``x`` with a probability in proportion to ``1 / p`` where ``x`` is ``t``, else to 1 where there is an
    edge from ``t`` to ``x``, else to ``1 / q`` (node2vec: Grover and Leskovec, KDD 2016). Its first step
    is uniform. Each of parallel edges counts by itself: ``k`` edges from ``v`` to ``x`` make ``x`` ``k``
    times as likely as one. A self-loop is an edge like others.

    With ``restart_probability`` each step leads back to the walker's start with that probability,
    whatever node it is at, as does every step from a dead end; the step after it looks back at nothing.
    With ``p`` and ``q`` 1, where long walks are is then the personalised PageRank of their start with
    damping ``1 - restart_probability``.

    What a walker draws depends on ``seed``, ``epoch``, ``batch``, its place in ``start`` and the step
    alone, so walkers that meet part again, and the number of threads does not matter.

    Args:
        graph: a graph with one edge type, or a CSR; with ``metapath`` a graph.
        start: integers [n], node indices.
        length: number of steps, 0 or more.
        p: node2vec's return parameter, 1e-30 to 1e30: the higher, the rarer a walker goes straight back.
        q: node2vec's in-out parameter, 1e-30 to 1e30: the higher, the closer walkers stay to where they were.
            With ``p`` or ``q`` other than 1 the neighbours of each node must ascend, as those of a graph do;
            this is checked once for each CSR.
        metapath: edge types of the steps, from the first again when the walk is longer. ``rev_`` before a
            relation goes against its edges: ``(("package", "depends", "package"), ("package", "rev_depends",
            "package"))``. With ``p``, ``q`` or ``restart_probability`` it must be one edge type between nodes
            of one type.
        restart_probability: at least 0 and below 1, rounded to a multiple of 2^-32.
        seed: of the random draws.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        threads: None: see :func:`graphbox.native.thread_count`.

    Returns:
        int64 [n, length + 1], node indices, the start first, -1 after a dead end; a torch tensor when
        ``start`` is one.

    Raises:
        UsageError: a start that is no node, steps that do not meet, or another wrong argument.
        DataError: the adjacency is damaged.
    """
    plan = plan_walk(graph, length, metapath, p, q, restart_probability, threads)
    return _walk(plan, start, seed, epoch, batch)


class WalkPlan(NamedTuple):
    """What walkers do, as the native core takes it.

    Attributes:
        steps: indptr, indices, name for messages and overlay of each step.
        length: number of steps.
        p_q_restart: node2vec's ``p`` and ``q``, the restart probability.
        most_parallel: most edges from one node to another; 1 where nothing depends on it.
        threads: how many to use.
    """

    steps: list[tuple[Int64Array, npt.NDArray[Any], str, _core.Overlay | None]]
    length: int
    p_q_restart: tuple[float, float, float]
    most_parallel: int
    threads: int


def plan_walk(
    graph: GraphLike | Adjacency,
    length: int,
    metapath: Sequence[EdgeType] | None,
    p: float,
    q: float,
    restart_probability: float,
    threads: int | None,
) -> WalkPlan:
    """Check the arguments of :func:`random_walk` and find what the walkers follow.

    Raises:
        UsageError: a wrong argument.
        DataError: the adjacency is damaged.
    """
    length = _step_count(length)
    p, q = _parameter(p, "p"), _parameter(q, "q")
    restart_probability = _probability(restart_probability)
    if (p, q, restart_probability) != (1.0, 1.0, 0.0):
        _refuse_several_types(metapath)
    steps = _steps(graph, metapath, length)
    plan = _plan(steps, length, threads)
    most = 1
    if (p, q) != (1.0, 1.0):
        indptr, indices, name, overlay = plan.steps[0]
        most = most_parallel_edges(steps[0][0], Arrays(indptr, indices, overlay), name, plan.threads)
    return plan._replace(p_q_restart=(p, q, restart_probability), most_parallel=most)


def _steps(
    graph: GraphLike | Adjacency, metapath: Sequence[EdgeType] | None, length: int
) -> list[tuple[Adjacency, str]]:
    if not isinstance(graph, GraphLike):
        if metapath is not None:
            raise UsageError(
                "a metapath needs a graph", where="metapath", hint="metapath_walk takes a CSR for each step"
            )
        return [(graph, "csr")]
    if metapath is not None:
        return steps_of_metapath(graph, metapath, length)
    if len(graph.edge_types) == 1 and graph.edge_types[0][0] == graph.edge_types[0][2]:
        (edge_type,) = graph.edge_types
        return [(lists_of(graph, edge_type, "out"), edge_type_name(edge_type))]
    raise UsageError(
        f"expected a metapath, since the graph has {len(graph.edge_types)} edge types: "
        + ", ".join(map(edge_type_name, graph.edge_types)),
        where="metapath",
    )


def _refuse_several_types(metapath: Sequence[EdgeType] | None) -> None:
    if metapath is None or not len(metapath):
        return
    first = tuple(metapath[0])
    if len(metapath) > 1 or first[0] != first[-1]:
        raise UsageError(
            "p, q and restart_probability need one edge type between nodes of one type, received "
            + ", ".join(f"`{' '.join(step)}`" for step in metapath),
            where="metapath",
            hint="leave them out along a metapath: each of its columns has nodes of one type, and whether a"
            " node is near the one before is known within one edge type alone",
        )


def _parameter(value: float, name: str) -> float:
    if not _is_number(value) or not 1e-30 <= float(value) <= 1e30:
        raise UsageError(f"expected a number from 1e-30 to 1e30, received {value!r}", where=name)
    return float(value)


def _probability(value: float) -> float:
    if not _is_number(value) or not 0 <= float(value) < 1:
        raise UsageError(
            f"expected a probability, at least 0 and below 1, received {value!r}", where="restart_probability"
        )
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _step_count(length: int) -> int:
    whole = isinstance(length, int | np.integer) and not isinstance(length, bool)
    if not whole or not 0 <= length <= _LONGEST_WALK:
        raise UsageError(f"expected a number of steps, 0 or more, received {length!r}", where="length")
    return int(length)


def _plan(steps: Sequence[tuple[Adjacency, str]], length: int, threads: int | None) -> WalkPlan:
    if not steps:
        raise UsageError("expected at least one CSR, received none", where="csrs")
    arrays = [(as_arrays(adjacency, name), name) for adjacency, name in steps]
    return WalkPlan(
        [(a.indptr, a.indices, name, a.overlay) for a, name in arrays],
        length,
        (1.0, 1.0, 0.0),
        1,
        thread_count(threads),
    )


@overload
def metapath_walk(
    csrs: Sequence[Adjacency],
    start: torch.Tensor,
    length: int,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> torch.Tensor: ...


@overload
def metapath_walk(
    csrs: Sequence[Adjacency],
    start: npt.ArrayLike,
    length: int,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> Int64Array: ...


def metapath_walk(
    csrs: Sequence[Adjacency],
    start: Any,
    length: int,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
) -> Any:
    """Walk along one CSR for each step, from the first again when the walk is longer.

    See :func:`random_walk`.

    A CSC in place of a CSR goes against the edges.

    Returns:
        int64 [n, length + 1], indices of nodes of the type that each step reaches.
    """
    steps = [(csr, f"csrs[{number}]") for number, csr in enumerate(csrs)]
    return _walk(_plan(steps, _step_count(length), threads), start, seed, epoch, batch)


def _walk(plan: WalkPlan, start: Any, seed: int, epoch: int, batch: int) -> Any:
    walks = _core.random_walks(
        plan.steps,
        integer_array(start, "start"),
        plan.length,
        plan.p_q_restart,
        plan.most_parallel,
        seed_number(seed),
        epoch_number(epoch),
        batch_number(batch),
        plan.threads,
    )
    return like(walks, start)
