"""Neighbour sampling over a graph on disk: a whole pass of batches at once, hop by hop.

What a hop needs is known before it is read: where the lists of all batches' nodes are, then the neighbours at
the positions that were drawn, or whole lists where choosing takes these. All is read in the order of the
disk. The samples are those that :func:`graphbox.sample.sample_heterogeneous` draws in memory, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import (
    Int64Array,
    batch_number,
    epoch_number,
    integer_array,
    thread_count,
)
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.drawing import check_temporal, times_of_trees
from graphbox.sample.excluded import ExcludedEdges, ExcludedPairs, excluded_pairs
from graphbox.sample.fetched_lists import ListBudget, ListDrawing
from graphbox.sample.hops import hops_by_edge_type
from graphbox.sample.options import NeighborKeywords, NeighborOptions, lacks_attribute
from graphbox.sample.sampled import HeteroSample

if TYPE_CHECKING:
    from graphbox.graph.tiered_edges import TieredEdges
    from graphbox.graph.tiered_graph import TieredGraph

BatchKey: TypeAlias = tuple[int, int]
"""Epoch and number of a batch: with the seed what its draws depend on."""

_EDGE_ATTRIBUTES: tuple[EdgeColumnName, ...] = ("weight", "timestamp")


@dataclass(frozen=True)
class _Relation:
    """An edge type that is sampled, and the values of its edges that are wanted: an array for each hop."""

    edge_type: EdgeType
    edges: TieredEdges
    drawing: ListDrawing
    columns: dict[EdgeColumnName, list[npt.NDArray[Any]]]


class SampledPass(Protocol):
    """The samples of the batches of a pass, wherever they are."""

    def __len__(self) -> int:
        """Return the number of batches."""
        ...

    def __getitem__(self, index: int, /) -> HeteroSample[Any]:
        """Return the sample of a batch."""
        ...

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        ...

    def nodes(self, node_type: str) -> list[Int64Array]:
        """Return the nodes of a type in each batch, in host memory."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        ...

    @property
    def list_bytes(self) -> int:
        """The most bytes that whole lists took at a time while it was sampled."""
        ...


class PassSample(Sequence[HeteroSample[Int64Array]]):
    """The samples of the batches of a pass, each made when it is asked for; see :func:`sample_pass`."""

    def __init__(
        self,
        native: _core.NeighborPass,
        node_types: Sequence[str],
        relations: Sequence[_Relation],
        batches: int,
        *,
        disjoint: bool,
        list_bytes: int,
    ) -> None:
        self._native = native
        self._node_types = list(node_types)
        self._relations = list(relations)
        self._batches = batches
        self._disjoint = disjoint
        self._list_bytes = list_bytes

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return list(self._node_types)

    def __len__(self) -> int:
        """Return the number of batches."""
        return self._batches

    def __getitem__(self, index: Any) -> Any:
        """Return the sample of a batch, or those of several."""
        if isinstance(index, slice):
            return [self._sample(number) for number in range(*index.indices(self._batches))]
        number = range(self._batches)[index]
        return self._sample(number)

    def nodes(self, node_type: str) -> list[Int64Array]:
        """Return the nodes of a type in each batch, as views of what the pass holds; no sample is made."""
        number = self._node_types.index(node_type)
        return [self._native.nodes(batch, number) for batch in range(self._batches)]

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        columns = (part for each in self._relations for parts in each.columns.values() for part in parts)
        return self._native.bytes + sum(part.nbytes for part in columns)

    @property
    def list_bytes(self) -> int:
        """The most bytes that whole lists took at a time while it was sampled."""
        return self._list_bytes

    def _sample(self, batch: int) -> HeteroSample[Int64Array]:
        types, edges = self._native.batch(batch)
        by_edge_type = {
            relation.edge_type: entry for relation, entry in zip(self._relations, edges, strict=True)
        }
        values: dict[EdgeColumnName, dict[EdgeType, Any]] = {name: {} for name in _EDGE_ATTRIBUTES}
        for number, relation in enumerate(self._relations):
            for name in relation.columns:
                values[name][relation.edge_type] = self._column(batch, number, name)
        return HeteroSample(
            nodes={name: entry[0] for name, entry in zip(self._node_types, types, strict=True)},
            row={name: entry[0] for name, entry in by_edge_type.items()},
            col={name: entry[1] for name, entry in by_edge_type.items()},
            edge_ids={
                relation.edge_type: relation.edges.edge_ids(by_edge_type[relation.edge_type][2])
                for relation in self._relations
            },
            num_sampled_nodes={name: entry[1] for name, entry in zip(self._node_types, types, strict=True)},
            num_sampled_edges={name: entry[3] for name, entry in by_edge_type.items()},
            weight=values["weight"],
            timestamp=values["timestamp"],
            trees={name: entry[2] for name, entry in zip(self._node_types, types, strict=True)}
            if self._disjoint
            else {},
        )

    def _column(self, batch: int, relation: int, name: EdgeColumnName) -> npt.NDArray[Any]:
        parts = []
        for hop, values in enumerate(self._relations[relation].columns[name]):
            bounds = self._native.first_edges(hop, relation)
            parts.append(values[bounds[batch] : bounds[batch + 1]])
        return np.concatenate(parts)


