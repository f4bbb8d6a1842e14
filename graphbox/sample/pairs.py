"""Skip-gram pairs: the nodes that appear near each other on walks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import (
    Int64Array,
    batch_number,
    epoch_number,
    integer_array,
    is_torch,
    like,
    seed_number,
    thread_count,
)
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike
from graphbox.sample.walk import WalkPlan, plan_walk

if TYPE_CHECKING:
    import torch

__all__ = ["keep_probability", "skip_gram_pairs", "walk_pairs"]

Pairs: TypeAlias = tuple[Int64Array, Int64Array]

_WIDEST_WINDOW = 2**31 - 1


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
    out: tuple[torch.Tensor, torch.Tensor] | None = ...,
    threads: int | None = ...,
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
    out: Pairs | None = ...,
    threads: int | None = ...,
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
    out: tuple[Any, Any] | None = None,
    threads: int | None = None,
) -> tuple[Any, Any]:
    """Return all pairs of nodes at most ``window`` steps apart on a walk (Perozzi et al., KDD 2014).

    Pairs come walk by walk, centre by centre, contexts in the order of the walk. A walk ends at its first
    negative entry. To stream, call it for a few walks at a time with the same ``out``.

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
        out: two int64 arrays, centres and contexts, to write into.
        threads: None: see :func:`graphbox.native.thread_count`.

    Returns:
        (centres, contexts), int64 [pairs] each: the first parts of ``out`` when given, else new arrays; torch
        tensors when ``walks`` is one.

    Raises:
        UsageError: ``out`` is too short, or another wrong argument.
    """
    arguments = (
        integer_array(walks, "walks", dimensions=2),
        *_pair_arguments(window, column_offsets, dynamic_window, subsample),
        seed_number(seed),
        epoch_number(epoch),
        batch_number(batch),
        thread_count(threads),
    )
    if out is None:
        centers, contexts = _core.skip_gram_pairs(*arguments)
        return like(centers, walks), like(contexts, walks)
    arrays = [_writable(array) for array in out]
    if len(arrays) != 2:
        raise UsageError(f"expected two arrays, received {len(arrays)}", where="out")
    count = _core.skip_gram_pairs_into(*arguments, arrays[0], arrays[1])
    return out[0][:count], out[1][:count]


@overload
def walk_pairs(
    graph: GraphLike | Adjacency,
    start: torch.Tensor,
    length: int,
    window: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    *,
    restart_probability: float = ...,
    column_offsets: npt.ArrayLike | None = ...,
    dynamic_window: bool = ...,
    subsample: npt.ArrayLike | None = ...,
    chunk_pairs: int = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
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
    *,
    restart_probability: float = ...,
    column_offsets: npt.ArrayLike | None = ...,
    dynamic_window: bool = ...,
    subsample: npt.ArrayLike | None = ...,
    chunk_pairs: int = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
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
    restart_probability: float = 0.0,
    column_offsets: npt.ArrayLike | None = None,
    dynamic_window: bool = False,
    subsample: npt.ArrayLike | None = None,
    chunk_pairs: int = 1 << 20,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield the skip-gram pairs of random walks in chunks; the walks of one chunk are held at a time.

    The chunks together are what :func:`skip_gram_pairs` returns for all walks that
    :func:`graphbox.random_walk` returns for the same arguments, in its order.

    Args:
        graph: see :func:`graphbox.random_walk`, as for ``start``, ``length``, ``p``, ``q``, ``metapath`` and
            ``restart_probability``.
        start: integers [n], node indices.
        length: number of steps of a walk.
        window: see :func:`skip_gram_pairs`, as for ``column_offsets``, ``dynamic_window`` and ``subsample``.
        p: node2vec's return parameter.
        q: node2vec's in-out parameter.
        metapath: edge types of the steps.
        restart_probability: of each step.
        column_offsets: integers [length + 1] added to the nodes of each column.
        dynamic_window: draw a window for each centre.
        subsample: numbers [keys], the probability that an occurrence of each key stays.
        chunk_pairs: most pairs of a chunk, unless one walk alone has more. A chunk takes up to 48 bytes of
            memory for each while it is made, with its walks, and 32 after.
        seed: of the random draws.
        epoch: part of their key.
        batch: part of their key.
        threads: None: see :func:`graphbox.native.thread_count`.

    Returns:
        An iterator of (centres, contexts), int64 [pairs of the chunk] each, at least one pair; torch tensors
        when ``start`` is one.

    Raises:
        UsageError: a wrong argument; a wrong start or key when its chunk is reached.
        DataError: the adjacency is damaged.
    """
    plan = plan_walk(graph, length, metapath, p, q, restart_probability, threads)
    arguments = _pair_arguments(window, column_offsets, dynamic_window, subsample)
    key = (seed_number(seed), epoch_number(epoch), batch_number(batch))
    if isinstance(chunk_pairs, bool) or not isinstance(chunk_pairs, int | np.integer) or chunk_pairs < 1:
        raise UsageError(
            f"expected a number of pairs, 1 or more, received {chunk_pairs!r}", where="chunk_pairs"
        )
    reach = min(int(window), plan.length)
    most = 2 * (reach * (plan.length + 1) - reach * (reach + 1) // 2)
    walks = max(1, int(chunk_pairs) // max(1, most))
    return _chunks(plan, integer_array(start, "start"), walks, arguments, key, start)


def _chunks(
    plan: WalkPlan,
    start: Int64Array,
    walks: int,
    arguments: tuple[int, Int64Array | None, bool, npt.NDArray[np.float64] | None],
    key: tuple[int, int, int],
    example: object,
) -> Iterator[tuple[Any, Any]]:
    for first in range(0, len(start), walks):
        centers, contexts = _core.walk_pairs(
            plan.steps,
            start[first : first + walks],
            first,
            plan.length,
            plan.p_q_restart,
            plan.most_parallel,
            *arguments,
            *key,
            plan.threads,
        )
        if len(centers):
            yield like(centers, example), like(contexts, example)


def _pair_arguments(
    window: int,
    column_offsets: npt.ArrayLike | None,
    dynamic_window: bool,
    subsample: npt.ArrayLike | None,
) -> tuple[int, Int64Array | None, bool, npt.NDArray[np.float64] | None]:
    whole = isinstance(window, int | np.integer) and not isinstance(window, bool)
    if not whole or not 1 <= window <= _WIDEST_WINDOW:
        raise UsageError(f"expected a number of steps, 1 or more, received {window!r}", where="window")
    keep = None
    if subsample is not None:
        keep = np.ascontiguousarray(subsample, dtype=np.float64)
        if keep.ndim != 1 or not ((keep >= 0) & (keep <= 1)).all():
            raise UsageError(
                "expected probabilities, 0 to 1, one for each key",
                where="subsample",
                hint="keep_probability(visits, threshold) makes them",
            )
    offsets = None if column_offsets is None else integer_array(column_offsets, "column_offsets")
    return int(window), offsets, bool(dynamic_window), keep


def _writable(array: Any) -> Int64Array:
    view = array.detach().numpy() if is_torch(array) and array.device.type == "cpu" else array
    if (
        not isinstance(view, np.ndarray)
        or view.dtype != np.int64
        or view.ndim != 1
        or not view.flags.c_contiguous
        or not view.flags.writeable
    ):
        raise UsageError(
            "expected contiguous, writable int64 arrays in host memory with one dimension", where="out"
        )
    return view
