"""Walks that look back, in a Triton kernel: the twin of ``csrc/sample/node2vec.cpp``, bit for bit.

A lane is a walker. All walkers of a program throw their darts together until each has hit or has missed 32
times; those choose by looking at all edges. The kernel is launched with ``enable_fp_fusion=False``, since a
multiplication and an addition that are rounded once give other bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from graphbox.philox_gpu import bounded_word, draw_block
from graphbox.sample.edge_reads_gpu import (
    TieredReads,
    list_begin,
    load_alias,
    load_edges,
    lower_bound,
    tiered_reads,
)

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.walk_gpu import DeviceWalk, WalkerDraws

_BLOCK = 32
_HOP = tl.constexpr(1)
_ALIAS_HOP = tl.constexpr(4)
_MOST_DARTS = tl.constexpr(32)


@triton.jit
def _unit_interval(low, high):
    return ((high.to(tl.uint64) << 32 | low.to(tl.uint64)) >> 11).to(tl.float64) * 2.0**-53


@triton.jit
def _has(lists, begin, degree, node, rank, wanted, TIERED: tl.constexpr):
    """Return whether the neighbours have ``node`` more than ``rank`` times."""
    indices, residents, edges = lists
    place = lower_bound(indices, residents, edges, begin, degree, node, wanted, TIERED).to(tl.int64) + rank
    is_there = wanted & (place < degree)
    found = load_edges(indices, residents, edges, begin + place, is_there, -1, TIERED).to(tl.int64)
    return is_there & (found == node)


@triton.jit
def _kind(lists, begins, offset, previous, previous_begin, previous_degree, wanted, TIERED: tl.constexpr):
    """Return a neighbour and where it leads: 0 back, 1 to a neighbour of the node before, 2 elsewhere."""
    indices, residents, edges = lists
    node = load_edges(indices, residents, edges, begins + offset, wanted, -1, TIERED).to(tl.int64)
    near = _has(lists, previous_begin, previous_degree, node, 0, wanted, TIERED)
    return node, tl.where(node == previous, 0, tl.where(near, 1, 2))


@triton.jit
def _choose_by_counting(
    lists, begin, degree, previous, previous_begin, previous_degree, wanted, step, key, position,
    return_weight, far_weight, TIERED: tl.constexpr,
):  # fmt: skip
    """Return an exact choice among equal edges, in time that grows with the degree."""
    count0 = tl.zeros_like(degree)
    count1 = tl.zeros_like(degree)
    count2 = tl.zeros_like(degree)
    most = tl.max(tl.where(wanted, degree, 0))
    for offset in range(most):
        here = wanted & (offset < degree)
        _, kind = _kind(lists, begin, offset, previous, previous_begin, previous_degree, here, TIERED)
        count0 += (here & (kind == 0)).to(tl.int32)
        count1 += (here & (kind == 1)).to(tl.int32)
        count2 += (here & (kind == 2)).to(tl.int32)
    weight0 = count0.to(tl.float64) * return_weight
    weight1 = count1.to(tl.float64)
    weight2 = count2.to(tl.float64) * far_weight
    place = _HOP | _MOST_DARTS << 8
    word0, word1, word2, _ = draw_block(key, place, step, position, 0)
    left = _unit_interval(word1, word2) * (weight0 + weight1 + weight2)
    # Of the kinds that have edges the first below whose weight it falls, the last where rounding leaves none.
    in0 = (count0 > 0) & ((left < weight0) | ((count1 == 0) & (count2 == 0)))
    left = tl.where(count0 > 0, left - weight0, left)
    in1 = (in0 == 0) & (count1 > 0) & ((left < weight1) | (count2 == 0))
    chosen = tl.where(in0, 0, tl.where(in1, 1, 2))
    count = tl.where(in0, count0, tl.where(in1, count1, count2))
    ranges = tl.where(wanted, count, 1).to(tl.uint32)
    before = bounded_word(word0, ranges, key, place, step, position, wanted, 0).to(tl.int32)
    result = tl.zeros_like(previous) - 1
    for offset in range(most):
        here = wanted & (offset < degree)
        node, kind = _kind(lists, begin, offset, previous, previous_begin, previous_degree, here, TIERED)
        is_of_kind = here & (kind == chosen)
        result = tl.where(is_of_kind & (before == 0), node, result)
        before -= is_of_kind.to(tl.int32)
    return result


@triton.jit
def _choose_by_adding(
    lists, weights, begin, degree, previous, previous_begin, previous_degree, wanted, step, key, position,
    return_weight, far_weight, TIERED: tl.constexpr, WEIGHT_TIERED: tl.constexpr,
):  # fmt: skip
    """Return an exact choice by weights, in time that grows with the degree."""
    weight, copies, edges, weight_begin = weights
    most = tl.max(tl.where(wanted, degree, 0))
    total = tl.zeros(degree.shape, tl.float64)
    for offset in range(most):
        here = wanted & (offset < degree)
        _, kind = _kind(lists, begin, offset, previous, previous_begin, previous_degree, here, TIERED)
        factor = tl.where(kind == 0, return_weight, tl.where(kind == 1, 1.0, far_weight))
        read = load_edges(weight, copies, edges, weight_begin + offset, here, 0.0, WEIGHT_TIERED)
        share = read.to(tl.float64) * factor
        total = tl.where(here, total + share, total)
    _, word1, word2, _ = draw_block(key, _HOP | _MOST_DARTS << 8, step, position, 0)
    left = _unit_interval(word1, word2) * total
    result = tl.zeros_like(previous) - 1
    for offset in range(most):
        here = wanted & (offset < degree)
        node, kind = _kind(lists, begin, offset, previous, previous_begin, previous_degree, here, TIERED)
        result = tl.where(here & (left >= 0), node, result)
        factor = tl.where(kind == 0, return_weight, tl.where(kind == 1, 1.0, far_weight))
        read = load_edges(weight, copies, edges, weight_begin + offset, here, 0.0, WEIGHT_TIERED)
        share = read.to(tl.float64) * factor
        left = tl.where(here, left - share, left)
    return result


@triton.jit
def _judge(
    lists, candidate, fell, looks_at, back, going, previous, rank, return_weight, far_weight, sure_below,
    never_above, TIERED: tl.constexpr,
):  # fmt: skip
    """Return which darts hit.

    Args:
        lists: neighbours, their resident copies, how many there are.
        candidate: where the chosen edges lead.
        fell: how high darts fell in their columns.
        looks_at: where the list begins that decides, and its length.
        back: darts that fell on the area of the edges back.
        going: the others.
        previous: the node before.
        rank: which of the edges back was hit.
        return_weight: 1 / p.
        far_weight: 1 / q.
        sure_below: all edges are at least so high.
        never_above: no edge is higher, edges back apart.
        TIERED: whether there are resident lists.
    """
    begin, degree = looks_at
    is_return = going & (candidate == previous)
    is_sure = fell < sure_below
    is_open = going & (is_return == 0) & (is_sure == 0) & (fell < never_above)
    wanted = tl.where(back, previous, candidate)
    found = _has(lists, begin, degree, wanted, rank, back | is_open, TIERED)
    prefers_near = tl.zeros_like(fell) + far_weight < 1
    hit = tl.where(is_open, found == prefers_near, is_sure)
    hit = tl.where(is_return, fell < return_weight, hit)
    return tl.where(back, found, going & hit)


@triton.jit
def _throw_darts(
    lists, aliases, parameters, begin, degree, previous, previous_begin, previous_degree, pending,
    most_parallel, step, key, position, WEIGHTED: tl.constexpr, TIERED: tl.constexpr,
    ALIAS_TIERED: tl.constexpr,
):  # fmt: skip
    """Return where walkers in ``pending`` go, and who of them missed with all darts."""
    indices, residents, edges = lists
    alias_tables, alias_copies, alias_begin = aliases
    return_weight, far_weight = tl.load(parameters), tl.load(parameters + 1)
    height, excess = tl.load(parameters + 2), tl.load(parameters + 3)
    sure_below, never_above = tl.load(parameters + 4), tl.load(parameters + 5)
    arrived = tl.zeros_like(previous) - 1
    looks = previous >= 0
    columns = degree.to(tl.float64) * height
    area_back = tl.minimum(degree, most_parallel).to(tl.float64) * excess
    dart = 0
    while (dart < _MOST_DARTS) & (tl.max(pending.to(tl.int32)) > 0):
        place = _HOP | dart << 8
        word0, word1, word2, _ = draw_block(key, place, step, position, 0)
        dart_at = _unit_interval(word1, word2) * (columns + area_back)
        back = pending & looks & (dart_at >= columns) & (area_back > 0)
        going = pending & (back == 0)
        rank = tl.where(back, (dart_at - columns) / tl.where(back, excess, 1.0), 0.0).to(tl.int64)
        fell = tl.where(looks, dart_at / tl.where(pending, degree, 1).to(tl.float64), -1.0)
        ranges = tl.where(pending, degree, 1).to(tl.uint32)
        chosen = bounded_word(word0, ranges, key, place, step, position, going, 0).to(tl.int64)
        if WEIGHTED:
            fraction, _, _, _ = draw_block(key, _ALIAS_HOP | dart << 8, step, position, 0)
            alias_at = alias_begin + chosen
            threshold, alias = load_alias(alias_tables, alias_copies, edges, alias_at, going, ALIAS_TIERED)
            chosen = tl.where(fraction < threshold, chosen, alias.to(tl.int64))
        candidate = load_edges(indices, residents, edges, begin + chosen, going, -1, TIERED).to(tl.int64)
        looks_at = tl.where(back, begin, previous_begin), tl.where(back, degree, previous_degree)
        hit = _judge(
            lists, candidate, fell, looks_at, back, going, previous, rank, return_weight, far_weight,
            sure_below, never_above, TIERED,
        )  # fmt: skip
        arrived = tl.where(hit, tl.where(back, previous, candidate), arrived)
        pending &= hit == 0
        dart += 1
    return arrived, pending


@triton.jit
def _walk_back(
    starts, keys, positions, out, size, length, indptr, uses, indices, residents, places, edges, alias_tables,
    alias_residents, alias_places, weight, weight_residents, weight_places, parameters, most_parallel,
    restart_below, key, SEVERAL_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, RESTARTS: tl.constexpr,
    COUNTS_USES: tl.constexpr, TIERED: tl.constexpr, ALIAS_TIERED: tl.constexpr,
    WEIGHT_TIERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    walker = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = walker < size
    position = walker
    if SEVERAL_KEYS:
        key = tl.load(keys + walker, mask=inside, other=0).to(tl.uint64, bitcast=True)
        position = tl.load(positions + walker, mask=inside, other=0)
    start = tl.load(starts + walker, mask=inside, other=-1)
    row = out + walker * (length + 1)
    tl.store(row, start, mask=inside)
    node = start
    previous = tl.zeros_like(node) - 1
    previous_begin = tl.zeros_like(node)
    previous_degree = tl.zeros_like(node).to(tl.int32)
    lists = indices, residents, edges
    for step in range(length):
        walking = node >= 0
        in_column = tl.load(indptr + node, mask=walking, other=0)
        degree = (tl.load(indptr + node + 1, mask=walking, other=0) - in_column).to(tl.int32)
        begin = list_begin(places, node, in_column, edges, walking, TIERED)
        alias_begin = list_begin(alias_places, node, in_column, edges, walking, ALIAS_TIERED)
        if COUNTS_USES:
            tl.atomic_add(uses + node, 1, mask=walking & (degree > 0), sem="relaxed")
        returns = node < -1  # nobody
        if RESTARTS:
            _, _, _, word = draw_block(key, _HOP, step, position, 0)
            returns = walking & ((degree == 0) | (word.to(tl.int64) < restart_below))
        pending = walking & (degree > 0) & (returns == 0)
        arrived, missed = _throw_darts(
            lists, (alias_tables, alias_residents, alias_begin), parameters, begin, degree, previous,
            previous_begin, previous_degree, pending, most_parallel, step, key, position, WEIGHTED, TIERED,
            ALIAS_TIERED,
        )  # fmt: skip
        if tl.max(missed.to(tl.int32)) > 0:
            return_weight, far_weight = tl.load(parameters), tl.load(parameters + 1)
            if WEIGHTED:
                weight_begin = list_begin(weight_places, node, in_column, edges, walking, WEIGHT_TIERED)
                weights = weight, weight_residents, edges, weight_begin
                chosen = _choose_by_adding(
                    lists, weights, begin, degree, previous, previous_begin, previous_degree, missed, step,
                    key, position, return_weight, far_weight, TIERED, WEIGHT_TIERED,
                )  # fmt: skip
            else:
                chosen = _choose_by_counting(
                    lists, begin, degree, previous, previous_begin, previous_degree, missed, step, key,
                    position, return_weight, far_weight, TIERED,
                )  # fmt: skip
            arrived = tl.where(missed, chosen, arrived)
        previous = tl.where(returns, -1, node)
        previous_begin = begin
        previous_degree = degree
        node = tl.where(returns, start, arrived)
        tl.store(row + step + 1, node, mask=inside)


def node2vec_parameters(walk: DeviceWalk) -> Tensor:
    """Return what kernels are told of ``p`` and ``q``: float64 [6], in host memory."""
    (step,) = walk.paths[0]
    return_weight, far_weight = 1 / walk.p, 1 / walk.q
    height = max(1.0, far_weight, return_weight if step.weights is not None else 0.0)
    excess = max(0.0, return_weight - height)
    parameters = [return_weight, far_weight, height, excess, min(1.0, far_weight), max(1.0, far_weight)]
    return torch.tensor(parameters, dtype=torch.float64)


def node2vec_walks(
    walk: DeviceWalk,
    start: Tensor,
    out: Tensor,
    parameters: Tensor,
    restart_below: int,
    key: int,
    draws: WalkerDraws | None,
) -> None:
    """Write walks that look back to ``out``; see :class:`graphbox.sample.walk_gpu.DeviceWalker`.

    Args:
        walk: what walkers do: one step, whose lists ascend.
        start: int64 [n], n above 0.
        out: int64 [n, length + 1].
        parameters: of :func:`node2vec_parameters`, on the device.
        restart_below: words below it mean a restart.
        key: of the draws of all walkers.
        draws: what each walker draws by instead, or None.
    """
    (step,) = walk.paths[0]
    lists, weights = step.lists, step.weights
    none = TieredReads(start, start, start, 0)
    alias = none
    weight = none
    if weights is not None:
        alias = tiered_reads(weights.alias_tables, weights.alias_residents, lists.indptr)
        weight = tiered_reads(weights.weight, weights.weight_residents, lists.indptr)
    _walk_back[triton.cdiv(len(start), _BLOCK),](
        start,
        start if draws is None else draws.keys,
        start if draws is None else draws.positions,
        out,
        len(start),
        walk.length,
        lists.indptr,
        start if lists.uses is None else lists.uses,
        *tiered_reads(lists.indices, lists.residents, lists.indptr),
        *alias[:3],
        *weight[:3],
        parameters,
        walk.most_parallel,
        restart_below,
        key,
        SEVERAL_KEYS=draws is not None,
        WEIGHTED=weights is not None,
        RESTARTS=walk.restart_probability > 0,
        COUNTS_USES=lists.uses is not None,
        TIERED=lists.residents is not None,
        ALIAS_TIERED=weights is not None and weights.alias_residents is not None,
        WEIGHT_TIERED=weights is not None and weights.weight_residents is not None,
        BLOCK=_BLOCK,
        num_warps=1,
        enable_fp_fusion=False,
    )
