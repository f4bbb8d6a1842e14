"""LABOR in a kernel: the twin of ``csrc/sample/labor.cpp``, bit for bit.

A program chooses for one node. It finds the number up to which neighbours are taken digit by digit, the
most significant first (radix selection): each pass over the list counts the digits of those that agree with
what is known of the number, and computes their numbers anew, which costs less than keeping them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from graphbox.philox_gpu import draw_block
from graphbox.sample.edge_reads_gpu import list_begin, load_edges, tiered_reads
from graphbox.sample.excluded_gpu import is_excluded, ranges_of
from graphbox.sample.exponential_gpu import exponential

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.hop_spans_gpu import DeviceRelation, Draws, Frontier, Spans

__all__ = ["choose_labor"]

_CHUNK = tl.constexpr(256)  # edges that are looked at together
_DIGITS = tl.constexpr(256)
_DIGIT_BITS = tl.constexpr(8)
_KEY_BITS = tl.constexpr(64)


@triton.jit
def largest(one, other):
    return tl.maximum(one, other)


@triton.jit
def _keys(
    list_reads, weight_reads, offset, inside, run_begin, key, place, TIERED: tl.constexpr,
    WEIGHTED: tl.constexpr, WEIGHT_TIERED: tl.constexpr,
):  # fmt: skip
    """Return the keys of neighbours, uint64, of which the smallest are taken.

    Args:
        list_reads: column, residents, edges of it, where the list is read at.
        weight_reads: the same of weights.
        offset: int32, successive edges of the list.
        inside: bool, which of them there are.
        run_begin: int32, the first of the equal neighbours in a row, the last of which is before ``offset``.
        key: of the draws.
        place: of the draws.
        TIERED: of ``list_reads``.
        WEIGHTED: whether ``weight_reads`` is read.
        WEIGHT_TIERED: of ``weight_reads``.

    Returns:
        The keys, and the first of the equal neighbours in a row, the last of which is ``offset``'s last.
    """
    column, residents, edges, read_at = list_reads
    neighbor = load_edges(column, residents, edges, read_at + offset, inside, 0, TIERED).to(tl.int64)
    has_one_before = inside & (offset > 0)
    before = load_edges(column, residents, edges, read_at + offset - 1, has_one_before, 0, TIERED)
    begins_run = tl.where(has_one_before & (before.to(tl.int64) == neighbor), run_begin, offset)
    begins_run = tl.associative_scan(begins_run, 0, largest)
    high, low, _, _ = draw_block(key, place, (offset - begins_run).to(tl.uint32), neighbor, 0)
    number = high.to(tl.uint64) << 32 | low.to(tl.uint64)
    if WEIGHTED:
        column, residents, edges, read_at = weight_reads
        weight = load_edges(column, residents, edges, read_at + offset, inside, 1.0, WEIGHT_TIERED)
        u = ((~number >> 11).to(tl.float64) + 0.5) * 2.0**-53
        number = (exponential(u) / weight.to(tl.float64)).to(tl.uint64, bitcast=True)
    return number, tl.max(tl.where(inside, begins_run, -1), axis=0)


@triton.jit
def _choose_labor(  # noqa: PLR0915 - one pass after the other over what all have in common
    nodes, begins, degrees, lengths, ends, slots, first_ranges, range_begins, range_counts, indices,
    residents, places, edges, weight, weight_residents, weight_places, edge_ids, wanted, key, place,
    TIERED: tl.constexpr, WEIGHTED: tl.constexpr, WEIGHT_TIERED: tl.constexpr, EXCLUDES: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    begin = tl.load(begins + number)
    remaining = tl.load(degrees + number)
    count = tl.minimum(remaining, wanted)
    out = edge_ids + tl.load(ends + number) - count
    node = tl.load(nodes + number)
    degree = remaining
    first_range = begin
    ranges = 0
    if EXCLUDES:
        degree = tl.load(lengths + number)
        slot = tl.load(slots + number)
        first_range, ranges = ranges_of(first_ranges, slot, slot >= 0)
    list_reads = indices, residents, edges, list_begin(places, node, begin, edges, True, TIERED)
    weight_reads = (
        weight, weight_residents, edges,
        list_begin(weight_places, node, begin, edges, True, WEIGHT_TIERED),
    )  # fmt: skip
    digits = tl.arange(0, _DIGITS)
    prefix = tl.zeros((), tl.uint64)  # of the number up to which neighbours are taken, ...
    shift = tl.full((), _KEY_BITS, tl.int32)  # ... which has so many more bits
    needed = count  # of the neighbours whose keys begin with the prefix
    is_known = remaining <= wanted
    while (is_known == 0) & (shift > 0):
        shift -= _DIGIT_BITS
        counts = tl.zeros((_DIGITS,), tl.int32)
        run_begin = tl.full((), -1, tl.int32)
        for first in range(0, degree, _CHUNK):
            offset = first + tl.arange(0, _CHUNK)
            inside = offset < degree
            keys, run_begin = _keys(
                list_reads, weight_reads, offset, inside, run_begin, key, place, TIERED, WEIGHTED,
                WEIGHT_TIERED,
            )  # fmt: skip
            begun = keys >> shift.to(tl.uint64)
            among = inside & ((begun >> 8) == prefix)
            if EXCLUDES:
                among &= is_excluded(range_begins, range_counts, first_range, ranges, offset, among) == 0
            counts += tl.histogram((begun & 255).to(tl.int32), _DIGITS, mask=among)
        digit = tl.sum((tl.cumsum(counts, axis=0) < needed).to(tl.int32), axis=0)
        needed -= tl.sum(tl.where(digits < digit, counts, 0), axis=0)
        prefix = prefix << 8 | digit.to(tl.uint64)
        is_known = tl.sum(tl.where(digits == digit, counts, 0), axis=0) == needed
    written = 0
    equal = 0
    run_begin = tl.full((), -1, tl.int32)
    for first in range(0, degree, _CHUNK):
        offset = first + tl.arange(0, _CHUNK)
        is_taken = offset < degree
        if EXCLUDES:
            is_taken &= is_excluded(range_begins, range_counts, first_range, ranges, offset, is_taken) == 0
        if remaining > wanted:
            keys, run_begin = _keys(
                list_reads, weight_reads, offset, offset < degree, run_begin, key, place, TIERED, WEIGHTED,
                WEIGHT_TIERED,
            )  # fmt: skip
            begun = keys >> shift.to(tl.uint64)
            is_equal = is_taken & (begun == prefix)  # of more than needed the first
            rank = equal + tl.cumsum(is_equal.to(tl.int32), axis=0)
            is_taken &= (begun < prefix) | (is_equal & (rank <= needed))
            equal += tl.sum(is_equal.to(tl.int32), axis=0)
        target = written + tl.cumsum(is_taken.to(tl.int32), axis=0) - 1
        tl.store(out + target, begin + offset, mask=is_taken)
        written += tl.sum(is_taken.to(tl.int32), axis=0)


def choose_labor(
    relation: DeviceRelation, frontier: Frontier, spans: Spans, edge_ids: Tensor, draws: Draws
) -> None:
    """Write the positions of the edges that are sampled of each node.

    Args:
        relation: of which, with weights or without.
        frontier: nodes.
        spans: their edges.
        edge_ids: int64, to be written.
        draws: how many of each; ``place`` has the number of the source type.
    """
    adjacency, weights, excluded = relation.adjacency, relation.weights, relation.excluded
    indptr = adjacency.indptr
    lists = tiered_reads(adjacency.indices, adjacency.residents, indptr)
    weight = lists if weights is None else tiered_reads(weights.weight, weights.weight_residents, indptr)
    _choose_labor[len(frontier.nodes),](
        frontier.nodes,
        *spans.arguments(excluded),
        *lists,
        *weight[:3],
        edge_ids,
        draws.wanted,
        draws.key,
        draws.place,
        TIERED=adjacency.residents is not None,
        WEIGHTED=weights is not None,
        WEIGHT_TIERED=weights is not None and weights.weight_residents is not None,
        EXCLUDES=excluded is not None,
        enable_fp_fusion=False,
    )
