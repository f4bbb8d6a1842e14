"""The stages of batches from a graph on disk: sampled in passes, features fetched by the trace of a pass."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphbox.errors import DoesNotFitError
from graphbox.sample.fan_out import fan_out
from graphbox.sample.fetch import BatchFeatures, PassFetch, TierFetch
from graphbox.sample.fetched_lists import ListBudget
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.sampling_plan import SampleRequest
from graphbox.sample.tiered_neighbor import SampledPass
from graphbox.table.rows_ahead import BatchKeys, RowsAhead
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

_PASSES_HELD = 3
"""One whose batches are used, one whose rows are read, one that is being sampled."""
_TRACE_BYTES = 24
"""For each node of a batch, while its rows are fetched."""
_SPARE = 1.25
"""Batches differ: those of a pass may take so much more than those of the one before."""


class PassSampler(Protocol):
    """Samples the batches of a pass."""

    def sample(self, requests: Sequence[SampleRequest]) -> SampledPass:
        """Return the samples of a pass; those of none are empty."""
        ...


class TieredStages:
    """Samples and fetches the batches of a loop over a graph on disk.

    Args:
        graph: the graph.
        sampler: samples its passes.
        names: of the features to fetch by node type.
        rows: reads rows of tables ahead.
        pass_batches: batches in a pass; None: as many as the graph's ``pass_bytes`` hold. With one, memory
            keeps rows by how often they were used; with more, by when they will be.
        fetched_lists: the memory for lists that requests take to be made, if they do.
    """

    def __init__(
        self,
        graph: TieredGraph,
        sampler: PassSampler,
        names: Mapping[str, Sequence[str]],
        rows: RowsAhead,
        pass_batches: int | None,
        *,
        fetched_lists: ListBudget | None = None,
    ) -> None:
        self._graph = graph
        self._sampler = sampler
        self._names = names
        self._rows = rows
        self._pass_batches = pass_batches
        self._fetched_lists = fetched_lists
        self._size = pass_batches or 1  # of the next pass; the first shows what batches take
        self._idle: list[PassFetch] = []  # with the rows that the loop before has left there

    def batches(
        self, requests: Iterator[SampleRequest]
    ) -> Generator[tuple[HeteroSample[Any], BatchFeatures], None, None]:
        """Give the sample and the features of each request, in order.

        Raises:
            DoesNotFitError: what a pass samples, or one list that must be read as a whole, takes more than
                the graph's ``pass_bytes`` have room for.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="graphbox-pass") as executor:
            passes = self._passes(requests, executor)
            if not self._rows.is_needed:
                yield from self._fetched(passes)
                return
            own, others = fan_out(passes, 2)
            del passes
            with (
                closing(self._rows.over(map(_keys, others))) as rows,
                closing(self._fetched(own)) as batches,
            ):
                del own, others  # so that a pass goes when both are past it
                for batch in batches:
                    next(rows)
                    yield batch

    def _fetched(
        self, passes: Iterator[SampledPass]
    ) -> Generator[tuple[HeteroSample[Any], BatchFeatures], None, None]:
        if self._pass_batches == 1:
            fetch = TierFetch(self._graph, self._names)
            for each in passes:
                yield each[0], fetch.fetch([each[0]])[0]
            return
        try:
            fetch_pass = self._idle.pop()
        except IndexError:
            fetch_pass = PassFetch(self._graph, self._names)
        with closing(fetch_pass.fetch(passes)) as batches:
            yield from batches
        self._idle = [fetch_pass]

    def _passes(
        self, requests: Iterator[SampleRequest], executor: ThreadPoolExecutor
    ) -> Iterator[SampledPass]:
        """Give passes, sampling the next while one is used."""
        ahead: Future[SampledPass] = executor.submit(self._sample, requests, self._size)
        try:
            while samples := ahead.result():
                self._size = self._next_size(samples)
                ahead = executor.submit(self._sample, requests, self._size)
                yield samples
                del samples
        finally:
            ahead.cancel()

    def _sample(self, requests: Iterator[SampleRequest], size: int) -> SampledPass:
        return self._sampler.sample(list(islice(requests, size)))

    def _next_size(self, samples: SampledPass) -> int:
        """Return how many batches the next pass may have, from what those of this one take."""
        nodes = sum(len(each) for name in self._names for each in samples.nodes(name))
        batch_bytes = (samples.size_bytes + _TRACE_BYTES * nodes) / len(samples)
        # Lists are in memory while requests are made, or later while they are sampled.
        list_bytes = max(samples.list_bytes, self._fetched_lists.peak_bytes if self._fetched_lists else 0)
        fitting = (self._graph.pass_bytes - list_bytes) / (_PASSES_HELD * batch_bytes)
        if self._pass_batches is None:
            return max(int(fitting / _SPARE), 1)
        if self._pass_batches > max(fitting, 1):
            needed = list_bytes + int(np.ceil(_PASSES_HELD * batch_bytes * self._pass_batches))
            most = max(int(fitting), 1)
            raise DoesNotFitError(
                f"expected passes that take at most {counted_bytes(self._graph.pass_bytes)}, pass_bytes, "
                f"received {self._pass_batches} batches a pass, which take {counted_bytes(needed)}",
                where="pass_batches",
                hint=f"give None or at most {most}, or more pass_bytes to Graph.tiered",
            )
        return self._pass_batches


def _keys(samples: SampledPass) -> list[BatchKeys]:
    """Return the nodes of each batch of a pass by type."""
    nodes = {name: samples.nodes(name) for name in samples.node_types}
    return [{name: each[batch] for name, each in nodes.items()} for batch in range(len(samples))]