def sample_pass(
    graph: TieredGraph,
    seeds: Sequence[Mapping[str, npt.ArrayLike]],
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    *,
    input_time: Sequence[Mapping[str, Any]] | None = None,
    excluded_edges: Sequence[Mapping[EdgeType, ExcludedEdges] | None] | None = None,
    batches: Sequence[BatchKey] | None = None,
    num_threads: int | None = None,
    **options: Unpack[NeighborKeywords],
) -> PassSample:
    """Sample in-neighbours for a pass of batches over a graph on disk, hop by hop for all of them together.

    A batch's sample depends on its own seeds and key alone, and is that of
    :func:`graphbox.sample.sample_heterogeneous` on the graph in memory.

    Where every in-neighbour is equally likely, only the neighbours that were drawn are read. Choosing by
    weight or time, or among what excluded edges leave takes whole lists: those of a hop are read each once
    for the whole pass, in parts of at most a quarter of the graph's ``pass_bytes``.

    Besides the graph's budget the pass holds about 12 bytes for each sampled edge and 8 for each node, 20 in
    disjoint trees (:attr:`PassSample.size_bytes`), while a hop is read up to twice that.

    Args:
        graph: of :meth:`graphbox.graph.Graph.tiered`.
        seeds: of each batch, node indices by node type.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        input_time: of each batch, the time of each seed by node type: only edges whose timestamp is not later
            are sampled. The samples are disjoint.
        excluded_edges: of each batch, edges that must not be sampled, by edge type, or None.
        batches: epoch and number of each batch, parts of the key of its draws; None: epoch 0, from 0 on.
        num_threads: None: see :func:`graphbox.native.thread_count`. The samples never depend on it.
        options: see :class:`graphbox.sample.NeighborOptions`.

    Raises:
        UsageError: an unknown type, a seed that is no node of the graph, weights that are not there, or
            another wrong argument.
        NotFoundError: the neighbours of a reverse edge type are not on disk.
        DoesNotFitError: one list that must be read as a whole takes more than half of ``pass_bytes``.
        FormatError, DataError: the graph is damaged, a weight is not a positive number, or the disk does not
            give its bytes.
    """
    chosen = NeighborOptions.of(options)
    whole = graph.graph
    hops = hops_by_edge_type(whole, num_neighbors)
    numbers = {node_type: number for number, node_type in enumerate(whole.node_types)}
    keys = [(0, number) for number in range(len(seeds))] if batches is None else list(batches)
    for what, where in ((keys, "batches"), (input_time, "input_time"), (excluded_edges, "excluded_edges")):
        if what is not None and len(what) != len(seeds):
            raise UsageError(
                f"expected one entry for each of {len(seeds)} batches, received {len(what)}", where=where
            )
    disjoint = chosen.disjoint or input_time is not None
    excluded = [
        excluded_pairs(each or {}, list(hops), disjoint=disjoint)
        for each in excluded_edges or [None] * len(seeds)
    ]
    relations = _relations(graph, hops, chosen, input_time is not None, excluded)
    if input_time is not None:
        check_temporal(
            [edge_type_name(each.edge_type) for each in relations],
            [each.drawing.weighted for each in relations if each.drawing.temporal],
            chosen.temporal_strategy,
            replace=chosen.replace,
        )
    _want_columns(relations, chosen.edge_attributes)
    depth = max((len(each) for each in hops.values()), default=0)
    times = [None] * len(seeds) if input_time is None else input_time
    native = _core.NeighborPass(
        [
            (numbers[edge_type[0]], numbers[edge_type[2]], wanted, edge_type_name(edge_type))
            for edge_type, wanted in hops.items()
        ],
        [whole.num_nodes(node_type) for node_type in whole.node_types],
        [
            (
                epoch_number(epoch),
                batch_number(batch),
                _seeds_by_type(each, numbers),
                None if its_times is None else times_of_trees(its_times, each, list(numbers)),
                its_excluded,
            )
            for (epoch, batch), each, its_times, its_excluded in zip(
                keys, seeds, times, excluded, strict=True
            )
        ],
        depth,
        chosen.replace,
        disjoint,
        chosen.temporal_strategy == "last",
        chosen.seed,
        thread_count(num_threads, "num_threads"),
    )
    budget = ListBudget.of(graph)
    hop_of = _Hop(
        native, numbers, whole.num_nodes, chosen.replace, budget, thread_count(num_threads, "num_threads")
    )
    for hop in range(depth if relations else 0):
        for number, relation in enumerate(relations):
            hop_of.sample(number, relation, hops[relation.edge_type][hop])
        native.end_hop()
    return PassSample(
        native, whole.node_types, relations, len(seeds), disjoint=disjoint, list_bytes=budget.peak_bytes
    )


