"""Loaders: batches of sampled subgraphs, made ahead by threads in stages.

The seeds of a batch are drawn, neighbours sampled around them, features fetched, and the batch assembled.
"""

from __future__ import annotations

from graphbox.sample.loader.batch import Batch, NodeSeeds
from graphbox.sample.loader.link_loader import LinkNeighborLoader
from graphbox.sample.loader.negatives import NegativeSampling
from graphbox.sample.loader.neighbor_loader import NeighborLoader
from graphbox.sample.loader.options import LoaderOptions

__all__ = [
    "Batch",
    "LinkNeighborLoader",
    "LoaderOptions",
    "NegativeSampling",
    "NeighborLoader",
    "NodeSeeds",
]
