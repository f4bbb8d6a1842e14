"""Sums of many rows in the order of ``csrc/table/ordered_sum.h``, the same on every device.

The first ``SUMMED_TOGETHER`` rows of a sum are added in their order, then the next ones, and these sums in
theirs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbox import _core


def sum_of_equal(places: Tensor, values: Tensor, count: int) -> Tensor:
    """Return the sums of the values of each place, float32 [count, dim].

    Args:
        places: int64 [n], each from 0 to ``count`` - 1.
        values: float32 [n, dim].
        count: how many places there are.
    """
    if values.device.type != "cpu":
        from graphbox.table.reduce_gpu import sum_equal_rows  # index_add_ adds in any order there

        different, of_places, _ = sum_equal_rows(places, values.contiguous())
        return values.new_zeros(count, values.shape[1]).index_copy_(0, different, of_places)
    counts = torch.bincount(places, minlength=count)
    if counts.numel() == 0 or int(counts.max()) <= _core.SUMMED_TOGETHER:
        return values.new_zeros(count, values.shape[1]).index_add_(0, places, values)
    return sums_of_ranges(values[torch.argsort(places, stable=True)], counts)


def sums_of_ranges(values: Tensor, lengths: Tensor) -> Tensor:
    """Return the sums of rows that are next to each other, float32 [ranges, dim]; gradients flow back.

    Args:
        values: float32 [n, dim].
        lengths: int64 [ranges], how many rows each has, n in all, on any device.
    """
    together = _core.SUMMED_TOGETHER
    if lengths.numel() > 0 and int(lengths.max()) > together:
        parts = (lengths + together - 1) // together
        ends = torch.cumsum(parts, 0)
        part_lengths = torch.full((int(ends[-1]),), together, device=lengths.device)
        part_lengths[ends[parts > 0] - 1] = (lengths - (parts - 1) * together)[parts > 0]
        values, lengths = _sums_in_turn(values, part_lengths), parts
    return _sums_in_turn(values, lengths)


def _sums_in_turn(values: Tensor, lengths: Tensor) -> Tensor:
    # index_add() has the order of the rows on the CPU alone, where it is faster.
    lengths = lengths.to(values.device)
    if values.device.type != "cpu":
        return torch.segment_reduce(values, "sum", lengths=lengths, initial=0)
    sums = values.new_zeros(len(lengths), values.shape[1])
    return sums.index_add(0, torch.repeat_interleave(lengths), values)
