"""Choosing by weight among the first edges by time in kernels: the twin of ``csrc/sample/weight_sums.cpp``.

A program chooses for one node. A draw is a binary search in the sums of weights by time. Where edges are
excluded the sums from the first of them on are others, which are added up anew for each tile of draws, in
their order, as the bits of a sum depend on it; the excluded edges of a link are mostly among the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from graphbox.philox_gpu import draw_words
from graphbox.sample.edge_reads_gpu import list_begin, load_edges, tiered_reads, upper_bound
from graphbox.sample.excluded_gpu import ranges_of
from graphbox.sample.weighted_choice_gpu import take_all, take_new, take_wide

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.device_times import DeviceTimes
    from graphbox.sample.excluded_gpu import ExcludedLists
    from graphbox.sample.hop_spans_gpu import Draws, Frontier, Spans

_INFINITE = tl.constexpr(float("inf"))
_CHUNK = tl.constexpr(128)  # edges that are looked at together


@triton.jit
def _search_rest(weight, begins, first, end, place, degree, total, point, is_wanted, TIERED: tl.constexpr):
    """Add up weights that are not excluded, from ``place`` on to ``total``.

    Args:
        weight: as :func:`graphbox.sample.weighted_choice_gpu.take_wide` takes it.
        begins: int32, places of excluded edges, ascending.
        first: int64, the first of them that is not before ``place``.
        end: int64, where those of the node end.
        place: int32.
        degree: int32, where to stop.
        total: float64, the sum up to ``place``.
        point: float64 [n].
        is_wanted: bool [n], which points are looked for; where all are found it stops.
        TIERED: of ``weight``.

    Returns:
        The sum, and the first place, int32 [n], with which it is above each point.
    """
    column, residents, edges, read_at = weight
    chosen = tl.where(is_wanted, -1, 0)
    while (place < degree) & (tl.min(chosen, axis=0) < 0):
        if tl.load(begins + first, mask=first < end, other=-1) == place:
            first += 1
        else:
            value = load_edges(column, residents, edges, read_at + place, True, 0.0, TIERED)
            total += value.to(tl.float64)
            chosen = tl.where((chosen < 0) & (total > point), place, chosen)
        place += 1
    return total, chosen


@triton.jit
def _choose_by_time(  # noqa: PLR0912, PLR0915 - branches over constants, of which each kernel has one side
    nodes, positions, begins, degrees, lengths, ends, slots, first_ranges, range_begins, range_counts, sums,
    sum_residents, sum_places, edges, weight, weight_residents, weight_places, edge_ids, wanted, key, place,
    REPLACE: tl.constexpr, SUMS_TIERED: tl.constexpr, WEIGHT_TIERED: tl.constexpr, EXCLUDES: tl.constexpr,
    DRAWS: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    begin = tl.load(begins + number)
    remaining = tl.load(degrees + number)
    count = tl.minimum(remaining, wanted)
    if REPLACE:
        count = tl.where(remaining > 0, wanted, 0)
    out = edge_ids + tl.load(ends + number) - count
    degree = remaining
    first = begin
    ranges = 0
    if EXCLUDES:
        degree = tl.load(lengths + number)
        slot = tl.load(slots + number)
        first, ranges = ranges_of(first_ranges, slot, slot >= 0)
    closed = range_begins, range_counts, first, ranges
    takes_all = remaining <= wanted
    if REPLACE:
        takes_all = remaining == 0
    if takes_all:
        if count > 0:
            take_all(out, begin, degree, closed, EXCLUDES, _CHUNK)
    else:
        node = tl.load(nodes + number)
        position = tl.load(positions + number) + tl.arange(0, 1).to(tl.int64)
        sums_begin = list_begin(sum_places, node, begin, edges, True, SUMS_TIERED)
        weights = (
            weight, weight_residents, edges,
            list_begin(weight_places, node, begin, edges, True, WEIGHT_TIERED),
        )  # fmt: skip
        step = tl.arange(0, DRAWS)
        kept = degree  # the places before have the sums they have where nothing is excluded
        if EXCLUDES:
            if degree > remaining:
                kept = tl.load(range_begins + first)
        sum_kept = load_edges(sums, sum_residents, edges, sums_begin + kept - 1, kept > 0, 0.0, SUMS_TIERED)
        total = sum_kept
        if EXCLUDES:
            if degree > remaining:
                total, _ = _search_rest(
                    weights, range_begins, first, first + ranges, kept, degree, sum_kept,
                    tl.full((DRAWS,), _INFINITE, tl.float64), step >= 0, WEIGHT_TIERED,
                )  # fmt: skip
        taken = tl.full((TAKEN,), -1, tl.int32)
        found = 0
        first_draw = 0
        if REPLACE:
            limit = wanted
        else:
            limit = tl.where(remaining <= 2 * wanted, 0, 4 * wanted + degree // 4)
        while (found < count) & (first_draw < limit):
            is_wanted = first_draw + step < limit
            words = draw_words(key, place, first_draw // 2, position, 0, 2 * DRAWS)
            high, low = tl.split(tl.reshape(words, (DRAWS, 2)))
            word = high.to(tl.uint64) << 32 | low.to(tl.uint64)
            point = ((word >> 12).to(tl.float64) + 0.5) * 2.0**-52 * total
            is_early = is_wanted & (point < sum_kept)
            searched = tl.zeros_like(step) + kept - 1
            chosen = upper_bound(
                sums, sum_residents, edges, sums_begin, searched, point, is_early, SUMS_TIERED
            )
            if EXCLUDES:
                is_late = is_wanted & (point >= sum_kept)
                if tl.max(is_late.to(tl.int32), axis=0) > 0:
                    _, late = _search_rest(
                        weights, range_begins, first, first + ranges, kept, degree, sum_kept, point, is_late,
                        WEIGHT_TIERED,
                    )  # fmt: skip
                    chosen = tl.where(is_late, late, chosen)
            if REPLACE:
                tl.store(out + first_draw + step, begin + chosen, mask=is_wanted)
            else:
                taken, found = take_new(chosen, is_wanted, taken, found, count, out, begin, TAKEN)
            first_draw += DRAWS
        if not REPLACE:
            if found < count:
                take_wide(
                    weights, out + found, begin, degree, taken, closed, count - found, key, place, position,
                    WEIGHT_TIERED, EXCLUDES, _CHUNK,
                )  # fmt: skip


def choose_by_time(
    times: DeviceTimes,
    indptr: Tensor,
    excluded: ExcludedLists | None,
    frontier: Frontier,
    spans: Spans,
    edge_ids: Tensor,
    draws: Draws,
) -> None:
    """Write the places in the order of time of the edges that are sampled of each node, by their weights.

    Args:
        times: with sums of weights.
        indptr: of the lists.
        excluded: places of edges that must not be sampled, or None.
        frontier: nodes.
        spans: their edges.
        edge_ids: int64, to be written.
        draws: how many of each, and how.
    """
    if times.sums is None or times.weight is None:
        raise AssertionError("what is drawn by weight has sums")
    taken = max(triton.next_power_of_2(draws.wanted), 4)
    _choose_by_time[len(frontier.nodes),](
        *frontier[:2],
        *spans.arguments(excluded),
        *tiered_reads(*times.sums, indptr),
        *tiered_reads(*times.weight, indptr)[:3],
        edge_ids,
        draws.wanted,
        draws.key,
        draws.place,
        REPLACE=draws.replace,
        SUMS_TIERED=times.sums.residents is not None,
        WEIGHT_TIERED=times.weight.residents is not None,
        EXCLUDES=excluded is not None,
        DRAWS=min(max(taken, 16), 64),
        TAKEN=4 if draws.replace else taken,
        num_warps=1,
        enable_fp_fusion=False,
    )
