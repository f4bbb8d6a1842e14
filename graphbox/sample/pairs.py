"""Skip-gram pairs: the nodes that appear near each other on walks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, overload

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
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_pairs import device_walk_pairs, pairs_of_tensor
from graphbox.sample.walk_plan import WalkKeywords, WalkOptions, WalkPlan, plan_walk, step_count, whole_number

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
    out: tuple[torch.Tensor, torch.Tensor] | None = ...,
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
    out: Pairs | None = ...,
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
    out: tuple[Any, Any] | None = None,
    num_threads: int | None = None,
) -> tuple[Any, Any]:
    """Return all pairs of nodes at most ``window`` steps apart on a walk (Perozzi et al., KDD 2014).

    Pairs come walk by walk, centre by centre, contexts in the order of the walk. A walk ends at its first
    negative entry. To stream, call it for a few walks at a time with the same ``out``.

    Args:
        walks: integers [n, width]; where it is a tensor on a GPU, pairs are made and stay there, the same.
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
        num_threads: None: see :func:`graphbox.native.thread_count`.

    Returns:
        (centres, contexts), int64 [pairs] each: the first parts of ``out`` when given, else new arrays; torch
        tensors when ``walks`` is one.

    Raises:
        UsageError: ``out`` is too short, or another wrong argument.
    """
    key = (seed_number(seed), epoch_number(epoch), batch_number(batch))
    if is_torch(walks) and walks.is_cuda:
        offsets = _column_offsets(column_offsets)
        keep = _keep(subsample)
        return pairs_of_tensor(walks, _checked_window(window), offsets, bool(dynamic_window), keep, key, out)
    arguments = (
        integer_array(walks, "walks", dimensions=2),
        _pair_arguments(window, _column_offsets(column_offsets), dynamic_window, subsample),
        key,
        thread_count(num_threads, "num_threads"),
    )
    if out is None:
        centers, contexts = _core.skip_gram_pairs(*arguments)
        return like(centers, walks), like(contexts, walks)
    arrays = [_writable(array) for array in out]
    if len(arrays) != 2:
        raise UsageError(f"expected two arrays, received {len(arrays)}", where="out")
    count = _core.skip_gram_pairs_into(*arguments, arrays[0], arrays[1])
    return out[0][:count], out[1][:count]


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
    graph: GraphLike | Adjacency | DeviceGraph,
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
    graph: GraphLike | Adjacency | DeviceGraph,
    start: npt.ArrayLike,
    length: int,
    window: int,
    p: float = ...,
    q: float = ...,
    metapath: Sequence[EdgeType] | None = ...,
    **options: Unpack[_Keywords],
) -> Iterator[Pairs]: ...


def walk_pairs(
    graph: GraphLike | Adjacency | DeviceGraph,
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
        graph: see :func:`graphbox.random_walk`, as for ``start`` and ``length``. Of a
            :class:`graphbox.sample.DeviceGraph` pairs are the same, and stay on its device.
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
    if isinstance(graph, DeviceGraph):
        window = _checked_window(window)
        return device_walk_pairs(
            graph,
            start,
            length,
            window,
            chosen,
            key,
            type_offsets=type_offsets,
            dynamic_window=bool(dynamic_window),
            keep=_keep(subsample),
            chunk_walks=_walks_of_a_chunk(chunk_pairs, window, step_count(length)),
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
