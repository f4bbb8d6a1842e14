"""Neighbour sampling from adjacency in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any, NamedTuple

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import converter, integer_array, thread_count
from graphbox.sample.adjacency import (
    Adjacency,
    EdgeColumnName,
    EdgeType,
    GraphLike,
    edge_column,
    edge_type_name,
    lists_of,
)
from graphbox.sample.excluded import lists_ascend
from graphbox.sample.hops import hops_by_edge_type
from graphbox.sample.options import NeighborOptions
from graphbox.sample.relations import EdgeLists, IndexedLists, indexed_lists, sampled_relation
from graphbox.sample.sampled import HeteroSample, SampledEdges, SampledNodes, hetero_sample
from graphbox.sample.sampling_plan import NumNeighbors, SampleRequest, SamplingPlan

_UNKNOWN = -1


class AdjacencyGraph:
    """A graph of which only the in-neighbours of each edge type are given.

    Args:
        cscs: the in-neighbours by edge type. How many nodes a type has is known where it is a target, or
            where a CSC has ``num_sources``.
    """

    def __init__(self, cscs: Mapping[EdgeType, Adjacency]) -> None:
        self._cscs = dict(cscs)
        self._num_nodes: dict[str, int] = {}
        for (source, _, target), csc in cscs.items():
            self._num_nodes.setdefault(source, _UNKNOWN)
            if self._num_nodes.get(target, _UNKNOWN) == _UNKNOWN:
                lists = EdgeLists.of(csc, edge_type_name((source, _, target)))
                self._num_nodes[target] = len(lists.arrays.indptr) - 1
            if self._num_nodes[source] == _UNKNOWN:
                self._num_nodes[source] = int(getattr(csc, "num_sources", _UNKNOWN))

    @property
    def node_types(self) -> Sequence[str]:
        """All node types."""
        return list(self._num_nodes)

    @property
    def edge_types(self) -> Sequence[EdgeType]:
        """All edge types."""
        return list(self._cscs)

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type; -1: unknown."""
        return self._num_nodes[node_type]

    def csc(self, edge_type: EdgeType) -> Adjacency:
        """Return the in-neighbours of the target type."""
        return self._cscs[edge_type]

    def csr(self, edge_type: EdgeType) -> Adjacency:
        """Raise: out-neighbours are not given."""
        raise UsageError("expected a graph, received in-neighbours alone", where=edge_type_name(edge_type))


class _Relations(NamedTuple):
    """Relations as the native core samples them, and the indexes over their lists."""

    natives: list[_core.Relation]
    indexed: list[IndexedLists]


class MemorySampler:
    """Samples in-neighbours from adjacency in memory: see :func:`graphbox.sample.sample_heterogeneous`.

    Args:
        graph: what to sample.
        num_neighbors: how many neighbours at each hop.
        options: how.
        node_time: int64 by node type, the time of each node; None: edges have times.
        num_threads: of one sample, None: one. Tables of weights and times are then made by all.

    Raises:
        UsageError: an unknown edge type, or weights, columns or times that are not there.
    """

    def __init__(
        self,
        graph: GraphLike,
        num_neighbors: NumNeighbors,
        options: NeighborOptions,
        node_time: Mapping[str, Any] | None = None,
        num_threads: int | None = None,
    ) -> None:
        hops = hops_by_edge_type(graph.edge_types, num_neighbors)
        lists = {each: EdgeLists.of(lists_of(graph, each, "in"), edge_type_name(each)) for each in hops}

        def has(edge_type: EdgeType, column: EdgeColumnName) -> bool:
            return edge_column(lists[edge_type].adjacency, column, lists[edge_type].name) is not None

        num_nodes = {node_type: graph.num_nodes(node_type) for node_type in graph.node_types}
        self._lists = lists
        self._plan = SamplingPlan(num_nodes, hops, options, has, node_time)  # which must not know the sampler
        self._table_threads = num_threads
        self._threads = 1 if num_threads is None else thread_count(num_threads, "num_threads")
        self._relations: dict[bool, _Relations] = {}  # by whether samples keep to times
        self._preparing = threading.Lock()

    def sample(self, requests: Sequence[SampleRequest]) -> list[HeteroSample[Any]]:
        """Return a sample for each request, of torch tensors where its seeds are.

        Raises:
            UsageError: a seed that is no node of the graph, or another wrong request.
            DataError: the adjacency is damaged, or a weight is not a positive number.
        """
        return [self._sample(request) for request in requests]

    def _sample(self, request: SampleRequest) -> HeteroSample[Any]:
        plan, options = self._plan, self._plan.options
        seeds = [integer_array(nodes, where) for where, nodes in plan.seeds(request)]
        tree_times = plan.tree_times(request)
        relations = self._prepared(timed=tree_times is not None)
        types, edges = _core.sample_neighbors(
            relations.natives,
            list(plan.num_nodes.values()),
            seeds,
            plan.depth,
            options.replace,
            *plan.key(request),
            self._threads,
            plan.is_disjoint(request),
            tree_times,
            options.temporal_strategy == "last",
            self._excluded(request),
            [(each.lists.index, each.numbers) for each in relations.indexed if each.lists.index is not None],
        )
        nodes = list(starmap(SampledNodes, types))
        for each in relations.indexed:
            each.lists.count(sum(nodes[each.target].per_hop[:-1]), self._table_threads)
        return hetero_sample(
            plan.numbers,
            plan.hops,
            nodes,
            list(starmap(SampledEdges, edges)),
            converter(next(iter(request.seeds.values()), None)),
        )

    def _prepared(self, *, timed: bool) -> _Relations:
        """Return the relations, with tables that are made when they are first needed."""
        if timed not in self._relations:
            with self._preparing:
                if timed not in self._relations:
                    self._relations[timed] = self._prepare(timed=timed)
        return self._relations[timed]

    def _prepare(self, *, timed: bool) -> _Relations:
        plan = self._plan
        with_times = plan.timed if timed else []
        natives = [
            sampled_relation(
                lists,
                plan.ends(edge_type),
                plan.hops[edge_type],
                weighted=edge_type in plan.weighted,
                timed=edge_type in with_times,
                node_time=plan.node_time_of(edge_type) if edge_type in with_times else None,
                columns=[name for name, having in plan.columns.items() if edge_type in having],
                threads=self._table_threads,
            )
            for edge_type, lists in self._lists.items()
        ]
        targets = [plan.ends(edge_type)[1] for edge_type in self._lists]
        return _Relations(natives, indexed_lists(list(self._lists.values()), targets))

    def _excluded(self, request: SampleRequest) -> list[tuple[Any, ...]]:
        """Return excluded edges as the native core takes them: whether the lists ascend comes last."""
        lists = list(self._lists.values())
        return [
            (*pairs, lists_ascend(*lists[pairs.relation], thread_count(self._table_threads)))
            for pairs in self._plan.excluded(request)
        ]
