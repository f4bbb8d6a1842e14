"""Neighbour sampling over a graph on disk: a whole pass of batches at once, hop by hop.

What a hop needs is known before it is read: where the lists of all batches' nodes are, then the neighbours at
the positions that were drawn, or whole lists where choosing takes these. All is read in the order of the
disk. The samples are those that :func:`graphbox.sample.sample_heterogeneous` draws in memory, bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UnsupportedError
from graphbox.native import Int64Array, integer_array, thread_count
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.excluded import ExcludedPairs
from graphbox.sample.fetched_lists import ListBudget, ListDrawing
from graphbox.sample.hops import hops_by_edge_type
from graphbox.sample.options import NeighborOptions
from graphbox.sample.sampled import HeteroSample, SampledEdges, SampledNodes, hetero_sample
from graphbox.sample.sampling_plan import NumNeighbors, SampleRequest, SamplingPlan

if TYPE_CHECKING:
    from graphbox.graph.tiered_edges import TieredEdges
    from graphbox.graph.tiered_graph import TieredGraph


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
    """The samples of the batches of a pass, each made when it is asked for; see :class:`TieredSampler`."""

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
        types, relations = self._native.batch(batch)
        nodes = list(starmap(SampledNodes, types))
        edges = []
        for number, (relation, found) in enumerate(zip(self._relations, relations, strict=True)):
            row, col, positions, per_hop = found
            columns: Any = {name: self._column(batch, number, name) for name in relation.columns}
            edges.append(SampledEdges(row, col, relation.edges.edge_ids(positions), per_hop, **columns))
        if not self._disjoint:
            nodes = [each._replace(trees=None) for each in nodes]
        return hetero_sample(self._node_types, [each.edge_type for each in self._relations], nodes, edges)

    def _column(self, batch: int, relation: int, name: EdgeColumnName) -> npt.NDArray[Any]:
        parts = []
        for hop, values in enumerate(self._relations[relation].columns[name]):
            bounds = self._native.first_edges(hop, relation)
            parts.append(values[bounds[batch] : bounds[batch + 1]])
        return np.concatenate(parts)


class TieredSampler:
    """Samples in-neighbours for passes of batches over a graph on disk, hop by hop for a pass together.

    A batch's sample depends on its own seeds and key alone, and is that of
    :func:`graphbox.sample.sample_heterogeneous` on the graph in memory.

    Where every in-neighbour is equally likely, only the neighbours that were drawn are read. Choosing by
    weight or time, or among what excluded edges leave takes whole lists: those of a hop are read each once
    for the whole pass, in parts of at most a quarter of the graph's ``pass_bytes``.

    Besides the graph's budget a pass holds about 12 bytes for each sampled edge and 8 for each node, 20 in
    disjoint trees (:attr:`PassSample.size_bytes`), while a hop is read up to twice that.

    Args:
        graph: of :meth:`graphbox.graph.Graph.tiered`.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        options: how.
        node_time: None; times of nodes are not supported.
        num_threads: of a pass. None: see :func:`graphbox.native.thread_count`.

    Raises:
        UsageError: an unknown edge type, or weights or columns that are not there.
        NotFoundError: the neighbours of a reverse edge type are not on disk.
        UnsupportedError: neighbours are to be sampled by times of nodes.
    """

    def __init__(
        self,
        graph: TieredGraph,
        num_neighbors: NumNeighbors,
        options: NeighborOptions,
        node_time: Mapping[str, Any] | None = None,
        num_threads: int | None = None,
    ) -> None:
        if node_time is not None:
            raise UnsupportedError(
                "expected times of edges for a graph in tiers: those of nodes order edges in memory",
                where="time_attr",
                hint="leave it out, or give the graph itself (its files are memory-mapped)",
            )
        self._graph = graph
        whole = graph.graph
        hops = hops_by_edge_type(whole.edge_types, num_neighbors)
        edges = {edge_type: graph.edges(edge_type) for edge_type in hops}
        self._edges = edges
        self._plan = SamplingPlan(
            {node_type: whole.num_nodes(node_type) for node_type in whole.node_types},
            hops,
            options,
            lambda edge_type, column: edges[edge_type].has(column),
        )
        self._threads = thread_count(num_threads, "num_threads")

    def sample(self, requests: Sequence[SampleRequest]) -> PassSample:
        """Return the samples of a pass; all requests have times, or none.

        Raises:
            UsageError: a seed that is no node of the graph, or another wrong request.
            DoesNotFitError: one list that must be read as a whole takes too much of ``pass_bytes``.
            FormatError, DataError: the graph is damaged, or the disk does not give its bytes.
        """
        plan = self._plan
        timed = any(request.times is not None for request in requests)
        excluded = [plan.excluded(request) for request in requests]
        relations = self._relations(excluded, timed=timed)
        disjoint = plan.options.disjoint or timed
        native = self._native_pass(requests, excluded, disjoint=disjoint)
        budget = ListBudget.of(self._graph)
        hop_of = _Hop(native, plan, budget, self._threads)
        for hop in range(plan.depth):
            for number, relation in enumerate(relations):
                hop_of.sample(number, relation, plan.hops[relation.edge_type][hop])
            native.end_hop()
        return PassSample(
            native,
            list(plan.numbers),
            relations,
            len(requests),
            disjoint=disjoint,
            list_bytes=budget.peak_bytes,
        )

    def _native_pass(
        self,
        requests: Sequence[SampleRequest],
        excluded: Sequence[Sequence[ExcludedPairs]],
        *,
        disjoint: bool,
    ) -> _core.NeighborPass:
        plan, options = self._plan, self._plan.options
        batches = []
        for request, its_excluded in zip(requests, excluded, strict=True):
            _, epoch, batch = plan.key(request)
            seeds = [integer_array(nodes, where) for where, nodes in plan.seeds(request)]
            batches.append((epoch, batch, seeds, plan.tree_times(request), its_excluded))
        return _core.NeighborPass(
            [(*plan.ends(each), wanted, edge_type_name(each)) for each, wanted in plan.hops.items()],
            list(plan.num_nodes.values()),
            batches,
            plan.depth,
            options.replace,
            disjoint,
            options.temporal_strategy == "last",
            options.seed,
            self._threads,
        )

    def _relations(self, excluded: Sequence[Sequence[ExcludedPairs]], *, timed: bool) -> list[_Relation]:
        plan = self._plan
        with_times = plan.timed if timed else []
        relations = []
        for number, (edge_type, edges) in enumerate(self._edges.items()):
            rows = [pairs.targets for batch in excluded for pairs in batch if pairs.relation == number]
            drawing = ListDrawing(
                weighted=edge_type in plan.weighted,
                temporal=edge_type in with_times,
                excluded_rows=np.unique(np.concatenate([np.zeros(0, np.int64), *rows])),
            )
            columns: dict[EdgeColumnName, list[npt.NDArray[Any]]] = {
                name: [] for name, having in plan.columns.items() if edge_type in having
            }
            relations.append(_Relation(edge_type, edges, drawing, columns))
        return relations


@dataclass(frozen=True)
class _Hop:
    """Samples one edge type after the other."""

    native: _core.NeighborPass
    plan: SamplingPlan
    budget: ListBudget
    threads: int

    def sample(self, number: int, relation: _Relation, wanted: int) -> None:
        native, edges = self.native, relation.edges
        nodes = native.frontier(number)
        if not wanted:  # nothing is read: lists count as empty
            bounds = np.zeros((len(nodes), 2), np.int64)
        else:
            bounds = edges.bounds(nodes)
            whole = relation.drawing.wants(nodes, bounds, wanted, replace=self.plan.options.replace)
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
        for lists in relation.drawing.relations(
            relation.edges,
            relation.edge_type,
            self.plan.ends(relation.edge_type),
            self.plan.num_nodes[relation.edge_type[2]],
            nodes,
            bounds,
            self.budget,
            self.threads,
        ):
            self.native.draw_in(number, lists)
            del lists  # before the next are read
