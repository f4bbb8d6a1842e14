"""Negatives for the links of a batch: random pairs, or random targets for each link."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError, did_you_mean
from graphbox.native import Int64Array
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike, edge_type_name, is_tiered
from graphbox.sample.device import DeviceGraph
from graphbox.sample.fetched_lists import ListBudget
from graphbox.sample.fetched_positives import FetchedPositives
from graphbox.sample.loader.arguments import present_nodes, untiered
from graphbox.sample.negative import NegativeSampler
from graphbox.sample.non_edge import NonEdgeSampler

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

Mode: TypeAlias = Literal["binary", "triplet"]
NegativeSamplingLike: TypeAlias = "NegativeSampling | Mode | Mapping[str, Any] | Any | None"
"""As users give it: a :class:`NegativeSampling`, PyTorch Geometric's, its mode, or its arguments."""

_FIELDS = ("mode", "amount", "src_weight", "dst_weight")
_SOURCE_SEED = 0x9E3779B97F4A7C15  # sources are drawn by another seed than targets


@dataclass(frozen=True, slots=True)
class NegativeSampling:
    """Negatives to draw, with the arguments of PyTorch Geometric's class of that name.

    Attributes:
        mode: ``binary`` draws pairs of nodes, ``triplet`` draws targets for each source.
        amount: negatives for each link; of triplets an integer.
        src_weight: numbers, one for each node of the source type: sources are drawn in proportion. None: all
            alike.
        dst_weight: the same of the target type.
    """

    mode: Mode
    amount: float = 1
    src_weight: Any = None
    dst_weight: Any = None


def negative_sampling(given: NegativeSamplingLike, ratio: float | None) -> NegativeSampling | None:
    """Return what ``neg_sampling`` or ``neg_sampling_ratio`` stands for, None where there is none.

    Raises:
        UsageError: it is none, or both are given.
    """
    if ratio is not None and given is not None:
        raise UsageError("expected neg_sampling or neg_sampling_ratio, received both", where="neg_sampling")
    if ratio is not None:
        return _checked(NegativeSampling("binary", ratio)) if ratio else None
    if given is None or isinstance(given, NegativeSampling):
        return given if given is None else _checked(given)
    if isinstance(given, str):
        return _checked(NegativeSampling(given))  # type: ignore[arg-type]  # checked there
    if isinstance(given, Mapping):
        for name in given:
            if name not in _FIELDS:
                hint = did_you_mean(str(name), _FIELDS) or f"there are: {', '.join(_FIELDS)}"
                raise UsageError(f"unknown key {name!r}", where="neg_sampling", hint=hint)
        return _checked(NegativeSampling(**{"mode": "binary"} | dict(given)))
    if all(hasattr(given, name) for name in _FIELDS):
        mode = getattr(given.mode, "value", given.mode)
        return _checked(NegativeSampling(mode, given.amount, given.src_weight, given.dst_weight))
    raise UsageError(
        f"expected a NegativeSampling, binary, triplet or a mapping, received {given!r}", where="neg_sampling"
    )


def _checked(sampling: NegativeSampling) -> NegativeSampling:
    amount = sampling.amount
    if sampling.mode not in ("binary", "triplet"):
        raise UsageError(f"expected binary or triplet, received {sampling.mode!r}", where="neg_sampling")
    number = isinstance(amount, int | float) and not isinstance(amount, bool) and math.isfinite(amount)
    if not number or amount <= 0 or (sampling.mode == "triplet" and amount != int(amount)):
        raise UsageError(
            f"expected {'an integer' if sampling.mode == 'triplet' else 'a number'} above 0, received "
            f"{amount!r}",
            where="neg_sampling.amount",
        )
    return sampling


