"""Passes over graphs in tiers, sampled as loaders do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphbox.graph.tiered_graph import TieredGraph
from graphbox.sample import PassSample, SampleRequest, prepare_sampler


def sample_pass(
    graph: TieredGraph,
    seeds: Sequence[Mapping[str, Any]],
    num_neighbors: Any,
    *,
    epoch: int = 0,
    first_batch: int = 0,
    input_time: Sequence[Mapping[str, Any]] | None = None,
    excluded_edges: Sequence[Any] | None = None,
    num_threads: int | None = None,
    **options: Any,
) -> PassSample:
    """Sample a pass of batches that follow each other."""
    sampler = prepare_sampler(graph, num_neighbors, num_threads=num_threads, **options)
    requests = [
        SampleRequest(
            each,
            None if input_time is None else input_time[number],
            epoch,
            first_batch + number,
            None if excluded_edges is None else excluded_edges[number],
        )
        for number, each in enumerate(seeds)
    ]
    sampled = sampler.sample(requests)
    assert isinstance(sampled, PassSample)
    return sampled
