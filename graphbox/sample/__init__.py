"""Samplers: neighbours, walks, negatives, and loaders of batches."""

from __future__ import annotations

from graphbox.sample.derived import derived_table_bytes
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_features import DeviceFeatures
from graphbox.sample.excluded import ExcludedEdges
from graphbox.sample.fetch import PassFetch, TierFetch
from graphbox.sample.gather import gather_rows
from graphbox.sample.loader import (
    Batch,
    LinkNeighborLoader,
    LoaderOptions,
    NegativeSampling,
    NeighborLoader,
)
from graphbox.sample.negative import NegativeSampler
from graphbox.sample.non_edge import NonEdgeSampler
from graphbox.sample.options import NeighborOptions
from graphbox.sample.pairs import keep_probability, skip_gram_pairs, walk_pairs
from graphbox.sample.permutation import permutation
from graphbox.sample.ppr import PprNeighbors, ppr_neighbors
from graphbox.sample.sampled import HeteroSample, NeighborSample
from graphbox.sample.sampler import prepare_sampler, sample_heterogeneous, sample_neighbors
from graphbox.sample.sampling_plan import NeighborSampler, SampleRequest
from graphbox.sample.tiered_neighbor import PassSample
from graphbox.sample.walk import random_walk
from graphbox.sample.walk_plan import WalkOptions

__all__ = [
    "Batch",
    "DeviceFeatures",
    "DeviceGraph",
    "ExcludedEdges",
    "HeteroSample",
    "LinkNeighborLoader",
    "LoaderOptions",
    "NegativeSampler",
    "NegativeSampling",
    "NeighborLoader",
    "NeighborOptions",
    "NeighborSample",
    "NeighborSampler",
    "NonEdgeSampler",
    "PassFetch",
    "PassSample",
    "PprNeighbors",
    "SampleRequest",
    "TierFetch",
    "WalkOptions",
    "derived_table_bytes",
    "gather_rows",
    "keep_probability",
    "permutation",
    "ppr_neighbors",
    "prepare_sampler",
    "random_walk",
    "sample_heterogeneous",
    "sample_neighbors",
    "skip_gram_pairs",
    "walk_pairs",
]
