"""Choosing edges in proportion to their weights in kernels: the twin of ``csrc/sample/weighted_choice.cpp``.

With replacement each draw is a cell of a tile. Without, a program chooses for one node: it draws from the
alias table some at a time, drops what is taken, and where that goes on for long takes the edges with the
smallest exponential keys among the rest. So it does for nodes with excluded edges, which count as taken; with
replacement it passes over draws of them, and where nearly all weight is excluded adds up what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from graphbox.philox_gpu import draw_words
from graphbox.sample.edge_reads_gpu import list_begin, load_alias, load_edges, tiered_reads
from graphbox.sample.excluded_gpu import is_excluded, ranges_of
from graphbox.sample.exponential_gpu import exponential

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.device import DeviceWeights
    from graphbox.sample.excluded_gpu import ExcludedLists
    from graphbox.sample.hop_spans_gpu import Draws, Frontier, Spans

_TILE = 512
_NARROW_DEGREE = tl.constexpr(64)  # kMaskDegree: up to here a key has 32 bits of the generator, else 52
_NARROW_KEYS = tl.constexpr(1)
_WIDE_KEYS = tl.constexpr(2)
_INFINITE = tl.constexpr(float("inf"))
_CHUNK = tl.constexpr(128)  # edges that are looked at together


@triton.jit
def _draw_offsets(
    alias_tables, residents, edges, begin, degree, key, place, first_draw, position, wanted,
    TIERED: tl.constexpr, DRAWS: tl.constexpr,
):  # fmt: skip
    """Return the edges of draws first_draw, ..., int32 [positions, DRAWS]: 64 bits of the generator each."""
    words = draw_words(key, place, first_draw // 2, position, 0, 2 * DRAWS)
    high, low = tl.split(tl.reshape(words, (position.shape[0], DRAWS, 2)))
    range_ = degree[:, None].to(tl.uint64)
    product = high.to(tl.uint64) * range_ + (low.to(tl.uint64) * range_ >> 32)
    column = (product >> 32).to(tl.int64)
    fraction = product.to(tl.uint32)
    threshold, alias = load_alias(alias_tables, residents, edges, begin[:, None] + column, wanted, TIERED)
    return tl.where(fraction < threshold, column.to(tl.int32), alias)


@triton.jit
def _choose_with_replacement(
    nodes, positions, begins, degrees, ends, slots, alias_tables, residents, places, edges, edge_ids, size,
    wanted, key, place, TIERED: tl.constexpr, EXCLUDES: tl.constexpr, DRAWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    first_draw = tl.program_id(1) * DRAWS
    draw = tl.arange(0, DRAWS)[None, :] + first_draw
    node = tl.load(nodes + number, mask=inside, other=0)
    position = tl.load(positions + number, mask=inside, other=0)
    begin = tl.load(begins + number, mask=inside, other=0)
    degree = tl.load(degrees + number, mask=inside, other=0)
    chooses = inside & (degree > 0)
    if EXCLUDES:
        chooses &= tl.load(slots + number, mask=inside, other=-1) < 0
    is_wanted = (draw < wanted) & chooses[:, None]
    read_at = list_begin(places, node, begin, edges, inside, TIERED)
    offset = _draw_offsets(
        alias_tables, residents, edges, read_at, degree, key, place, first_draw, position, is_wanted, TIERED,
        DRAWS,
    )  # fmt: skip
    out = (tl.load(ends + number, mask=inside, other=0) - wanted)[:, None] + draw
    tl.store(edge_ids + out, begin[:, None] + offset, mask=is_wanted)


@triton.jit
def is_among(offset, taken):
    """Return which of ``offset`` int32 [n] are in ``taken`` int32 [m]."""
    return tl.max((offset[:, None] == taken[None, :]).to(tl.int32), axis=1) > 0


@triton.jit
def is_open(offset, degree, taken, closed, EXCLUDES: tl.constexpr):
    """Return which of ``offset`` int32 [n] are edges of a node that are neither taken nor excluded.

    Args:
        offset: edges by their number in the list.
        degree: edges of the node.
        taken: int32 [m], those that are taken.
        closed: begins and counts of :class:`.excluded_gpu.ExcludedLists`, the first range of the node and how
            many it has.
        EXCLUDES: whether ``closed`` is read.
    """
    among = (offset < degree) & (is_among(offset, taken) == 0)
    if EXCLUDES:
        begins, counts, first, ranges = closed
        among &= is_excluded(begins, counts, first, ranges, offset, among) == 0
    return among


@triton.jit
def take_new(offset, is_wanted, taken, found, count, out, begin, TAKEN: tl.constexpr):
    """Write those of some draws that are neither taken nor repeated; return what is taken and how many are.

    Args:
        offset: int32 [n], what was drawn, in order.
        is_wanted: bool [n], which draws count.
        taken: int32 [TAKEN], what was drawn before; -1: nothing.
        found: how many of them.
        count: how many there are to be.
        out: where positions of all of them go.
        begin: int64, the position of edge 0.
        TAKEN: a power of two.
    """
    step = tl.arange(0, offset.shape[0])
    slot = tl.arange(0, TAKEN)
    repeats = (offset[:, None] == offset[None, :]) & (step[:, None] < step[None, :]) & is_wanted[:, None]
    is_new = is_wanted & (tl.max(repeats.to(tl.int32), axis=0) == 0) & (is_among(offset, taken) == 0)
    target = tl.where(is_new, found + tl.cumsum(is_new.to(tl.int32), axis=0) - 1, TAKEN)
    is_kept = target < count
    tl.store(out + target, begin + offset, mask=is_kept)
    lands = (slot[:, None] == target[None, :]) & is_kept[None, :]
    taken = tl.maximum(taken, tl.max(tl.where(lands, offset[None, :], -1), axis=1))
    return taken, tl.minimum(found + tl.sum(is_new.to(tl.int32), axis=0), count)


@triton.jit
def take_all(out, begin, degree, closed, EXCLUDES: tl.constexpr, CHUNK: tl.constexpr):
    """Write all edges of a node that are not excluded, in order."""
    written = 0
    for first in range(0, degree, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        among = offset < degree
        if EXCLUDES:
            begins, counts, first_range, ranges = closed
            among &= is_excluded(begins, counts, first_range, ranges, offset, among) == 0
        tl.store(out + written + tl.cumsum(among.to(tl.int32), axis=0) - 1, begin + offset, mask=among)
        written += tl.sum(among.to(tl.int32), axis=0)


@triton.jit
def _keys(
    weight, offset, among, key, place, position, DEGREE: tl.constexpr, IS_NARROW: tl.constexpr,
    TIERED: tl.constexpr,
):  # fmt: skip
    """Return exponential keys of the edges ``offset`` int32 [DEGREE], infinite but for those in ``among``."""
    first = tl.min(offset, axis=0)
    if IS_NARROW:
        words = draw_words(key, place, first // 4, position, _NARROW_KEYS, DEGREE)
        u = (tl.reshape(words, (DEGREE,)).to(tl.float64) + 0.5) * 2.0**-32
    else:
        words = draw_words(key, place, first // 2, position, _WIDE_KEYS, 2 * DEGREE)
        high, low = tl.split(tl.reshape(words, (DEGREE, 2)))
        word = high.to(tl.uint64) << 32 | low.to(tl.uint64)
        u = ((word >> 12).to(tl.float64) + 0.5) * 2.0**-52
    column, residents, edges, read_at = weight
    weights = load_edges(column, residents, edges, read_at + offset, among, 1.0, TIERED).to(tl.float64)
    return tl.where(among, exponential(u) / weights, _INFINITE)


@triton.jit
def _take_narrow(
    weight, out, begin, degree, taken, closed, count, key, place, position, TIERED: tl.constexpr,
    EXCLUDES: tl.constexpr,
):  # fmt: skip
    """Write the ``count`` untaken edges with the smallest keys, of up to 64 edges, in their order."""
    offset = tl.arange(0, _NARROW_DEGREE)
    among = is_open(offset, degree, taken, closed, EXCLUDES)
    keys = _keys(weight, offset, among, key, place, position, _NARROW_DEGREE, True, TIERED)
    is_before = (keys[:, None] < keys[None, :]) | (
        (keys[:, None] == keys[None, :]) & (offset[:, None] < offset[None, :])
    )
    is_chosen = among & (tl.sum(is_before.to(tl.int32), axis=0) < count)
    tl.store(out + tl.cumsum(is_chosen.to(tl.int32), axis=0) - 1, begin + offset, mask=is_chosen)


@triton.jit
def take_wide(
    weight, out, begin, degree, taken, closed, count, key, place, position, TIERED: tl.constexpr,
    EXCLUDES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The same for any number of edges: the smallest keys are found one after the other."""
    last_key = tl.full((), -1.0, tl.float64)
    last_offset = tl.full((), -1, tl.int32)
    for _ in range(count):
        best_key = tl.full((), _INFINITE, tl.float64)
        best_offset = tl.full((), 2**31 - 1, tl.int32)
        for first in range(0, degree, CHUNK):
            offset = first + tl.arange(0, CHUNK)
            among = is_open(offset, degree, taken, closed, EXCLUDES)
            keys = _keys(weight, offset, among, key, place, position, CHUNK, False, TIERED)
            is_after = among & ((keys > last_key) | ((keys == last_key) & (offset > last_offset)))
            least = tl.min(tl.where(is_after, keys, _INFINITE), axis=0)
            place_of_least = tl.min(tl.where(is_after & (keys == least), offset, 2**31 - 1), axis=0)
            is_better = least < best_key
            best_key = tl.where(is_better, least, best_key)
            best_offset = tl.where(is_better, place_of_least, best_offset)
        last_key = best_key
        last_offset = best_offset
    written = 0
    for first in range(0, degree, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        among = is_open(offset, degree, taken, closed, EXCLUDES)
        keys = _keys(weight, offset, among, key, place, position, CHUNK, False, TIERED)
        is_chosen = among & ((keys < last_key) | ((keys == last_key) & (offset <= last_offset)))
        tl.store(
            out + written + tl.cumsum(is_chosen.to(tl.int32), axis=0) - 1, begin + offset, mask=is_chosen
        )
        written += tl.sum(is_chosen.to(tl.int32), axis=0)


@triton.jit
def _rest_of_weight(weight, degree, closed, TIERED: tl.constexpr):
    """Return the sum of the weights of the edges of a node that are not excluded, added up in their order."""
    column, residents, edges, read_at = weight
    begins, counts, first, ranges = closed
    total = tl.full((), 0.0, tl.float64)
    next_range = 0
    offset = 0
    while offset < degree:
        skipped = 0
        if next_range < ranges:
            skipped = tl.where(tl.load(begins + first + next_range) == offset, 1, 0)
        if skipped > 0:
            offset += tl.load(counts + first + next_range)
            next_range += 1
        else:
            value = load_edges(column, residents, edges, read_at + offset, True, 0.0, TIERED)
            total += value.to(tl.float64)
            offset += 1
    return total


@triton.jit
def _find_in_rest(weight, degree, closed, point, is_wanted, TIERED: tl.constexpr):
    """Return the first edge up to and with which those sums are above each point, float64 [n]."""
    column, residents, edges, read_at = weight
    begins, counts, first, ranges = closed
    total = tl.full((), 0.0, tl.float64)
    chosen = tl.where(is_wanted, -1, 0)
    next_range = 0
    offset = 0
    while (offset < degree) & (tl.min(chosen, axis=0) < 0):
        skipped = 0
        if next_range < ranges:
            skipped = tl.where(tl.load(begins + first + next_range) == offset, 1, 0)
        if skipped > 0:
            offset += tl.load(counts + first + next_range)
            next_range += 1
        else:
            value = load_edges(column, residents, edges, read_at + offset, True, 0.0, TIERED)
            total += value.to(tl.float64)
            chosen = tl.where((chosen < 0) & (total > point), offset, chosen)
            offset += 1
    return chosen


@triton.jit
def _choose_others_with_replacement(
    nodes, positions, begins, degrees, lengths, ends, slots, first_ranges, range_begins, range_counts,
    alias_tables, alias_residents, alias_places, edges, weight, weight_residents, weight_places, edge_ids,
    wanted, key, place, ALIAS_TIERED: tl.constexpr, WEIGHT_TIERED: tl.constexpr, DRAWS: tl.constexpr,
):  # fmt: skip
    """Choose for a node with excluded edges."""
    number = tl.program_id(0)
    slot = tl.load(slots + number)
    if (slot >= 0) & (tl.load(degrees + number) > 0):
        begin = tl.load(begins + number)
        degree = tl.load(lengths + number)
        out = edge_ids + tl.load(ends + number) - wanted
        row = tl.arange(0, 1)
        node = tl.load(nodes + number)
        position = tl.load(positions + number) + row.to(tl.int64)
        first, ranges = ranges_of(first_ranges, slot, slot >= 0)
        alias_begin = list_begin(alias_places, node, begin, edges, True, ALIAS_TIERED)
        weight_begin = list_begin(weight_places, node, begin, edges, True, WEIGHT_TIERED)
        step = tl.arange(0, DRAWS)
        found = 0
        first_draw = tl.zeros((), tl.int64)
        limit = 8 * tl.full((), wanted, tl.int64) + degree // 4
        while (found < wanted) & (first_draw < limit):
            is_wanted = first_draw + step < limit
            drawn = _draw_offsets(
                alias_tables, alias_residents, edges, alias_begin + row, degree + row, key, place, first_draw,
                position, is_wanted[None, :], ALIAS_TIERED, DRAWS,
            )  # fmt: skip
            offset = tl.reshape(drawn, (DRAWS,))
            is_kept = is_wanted & (
                is_excluded(range_begins, range_counts, first, ranges, offset, is_wanted) == 0
            )
            target = found + tl.cumsum(is_kept.to(tl.int32), axis=0) - 1
            tl.store(out + target, begin + offset, mask=is_kept & (target < wanted))
            found = tl.minimum(found + tl.sum(is_kept.to(tl.int32), axis=0), wanted)
            first_draw += DRAWS
        if found < wanted:  # nearly all weight is excluded
            weights = weight, weight_residents, edges, weight_begin
            closed = range_begins, range_counts, first, ranges
            total = _rest_of_weight(weights, degree, closed, WEIGHT_TIERED)
            below = (total.to(tl.int64, bitcast=True) - 1).to(tl.float64, bitcast=True)
            for first_rest in range(0, wanted - found, DRAWS):
                words = draw_words(key, place, first_rest // 2, position, _WIDE_KEYS, 2 * DRAWS)
                high, low = tl.split(tl.reshape(words, (DRAWS, 2)))
                word = high.to(tl.uint64) << 32 | low.to(tl.uint64)
                u = ((word >> 12).to(tl.float64) + 0.5) * 2.0**-52
                is_rest = first_rest + step < wanted - found
                offset = _find_in_rest(
                    weights, degree, closed, tl.minimum(u * total, below), is_rest, WEIGHT_TIERED
                )
                tl.store(out + found + first_rest + step, begin + offset, mask=is_rest)


@triton.jit
def _choose_without_replacement(
    nodes, positions, begins, degrees, lengths, ends, slots, first_ranges, range_begins, range_counts,
    alias_tables, alias_residents, alias_places, edges, weight, weight_residents, weight_places, edge_ids,
    wanted, key, place, ALIAS_TIERED: tl.constexpr, WEIGHT_TIERED: tl.constexpr, EXCLUDES: tl.constexpr,
    DRAWS: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    begin = tl.load(begins + number)
    open_degree = tl.load(degrees + number)
    count = tl.minimum(open_degree, wanted)
    out = edge_ids + tl.load(ends + number) - count
    taken = tl.full((TAKEN,), -1, tl.int32)
    degree = open_degree
    first = begin
    ranges = 0
    if EXCLUDES:
        degree = tl.load(lengths + number)
        slot = tl.load(slots + number)
        first, ranges = ranges_of(first_ranges, slot, slot >= 0)
    closed = range_begins, range_counts, first, ranges
    if open_degree <= wanted:
        take_all(out, begin, degree, closed, EXCLUDES, _CHUNK)
    else:
        row = tl.arange(0, 1)
        node = tl.load(nodes + number)
        position = tl.load(positions + number) + row.to(tl.int64)
        alias_begin = list_begin(alias_places, node, begin, edges, True, ALIAS_TIERED)
        weight_begin = list_begin(weight_places, node, begin, edges, True, WEIGHT_TIERED)
        found = 0
        first_draw = 0
        limit = tl.where(degree <= 2 * wanted, 0, 4 * wanted + degree // 4)
        while (found < count) & (first_draw < limit):
            is_wanted = first_draw + tl.arange(0, DRAWS) < limit
            drawn = _draw_offsets(
                alias_tables, alias_residents, edges, alias_begin + row, degree + row, key, place, first_draw,
                position, is_wanted[None, :], ALIAS_TIERED, DRAWS,
            )  # fmt: skip
            offset = tl.reshape(drawn, (DRAWS,))
            if EXCLUDES:
                is_wanted &= is_excluded(range_begins, range_counts, first, ranges, offset, is_wanted) == 0
            taken, found = take_new(offset, is_wanted, taken, found, count, out, begin, TAKEN)
            first_draw += DRAWS
        if found < count:
            weights = weight, weight_residents, edges, weight_begin
            if degree <= _NARROW_DEGREE:
                _take_narrow(
                    weights, out + found, begin, degree, taken, closed, count - found, key, place, position,
                    WEIGHT_TIERED, EXCLUDES,
                )  # fmt: skip
            else:
                take_wide(
                    weights, out + found, begin, degree, taken, closed, count - found, key, place, position,
                    WEIGHT_TIERED, EXCLUDES, _CHUNK,
                )  # fmt: skip


def choose_weighted(
    weights: DeviceWeights,
    indptr: Tensor,
    excluded: ExcludedLists | None,
    frontier: Frontier,
    spans: Spans,
    edge_ids: Tensor,
    draws: Draws,
) -> None:
    """Write the positions of the edges that are sampled of each node.

    Args:
        weights: of all edges.
        indptr: of the lists.
        excluded: edges that must not be sampled, or None.
        frontier: nodes.
        spans: their edges.
        edge_ids: int64, to be written.
        draws: how many of each, and how.
    """
    alias = tiered_reads(weights.alias_tables, weights.alias_residents, indptr)
    weight = tiered_reads(weights.weight, weights.weight_residents, indptr)
    wanted = draws.wanted
    arguments = (
        *frontier[:2],
        *spans.arguments(excluded),
        *alias,
        *weight[:3],
        edge_ids,
        wanted,
        draws.key,
        draws.place,
    )
    tiers = {
        "ALIAS_TIERED": weights.alias_residents is not None,
        "WEIGHT_TIERED": weights.weight_residents is not None,
    }
    nodes = len(frontier.nodes)
    taken = max(triton.next_power_of_2(wanted), 4)
    some_draws = min(max(taken, 16), 64)
    if not draws.replace:
        _choose_without_replacement[nodes,](
            *arguments,
            **tiers,
            EXCLUDES=excluded is not None,
            DRAWS=some_draws,
            TAKEN=taken,
            num_warps=1,
            enable_fp_fusion=False,
        )
        return
    width = min(taken, _TILE)
    block = _TILE // width
    _choose_with_replacement[triton.cdiv(nodes, block), triton.cdiv(wanted, width)](
        *frontier[:2],
        spans.begins,
        spans.degrees,
        spans.ends,
        spans.slots,
        *alias,
        edge_ids,
        nodes,
        wanted,
        draws.key,
        draws.place,
        TIERED=weights.alias_residents is not None,
        EXCLUDES=excluded is not None,
        DRAWS=width,
        BLOCK=block,
        enable_fp_fusion=False,
    )
    if excluded is not None:
        _choose_others_with_replacement[nodes,](
            *arguments, **tiers, DRAWS=some_draws, num_warps=1, enable_fp_fusion=False
        )