class LinkNegatives:
    """Draws the negatives of links of one edge type.

    Args:
        graph: the graph. Of one in tiers known positives are read from disk.
        edge_type: of the links.
        sampling: which negatives.
        known: pairs [2, n] that are positives besides the edges of the graph; None: negatives may be
            positives by chance.
        seed: of the draws.

    Attributes:
        sampling: which negatives.
        fetched_lists: the memory for lists of known positives, where they are read from disk.

    Raises:
        UsageError: weights of another number of nodes.
        DataError: weights that are negative or all zero; all pairs are positives.
        NotFoundError: known positives are to be read from disk, and the CSR is not there.
    """

    def __init__(
        self,
        graph: GraphLike | TieredGraph | DeviceGraph,
        edge_type: EdgeType,
        sampling: NegativeSampling,
        known: Int64Array | None,
        seed: int,
    ) -> None:
        source, _, target = edge_type
        whole = untiered(graph)
        self.fetched_lists: ListBudget | None = None
        self.sampling = sampling
        self._avoids = known is not None
        self._exclude_loops = self._avoids and source == target
        self._pairs: NonEdgeSampler | None = None
        positives: Adjacency | FetchedPositives | None = None
        alike = sampling.src_weight is None and sampling.dst_weight is None
        removed = any(len(present_nodes(whole, each)) < whole.num_nodes(each) for each in (source, target))
        of_pairs = known is not None and sampling.mode == "binary" and alike and not removed
        if known is not None and is_tiered(graph):
            self.fetched_lists = ListBudget.of(graph)
            positives = FetchedPositives(graph, edge_type, known, self.fetched_lists)
            if of_pairs:
                name = edge_type_name(edge_type)
                self._pairs = NonEdgeSampler.of_positives(
                    positives, name, seed, exclude_loops=self._exclude_loops
                )
        elif known is not None:
            with_known = _WithLinks(whole, edge_type, known)
            positives = with_known.csr(edge_type)
            if of_pairs:
                self._pairs = NonEdgeSampler(with_known, edge_type, seed)
        other_seed = (seed + _SOURCE_SEED) % 2**64
        src_weight, dst_weight = sampling.src_weight, sampling.dst_weight
        self._sources = _node_sampler(whole, source, other_seed, None, src_weight, "src_weight")
        self._targets = _node_sampler(whole, target, seed, positives, dst_weight, "dst_weight")

    def pairs(self, links: int, epoch: int, batch: int) -> Int64Array:
        """Return negatives of mode ``binary`` for this many links: int64 [2, negatives]."""
        count = math.ceil(links * self.sampling.amount)
        if self._pairs is not None:
            return self._pairs.sample(count, epoch, batch, 1)
        sources = self._sources.sample(count, epoch, batch, 1)
        if not self._avoids:
            return np.stack([sources, self._targets.sample(count, epoch, batch, 1)])
        return np.stack([sources, self._for_each(sources, 1, epoch, batch)[:, 0]])

    def targets(self, sources: Int64Array, epoch: int, batch: int) -> Int64Array:
        """Return negatives of mode ``triplet``: int64 [sources, amount]."""
        amount = int(self.sampling.amount)
        if not self._avoids:
            return self._targets.sample((len(sources), amount), epoch, batch, 1)
        return self._for_each(sources, amount, epoch, batch)

    def _for_each(self, sources: Int64Array, amount: int, epoch: int, batch: int) -> Int64Array:
        return self._targets.sample_for(sources, amount, epoch, batch, 1, exclude_query=self._exclude_loops)


def _node_sampler(
    graph: GraphLike,
    node_type: str,
    seed: int,
    positives: Adjacency | FetchedPositives | None,
    weight: Any = None,
    name: str = "weight",
) -> NegativeSampler:
    """Return what draws nodes of a type: in proportion to weights, or all alike; never a removed one.

    Raises:
        UsageError: weights of another number of nodes; ``name`` says which in the message.
    """
    nodes = graph.num_nodes(node_type)
    present = present_nodes(graph, node_type)
    if weight is None and len(present) == nodes:
        return NegativeSampler.uniform(nodes, seed, known_positives=positives)
    values: npt.NDArray[Any] = np.ones(nodes) if weight is None else np.asarray(weight)
    if values.shape != (nodes,):
        raise UsageError(
            f"expected a weight for each of the {nodes} nodes of type `{node_type}`, received shape "
            f"{list(values.shape)}",
            where=f"neg_sampling.{name}",
        )
    if len(present) < nodes:
        values = np.where(np.isin(np.arange(nodes), present), values, 0)
    return NegativeSampler(values, 1, seed, known_positives=positives)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Compressed rows."""

    indptr: Int64Array
    indices: npt.NDArray[Any]


class _WithLinks:
    """A graph, with links added to the out-neighbours of one edge type."""

    def __init__(self, graph: GraphLike, edge_type: EdgeType, links: Int64Array) -> None:
        self._graph = graph
        self._edge_type = edge_type
        self._rows = _with_links(graph.csr(edge_type), links)

    @property
    def node_types(self) -> Sequence[str]:
        return self._graph.node_types

    @property
    def edge_types(self) -> Sequence[EdgeType]:
        return self._graph.edge_types

    def num_nodes(self, node_type: str) -> int:
        return self._graph.num_nodes(node_type)

    def csc(self, edge_type: EdgeType) -> Adjacency:
        return self._graph.csc(edge_type)

    def csr(self, edge_type: EdgeType) -> Adjacency:
        return self._rows if edge_type == self._edge_type else self._graph.csr(edge_type)


def _with_links(rows: Adjacency, links: Int64Array) -> Adjacency:
    """Return ascending rows with the links (row, neighbour) added that they do not have; copied only then."""
    if not links.size:
        return rows
    links = np.unique(links, axis=1)
    begin, end = rows.indptr[links[0]], rows.indptr[links[0] + 1]
    place, last = begin.copy(), end.copy()
    while (open_ := place < last).any():  # a binary search in each row
        middle = (place + last) // 2
        below = open_ & (rows.indices[np.minimum(middle, len(rows.indices) - 1)] < links[1])
        place = np.where(below, middle + 1, place)
        last = np.where(open_ & ~below, middle, last)
    there = place < end
    there[there] = rows.indices[place[there]] == links[1][there]
    if there.all():
        return rows
    row, neighbor = links[:, ~there]
    added = np.bincount(row, minlength=len(rows.indptr) - 1)
    return _Rows(
        rows.indptr + np.append(0, np.cumsum(added)),
        np.insert(rows.indices, place[~there], neighbor.astype(rows.indices.dtype)),
    )
