"""Choosing edges in proportion to their weights in kernels: the twin of ``csrc/sample/weighted_choice.cpp``.

With replacement each draw is a cell of a tile. Without, a program chooses for one node: it draws from the
alias table some at a time, drops what is taken, and where that goes on for long takes the edges with the
smallest exponential keys among the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from graphbox.philox_gpu import draw_words
from graphbox.sample.edge_reads_gpu import list_begin, load_alias, load_edges, tiered_reads
from graphbox.sample.exponential_gpu import exponential

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.device import DeviceWeights

__all__ = ["choose_weighted"]

_TILE = 512
_NARROW_DEGREE = tl.constexpr(64)  # kMaskDegree: up to here a key has 32 bits of the generator, else 52
_NARROW_KEYS = tl.constexpr(1)
_WIDE_KEYS = tl.constexpr(2)
_INFINITE = tl.constexpr(float("inf"))


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
    nodes, begins, degrees, ends, alias_tables, residents, places, edges, edge_ids, size, wanted, key, place,
    TIERED: tl.constexpr, DRAWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    first_draw = tl.program_id(1) * DRAWS
    draw = tl.arange(0, DRAWS)[None, :] + first_draw
    node = tl.load(nodes + number, mask=inside, other=0)
    begin = tl.load(begins + number, mask=inside, other=0)
    degree = tl.load(degrees + number, mask=inside, other=0)
    is_wanted = (draw < wanted) & (inside & (degree > 0))[:, None]
    read_at = list_begin(places, node, begin, edges, inside, TIERED)
    offset = _draw_offsets(
        alias_tables, residents, edges, read_at, degree, key, place, first_draw, node, is_wanted, TIERED,
        DRAWS,
    )  # fmt: skip
    out = (tl.load(ends + number, mask=inside, other=0) - wanted)[:, None] + draw
    tl.store(edge_ids + out, begin[:, None] + offset, mask=is_wanted)


@triton.jit
def _is_among(offset, taken):
    """Return which of ``offset`` int32 [n] are in ``taken`` int32 [m]."""
    return tl.max((offset[:, None] == taken[None, :]).to(tl.int32), axis=1) > 0


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
def _take_narrow(weight, out, begin, degree, taken, count, key, place, position, TIERED: tl.constexpr):
    """Write the ``count`` untaken edges with the smallest keys, of up to 64 edges, in their order."""
    offset = tl.arange(0, _NARROW_DEGREE)
    among = (offset < degree) & (_is_among(offset, taken) == 0)
    keys = _keys(weight, offset, among, key, place, position, _NARROW_DEGREE, True, TIERED)
    is_before = (keys[:, None] < keys[None, :]) | (
        (keys[:, None] == keys[None, :]) & (offset[:, None] < offset[None, :])
    )
    is_chosen = among & (tl.sum(is_before.to(tl.int32), axis=0) < count)
    tl.store(out + tl.cumsum(is_chosen.to(tl.int32), axis=0) - 1, begin + offset, mask=is_chosen)


@triton.jit
def _take_wide(
    weight, out, begin, degree, taken, count, key, place, position, TIERED: tl.constexpr, CHUNK: tl.constexpr
):
    """The same for any number of edges: the smallest keys are found one after the other."""
    last_key = tl.full((), -1.0, tl.float64)
    last_offset = tl.full((), -1, tl.int32)
    for _ in range(count):
        best_key = tl.full((), _INFINITE, tl.float64)
        best_offset = tl.full((), 2**31 - 1, tl.int32)
        for first in range(0, degree, CHUNK):
            offset = first + tl.arange(0, CHUNK)
            among = (offset < degree) & (_is_among(offset, taken) == 0)
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
        among = (offset < degree) & (_is_among(offset, taken) == 0)
        keys = _keys(weight, offset, among, key, place, position, CHUNK, False, TIERED)
        is_chosen = among & ((keys < last_key) | ((keys == last_key) & (offset <= last_offset)))
        tl.store(
            out + written + tl.cumsum(is_chosen.to(tl.int32), axis=0) - 1, begin + offset, mask=is_chosen
        )
        written += tl.sum(is_chosen.to(tl.int32), axis=0)


@triton.jit
def _choose_without_replacement(
    nodes, begins, degrees, ends, alias_tables, alias_residents, alias_places, edges, weight,
    weight_residents, weight_places, edge_ids, wanted, key, place, ALIAS_TIERED: tl.constexpr,
    WEIGHT_TIERED: tl.constexpr, DRAWS: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    begin = tl.load(begins + number)
    degree = tl.load(degrees + number)
    count = tl.minimum(degree, wanted)
    out = edge_ids + tl.load(ends + number) - count
    slot = tl.arange(0, TAKEN)
    if degree <= wanted:
        tl.store(out + slot, begin + slot, mask=slot < count)
    else:
        row = tl.arange(0, 1)
        node = tl.load(nodes + number)
        position = node + row.to(tl.int64)
        alias_begin = begin
        if ALIAS_TIERED:
            alias_place = tl.load(alias_places + node)
            alias_begin = tl.where(alias_place >= 0, alias_place + edges, begin)
        weight_begin = begin
        if WEIGHT_TIERED:
            weight_place = tl.load(weight_places + node)
            weight_begin = tl.where(weight_place >= 0, weight_place + edges, begin)
        taken = tl.full((TAKEN,), -1, tl.int32)
        found = 0
        first_draw = 0
        limit = tl.where(degree <= 2 * wanted, 0, 4 * wanted + degree // 4)
        while (found < count) & (first_draw < limit):
            step = tl.arange(0, DRAWS)
            is_wanted = first_draw + step < limit
            drawn = _draw_offsets(
                alias_tables, alias_residents, edges, alias_begin + row, degree + row, key, place, first_draw,
                position, is_wanted[None, :], ALIAS_TIERED, DRAWS,
            )  # fmt: skip
            offset = tl.reshape(drawn, (DRAWS,))
            repeats = (
                (offset[:, None] == offset[None, :]) & (step[:, None] < step[None, :]) & is_wanted[:, None]
            )
            is_new = is_wanted & (tl.max(repeats.to(tl.int32), axis=0) == 0) & (_is_among(offset, taken) == 0)
            target = tl.where(is_new, found + tl.cumsum(is_new.to(tl.int32), axis=0) - 1, TAKEN)
            is_kept = target < count
            tl.store(out + target, begin + offset, mask=is_kept)
            lands = (slot[:, None] == target[None, :]) & is_kept[None, :]
            taken = tl.maximum(taken, tl.max(tl.where(lands, offset[None, :], -1), axis=1))
            found = tl.minimum(found + tl.sum(is_new.to(tl.int32), axis=0), count)
            first_draw += DRAWS
        if found < count:
            weights = weight, weight_residents, edges, weight_begin
            if degree <= _NARROW_DEGREE:
                _take_narrow(
                    weights, out + found, begin, degree, taken, count - found, key, place, position,
                    WEIGHT_TIERED,
                )  # fmt: skip
            else:
                _take_wide(
                    weights, out + found, begin, degree, taken, count - found, key, place, position,
                    WEIGHT_TIERED, 128,
                )  # fmt: skip


def choose_weighted(
    nodes: Tensor,
    spans: tuple[Tensor, Tensor, Tensor],
    indptr: Tensor,
    weights: DeviceWeights,
    edge_ids: Tensor,
    wanted: int,
    key: int,
    place: int,
    *,
    replace: bool,
) -> None:
    """Write the positions of the edges that are sampled of each node.

    Args:
        nodes: int64 [n], whose edges.
        spans: of each where its edges begin (int64), how many it has (int32), and where what it gives ends in
            ``edge_ids`` (int64).
        indptr: of the lists.
        weights: of all edges.
        edge_ids: int64, to be written.
        wanted: how many of each node.
        key: of the draws.
        place: of the draws.
        replace: draw with replacement.
    """
    alias = tiered_reads(weights.alias_tables, weights.alias_residents, indptr)
    if replace:
        draws = min(max(triton.next_power_of_2(wanted), 4), _TILE)
        block = _TILE // draws
        _choose_with_replacement[triton.cdiv(len(nodes), block), triton.cdiv(wanted, draws)](
            nodes,
            *spans,
            *alias,
            edge_ids,
            len(nodes),
            wanted,
            key,
            place,
            TIERED=weights.alias_residents is not None,
            DRAWS=draws,
            BLOCK=block,
            enable_fp_fusion=False,
        )
        return
    weight = tiered_reads(weights.weight, weights.weight_residents, indptr)
    taken = max(triton.next_power_of_2(wanted), 4)
    _choose_without_replacement[len(nodes),](
        nodes,
        *spans,
        *alias,
        *weight[:3],
        edge_ids,
        wanted,
        key,
        place,
        ALIAS_TIERED=weights.alias_residents is not None,
        WEIGHT_TIERED=weights.weight_residents is not None,
        DRAWS=min(max(taken, 16), 64),
        TAKEN=taken,
        num_warps=1,
        enable_fp_fusion=False,
    )
