"""The stages of batches from a graph on disk: sampled in passes, features fetched by the trace of a pass."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from graphbox.errors import DoesNotFitError, UnsupportedError
from graphbox.native import Int64Array
from graphbox.sample.fetch import BatchFeatures, PassFetch, TierFetch
from graphbox.sample.loader.stages import NeighborOptions, SampleRequest
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.tiered_neighbor import PassSample, sample_pass

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

__all__ = ["TieredStages"]

_PASSES_HELD = 3
"""One whose batches are used, one whose rows are read, one that is being sampled."""
_TRACE_BYTES = 24
"""For each node of a batch, while its rows are fetched."""
_SPARE = 1.25
"""Batches differ: those of a pass may take so much more than those of the one before."""


class TieredStages:
    """Samples and fetches the batches of a loop over a graph on disk.

    Args:
        graph: the graph.
        options: what neighbours.
        names: of the features to fetch by node type.
        pass_batches: batches in a pass; None: as many as the graph's ``pass_bytes`` hold. With one, memory
            keeps rows by how often they were used; with more, by when they will be.
        threads: of one pass.

    Raises:
        UnsupportedError: neighbours are to be drawn by weight, by LABOR or in disjoint trees.
    """

    def __init__(
        self,
        graph: TieredGraph,
        options: NeighborOptions,
        names: Mapping[str, Sequence[str]],
        pass_batches: int | None,
        threads: int,
    ) -> None:
        _refuse(weighted=bool(options.weighted), disjoint=options.disjoint, labor=options.labor)
        self._graph = graph
        self._options = options
        self._names = names
        self._pass_batches = pass_batches
        self._threads = threads
        self._size = pass_batches or 1  # of the next pass; the first shows what batches take
        self._idle: list[PassFetch] = []  # with the rows that the loop before has left there

    def batches(
        self, requests: Iterator[SampleRequest]
    ) -> Generator[tuple[HeteroSample[Int64Array], BatchFeatures], None, None]:
        """Give the sample and the features of each request, in order.

        Raises:
            DoesNotFitError: what a pass samples takes more than the graph's ``pass_bytes``.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="graphbox-pass") as executor:
            passes = self._passes(requests, executor)
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
    ) -> Iterator[PassSample]:
        """Give passes, sampling the next while one is used."""
        ahead: Future[PassSample] = executor.submit(self._sample, requests, self._size)
        try:
            while samples := ahead.result():
                self._size = self._next_size(samples)
                ahead = executor.submit(self._sample, requests, self._size)
                yield samples
                del samples
        finally:
            ahead.cancel()

    def _sample(self, requests: Iterator[SampleRequest], size: int) -> PassSample:
        chosen = list(islice(requests, size))
        options = self._options
        for request in chosen:
            _refuse(times=request.times is not None, excluded_edges=bool(request.excluded_edges))
        return sample_pass(
            self._graph,
            [request.seeds for request in chosen],
            options.num_neighbors,
            options.replace,
            edge_attributes=options.edge_attributes,
            seed=options.seed,
            batches=[(request.epoch, request.batch) for request in chosen],
            threads=self._threads,
        )

    def _next_size(self, samples: PassSample) -> int:
        """Return how many batches the next pass may have, from what those of this one take."""
        nodes = sum(len(each) for name in self._names for each in samples.nodes(name))
        batch_bytes = (samples.size_bytes + _TRACE_BYTES * nodes) / len(samples)
        fitting = self._graph.pass_bytes / (_PASSES_HELD * batch_bytes)
        if self._pass_batches is None:
            return max(int(fitting / _SPARE), 1)
        if self._pass_batches > max(fitting, 1):
            needed = int(np.ceil(_PASSES_HELD * batch_bytes * self._pass_batches))
            most = max(int(fitting), 1)
            raise DoesNotFitError(
                f"expected passes that take at most {self._graph.pass_bytes:,} bytes (pass_bytes), received "
                f"{self._pass_batches} batches a pass, which take {needed:,}",
                where="pass_batches",
                hint=f"give None or at most {most}, or more pass_bytes to Graph.tiered",
            )
        return self._pass_batches


_REFUSED: dict[str, str] = {
    "weighted": "neighbours drawn by weight need a table of all edges in memory",
    "disjoint": "disjoint trees are sampled from graphs in memory",
    "labor": "LABOR compares the whole lists of neighbours of all nodes of a hop",
    "times": "neighbours up to a time need the order by time of all edges in memory",
    "excluded_edges": "edges are left out of samples of graphs in memory",
}


def _refuse(**asked: bool) -> None:
    for what, is_asked in asked.items():
        if is_asked:
            raise UnsupportedError(
                f"expected neighbours drawn uniformly from a graph in tiers: {_REFUSED[what]}",
                where="input_time" if what == "times" else what,
                hint="leave it out, or give the loader the graph itself (its files are memory-mapped)",
            )
