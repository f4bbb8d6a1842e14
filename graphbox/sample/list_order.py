"""Checks of lists: that they ascend, and how many edges are parallel."""

from __future__ import annotations

import weakref

from graphbox import _core
from graphbox.sample.adjacency import Adjacency, Arrays

_known: dict[int, tuple[weakref.ref[Adjacency], int]] = {}


def most_parallel_edges(adjacency: Adjacency, arrays: Arrays, name: str, threads: int) -> int:
    """Return the most edges that lead from one node to another, at least 1.

    Reads all edges once; what it found is kept for as long as ``adjacency`` lives.

    Raises:
        UsageError: the list of some node does not ascend.
        DataError: the adjacency is damaged.
    """
    key = id(adjacency)
    known = _known.get(key)
    if known is not None and known[0]() is adjacency:
        return known[1]
    step = _core.WalkStep(arrays.indptr, arrays.indices, name, arrays.overlay)
    most = _core.most_parallel_edges(step, threads)
    try:
        reference = weakref.ref(adjacency, lambda dead: _forget(key, dead))
    except TypeError:  # an object of a class with slots: read again next time
        return most
    _known[key] = (reference, most)
    return most


def _forget(key: int, dead: weakref.ref[Adjacency]) -> None:
    if key in _known and _known[key][0] is dead:
        del _known[key]
