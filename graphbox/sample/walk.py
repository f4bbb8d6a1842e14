"""Random walks along out-edges: uniform, weighted, node2vec, with restarts, by time, along metapaths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy.typing as npt

from graphbox import _core
from graphbox.native import Int64Array, batch_number, epoch_number, like, seed_number
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike, is_tiered
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_walk import walk_device_graph
from graphbox.sample.tiered_walk import walk_tiers
from graphbox.sample.walk_plan import WalkKeywords, WalkOptions, plan_walk

if TYPE_CHECKING:
    import torch

    from graphbox.graph.tiered_graph import TieredGraph


class _Keywords(WalkKeywords, total=False):
    seed: int
    epoch: int
    batch: int
    num_threads: int | None


@overload
def random_walk(
    graph: GraphLike | Adjacency | DeviceGraph | TieredGraph,
    start: torch.Tensor,
    length: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    **options: Unpack[_Keywords],
) -> torch.Tensor: ...


@overload
def random_walk(
    graph: GraphLike | Adjacency | DeviceGraph | TieredGraph,
    start: npt.ArrayLike,
    length: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    **options: Unpack[_Keywords],
) -> Int64Array: ...


def random_walk(
    graph: GraphLike | Adjacency | DeviceGraph | TieredGraph,
    start: Any,
    length: int,
    p: float = 1.0,
    q: float = 1.0,
    metapath: Sequence[EdgeType] | None = None,
    *,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
    **options: Unpack[WalkKeywords],
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
        p: see :class:`graphbox.sample.WalkOptions`, as for ``q`` and ``metapath``.
        q: see there.
        metapath: see there.
        seed: of the random draws.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        num_threads: None: see :func:`graphbox.native.thread_count`.
        options: see :class:`graphbox.sample.WalkOptions`.

    Returns:
        int64 [n, length + 1], node indices, the start first, -1 after a dead end; a torch tensor when
        ``start`` is one.

    Raises:
        UsageError: a start that is no node, steps that do not meet, weights or timestamps that are not
            there, or another wrong argument.
        UnsupportedError: ``temporal`` with what it does not go with.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    chosen = WalkOptions(p, q, metapath, **options)
    key = (seed_number(seed), epoch_number(epoch), batch_number(batch))
    if isinstance(graph, DeviceGraph):
        return walk_device_graph(graph, start, length, chosen, key)
    if is_tiered(graph):
        return like(walk_tiers(graph, start, length, chosen, key, num_threads), start)
    plan = plan_walk(graph, start, length, chosen, num_threads)
    return like(_core.random_walks(plan.native, plan.walkers.all(), key, plan.threads), start)
