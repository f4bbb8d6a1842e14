"""Random walks along out-edges, and the skip-gram pairs of nodes that appear near each other on them."""

from __future__ import annotations

from collections.abc import Sequence
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
from graphbox.sample.adjacency import (
    Adjacency,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_type_name,
    lists_of,
    steps_of_metapath,
)

if TYPE_CHECKING:
    import torch

__all__ = ["metapath_walk", "random_walk", "skip_gram_pairs"]

Pairs: TypeAlias = tuple[Int64Array, Int64Array]

_LONGEST_WALK = 2**31 - 1


@overload
def random_walk(
    graph: GraphLike | Adjacency,
    start: torch.Tensor,
    length: int,
    metapath: Sequence[EdgeType] | None = ...,
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
    metapath: Sequence[EdgeType] | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> Int64Array: ...


def random_walk(
    graph: GraphLike | Adjacency,
    start: Any,
    length: int,
    metapath: Sequence[EdgeType] | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
) -> Any:
    """Walk ``length`` steps from each start node, every out-edge equally likely.

    What a walker draws depends on ``seed``, ``epoch``, ``batch``, its place in ``start`` and the step alone,
    so walkers that meet part again, and the number of threads does not matter.

    Args:
        graph: a graph with one edge type, or a CSR; with ``metapath`` a graph.
        start: integers [n], node indices.
        length: number of steps, 0 or more.
        metapath: edge types of the steps, from the first again when the walk is longer. ``rev_`` before a
            relation goes against its edges: ``(("package", "depends", "package"), ("package", "rev_depends",
            "package"))``.
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
    steps: list[tuple[Adjacency, str]]
    if not isinstance(graph, GraphLike):
        if metapath is not None:
            raise UsageError(
                "a metapath needs a graph", where="metapath", hint="metapath_walk takes a CSR for each step"
            )
        steps = [(graph, "csr")]
    elif metapath is not None:
        steps = steps_of_metapath(graph, metapath, length)
    elif len(graph.edge_types) == 1 and graph.edge_types[0][0] == graph.edge_types[0][2]:
        (edge_type,) = graph.edge_types
        steps = [(lists_of(graph, edge_type, "out"), edge_type_name(edge_type))]
    else:
        raise UsageError(
            f"expected a metapath, since the graph has {len(graph.edge_types)} edge types: "
            + ", ".join(map(edge_type_name, graph.edge_types)),
            where="metapath",
        )
    return _walk(steps, start, length, seed, epoch, batch, threads)


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
    return _walk(steps, start, length, seed, epoch, batch, threads)


def _walk(
    steps: Sequence[tuple[Adjacency, str]],
    start: Any,
    length: int,
    seed: int,
    epoch: int,
    batch: int,
    threads: int | None,
) -> Any:
    if not steps:
        raise UsageError("expected at least one CSR, received none", where="csrs")
    whole = isinstance(length, int | np.integer) and not isinstance(length, bool)
    if not whole or not 0 <= length <= _LONGEST_WALK:
        raise UsageError(f"expected a number of steps, 0 or more, received {length!r}", where="length")
    arrays = [(as_arrays(adjacency, name), name) for adjacency, name in steps]
    walks = _core.random_walks(
        [(a.indptr, a.indices, name, a.overlay) for a, name in arrays],
        integer_array(start, "start"),
        int(length),
        seed_number(seed),
        epoch_number(epoch),
        batch_number(batch),
        thread_count(threads),
    )
    return like(walks, start)


@overload
def skip_gram_pairs(
    walks: torch.Tensor,
    window: int,
    *,
    column_offsets: npt.ArrayLike | None = ...,
    dynamic_window: bool = ...,
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
    whole = isinstance(window, int | np.integer) and not isinstance(window, bool)
    if not whole or not 1 <= window <= _LONGEST_WALK:
        raise UsageError(f"expected a number of steps, 1 or more, received {window!r}", where="window")
    arguments = (
        integer_array(walks, "walks", dimensions=2),
        int(window),
        None if column_offsets is None else integer_array(column_offsets, "column_offsets"),
        dynamic_window,
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
