"""Edges that samples on a device must not use: the twin of ``csrc/sample/excluding_choice.cpp``, bit for bit.

A node with excluded edges draws among the ranks of its others; a rank becomes a position by stepping over
what is excluded before it. Lists ascend, so that the edges between two nodes are a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from graphbox.errors import UsageError
from graphbox.sample.edge_reads_gpu import list_begin, lower_bound, tiered_reads
from graphbox.sample.pinned import to_device

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.native import Int64Array
    from graphbox.sample.device import DeviceAdjacency

__all__ = ["ExcludedLists", "excluded_lists", "find_row", "skip_excluded"]

_BLOCK = 256


class ExcludedLists(NamedTuple):
    """Excluded edges by the rows they are of.

    Attributes:
        rows: int64 [r], ascending, those with excluded pairs.
        first_ranges: int64 [r + 1], where the ranges of each begin.
        begins: int32 [p], where the edges of a pair begin in the list of its row; within a row ascending.
        counts: int32 [p], how many edges the pair has.
        removed: int64 [r], how many edges of each row are excluded.
    """

    rows: Tensor
    first_ranges: Tensor
    begins: Tensor
    counts: Tensor
    removed: Tensor


@triton.jit
def _find_ranges(
    targets, sources, indptr, indices, residents, places, edges, begins, counts, size,
    TIERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    target = tl.load(targets + number, mask=inside, other=0)
    source = tl.load(sources + number, mask=inside, other=0)
    begin = tl.load(indptr + target, mask=inside, other=0)
    degree = (tl.load(indptr + target + 1, mask=inside, other=0) - begin).to(tl.int32)
    read_at = list_begin(places, target, begin, edges, inside, TIERED)
    first = lower_bound(indices, residents, edges, read_at, degree, source, inside, TIERED)
    after = lower_bound(indices, residents, edges, read_at, degree, source + 1, inside, TIERED)
    tl.store(begins + number, first, mask=inside)
    tl.store(counts + number, after - first, mask=inside)


@triton.jit
def find_row(rows, size, node, inside):
    """Return where each node int64 [n] is among ``rows`` int64 [size], which ascend, int32; -1: nowhere."""
    low = tl.zeros_like(node).to(tl.int32)
    high = tl.where(inside, size, 0)
    while tl.max((low < high).to(tl.int32)) > 0:
        middle = low + (high - low) // 2
        searching = low < high
        is_below = searching & (tl.load(rows + middle, mask=searching, other=0) < node)
        high = tl.where(searching & (is_below == 0), middle, high)
        low = tl.where(is_below, middle + 1, low)
    is_there = inside & (low < size)
    is_there &= tl.load(rows + low, mask=is_there, other=-1) == node
    return tl.where(is_there, low, -1)


@triton.jit
def _skip_excluded(
    slots, node_begins, owners, edge_ids, first_ranges, begins, counts, size, BLOCK: tl.constexpr
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    owner = tl.load(owners + number, mask=inside, other=0)
    slot = tl.load(slots + owner, mask=inside, other=-1)
    has_excluded = inside & (slot >= 0)
    first = tl.load(first_ranges + slot, mask=has_excluded, other=0)
    ranges = (tl.load(first_ranges + slot + 1, mask=has_excluded, other=0) - first).to(tl.int32)
    begin = tl.load(node_begins + owner, mask=inside, other=0)
    offset = tl.load(edge_ids + number, mask=inside, other=0) - begin
    for step in range(tl.max(ranges)):
        here = has_excluded & (step < ranges)
        excluded_from = tl.load(begins + first + step, mask=here, other=0)
        count = tl.load(counts + first + step, mask=here, other=0)
        offset += tl.where(here & (excluded_from <= offset), count, 0)
    tl.store(edge_ids + number, begin + offset, mask=has_excluded)


def excluded_lists(
    adjacency: DeviceAdjacency,
    targets: Int64Array,
    sources: Int64Array,
    num_sources: int,
    device: torch.device,
) -> ExcludedLists | None:
    """Find the edges of pairs of nodes; the host does not wait for it.

    Args:
        adjacency: in-neighbours, whose lists ascend.
        targets: int64 [n], the rows.
        sources: int64 [n], what is looked for in their lists; pairs may repeat, and be no edges.
        num_sources: how many nodes there are to look for.
        device: where kernels run.

    Returns:
        None: no pair is of nodes that exist.

    Raises:
        UsageError: a target that does not exist.
    """
    rows = len(adjacency.indptr) - 1
    wrong = (targets < 0) | (targets >= rows)
    if wrong.any():
        position = int(wrong.argmax())
        raise UsageError(
            f"excluded edges must lead to node indices in [0, {rows}), received {targets[position]} at "
            f"position {position}",
            where="excluded_edges",
        )
    exist = (sources >= 0) & (sources < num_sources)
    pairs = np.unique(np.stack([targets[exist], sources[exist]]), axis=1)
    size = pairs.shape[1]
    if size == 0:
        return None
    distinct, first_ranges = np.unique(pairs[0], return_index=True)
    begins, counts = (torch.empty(size, dtype=torch.int32, device=device) for _ in range(2))
    _find_ranges[triton.cdiv(size, _BLOCK),](
        *(to_device(each, device) for each in pairs),
        adjacency.indptr,
        *tiered_reads(adjacency.indices, adjacency.residents, adjacency.indptr),
        begins,
        counts,
        size,
        TIERED=adjacency.residents is not None,
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )
    bounds = to_device(np.append(first_ranges, size), device)
    ends = torch.cat([bounds.new_zeros(1), torch.cumsum(counts, 0)])
    return ExcludedLists(to_device(distinct, device), bounds, begins, counts, torch.diff(ends[bounds]))


def skip_excluded(
    excluded: ExcludedLists, slots: Tensor, begins: Tensor, owners: Tensor, edge_ids: Tensor
) -> None:
    """Turn ranks among the edges that are not excluded into positions, in place.

    Args:
        excluded: what is excluded.
        slots: int32 [n], of :func:`find_row` of each frontier node.
        begins: int64 [n], where the edges of each begin.
        owners: int64 [e], which of them each edge is of.
        edge_ids: int64 [e], ``begins`` and a rank.
    """
    _skip_excluded[triton.cdiv(len(edge_ids), _BLOCK),](
        slots,
        begins,
        owners,
        edge_ids,
        excluded.first_ranges,
        excluded.begins,
        excluded.counts,
        len(edge_ids),
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )
