"""Edges that samples on a device must not use: the twin of ``csrc/sample/excluding_choice.cpp``, bit for bit.

A node with excluded edges draws among the ranks of its others; a rank becomes a position by stepping over
what is excluded before it. Lists ascend, so that the edges between two nodes are a range. In the order of
time, where only a node's first edges may be chosen, each excluded edge is a range of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from graphbox.errors import UsageError
from graphbox.sample.edge_reads_gpu import list_begin, load_edges, lower_bound, tiered_reads
from graphbox.sample.pinned import to_device

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.native import Int64Array
    from graphbox.sample.device import DeviceAdjacency
    from graphbox.sample.device_times import DeviceTimes
    from graphbox.sample.excluded import ExcludedPairs

_BLOCK = 256


class ExcludedLists(NamedTuple):
    """Excluded edges by the rows they are of.

    Attributes:
        rows: int64 [r], ascending, those with excluded pairs; in samples with groups of trees the number of a
            group times ``num_rows`` is added to each.
        first_ranges: int64 [r + 1], where the ranges of each begin.
        begins: int32 [p], where the edges of a pair begin in the list of its row; within a row ascending.
        counts: int32 [p], how many edges the pair has.
        removed: int64 [r], how many edges of each row are excluded.
        num_rows: how many there are in the adjacency.
        group_of_tree: int64 [trees], the number of each tree's group; None: all trees exclude alike.
    """

    rows: Tensor
    first_ranges: Tensor
    begins: Tensor
    counts: Tensor
    removed: Tensor
    num_rows: int
    group_of_tree: Tensor | None = None

    def keys(self, nodes: Tensor, trees: Tensor | None) -> Tensor:
        """Return what of ``rows`` would be that of each frontier node, int64 [n]."""
        if self.group_of_tree is None or trees is None:
            return nodes
        return self.group_of_tree[trees] * self.num_rows + nodes


@triton.jit
def ranges_of(first_ranges, slot, has_excluded):
    """Return where the ranges of rows of excluded lists begin, int64, and how many there are, int32."""
    first = tl.load(first_ranges + slot, mask=has_excluded, other=0)
    after = tl.load(first_ranges + slot + 1, mask=has_excluded, other=0)
    return first, (after - first).to(tl.int32)


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
def is_excluded(begins, counts, first, ranges, offset, wanted):
    """Return which of a row's edges are excluded.

    Args:
        begins: of :class:`ExcludedLists`.
        counts: of it.
        first: int64, the first range of the row.
        ranges: int32, how many ranges it has.
        offset: int32, edges of the row by their number in it.
        wanted: bool, as large, where the answer matters.
    """
    low = tl.zeros_like(offset)
    high = tl.where(wanted, ranges, 0)
    while tl.max((low < high).to(tl.int32)) > 0:
        middle = low + (high - low) // 2
        searching = low < high
        is_after = searching & (tl.load(begins + first + middle, mask=searching, other=0) > offset)
        low = tl.where(searching & (is_after == 0), middle + 1, low)
        high = tl.where(is_after, middle, high)
    has_one = wanted & (low > 0)  # that begins before it, and only the last of these can reach it
    begin = tl.load(begins + first + low - 1, mask=has_one, other=0)
    count = tl.load(counts + first + low - 1, mask=has_one, other=0)
    return has_one & (offset - begin < count)


@triton.jit
def _skip_excluded(
    slots, node_begins, owners, edge_ids, first_ranges, begins, counts, size, BLOCK: tl.constexpr
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    owner = tl.load(owners + number, mask=inside, other=0)
    slot = tl.load(slots + owner, mask=inside, other=-1)
    has_excluded = inside & (slot >= 0)
    first, ranges = ranges_of(first_ranges, slot, has_excluded)
    begin = tl.load(node_begins + owner, mask=inside, other=0)
    offset = tl.load(edge_ids + number, mask=inside, other=0) - begin
    for step in range(tl.max(ranges)):
        here = has_excluded & (step < ranges)
        excluded_from = tl.load(begins + first + step, mask=here, other=0)
        count = tl.load(counts + first + step, mask=here, other=0)
        offset += tl.where(here & (excluded_from <= offset), count, 0)
    tl.store(edge_ids + number, begin + offset, mask=has_excluded)


@triton.jit
def _find_places(
    rows, positions, indptr, times, time_residents, time_places, time_edges, shifts, shift_residents,
    shift_places, shift_edges, indices, residents, places, edges, timestamps, found, size,
    TIMES_TIERED: tl.constexpr, SHIFTS_TIERED: tl.constexpr, TIERED: tl.constexpr, BY_NODES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write where edges are in the order of time of their rows."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    row = tl.load(rows + number, mask=inside, other=0)
    position = tl.load(positions + number, mask=inside, other=0)
    begin = tl.load(indptr + row, mask=inside, other=0)
    degree = (tl.load(indptr + row + 1, mask=inside, other=0) - begin).to(tl.int32)
    holder = begin + position
    if BY_NODES:
        read_at = list_begin(places, row, begin, edges, inside, TIERED) + position
        holder = load_edges(indices, residents, edges, read_at, inside, 0, TIERED).to(tl.int64)
    time = tl.load(timestamps + holder, mask=inside, other=0)
    times_at = list_begin(time_places, row, begin, time_edges, inside, TIMES_TIERED)
    shifts_at = list_begin(shift_places, row, begin, shift_edges, inside, SHIFTS_TIERED)
    low = tl.zeros_like(degree)
    high = tl.where(inside, degree, 0)
    while tl.max((low < high).to(tl.int32)) > 0:
        middle = low + (high - low) // 2
        searching = low < high
        time_there = load_edges(
            times, time_residents, time_edges, times_at + middle, searching, 0, TIMES_TIERED
        )
        shift = load_edges(
            shifts, shift_residents, shift_edges, shifts_at + middle, searching, 0, SHIFTS_TIERED
        )
        is_before = (time_there < time) | ((time_there == time) & (middle + shift < position))
        high = tl.where(searching & (is_before == 0), middle, high)
        low = tl.where(searching & is_before, middle + 1, low)
    tl.store(found + number, low, mask=inside)


def excluded_lists(
    adjacency: DeviceAdjacency, pairs: ExcludedPairs, num_sources: int, num_trees: int, device: torch.device
) -> ExcludedLists | None:
    """Find the edges of pairs of nodes; the host does not wait for it.

    Args:
        adjacency: in-neighbours, whose lists ascend.
        pairs: rows, and what is looked for in their lists, in the trees of which groups; pairs may repeat,
            and be no edges.
        num_sources: how many nodes there are to look for.
        num_trees: of the sample.
        device: where kernels run.

    Returns:
        None: no pair is of nodes that exist.

    Raises:
        UsageError: a target that does not exist, or groups of another number of trees.
    """
    _, targets, sources, groups, group_of_tree = pairs
    rows = len(adjacency.indptr) - 1
    wrong = (targets < 0) | (targets >= rows)
    if wrong.any():
        position = int(wrong.argmax())
        raise UsageError(
            f"excluded edges must lead to node indices in [0, {rows}), received {targets[position]} at "
            f"position {position}",
            where="excluded_edges",
        )
    if len(group_of_tree) and len(group_of_tree) != num_trees:
        raise UsageError(
            f"expected the group of each of {num_trees} trees, received {len(group_of_tree)}",
            where="excluded_edges",
        )
    of_tree: Int64Array | None = None
    keys = targets
    if len(group_of_tree):
        _, numbers = np.unique(np.concatenate([groups, group_of_tree]), return_inverse=True)
        keys = numbers[: len(groups)] * rows + targets
        of_tree = numbers[len(groups) :]
    exist = (sources >= 0) & (sources < num_sources)
    distinct_pairs = np.unique(np.stack([keys[exist], sources[exist]]), axis=1)
    size = distinct_pairs.shape[1]
    if size == 0:
        return None
    distinct, first_ranges = np.unique(distinct_pairs[0], return_index=True)
    begins, counts = (torch.empty(size, dtype=torch.int32, device=device) for _ in range(2))
    _find_ranges[triton.cdiv(size, _BLOCK),](
        to_device(distinct_pairs[0] % rows, device),
        to_device(distinct_pairs[1], device),
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
    return ExcludedLists(
        to_device(distinct, device),
        bounds,
        begins,
        counts,
        torch.diff(ends[bounds]),
        rows,
        None if of_tree is None else to_device(of_tree, device),
    )


def excluded_places(
    excluded: ExcludedLists, adjacency: DeviceAdjacency, times: DeviceTimes, timestamps: Tensor
) -> ExcludedLists:
    """Return the same by places in the order of time; the host waits for their number.

    Args:
        excluded: what is excluded.
        adjacency: in-neighbours.
        times: theirs.
        timestamps: int64, the time of each edge, or of each neighbour if ``times`` are theirs.
    """
    ends = torch.cumsum(excluded.removed, 0)
    size = int(ends[-1])
    begins = torch.empty(size, dtype=torch.int32, device=ends.device)
    if size:
        slots = torch.repeat_interleave(excluded.removed, output_size=size)
        counts = excluded.counts.to(torch.int64)
        ranges = torch.repeat_interleave(counts, output_size=size)
        first_edges = torch.cumsum(counts, 0) - counts
        positions = excluded.begins[ranges] + torch.arange(size, device=ends.device) - first_edges[ranges]
        _find_places[triton.cdiv(size, _BLOCK),](
            excluded.rows[slots] % excluded.num_rows,
            positions,
            adjacency.indptr,
            *tiered_reads(*times.times, adjacency.indptr),
            *tiered_reads(*times.shifts, adjacency.indptr),
            *tiered_reads(adjacency.indices, adjacency.residents, adjacency.indptr),
            timestamps,
            begins,
            size,
            TIMES_TIERED=times.times.residents is not None,
            SHIFTS_TIERED=times.shifts.residents is not None,
            TIERED=adjacency.residents is not None,
            BY_NODES=times.node_time is not None,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
        in_order, _ = torch.sort(slots << 32 | begins)
        begins = (in_order & 0xFFFFFFFF).to(torch.int32)
    first_ranges = torch.cat([ends.new_zeros(1), ends])
    return excluded._replace(first_ranges=first_ranges, begins=begins, counts=torch.ones_like(begins))


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
