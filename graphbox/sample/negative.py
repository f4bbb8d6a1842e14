"""Negative sampling: items drawn by popularity, for losses that contrast true pairs with random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

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
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike, as_arrays, edge_type_name, lists_of
from graphbox.sample.fetched_positives import FetchedPositives
from graphbox.sample.list_order import most_parallel_edges

if TYPE_CHECKING:
    import torch

    from graphbox.sample.negative_gpu import DeviceNegatives

KnownPositives = tuple[Int64Array, npt.NDArray[Any], str, _core.Overlay | None]
"""Known positives as the native core takes them: a row for each query."""

_WHERE_KNOWN = "known_positives"


class NegativeSampler:
    """Draws items with probability proportional to weight\\ :sup:`alpha`, each draw in constant time.

    ``NegativeSampler(degree, alpha=0.75)`` is word2vec's choice (Mikolov et al., NeurIPS 2013, section 2.2);
    ``alpha=0``, or :meth:`uniform`, draws all items alike, those of weight 0 included. :meth:`from_graph`
    draws the nodes at one end of an edge type.

    :meth:`sample` draws for nobody in particular, :meth:`sample_for` for queries: where ``known_positives``
    are given, never one of those. All draws are with replacement.

    Args:
        weights: numbers [n], finite and not negative, for instance degrees.
        alpha: exponent, 0 or more.
        seed: of the draws.
        known_positives: an adjacency with a row for each query, whose neighbours are items: the positives
            that :meth:`sample_for` never draws. For pairs (user, item) the CSR of their edges. Rows ascend,
            as those of every graph do. Of a graph on disk they are fetched for the queries there are.

    Raises:
        UsageError: a wrong argument, or rows of known positives that do not ascend.
        DataError: a weight that is negative, NaN or infinite, or none above 0; damaged known positives.
    """

    def __init__(
        self,
        weights: npt.ArrayLike,
        alpha: float = 0.75,
        seed: int = 0,
        *,
        known_positives: Adjacency | FetchedPositives | None = None,
    ) -> None:
        values = np.asarray(weights)
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            raise UsageError(
                f"expected numbers with one dimension, received {values.dtype} {values.shape}",
                where="weights",
            )
        if not (np.isfinite(alpha) and alpha >= 0):
            raise UsageError(f"expected a finite number, 0 or more, received {alpha!r}", where="alpha")
        self._weights = None if alpha == 0 else _powers(values, alpha)
        if self._weights is None:
            self._table = _core.AliasTable.uniform(len(values))
            self._total = float(len(values))
        else:
            self._table = _core.AliasTable(self._weights)
            self._total = float(self._weights.sum())
        self._seed = seed_number(seed)
        self._fetched = known_positives if isinstance(known_positives, FetchedPositives) else None
        self._known: KnownPositives | None = None
        if known_positives is not None and not isinstance(known_positives, FetchedPositives):
            self._known = known_positive_rows(known_positives)

    @classmethod
    def uniform(
        cls,
        num_items: int,
        seed: int = 0,
        *,
        known_positives: Adjacency | FetchedPositives | None = None,
    ) -> NegativeSampler:
        """Return a sampler of equally likely items. It needs no memory.

        Args:
            num_items: number of items, 1 to 2^32 - 1.
            seed: of the draws.
            known_positives: see :class:`NegativeSampler`.

        Raises:
            UsageError: a wrong argument.
            DataError: damaged known positives.
        """
        if isinstance(num_items, bool) or not isinstance(num_items, int | np.integer) or num_items < 1:
            raise UsageError(f"expected 1 to 2^32 - 1 items, received {num_items!r}", where="num_items")
        weights = np.broadcast_to(np.int64(1), (int(num_items),))
        return cls(weights, 0, seed, known_positives=known_positives)

    @classmethod
    def from_graph(
        cls,
        graph: GraphLike,
        edge_type: EdgeType | None = None,
        alpha: float = 0.75,
        seed: int = 0,
        *,
        end: Literal["source", "target"] = "target",
        known_positives: bool = False,
    ) -> NegativeSampler:
        """Return a sampler of the nodes at one end of an edge type, by their degree in it.

        Args:
            graph: the graph, changed or not.
            edge_type: whose edges count; None where the graph has one.
            alpha: exponent of the degree; 0: all nodes alike, those without edges too.
            seed: of the draws.
            end: ``target``: queries are sources and items targets; ``source``: the other way round.
            known_positives: the edges are known positives, which :meth:`sample_for` never draws.

        Raises:
            UsageError: an unknown edge type, or another wrong argument.
            DataError: no node has an edge and ``alpha`` is not 0, or the adjacency is damaged.
        """
        if end not in ("source", "target"):
            raise UsageError(f"expected source or target, received {end!r}", where="end")
        chosen = edge_type_of(graph, edge_type)
        known = lists_of(graph, chosen, "out" if end == "target" else "in") if known_positives else None
        num_items = graph.num_nodes(chosen[2] if end == "target" else chosen[0])
        if alpha == 0:
            return cls.uniform(num_items, seed, known_positives=known)
        name = edge_type_name(chosen)
        items = lists_of(graph, chosen, "in" if end == "target" else "out")
        arrays = as_arrays(items, name)
        rows = (arrays.indptr, arrays.indices, name, arrays.overlay)
        degrees = _core.row_degrees(rows, thread_count(None))
        return cls(degrees, alpha, seed, known_positives=known)

    @property
    def native(self) -> _core.AliasTable:
        """The table of draws, as the native core takes it."""
        return self._table

    @property
    def seed(self) -> int:
        """Seed of the draws."""
        return self._seed

    def on_device(self, device: torch.device) -> DeviceNegatives:
        """Return what draws the same on a device, for nobody; it has a copy of the table there.

        Raises:
            BackendMissingError: kernels do not run there.
        """
        from graphbox.sample.negative_gpu import DeviceNegatives  # Triton, where it is used

        return DeviceNegatives(self, device)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Memory in bytes, known positives apart."""
        return self._table.nbytes + (0 if self._weights is None else self._weights.nbytes)

    def sample(
        self,
        shape: int | tuple[int, ...],
        epoch: int = 0,
        batch: int = 0,
        num_threads: int | None = None,
    ) -> Int64Array:
        """Return int64 ``shape``, drawn items: for nobody, so no known positives are left out.

        The same for equal seed, epoch and batch, whatever the number of threads.

        Args:
            shape: of the result.
            epoch: part of the key of the draws, as the seed.
            batch: part of the key of the draws, as the seed.
            num_threads: None: see :func:`graphbox.native.thread_count`.
        """
        out = np.empty(shape, dtype=np.int64)
        self._table.sample(
            out.reshape(-1),
            self._seed,
            epoch_number(epoch),
            batch_number(batch),
            thread_count(num_threads, "num_threads"),
        )
        return out

    @overload
    def sample_for(
        self,
        queries: torch.Tensor,
        num_negatives: int,
        epoch: int = ...,
        batch: int = ...,
        num_threads: int | None = ...,
        *,
        exclude_query: bool = ...,
        exhausted: Literal["error", "fill"] = ...,
    ) -> torch.Tensor: ...

    @overload
    def sample_for(
        self,
        queries: npt.ArrayLike,
        num_negatives: int,
        epoch: int = ...,
        batch: int = ...,
        num_threads: int | None = ...,
        *,
        exclude_query: bool = ...,
        exhausted: Literal["error", "fill"] = ...,
    ) -> Int64Array: ...

    def sample_for(
        self,
        queries: Any,
        num_negatives: int,
        epoch: int = 0,
        batch: int = 0,
        num_threads: int | None = None,
        *,
        exclude_query: bool = False,
        exhausted: Literal["error", "fill"] = "error",
    ) -> Any:
        """Return ``num_negatives`` items for each query, none of them a known positive of it.

        Each is drawn in proportion to its weight among the items that are left to the query, exactly: draws
        that hit a known positive are repeated up to 31 times, then one is drawn from the enumerated rest.
        Where a query has no items left (its known positives are all there are), training on it means
        nothing: that is an error, unless ``exhausted`` is ``fill``, which gives it -1 for every negative, to
        be masked.

        The same for equal seed, epoch and batch, whatever the number of threads.

        Args:
            queries: integers [q], rows of the known positives; any where there are none.
            num_negatives: for each query, 1 or more.
            epoch: part of the key of the draws, as the seed.
            batch: part of the key of the draws, as the seed.
            num_threads: None: see :func:`graphbox.native.thread_count`.
            exclude_query: queries and items are nodes of one type, and no query is a negative of itself.
            exhausted: ``error``, or ``fill`` with -1.

        Returns:
            int64 [q, num_negatives]; a torch tensor when ``queries`` is one.

        Raises:
            UsageError: a query that is no row of the known positives, or another wrong argument.
            DataError: all items are known positives of a query; damaged known positives.
        """
        if exhausted not in ("error", "fill"):
            raise UsageError(f"expected error or fill, received {exhausted!r}", where="exhausted")
        if isinstance(num_negatives, bool) or not isinstance(num_negatives, int | np.integer):
            raise UsageError(f"expected an integer, received {num_negatives!r}", where="num_negatives")
        index = integer_array(queries, "queries")

        def draw(known: KnownPositives | None) -> Int64Array:
            return self._table.sample_for(
                self._weights,
                known,
                index,
                int(num_negatives),
                exclude_query,
                exhausted == "fill",
                self._seed,
                epoch_number(epoch),
                batch_number(batch),
                thread_count(num_threads, "num_threads"),
            )

        return like(draw(self._known) if self._fetched is None else self._fetched.draw(index, draw), queries)

    def probability(self, items: Any) -> Any:
        """Return the probability of each item to be what :meth:`sample` draws: float64, shaped as ``items``.

        :meth:`sample_for` draws an item that is no known positive with this probability divided by that of
        all items that are none.

        Raises:
            UsageError: an item that is none.
        """
        places = integer_array(items, "items", dimensions=None)
        outside = (places < 0) | (places >= len(self))
        if outside.any():
            raise UsageError(
                f"expected items in [0, {len(self)}), received {places[outside].flat[0]}", where="items"
            )
        weights = np.ones(places.shape) if self._weights is None else self._weights[places]
        return like(weights / self._total, items)


