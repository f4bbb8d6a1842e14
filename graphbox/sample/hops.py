"""Numbers of neighbours at each hop: checked, by edge type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphbox.errors import UsageError
from graphbox.sample.adjacency import EdgeType, edge_type_name

_MOST_HOPS = 255
_MOST_NEIGHBORS = 2**31 - 1


def checked_hops(num_neighbors: Sequence[int], where: str) -> list[int]:
    """Return how many neighbours to sample at each hop.

    Args:
        num_neighbors: as users give it, -1: all.
        where: the argument, for messages.

    Raises:
        UsageError: no hops, too many, or numbers of neighbours that make no sense.
    """
    try:
        hops = [int(count) for count in num_neighbors if not isinstance(count, bool)]
    except (TypeError, ValueError):
        hops = []
    sound = len(hops) == len(num_neighbors) and all(-1 <= count <= _MOST_NEIGHBORS for count in hops)
    if not sound or not 1 <= len(hops) <= _MOST_HOPS:
        raise UsageError(
            f"expected a number of neighbours for each of 1 to {_MOST_HOPS} hops, "
            f"each from -1 (all) to 2^31 - 1, received {num_neighbors!r}",
            where=where,
        )
    return hops


def hops_by_edge_type(
    known: Sequence[EdgeType],
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
) -> dict[EdgeType, list[int]]:
    """Return how many neighbours to sample at each hop, for each edge type that is sampled.

    Args:
        known: the edge types of the graph.
        num_neighbors: for all edge types or by edge type; -1: all.

    Raises:
        UsageError: an unknown edge type, or numbers of neighbours that make no sense.
    """
    if not isinstance(num_neighbors, Mapping):
        hops = checked_hops(num_neighbors, "num_neighbors")
        return dict.fromkeys(known, hops)
    for edge_type in num_neighbors:
        if edge_type not in known:
            raise UsageError(
                f"unknown edge type; the graph has: {', '.join(map(edge_type_name, known))}",
                where=f"num_neighbors[{edge_type!r}]",
            )
    by_type = {
        edge_type: checked_hops(num_neighbors[edge_type], f"num_neighbors[{edge_type!r}]")
        for edge_type in known
        if edge_type in num_neighbors
    }
    if len({len(hops) for hops in by_type.values()}) > 1:
        raise UsageError(
            "expected the same number of hops for every edge type, received "
            + ", ".join(f"{len(hops)} for {edge_type_name(name)}" for name, hops in by_type.items()),
            where="num_neighbors",
            hint="0 skips a hop",
        )
    return by_type
