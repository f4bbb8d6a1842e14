"""Choosing among edges that are equally likely in a kernel: the twin of ``csrc/sample/choice.cpp``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from graphbox.philox_gpu import bounded, draw_words
from graphbox.sample.edge_reads_gpu import list_begin, load_edges, tiered_reads

if TYPE_CHECKING:
    from graphbox.sample.device import DeviceAdjacency
    from graphbox.sample.growing_sample import HopEdges
    from graphbox.sample.hop_spans_gpu import Draws, Frontier, Spans

MOST_WITHOUT_REPLACEMENT = 512
"""Distinct edges of a node that kernels choose, unless they choose all."""

_TILE = 1024  # draws of a program


@triton.jit
def _distinct(drawn, last, wanted, DRAWS: tl.constexpr):
    """Return Floyd's choices, as ``csrc/sample/choice.cpp``: where a number was taken the last stands in."""
    draw = tl.arange(0, DRAWS)[None, :]
    choice = drawn
    for number in range(1, wanted):
        here = draw == number
        value = tl.sum(tl.where(here, drawn, 0), axis=1)[:, None]
        is_taken = tl.max(((choice == value) & (draw < number)).to(tl.int32), axis=1)[:, None] > 0
        choice = tl.where(here & is_taken, last, choice)
    return choice


@triton.jit
def _choose_uniform(
    nodes, positions, starts, degrees, ends, indices, residents, places, edges, edge_ids, cols, neighbors,
    size, first_col, wanted, key, place, REPLACE: tl.constexpr, READS: tl.constexpr, TIERED: tl.constexpr,
    DRAWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    first_draw = tl.program_id(1) * DRAWS
    draw = tl.arange(0, DRAWS)[None, :] + first_draw
    position = tl.load(positions + number, mask=inside, other=0)
    start = tl.load(starts + number, mask=inside, other=0)
    degree = tl.load(degrees + number, mask=inside, other=0)
    if REPLACE:
        count = tl.where(degree > 0, wanted, 0)
        draws = degree > 0
    else:
        count = tl.minimum(degree, wanted)
        draws = degree > wanted
    is_wanted = draw < count[:, None]
    choice = tl.zeros([BLOCK, DRAWS], tl.int32) + draw
    if tl.max(draws.to(tl.int32)) > 0:
        first_block = first_draw // 4
        words = draw_words(key, place, first_block, position, 0, DRAWS)
        is_drawn = is_wanted & draws[:, None]
        if REPLACE:
            ranges = tl.zeros_like(draw) + degree[:, None]
        else:
            ranges = degree[:, None] - wanted + draw + 1
        ranges = tl.where(is_drawn, ranges, 1).to(tl.uint32)
        drawn = bounded(words, ranges, key, place, first_block, position, is_drawn, DRAWS).to(tl.int32)
        if not REPLACE:
            drawn = _distinct(drawn, degree[:, None] - wanted + draw, wanted, DRAWS)
        choice = tl.where(is_drawn, drawn, choice)
    out = (tl.load(ends + number, mask=inside, other=0) - count)[:, None] + draw
    edge = start[:, None] + choice
    is_wanted &= inside[:, None]
    tl.store(edge_ids + out, edge, mask=is_wanted)
    tl.store(cols + out, tl.zeros_like(edge) + (first_col + number)[:, None], mask=is_wanted)
    if READS:
        node = tl.load(nodes + number, mask=inside, other=0)
        read_at = list_begin(places, node, start, edges, inside, TIERED)[:, None] + choice
        neighbor = load_edges(indices, residents, edges, read_at, is_wanted, 0, TIERED)
        tl.store(neighbors + out, neighbor, mask=is_wanted)


def choose_uniform(
    frontier: Frontier,
    spans: Spans,
    adjacency: DeviceAdjacency | None,
    out: HopEdges,
    first_col: int,
    draws: Draws,
) -> None:
    """Write what is sampled of each node.

    Args:
        frontier: the nodes.
        spans: their edges.
        adjacency: where neighbours are read; None: they are not, since what is chosen are ranks, or places in
            the order of time, or on disk.
        out: to be written.
        first_col: the column of the first node.
        draws: how many of each, and how.
    """
    width = min(max(triton.next_power_of_2(draws.wanted), 4), MOST_WITHOUT_REPLACEMENT)
    block = max(_TILE // width, 1)
    residents = None if adjacency is None else adjacency.residents
    indices, indptr = (out.edge_ids,) * 2 if adjacency is None else (adjacency.indices, adjacency.indptr)
    _choose_uniform[triton.cdiv(len(frontier.nodes), block), triton.cdiv(draws.wanted, width)](
        frontier.nodes,
        frontier.positions,
        spans.starts,
        spans.degrees,
        spans.ends,
        *tiered_reads(indices, residents, indptr),
        out.edge_ids,
        out.cols,
        out.neighbors,
        len(frontier.nodes),
        first_col,
        draws.wanted,
        draws.key,
        draws.place,
        REPLACE=draws.replace,
        READS=adjacency is not None,
        TIERED=residents is not None,
        DRAWS=width,
        BLOCK=block,
        enable_fp_fusion=False,
    )
