"""The nodes that matter most to a node by personalised PageRank, from the visits of walks that restart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

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
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike
from graphbox.sample.walk_plan import check_weighted, plan_steps, probability, steps_to_follow, whole_number

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array")

_MOST_VISITS = 2**24


class PprNeighbors(NamedTuple, Generic[Array]):
    """The most visited nodes of walks from each of n nodes.

    Attributes:
        neighbors: int64 [n, num_neighbors], node indices, the most visited first, of equally often visited
            ones the smaller first; -1 where walks reached no more.
        visits: int64 [n, num_neighbors], how often walks were there; 0 where there is no neighbour.
    """

    neighbors: Array
    visits: Array


@overload
def ppr_neighbors(
    graph: GraphLike | Adjacency,
    nodes: torch.Tensor,
    num_neighbors: int,
    *,
    num_walks: int = ...,
    walk_length: int = ...,
    restart_probability: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    weighted: bool | Collection[EdgeType] = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    num_threads: int | None = ...,
) -> PprNeighbors[torch.Tensor]: ...


@overload
def ppr_neighbors(
    graph: GraphLike | Adjacency,
    nodes: npt.ArrayLike,
    num_neighbors: int,
    *,
    num_walks: int = ...,
    walk_length: int = ...,
    restart_probability: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    weighted: bool | Collection[EdgeType] = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    num_threads: int | None = ...,
) -> PprNeighbors[Int64Array]: ...


def ppr_neighbors(
    graph: GraphLike | Adjacency,
    nodes: Any,
    num_neighbors: int,
    *,
    num_walks: int = 64,
    walk_length: int = 16,
    restart_probability: float = 0.15,
    metapath: Sequence[EdgeType] | None = None,
    weighted: bool | Collection[EdgeType] = False,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
) -> PprNeighbors[Any]:
    """Return the ``num_neighbors`` nodes that restarting walks from each node visit most.

    These are the importance-based neighbours of PinSAGE (Ying et al., KDD 2018), whose visits over the sum of
    a row's serve as weights. The more steps all walks of a node have, the closer the visits are, up to a
    factor, to its personalised PageRank with damping ``1 - restart_probability`` (the Monte Carlo method of
    Fogaras et al., Internet Mathematics 2(3), 2005); they are exact in the mean but for the first steps,
    which are near the node. The node itself is left out.

    Walkers go in rounds: along one out-edge, or once along ``metapath``. Before each round but its first a
    walker stands at its node again with the probability ``restart_probability``, and always when it met a
    dead end; the node at which a round ends is visited.

    Args:
        graph: a graph with one edge type, or a CSR; with ``metapath`` a graph.
        nodes: integers [n], node indices.
        num_neighbors: most neighbours of each node, 1 or more.
        num_walks: walks from each node.
        walk_length: rounds of each walk; ``num_walks`` times this is at most 2^24.
        restart_probability: at least 0 and below 1, rounded to a multiple of 2^-32.
        metapath: edge types of a round, which must end at the type it starts at: for the neighbours of a
            bipartite graph's items there and back,
            ``(("item", "rev_buys", "user"), ("user", "buys", "item"))``.
        weighted: choose edges by their weights: see :func:`graphbox.random_walk`.
        seed: of the random draws.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        num_threads: None: see :func:`graphbox.native.thread_count`. Results do not depend on it.

    Returns:
        The neighbours and their visits; torch tensors when ``nodes`` is one.

    Raises:
        UsageError: a node that is not there, a metapath that does not lead back to its type, or another wrong
            argument.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    count = thread_count(num_threads, "num_threads")
    num_walks = _size(num_walks, "num_walks")
    walk_length = _size(walk_length, "walk_length")
    num_neighbors = _size(num_neighbors, "num_neighbors")
    if num_walks * walk_length > _MOST_VISITS:
        raise UsageError(
            f"expected at most 2^24 visits of a node's walks, received {num_walks} of {walk_length} rounds",
            where="num_walks",
        )
    endless = 2 if metapath is None else len(metapath) + 1  # longer than a round: its end must meet its start
    followed = steps_to_follow(graph, metapath, endless)
    check_weighted(weighted, [name for _, name in followed])
    neighbors, visits = _core.ppr_neighbors(
        plan_steps(followed, weighted, False, count),
        integer_array(nodes, "nodes"),
        (num_walks, walk_length, num_neighbors),
        probability(restart_probability),
        (seed_number(seed), epoch_number(epoch), batch_number(batch)),
        count,
    )
    return PprNeighbors(like(neighbors, nodes), like(visits, nodes))


def _size(value: object, name: str) -> int:
    return whole_number(value, name, 1, _MOST_VISITS, "a number from 1 to 2^24")
