"""Random walks along out-edges: uniform, weighted, node2vec, with restarts, by time, along metapaths."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy.typing as npt

from graphbox import _core
from graphbox.native import (
    Int64Array,
    batch_number,
    epoch_number,
    like,
    seed_number,
)
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike, is_tiered
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_walk import walk_device_graph
from graphbox.sample.tiered_walk import walk_tiers
from graphbox.sample.walk_plan import (
    TimeStrategy,
    WalkOptions,
    WalkPlan,
    plan_walk,
)

if TYPE_CHECKING:
    import torch

    from graphbox.graph.tiered_graph import TieredGraph

__all__ = ["random_walk"]


@overload
def random_walk(
    graph: GraphLike | Adjacency | DeviceGraph | TieredGraph,
    start: torch.Tensor,
    length: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    *,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    num_threads: int | None = ...,
    **options: Unpack[WalkOptions],
) -> torch.Tensor: ...


@overload
def random_walk(
    graph: GraphLike | Adjacency | DeviceGraph | TieredGraph,
    start: npt.ArrayLike,
    length: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    *,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    num_threads: int | None = ...,
    **options: Unpack[WalkOptions],
) -> Int64Array: ...


def random_walk(
    graph: GraphLike | Adjacency | DeviceGraph | TieredGraph,
    start: Any,
    length: int,
    p: float = 1.0,
    q: float = 1.0,
    metapath: Sequence[EdgeType] | None = None,
    *,
    metapaths: Sequence[Sequence[EdgeType]] | None = None,
    metapath_of: npt.ArrayLike | None = None,
    weighted: bool | Collection[EdgeType] = False,
    second: Any | None = None,
    restart_probability: float = 0.0,
    temporal: bool = False,
    start_time: Any | None = None,
    strictly_later: bool = False,
    time_window: int | None = None,
    temporal_strategy: TimeStrategy = "uniform",
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
) -> Any:
    """Walk ``length`` steps from each start, every out-edge equally likely unless told otherwise.

    **Weights.** With ``weighted`` an edge is taken with a probability in proportion to its weight, from
    alias tables that are built once (:func:`graphbox.sample.derived.weights_of`).

    **Looking back.** With ``p`` or ``q`` other than 1 a walker that came from ``t`` to ``v`` takes an edge
    from ``v`` to ``x`` with a probability in proportion to ``1 / p`` where ``x`` is ``t``, else to 1 where
    there is an edge from ``t`` to ``x``, else to ``1 / q`` (node2vec: Grover and Leskovec, KDD 2016); with
    ``weighted`` in proportion to that times the weight of the edge. Its first step looks back at nothing.
    Each of parallel edges counts by itself: ``k`` edges from ``v`` to ``x`` make ``x`` ``k`` times as likely
    as one. A self-loop is an edge like others.

    **Restarts.** With ``restart_probability`` each step leads back to the walker's start with that
    probability, whatever node it is at, as does every step from a dead end; the step after it looks back at
    nothing. With ``p`` and ``q`` 1, where long walks are is then the personalised PageRank of their start
    with damping ``1 - restart_probability``; :func:`graphbox.sample.ppr_neighbors` gives the nodes that are
    visited most.

    **Time.** With ``temporal`` the timestamps of the edges along a walk never decrease (Nguyen et al.,
    "Continuous-time dynamic network embeddings", WWW 2018 companion); a walker that no edge is late enough
    for has met a dead end. Edges of types without timestamps may be taken at any time.

    **Metapaths.** Step ``i`` follows edge type ``i`` of the metapath, from the first again when the walk is
    longer (Dong et al., "metapath2vec", KDD 2017). Of several, walker ``i`` takes number ``i`` modulo how
    many there are, or the one that ``metapath_of`` says; ``start`` holds nodes of the type that the walker's
    metapath starts at.

    What a walker draws depends on ``seed``, ``epoch``, ``batch``, its place in ``start`` and the step
    alone, so walkers that meet part again, and the number of threads does not matter.

    Args:
        graph: a graph with one edge type, or a CSR; with a metapath a graph. Or a
            :class:`graphbox.sample.DeviceGraph`, whose walks are the same bits and stay on its device, where
            ``second`` and times are refused. Or a graph in tiers (:meth:`graphbox.graph.Graph.tiered`), whose
            walks are the same bits, too: all walkers take each step together, and steps along edges need the
            CSR of their edge type on disk. Restarts and times are refused there.
        start: integers [n], node indices.
        length: number of steps, 0 or more.
        p: node2vec's return parameter, 1e-30 to 1e30: the higher, the rarer a walker goes straight back.
        q: node2vec's in-out parameter, 1e-30 to 1e30: the higher, the closer walkers stay to where they were.
            With ``p`` or ``q`` other than 1 the neighbours of each node must ascend, as those of a graph do;
            this is checked once for each CSR.
        metapath: edge types of the steps. ``rev_`` before a relation goes against its edges:
            ``(("package", "depends", "package"), ("package", "rev_depends", "package"))``. With ``p``,
            ``q`` or ``restart_probability`` it must be one edge type between nodes of one type.
        metapaths: several of them, in place of ``metapath``.
        metapath_of: integers [n], the number of the metapath of each walker.
        weighted: choose by the weights of all edges, or of those of some edge types of the metapaths.
        second: integers [n]: the node that each walker goes to first, from where it goes on as from its first
            step. With ``start_time`` walks begin so with edges that have just come in; they need not be in
            the graph, and are not looked up.
        restart_probability: at least 0 and below 1, rounded to a multiple of 2^-32.
        temporal: let times not decrease along a walk. Not with ``weighted``, ``p``, ``q`` or
            ``restart_probability``.
        start_time: an integer, or integers [n]: no edge before it is taken. None: any edge may be the first.
        strictly_later: let times increase: of each edge, and of the first beyond ``start_time``.
        time_window: most time between one edge and the next, and between ``start_time`` and the first.
        temporal_strategy: ``uniform`` chooses among the edges that are late enough with equal probabilities;
            ``linear`` prefers those that come soon: of ``k`` edges by time the first has weight ``k``, the
            next ``k - 1``, the last 1.
        seed: of the random draws.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        num_threads: None: see :func:`graphbox.native.thread_count`.

    Returns:
        int64 [n, length + 1], node indices, the start first, -1 after a dead end; a torch tensor when
        ``start`` is one.

    Raises:
        UsageError: a start that is no node, steps that do not meet, weights or timestamps that are not
            there, or another wrong argument.
        UnsupportedError: ``temporal`` with what it does not go with.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    if isinstance(graph, DeviceGraph):
        return walk_device_graph(
            graph,
            start,
            length,
            p,
            q,
            metapath,
            (seed_number(seed), epoch_number(epoch), batch_number(batch)),
            metapaths=metapaths,
            metapath_of=metapath_of,
            weighted=weighted,
            restart_probability=restart_probability,
            unknown={
                "second": second,
                "temporal": temporal,
                "start_time": start_time,
                "time_window": time_window,
                "strictly_later": strictly_later,
                "temporal_strategy": temporal_strategy != "uniform",
            },
        )
    if is_tiered(graph):
        walks = walk_tiers(
            graph,
            start,
            length,
            p,
            q,
            metapath,
            (seed_number(seed), epoch_number(epoch), batch_number(batch)),
            num_threads,
            metapaths=metapaths,
            metapath_of=metapath_of,
            weighted=weighted,
            second=second,
            unsupported={
                "restart_probability": restart_probability,
                "temporal": temporal,
                "start_time": start_time is not None,
                "strictly_later": strictly_later,
                "time_window": time_window is not None,
                "temporal_strategy": temporal_strategy != "uniform",
            },
        )
        return like(walks, start)
    plan = plan_walk(
        graph,
        start,
        length,
        metapath,
        p,
        q,
        num_threads,
        metapaths=metapaths,
        metapath_of=metapath_of,
        weighted=weighted,
        second=second,
        restart_probability=restart_probability,
        temporal=temporal,
        start_time=start_time,
        strictly_later=strictly_later,
        time_window=time_window,
        temporal_strategy=temporal_strategy,
    )
    return _walk(plan, start, seed, epoch, batch)


def _walk(plan: WalkPlan, start: Any, seed: int, epoch: int, batch: int) -> Any:
    key = (seed_number(seed), epoch_number(epoch), batch_number(batch))
    walks = _core.random_walks(plan.native, plan.walkers.all(), key, plan.threads)
    return like(walks, start)
