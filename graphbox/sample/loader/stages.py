"""The stages of a batch between its seeds and what is handed out: sampling, and fetching features."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, tee
from typing import Any, Protocol, TypeAlias

import numpy as np

from graphbox.native import Int64Array
from graphbox.sample.adjacency import EdgeType, GraphLike
from graphbox.sample.device import DeviceGraph
from graphbox.sample.excluded import ExcludedEdges
from graphbox.sample.loader.arguments import NodeTimes
from graphbox.sample.neighbor import sample_heterogeneous
from graphbox.sample.options import NeighborOptions
from graphbox.sample.sampled import HeteroSample
from graphbox.table.rows_ahead import RowsAhead

_SAMPLED_AHEAD = 32
"""Batches of a pass in memory, unless another number is asked for."""


Features: TypeAlias = dict[str, dict[str, Any]]
"""Rows of a sample's nodes by node type and name; of slots the values, and their offsets as ``name_ptr``.

They are arrays, or tensors on a device."""


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Neighbours that a loader samples.

    Attributes:
        num_neighbors: how many at each hop, for all edge types or by edge type; -1: all.
        options: how.
        node_times: the times of nodes, where neighbours are sampled up to these.
    """

    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int]
    options: NeighborOptions
    node_times: NodeTimes | None = None

    @property
    def node_time(self) -> Mapping[str, Int64Array] | None:
        """The time of each node by node type, or None."""
        return None if self.node_times is None else self.node_times.by_type


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Seeds of one batch, their times, and the key of its draws.

    Attributes:
        seeds: int64 node indices by node type.
        times: int64, the time of each seed by node type, or None.
        epoch: part of the key of the draws.
        batch: part of the key of the draws.
        excluded_edges: edges that must not be sampled, or None.
    """

    seeds: Mapping[str, Int64Array]
    times: Mapping[str, Int64Array] | None
    epoch: int
    batch: int
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = None


class SampleStage(Protocol):
    """Samples the batches of a pass; must be safe for several threads."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[HeteroSample[Int64Array]]:
        """Return a sample for each request; it depends on that request alone."""
        ...


class FetchStage(Protocol):
    """Fetches features for the samples of a pass; must be safe for several threads."""

    def fetch(self, samples: Sequence[HeteroSample[Any]]) -> list[Features]:
        """Return for each sample the rows of its ``nodes``, in their order."""
        ...


class MemorySampler:
    """Samples from adjacency in memory, one request after the other.

    Args:
        graph: what to sample.
        neighbors: which.
        threads: for one request.
    """

    def __init__(self, graph: GraphLike | DeviceGraph, neighbors: Neighborhood, threads: int) -> None:
        self._graph = graph
        self._neighbors = neighbors
        self._threads = threads

    def sample(self, requests: Sequence[SampleRequest]) -> list[HeteroSample[Int64Array]]:
        """Return a sample for each request."""
        return [self._sample(request) for request in requests]

    def _sample(self, request: SampleRequest) -> HeteroSample[np.ndarray[Any, Any]]:
        return sample_heterogeneous(
            self._graph,
            request.seeds,
            self._neighbors.num_neighbors,
            input_time=request.times,
            node_time=self._neighbors.node_time,
            excluded_edges=request.excluded_edges,
            epoch=request.epoch,
            batch=request.batch,
            num_threads=self._threads,
            **self._neighbors.options.keywords(),
        )


class MemoryStages:
    """Samples from adjacency in memory so far ahead that rows of tables on SSD can be read meanwhile.

    Args:
        sampler: samples.
        rows: reads the rows of nodes.
        pass_batches: batches that are sampled together; two such passes are held.
    """

    def __init__(self, sampler: MemorySampler, rows: RowsAhead, pass_batches: int | None) -> None:
        self._sampler = sampler
        self._rows = rows
        self._pass_batches = pass_batches or _SAMPLED_AHEAD

    def batches(
        self, requests: Iterator[SampleRequest]
    ) -> Generator[tuple[HeteroSample[Int64Array], Features], None, None]:
        """Give the sample of each request, in order, when the rows of its nodes are in memory."""
        own, others = tee(self._passes(requests))
        wanted = ([sample.nodes for sample in samples] for samples in others)
        with closing(self._rows.over(wanted)) as rows:
            for samples in own:
                for sample in samples:
                    next(rows)
                    yield sample, {}

    def _passes(self, requests: Iterator[SampleRequest]) -> Iterator[list[HeteroSample[Int64Array]]]:
        while chosen := list(islice(requests, self._pass_batches)):
            yield self._sampler.sample(chosen)