@dataclass(frozen=True)
class _Hop:
    """Samples one edge type after the other."""

    native: _core.NeighborPass
    numbers: Mapping[str, int]
    num_nodes: Callable[[str], int]
    replace: bool
    budget: ListBudget
    threads: int

    def sample(self, number: int, relation: _Relation, wanted: int) -> None:
        native, edges = self.native, relation.edges
        nodes = native.frontier(number)
        if not wanted:  # nothing is read: lists count as empty
            bounds = np.zeros((len(nodes), 2), np.int64)
        else:
            bounds = edges.bounds(nodes)
            whole = relation.drawing.wants(nodes, bounds, wanted, replace=self.replace)
            if whole.any():
                self._draw_in_lists(number, relation, nodes[whole], bounds[whole])
                bounds = bounds[~whole]
        del nodes
        unread = native.draw(number, bounds.reshape(-1))
        del bounds
        native.add(number, edges.neighbors(unread))
        del unread
        for name, parts in relation.columns.items():
            parts.append(edges.payload(name, native.positions(number)))

    def _draw_in_lists(self, number: int, relation: _Relation, nodes: Int64Array, bounds: Int64Array) -> None:
        source, _, target = relation.edge_type
        for lists in relation.drawing.relations(
            relation.edges,
            relation.edge_type,
            (self.numbers[source], self.numbers[target]),
            self.num_nodes(target),
            nodes,
            bounds,
            self.budget,
            self.threads,
        ):
            self.native.draw_in(number, lists)
            del lists  # before the next are read


def _relations(
    graph: TieredGraph,
    hops: Mapping[EdgeType, Sequence[int]],
    options: NeighborOptions,
    temporal: bool,
    excluded: Sequence[Sequence[ExcludedPairs]],
) -> list[_Relation]:
    lists = {edge_type: graph.edges(edge_type) for edge_type in hops}
    by_weight = options.weighted_types({edge_type: edges.has("weight") for edge_type, edges in lists.items()})
    relations = []
    for number, (edge_type, edges) in enumerate(lists.items()):
        rows = [pairs[1] for batch in excluded for pairs in batch if pairs[0] == number]
        drawing = ListDrawing(
            weighted=edge_type in by_weight,
            temporal=temporal and edges.has("timestamp"),
            excluded_rows=np.unique(np.concatenate([np.zeros(0, np.int64), *rows])),
        )
        relations.append(_Relation(edge_type, edges, drawing, {}))
    return relations


def _want_columns(relations: Sequence[_Relation], wanted: Collection[EdgeColumnName]) -> None:
    for name in wanted:
        having = [relation for relation in relations if relation.edges.has(name)]
        for relation in having:
            relation.columns[name] = []
        if relations and not having:
            raise lacks_attribute(name, [edge_type_name(relation.edge_type) for relation in relations])


def _seeds_by_type(seeds: Mapping[str, Any], numbers: Mapping[str, int]) -> list[Int64Array]:
    for node_type in seeds:
        if node_type not in numbers:
            raise UsageError(
                f"unknown node type; the graph has: {', '.join(numbers)}", where=f"seeds[{node_type!r}]"
            )
    return [integer_array(seeds.get(node_type, ()), f"seeds[{node_type!r}]") for node_type in numbers]
