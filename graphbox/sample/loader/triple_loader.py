"""A loader of batches of triples (head, relation, tail), for knowledge graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError, did_you_mean
from graphbox.native import Int64Array, integer_array
from graphbox.sample.adjacency import (
    Adjacency,
    EdgeType,
    GraphLike,
    edge_type_name,
    is_tiered,
)
from graphbox.sample.device import DeviceGraph
from graphbox.sample.fetched_lists import ListBudget
from graphbox.sample.fetched_positives import FetchedPositives
from graphbox.sample.loader.arguments import graph_to_sample, positive_integer, untiered
from graphbox.sample.loader.base import Drawn, Loader, digest
from graphbox.sample.loader.batch import TripleSeeds
from graphbox.sample.loader.leakage import excluded_links, leaking_types, merged
from graphbox.sample.loader.link_loader import links_of
from graphbox.sample.loader.negatives import node_sampler, with_links
from graphbox.sample.loader.options import LoaderKeywords, split_keywords
from graphbox.sample.loader.stages import Neighborhood
from graphbox.sample.negative import NegativeSampler
from graphbox.sample.sampling_plan import SampleRequest

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

Corrupt: TypeAlias = Literal["head", "tail", "both"]
"""Ends of a triple that are replaced to make negatives."""

_SEED_STEP = 0x9E3779B97F4A7C15  # each relation and end draws by a seed of its own


class _Corruption(NamedTuple):
    """Samplers of the negatives of one relation."""

    heads: NegativeSampler
    tails: NegativeSampler


class _Entities(NamedTuple):
    """Node indices of one kind of a batch: an array for each relation, and the triples these are of."""

    name: str
    end: int
    by_relation: dict[int, tuple[Int64Array, Int64Array]]


class TripleLoader(Loader):
    """Iterates over batches of triples, with corrupted ones, and sampled neighbourhoods of their entities.

    A relation is an edge type of the graph; ``rel_type`` numbers them in the order of ``relations``. Batches
    have ``head_index``, ``rel_type`` and ``tail_index``, as PyTorch Geometric's models of knowledge graphs
    name them, and ``neg_head_index`` and ``neg_tail_index``: [batch, num_negatives] entities to put in place
    of the head or the tail. Indices are positions in the batch's nodes of the type that the relation has at
    that end; ``n_id`` there has the entity. All else is as in :class:`NeighborLoader`.

    Negatives are entities of the right type, all equally likely; by default never one that makes a known
    triple (an edge of the graph, or one of ``triples``). Leakage control is as in
    :class:`LinkNeighborLoader`: no triple of the batch is among its edges, in either direction.

    Args:
        graph: as in :class:`NeighborLoader`.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all. ``[0]``
            samples none, for models that only embed entities.
        triples: integers [3, n]: heads, relations and tails; heads and tails are node indices of the
            relation's types. None: all edges of the relations.
        batch_size: triples in a batch.
        relations: the edge types by relation number. None: those of the graph that hold no others backwards.
        corrupt: which ends to replace.
        num_negatives: for each triple and each such end.
        avoid_known_positives: no negative makes a known triple. Of a graph in tiers this takes the CSR of the
            relations on disk (``csr: true`` at its import) where tails are replaced.
        exclude_seed_edges: leakage control.
        options: as in :class:`NeighborLoader`, without ``disjoint`` and ``temporal_strategy``. Plain batches
            have ``TripleSeeds``.

    Raises:
        UsageError: a wrong argument, or a triple of what is no entity or relation.
        NotFoundError: the graph has no such feature, or what a graph in tiers must read is not on disk.
        BackendMissingError: PyTorch Geometric or torch is needed for ``output`` and not installed.
        UnsupportedError: what loaders on a device do not know, see :class:`NeighborLoader`.
        DataError: while iterating, every entity makes a known triple.
    """

    def __init__(
        self,
        graph: GraphLike | TieredGraph | DeviceGraph,
        num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
        triples: npt.ArrayLike | None = None,
        batch_size: int = 1,
        *,
        relations: Sequence[EdgeType] | None = None,
        corrupt: Corrupt = "both",
        num_negatives: int = 1,
        avoid_known_positives: bool = True,
        exclude_seed_edges: bool = True,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        own = TripleLoader.__init__.__annotations__
        neighbors, loading = split_keywords(options, own, without=("disjoint", "temporal_strategy"))
        graph = graph_to_sample(graph)
        whole = untiered(graph)
        if corrupt not in ("head", "tail", "both"):
            raise UsageError(f"expected head, tail or both, received {corrupt!r}", where="corrupt")
        self._corrupt = corrupt
        self._num_negatives = positive_integer(num_negatives, "num_negatives")
        self.relations = _relations_of(whole, relations)
        self._triples = _triples_of(whole, self.relations, triples)
        hops = num_neighbors.values() if isinstance(num_neighbors, Mapping) else [num_neighbors]
        without_edges = all(isinstance(each, Sequence) and not any(each) for each in hops)
        control = exclude_seed_edges and not without_edges
        self._leaking = [leaking_types(whole, each, control) for each in self.relations]
        self._avoids = avoid_known_positives
        self._fetched_lists = ListBudget.of(graph) if is_tiered(graph) else None
        self._corruptions = [
            self._corruption(graph, number, neighbors.seed) for number in range(len(self.relations))
        ]
        self._negative_settings = (
            f"{corrupt}, {num_negatives}, avoid_known_positives={avoid_known_positives}, "
            f"exclude_seed_edges={exclude_seed_edges}, {[*map(edge_type_name, self.relations)]}"
        )
        super().__init__(
            graph,
            batch_size,
            Neighborhood(num_neighbors, neighbors),
            loading,
            fetched_lists=self._fetched_lists,
        )

    def _corruption(
        self, graph: GraphLike | TieredGraph | DeviceGraph, number: int, seed: int
    ) -> _Corruption:
        relation = self.relations[number]
        whole = untiered(graph)
        own = self._triples[:, self._triples[1] == number]
        samplers = []
        for end, node_type in enumerate((relation[0], relation[2])):
            known: Adjacency | FetchedPositives | None = None
            links = np.stack([own[2], own[0]] if end == 0 else [own[0], own[2]])
            avoids = self._avoids and self._replaces(end)
            if avoids and is_tiered(graph) and self._fetched_lists is not None:
                direction: Literal["in", "out"] = "in" if end == 0 else "out"
                known = FetchedPositives(graph, relation, direction, links, self._fetched_lists)
            elif avoids:
                known = with_links(whole.csc(relation) if end == 0 else whole.csr(relation), links)
            own_seed = (seed + (2 * number + end + 1) * _SEED_STEP) % 2**64
            samplers.append(node_sampler(whole, node_type, own_seed, known))
        return _Corruption(*samplers)

    def _replaces(self, end: int) -> bool:
        """Return whether heads (0) or tails (1) are replaced."""
        return self._corrupt in ("both", "head" if end == 0 else "tail")

    @property
    def _num_seeds(self) -> int:
        return len(self._triples[0])

    def _seed_digest(self) -> str:
        return digest(self._triples, self._negative_settings)

    # The first stage

    def _draw(self, chosen: Int64Array, epoch: int, batch: int) -> Drawn:
        triples = self._triples[:, chosen]
        present = np.unique(triples[1]).tolist()
        members = {number: np.flatnonzero(triples[1] == number) for number in present}
        kinds = [
            _Entities("head_index", 0, {number: (at, triples[0, at]) for number, at in members.items()}),
            _Entities("tail_index", 2, {number: (at, triples[2, at]) for number, at in members.items()}),
            *self._negatives(triples, members, epoch, batch),
        ]
        seeds = self._seeds(kinds)
        found = {kind.name: self._places(kind, seeds, len(chosen)) for kind in kinds}
        excluded = merged(
            excluded_links(self._leaking[number], self.relations[number], links, None)
            for number, at in members.items()
            for links in self._labelled(triples[:, at], number, kinds)
        )
        request = SampleRequest(seeds, None, epoch, batch, excluded)
        return Drawn(request, TripleSeeds(chosen, rel_type=triples[1], **found))

    def _negatives(
        self, triples: Int64Array, members: Mapping[int, Int64Array], epoch: int, batch: int
    ) -> list[_Entities]:
        """Return the corrupted heads and tails, [triples of the relation, num_negatives] each."""
        kinds = []
        for name, end, other in (("neg_head_index", 0, 2), ("neg_tail_index", 2, 0)):
            if not self._replaces(end // 2):
                continue
            drawn = {}
            for number, at in members.items():
                sampler = self._corruptions[number][end // 2]
                drawn[number] = (
                    at,
                    sampler.sample_for(triples[other, at], self._num_negatives, epoch, batch, 1),
                )
            kinds.append(_Entities(name, end, drawn))
        return kinds

    def _labelled(self, triples: Int64Array, number: int, kinds: Sequence[_Entities]) -> Iterator[Int64Array]:
        """Give the pairs whose edges would tell a label, of the triples of one relation: int64 [2, n]."""
        yield triples[[0, 2]]
        source, _, target = self.relations[number]
        if self._avoids and source != target:
            return  # corrupted triples are no edges, and none can be one backwards
        for kind in kinds[2:]:
            other = np.repeat(triples[2 - kind.end], self._num_negatives)
            corrupted = kind.by_relation[number][1].reshape(-1)
            yield np.stack([corrupted, other] if kind.end == 0 else [other, corrupted])

    def _seeds(self, kinds: Sequence[_Entities]) -> dict[str, Int64Array]:
        """Return all entities by node type, ascending, each once."""
        by_type: dict[str, list[Int64Array]] = {}
        for kind in kinds:
            for number, (_, nodes) in kind.by_relation.items():
                by_type.setdefault(self.relations[number][kind.end], []).append(nodes.reshape(-1))
        return {node_type: np.unique(np.concatenate(nodes)) for node_type, nodes in by_type.items()}

    def _places(self, kind: _Entities, seeds: Mapping[str, Int64Array], triples: int) -> Int64Array:
        """Return where entities are among the seeds of their type, in the order of the triples."""
        places: Int64Array | None = None
        for number, (at, nodes) in kind.by_relation.items():
            if places is None:
                places = np.empty((triples, *nodes.shape[1:]), np.int64)
            places[at] = np.searchsorted(seeds[self.relations[number][kind.end]], nodes)
        return np.empty(0, np.int64) if places is None else places


# Arguments


def _relations_of(graph: GraphLike, relations: Sequence[EdgeType] | None) -> list[EdgeType]:
    if relations is None:
        is_reverse = getattr(graph, "is_reverse", lambda _: False)
        return [each for each in graph.edge_types if not is_reverse(each)]
    known = {tuple(each): each for each in graph.edge_types}
    found = []
    for each in relations:
        if tuple(each) not in known:
            names = [*map(edge_type_name, graph.edge_types)]
            raise UsageError(
                f"unknown edge type {each!r}; the graph has: {', '.join(names)}",
                where="relations",
                hint=did_you_mean(" ".join(each), names),
            )
        found.append(known[tuple(each)])
    if not found or len(set(found)) != len(found):
        raise UsageError(
            f"expected different edge types, one at least, received {relations!r}", where="relations"
        )
    return found


def _triples_of(graph: GraphLike, relations: Sequence[EdgeType], triples: Any) -> Int64Array:
    if triples is None:
        parts = []
        for number, relation in enumerate(relations):
            sources, targets = links_of(graph, relation)[1]
            parts.append(np.stack([sources, np.full(len(sources), number), targets]))
        return np.concatenate(parts, axis=1)
    array = integer_array(triples, "triples", dimensions=2)
    if len(array) != 3:
        raise UsageError(
            f"expected integers [3, triples]: heads, relations, tails, received shape {list(array.shape)}",
            where="triples",
            hint="rows of (head, relation, tail) are turned by .T",
        )
    numbers = np.arange(len(relations))
    heads = np.array([graph.num_nodes(each[0]) for each in relations])
    tails = np.array([graph.num_nodes(each[2]) for each in relations])
    _check_below(array[1], len(numbers), "relations")
    _check_below(array[0], heads[array[1]], "heads")
    _check_below(array[2], tails[array[1]], "tails")
    return array


def _check_below(values: Int64Array, limits: Any, what: str) -> None:
    wrong = (values < 0) | (values >= limits)
    if wrong.any():
        position = int(np.argmax(wrong))
        limit = np.broadcast_to(limits, values.shape)[position]
        raise UsageError(
            f"expected {what} in [0, {limit}), received {values[position]} at position {position}",
            where="triples",
        )
