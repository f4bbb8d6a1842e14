"""Arguments of samplers, normalised once, and the batches that they then get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from graphbox.errors import UsageError
from graphbox.native import Int64Array, batch_number, epoch_number
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.drawing import (
    check_temporal,
    of_type,
    times_of_nodes,
    times_of_seeds,
    times_of_trees,
)
from graphbox.sample.excluded import ExcludedEdges, ExcludedPairs, excluded_pairs
from graphbox.sample.options import NeighborOptions, lacks_attribute
from graphbox.sample.sampled import HeteroSample

NumNeighbors: TypeAlias = Mapping[EdgeType, Sequence[int]] | Sequence[int]
"""Neighbours at each hop, for all edge types or by edge type; -1: all."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Seeds of one batch, their times, and the key of its draws.

    Attributes:
        seeds: integers, node indices by node type.
        times: int64, the time of each seed by node type, or None.
        epoch: part of the key of the draws.
        batch: part of the key of the draws.
        excluded_edges: edges that must not be sampled, or None.
    """

    seeds: Mapping[str, Any]
    times: Mapping[str, Any] | None = None
    epoch: int = 0
    batch: int = 0
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = None


class NeighborSampler(Protocol):
    """Samples in-neighbours of one graph, prepared for its options; safe for several threads."""

    def sample(self, requests: Sequence[SampleRequest]) -> Sequence[HeteroSample[Any]]:
        """Return a sample for each request; it depends on that request alone."""
        ...


class SamplingPlan:
    """Node types, edge types, hops and options of a sampler.

    Args:
        num_nodes: of each node type, in order; -1: unknown.
        hops: how many neighbours at each hop, for each edge type that is sampled, in order.
        options: how.
        has: whether the edges of an edge type have a weight or timestamp.
        node_time: the time of each node by node type, in place of timestamps of edges, or None.

    Attributes:
        num_nodes: as given.
        numbers: of node types by name.
        hops: as given.
        depth: number of hops.
        options: as given.
        weighted: the edge types that are drawn in proportion to weights.
        columns: the edge types that have each column that is to be returned.
        node_time: int64 by node type, or None.

    Raises:
        UsageError: weights or columns are asked for that no sampled edge type has, or wrong times of nodes.
    """

    def __init__(
        self,
        num_nodes: Mapping[str, int],
        hops: Mapping[EdgeType, list[int]],
        options: NeighborOptions,
        has: Callable[[EdgeType, EdgeColumnName], bool],
        node_time: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_nodes = dict(num_nodes)
        self.numbers = {node_type: number for number, node_type in enumerate(num_nodes)}
        self.hops = dict(hops)
        self.depth = max((len(each) for each in hops.values()), default=0)
        self.options = options
        self._has = has
        self.weighted: list[EdgeType] = []
        if options.weight_attr is not None:
            self.weighted = options.weighted_types({each: has(each, "weight") for each in hops})
        self.columns: dict[EdgeColumnName, list[EdgeType]] = {}
        for name in options.edge_attributes:
            self.columns[name] = [each for each in hops if has(each, name)]
            if hops and not self.columns[name]:
                raise lacks_attribute(name, self.edge_names)
        self.node_time = times_of_nodes(node_time, self.num_nodes)

    @property
    def edge_names(self) -> list[str]:
        """Names of the sampled edge types, for messages."""
        return [edge_type_name(each) for each in self.hops]

    def ends(self, edge_type: EdgeType) -> tuple[int, int]:
        """Return the numbers of the source and target type."""
        return self.numbers[edge_type[0]], self.numbers[edge_type[2]]

    @cached_property
    def timed(self) -> list[EdgeType]:
        """The edge types of which only edges not later than a time are sampled, where trees have times.

        Raises:
            UsageError: neighbours up to a time cannot be sampled as asked.
        """
        if self.node_time is None:
            found = [each for each in self.hops if self._has(each, "timestamp")]
        else:
            found = [each for each in self.hops if each[0] in self.node_time]
        check_temporal(
            self.edge_names,
            [each in self.weighted for each in found],
            self.options.temporal_strategy,
            replace=self.options.replace,
            by_nodes=self.node_time is not None,
        )
        return found

    def node_time_of(self, edge_type: EdgeType) -> Int64Array | None:
        """Return the times of the nodes of the source type of a timed edge type; None: edges have times."""
        return None if self.node_time is None else self.node_time[edge_type[0]]

    # Of requests

    def keeps_to_times(self, request: SampleRequest) -> bool:
        """Return whether the seeds of a request have times."""
        return request.times is not None or self.node_time is not None

    def is_disjoint(self, request: SampleRequest) -> bool:
        """Return whether each seed of a request has a tree of its own."""
        return self.options.disjoint or self.keeps_to_times(request)

    def key(self, request: SampleRequest) -> tuple[int, int, int]:
        """Return seed, epoch and batch: the key of the draws."""
        return self.options.seed, epoch_number(request.epoch), batch_number(request.batch)

    def seeds(self, request: SampleRequest) -> list[tuple[str, Any]]:
        """Return the seeds of each node type, and what messages call them.

        Raises:
            UsageError: an unknown node type.
        """
        for node_type in request.seeds:
            if node_type not in self.numbers:
                raise UsageError(
                    f"unknown node type; the graph has: {', '.join(self.numbers)}",
                    where=of_type("seeds", node_type),
                )
        return [(of_type("seeds", each), request.seeds.get(each, ())) for each in self.numbers]

    def tree_times(self, request: SampleRequest) -> Int64Array | None:
        """Return the time of each tree, int64; None: the seeds have no times.

        Raises:
            UsageError: no time for a seed, or times that are no integers.
        """
        if not self.keeps_to_times(request):
            return None
        times = request.times
        if times is None:
            times = times_of_seeds(self.node_time or {}, request.seeds)
        return times_of_trees(times, request.seeds, list(self.numbers))

    def excluded(self, request: SampleRequest) -> list[ExcludedPairs]:
        """Return the edges that must not be sampled, by the number of their edge type.

        Raises:
            UsageError: arrays of another shape, or groups of trees in a sample that has none.
        """
        return excluded_pairs(
            request.excluded_edges or {}, list(self.hops), disjoint=self.is_disjoint(request)
        )