def _powers(values: npt.NDArray[Any], alpha: float) -> npt.NDArray[np.float64]:
    powers = values.astype(np.float64)
    if alpha == 1:
        return powers
    with np.errstate(invalid="ignore"):  # negative weights become NaN, which the table refuses by position
        return np.power(powers, alpha)


def known_positive_rows(adjacency: Adjacency, name: str = _WHERE_KNOWN) -> KnownPositives:
    """Return known positives as the native core takes them, after a look at all of them: rows must ascend.

    Raises:
        UsageError: missing arrays, of another dtype or shape, or a row that does not ascend.
        DataError: the adjacency is damaged.
    """
    arrays = as_arrays(adjacency, name)
    most_parallel_edges(adjacency, arrays, name, thread_count(None))
    return (arrays.indptr, arrays.indices, name, arrays.overlay)


def edge_type_of(graph: GraphLike, edge_type: EdgeType | None) -> EdgeType:
    """Return ``edge_type``, or the only one of the graph.

    Raises:
        UsageError: the graph does not have it, or None was given and it has several.
    """
    if not isinstance(graph, GraphLike):
        raise UsageError(f"expected a graph, received {type(graph).__name__}", where="graph")
    known = [tuple(name) for name in graph.edge_types]
    if edge_type is None and len(known) == 1:
        return graph.edge_types[0]
    if edge_type is None or tuple(edge_type) not in known:
        raise UsageError(
            f"expected one of {', '.join(map(edge_type_name, graph.edge_types))}; received {edge_type!r}",
            where="edge_type",
        )
    return edge_type
