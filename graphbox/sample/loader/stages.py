"""The stages of a batch between its seeds and what is handed out: sampling, and fetching features."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias

from graphbox.native import Int64Array
from graphbox.sample.fan_out import fan_out
from graphbox.sample.loader.arguments import NodeTimes
from graphbox.sample.options import NeighborOptions
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.sampling_plan import NeighborSampler, NumNeighbors, SampleRequest
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

    num_neighbors: NumNeighbors
    options: NeighborOptions
    node_times: NodeTimes | None = None

    @property
    def node_time(self) -> Mapping[str, Int64Array] | None:
        """The time of each node by node type, or None."""
        return None if self.node_times is None else self.node_times.by_type


class FetchStage(Protocol):
    """Fetches features for the samples of a pass; must be safe for several threads."""

    def fetch(self, samples: Sequence[HeteroSample[Any]]) -> list[Features]:
        """Return for each sample the rows of its ``nodes``, in their order."""
        ...


class MemoryStages:
    """Samples from adjacency in memory so far ahead that rows of tables on SSD can be read meanwhile.

    Args:
        sampler: samples.
        rows: reads the rows of nodes.
        pass_batches: batches that are sampled together; two such passes are held.
    """

    def __init__(self, sampler: NeighborSampler, rows: RowsAhead, pass_batches: int | None) -> None:
        self._sampler = sampler
        self._rows = rows
        self._pass_batches = pass_batches or _SAMPLED_AHEAD

    def batches(
        self, requests: Iterator[SampleRequest]
    ) -> Generator[tuple[HeteroSample[Int64Array], Features], None, None]:
        """Give the sample of each request, in order, when the rows of its nodes are in memory."""
        own, others = fan_out(self._passes(requests), 2)
        wanted = ([sample.nodes for sample in samples] for samples in others)
        with closing(self._rows.over(wanted)) as rows:
            for samples in own:
                for sample in samples:
                    next(rows)
                    yield sample, {}

    def _passes(self, requests: Iterator[SampleRequest]) -> Iterator[Sequence[HeteroSample[Any]]]:
        while chosen := list(islice(requests, self._pass_batches)):
            yield self._sampler.sample(chosen)
