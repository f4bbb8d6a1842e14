"""Sectors of memory that samples and walks must touch: the bound that kernels are measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from graphbox.bandwidth_gpu import SECTOR_BYTES, Place, touched_sectors

if TYPE_CHECKING:
    from graphbox.sample.neighbor_gpu import DeviceRelation, HopEdges

_OFFSET_BYTES = 8
_ALIAS_BYTES = 8
_STEP_BYTES = 8


def hop_sectors(
    relation: DeviceRelation, frontier: torch.Tensor, sampled: HopEdges, *, replace: bool, where: Place
) -> int:
    """Return how many sectors a hop without relabelling must touch.

    Those that are read are of offsets, of the indices of chosen edges and, where draws are weighted, of their
    alias tables, each once; those that are written are of the sample.

    Args:
        relation: what was sampled.
        frontier: int64, different nodes, whose neighbours were sampled.
        sampled: of them.
        replace: whether draws were with replacement.
        where: indices and alias tables are; in pinned memory what the device reads there counts alone.
    """
    indptr, indices = relation.adjacency.indptr, relation.adjacency.indices
    sectors = touched_sectors(sampled.edge_ids, indices.itemsize)
    if relation.weights is not None:
        degree = indptr[frontier + 1] - indptr[frontier]
        is_drawn = degree[sampled.cols] > (0 if replace else relation.num_neighbors[0])
        sectors += touched_sectors(sampled.edge_ids[is_drawn], _ALIAS_BYTES)
    if where == "pinned":
        return sectors
    return sectors + indptr_sectors(frontier) + written_sectors(sum(each.nbytes for each in sampled))


def indptr_sectors(nodes: torch.Tensor) -> int:
    """Return in how many sectors it is written where the edges of ``nodes`` begin and end."""
    return touched_sectors(torch.cat([nodes, nodes + 1]), _OFFSET_BYTES)


def written_sectors(written_bytes: int) -> int:
    """Return how many sectors are written from front to back."""
    return -(-written_bytes // SECTOR_BYTES)


def step_sectors(*, weighted: bool = False, where: Place = "device") -> float:
    """Return how many sectors a step of a walk must touch: an offset, an index, an alias table; and the step.

    Args:
        weighted: edges are chosen by weight.
        where: as in :func:`hop_sectors`.
    """
    near = 1 + _STEP_BYTES / SECTOR_BYTES if where == "device" else 0
    return near + 1 + weighted
