"""Skip-gram pairs: the nodes that appear near each other on walks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UnsupportedError, UsageError
from graphbox.native import (
    Int64Array,
    batch_number,
    epoch_number,
    integer_array,
    like,
    seed_number,
    thread_count,
)
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike, is_tiered
from graphbox.sample.device import DeviceGraph
from graphbox.sample.walk_plan import WalkKeywords, WalkOptions, WalkPlan, plan_walk, whole_number

if TYPE_CHECKING:
    import torch

Pairs: TypeAlias = tuple[Int64Array, Int64Array]
PairArguments: TypeAlias = tuple[int, Int64Array | None, bool, npt.NDArray[np.float64] | None]
"""Window, offsets of columns, whether windows are drawn, shares to keep: as the native core takes them."""

_WIDEST_WINDOW = 2**31 - 1
_CHUNK_PAIRS = 1 << 20


def keep_probability(visits: npt.ArrayLike, threshold: float = 1e-3) -> npt.NDArray[np.float64]:
    """Return how likely each key's occurrences stay on a walk when frequent ones are subsampled.

    ``min(1, sqrt(threshold / f))`` with the key's share ``f`` of all visits (Mikolov et al., "Distributed
    representations of words and phrases and their compositionality", NIPS 2013, section 2.3).

    Args:
        visits: numbers [keys], 0 or more: how often walks visit each key, in any unit.
        threshold: share of the visits up to which a key is always kept, above 0.

    Returns:
        float64 [keys], above 0 to 1; 1 for keys that are never visited.

    Raises:
        UsageError: visits that are negative or not finite, or a threshold that is not above 0.
    """
    counts = np.asarray(visits, dtype=np.float64)
    if counts.ndim != 1:
        raise UsageError(f"expected 1 dimension, received shape {counts.shape}", where="visits")
    wrong = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0)))
    if len(wrong):
        raise UsageError(
            f"expected finite numbers, 0 or more, received {counts[wrong[0]]} at position {wrong[0]}",
            where="visits",
        )
    if not threshold > 0:
        raise UsageError(f"expected a number above 0, received {threshold!r}", where="threshold")
    probability = np.ones(len(counts))
    frequent = counts > threshold * counts.sum()
    probability[frequent] = np.sqrt(threshold * counts.sum() / counts[frequent])
    return probability


@overload
def skip_gram_pairs(
    walks: torch.Tensor,
    window: int,
    *,
    column_offsets: npt.ArrayLike | None = ...,
    dynamic_window: bool = ...,
    subsample: npt.ArrayLike | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    num_threads: int | None = ...,
) -> tuple[torch.Tensor, torch.Tensor]: ...


@overload
def skip_gram_pairs(
    walks: npt.ArrayLike,
    window: int,
    *,
    column_offsets: npt.ArrayLike | None = ...,
    dynamic_window: bool = ...,
    subsample: npt.ArrayLike | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    num_threads: int | None = ...,
) -> Pairs: ...


def skip_gram_pairs(
    walks: Any,
    window: int,
    *,
    column_offsets: npt.ArrayLike | None = None,
    dynamic_window: bool = False,
    subsample: npt.ArrayLike | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
) -> tuple[Any, Any]:
    """Return all pairs of nodes at most ``window`` steps apart on a walk (Perozzi et al., KDD 2014).

    Pairs come walk by walk, centre by centre, contexts in the order of the walk. A walk ends at its first
    negative entry. To stream, call it for a few walks at a time.

    Args:
        walks: integers [n, width].
        window: most steps between centre and context, 1 or more.
        column_offsets: integers [width] added to the nodes of each column: makes keys of one numbering out of
            the indices of several node types.
        dynamic_window: draw a window from 1 to ``window`` for each centre, as word2vec does: the nearer, the
            more often.
        subsample: numbers [keys], 0 to 1: the probability that an occurrence of each key, a node with its
            column's offset, stays; see :func:`keep_probability`. Those that do not stay leave their walk
            before windows are laid, as in word2vec.
        seed: of these draws.
        epoch: part of their key.
        batch: part of their key.
        num_threads: None: see :func:`graphbox.native.thread_count`.

    Returns:
        (centres, contexts), int64 [pairs] each; torch tensors when ``walks`` is one.

    Raises:
        UsageError: a wrong argument.
    """
    centers, contexts = _core.skip_gram_pairs(
        integer_array(walks, "walks", dimensions=2),
        _pair_arguments(window, _column_offsets(column_offsets), dynamic_window, subsample),
        (seed_number(seed), epoch_number(epoch), batch_number(batch)),
        thread_count(num_threads, "num_threads"),
    )
    return like(centers, walks), like(contexts, walks)


class _Keywords(WalkKeywords, total=False):
    type_offsets: Mapping[str, int] | None
    dynamic_window: bool
    subsample: npt.ArrayLike | None
    chunk_pairs: int
    seed: int
    epoch: int
    batch: int
    num_threads: int | None


@overload
def walk_pairs(
    graph: GraphLike | Adjacency,
    start: torch.Tensor,
    length: int,
    window: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    **options: Unpack[_Keywords],
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]: ...


@overload
def walk_pairs(
    graph: GraphLike | Adjacency,
    start: npt.ArrayLike,
    length: int,
    window: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    **options: Unpack[_Keywords],
) -> Iterator[Pairs]: ...


def walk_pairs(
    graph: GraphLike | Adjacency,
    start: Any,
    length: int,
    window: int,
    p: float = 1.0,
    q: float = 1.0,
    metapath: Sequence[EdgeType] | None = None,
    *,
    type_offsets: Mapping[str, int] | None = None,
    dynamic_window: bool = False,
    subsample: npt.ArrayLike | None = None,
    chunk_pairs: int = _CHUNK_PAIRS,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
    **options: Unpack[WalkKeywords],
) -> Iterator[tuple[Any, Any]]:
    """Yield the skip-gram pairs of random walks in chunks; the walks of one chunk are held at a time.

    The chunks together are what :func:`skip_gram_pairs` returns for all walks that
    :func:`graphbox.random_walk` returns for the same arguments, in its order.

    Args:
        graph: a graph in memory, or a CSR; see :func:`graphbox.random_walk`, as for ``start`` and ``length``.
        start: integers [n], node indices.
        length: number of steps of a walk.
        window: see :func:`skip_gram_pairs`, as for ``dynamic_window`` and ``subsample``.
        p: see :class:`graphbox.sample.WalkOptions`, as for ``q`` and ``metapath``.
        q: see there.
        metapath: see there.
        type_offsets: a number for each node type of the walks, added to its node indices: makes keys of one
            numbering out of several node types. None: the indices as they are.
        dynamic_window: draw a window for each centre.
        subsample: numbers [keys], the probability that an occurrence of each key stays.
        chunk_pairs: most pairs of a chunk, unless one walk alone has more. A chunk takes up to 48 bytes of
            memory for each while it is made, with its walks, and 32 after.
        seed: of the random draws.
        epoch: part of their key.
        batch: part of their key.
        num_threads: None: see :func:`graphbox.native.thread_count`.
        options: see :class:`graphbox.sample.WalkOptions`.

    Returns:
        An iterator of (centres, contexts), int64 [pairs of the chunk] each, at least one pair; torch tensors
        when ``start`` is one.

    Raises:
        UsageError: a wrong argument; a wrong start or key when its chunk is reached.
        UnsupportedError: as :func:`graphbox.random_walk`.
        DataError: the adjacency is damaged.
    """
    key = (seed_number(seed), epoch_number(epoch), batch_number(batch))
    chosen = WalkOptions(p, q, metapath, **options)
    if isinstance(graph, DeviceGraph) or is_tiered(graph):
        raise UnsupportedError(
            f"expected a graph in memory, received {type(graph).__name__}",
            where="graph",
            hint="give the graph that it was made of; models over walks train on graphs in tiers and on GPUs",
        )
    plan = plan_walk(graph, start, length, chosen, num_threads)
    offsets = None if type_offsets is None else _columns(_known_types(plan), type_offsets, "type_offsets")
    arguments = _pair_arguments(window, offsets, dynamic_window, subsample)
    chunks = _chunks(plan, _walks_of_a_chunk(chunk_pairs, arguments[0], plan.length), arguments, key)
    return ((like(centers, start), like(contexts, start)) for centers, contexts in chunks if len(centers))


def _known_types(plan: WalkPlan) -> list[list[str]]:
    if plan.types is None:
        raise UsageError("types of nodes need a graph, received a CSR", where="graph")
    return plan.types


def _columns(types: list[list[str]], numbers: Mapping[str, int], where: str) -> Int64Array:
    """Return the number of the type of each column: int64 [metapaths, columns]."""
    missing = [name for path in types for name in path if name not in numbers]
    if missing:
        raise UsageError(
            f"expected a number for each node type of the walks, none for {missing[0]!r}", where=where
        )
    return np.array([[numbers[name] for name in path] for path in types], dtype=np.int64)


def _column_offsets(offsets: npt.ArrayLike | None) -> Int64Array | None:
    return None if offsets is None else integer_array(offsets, "column_offsets")[np.newaxis]


def _walks_of_a_chunk(chunk_pairs: int, window: int, length: int) -> int:
    chunk_pairs = whole_number(chunk_pairs, "chunk_pairs", 1, 2**62, "a number of pairs, 1 or more")
    reach = min(window, length)
    most = 2 * (reach * (length + 1) - reach * (reach + 1) // 2)
    return max(1, chunk_pairs // max(1, most))


def _chunks(
    plan: WalkPlan, walks: int, arguments: PairArguments, key: tuple[int, int, int]
) -> Iterator[Pairs]:
    for first in range(0, len(plan.walkers.start), walks):
        yield _core.walk_pairs(
            plan.native, plan.walkers.part(first, first + walks), arguments, key, plan.threads
        )


def _pair_arguments(
    window: int,
    column_offsets: Int64Array | None,
    dynamic_window: bool,
    subsample: npt.ArrayLike | None,
) -> PairArguments:
    return _checked_window(window), column_offsets, bool(dynamic_window), _keep(subsample)


def _checked_window(window: int) -> int:
    return whole_number(window, "window", 1, _WIDEST_WINDOW, "a number of steps, 1 or more")


def _keep(subsample: npt.ArrayLike | None) -> npt.NDArray[np.float64] | None:
    if subsample is None:
        return None
    keep = np.ascontiguousarray(subsample, dtype=np.float64)
    if keep.ndim != 1:
        raise UsageError(
            f"expected probabilities, one for each key, received shape {keep.shape}",
            where="subsample",
            hint="keep_probability(visits, threshold) makes them",
        )
    return keep
