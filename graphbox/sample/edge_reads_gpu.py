"""Reading what belongs to edges in kernels, where lists of some nodes are resident on the device.

Such lists have a second range of positions, past those of all edges: position ``edges + place`` is in the
copy on the device, others are in the whole column, which the device reads from pinned host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.resident_lists import Residents

_BLOCK = 1024


@triton.jit
def list_begin(places, node, begin, edges, inside, TIERED: tl.constexpr):
    """Return the position that lists are read at.

    Args:
        places: int64 of each row, where its resident list begins, or -1.
        node: int64, rows.
        begin: int64, where their lists begin in the whole column.
        edges: length of the whole column.
        inside: bool, which rows matter.
        TIERED: whether there are resident lists; without, ``places`` is not read.
    """
    if TIERED:
        place = tl.load(places + node, mask=inside, other=-1)
        begin = tl.where(place >= 0, place + edges, begin)
    return begin


@triton.jit
def load_edges(column, residents, edges, position, wanted, other, TIERED: tl.constexpr):
    """Return the values at positions from :func:`list_begin` on.

    Args:
        column: values of all edges.
        residents: of the same dtype, copies of lists.
        edges: length of ``column``.
        position: int64.
        wanted: bool, what to read.
        other: a number in place of what is not.
        TIERED: whether there are resident lists.
    """
    if TIERED:
        is_resident = position >= edges
        here = tl.load(residents + (position - edges), mask=wanted & is_resident, other=other)
        away = tl.load(column + position, mask=wanted & (position < edges), other=other)
        value = tl.where(is_resident, here, away)
    else:
        value = tl.load(column + position, mask=wanted, other=other)
    return value


@triton.jit
def load_alias(alias_tables, residents, edges, position, wanted, TIERED: tl.constexpr):
    """Return thresholds, uint32, and aliases, int32, at positions from :func:`list_begin` on.

    Args:
        alias_tables: int32 [edges, 2].
        residents: as in :func:`load_edges`, pairs as well.
        edges: as there.
        position: as there.
        wanted: as there.
        TIERED: as there.
    """
    if TIERED:
        is_resident = position >= edges
        is_here = wanted & is_resident
        is_away = wanted & (position < edges)
        near = residents + 2 * (position - edges)
        far = alias_tables + 2 * position
        threshold = tl.where(
            is_resident, tl.load(near, mask=is_here, other=0), tl.load(far, mask=is_away, other=0)
        )
        alias = tl.where(
            is_resident, tl.load(near + 1, mask=is_here, other=0), tl.load(far + 1, mask=is_away, other=0)
        )
    else:
        threshold = tl.load(alias_tables + 2 * position, mask=wanted, other=0)
        alias = tl.load(alias_tables + 2 * position + 1, mask=wanted, other=0)
    return threshold.to(tl.uint32, bitcast=True), alias


@triton.jit
def lower_bound(column, residents, edges, begin, degree, value, wanted, TIERED: tl.constexpr):
    """Return how many of ``degree`` values from ``begin`` on, which ascend, are below ``value``.

    Args:
        column: as in :func:`load_edges`.
        residents: as there.
        edges: as there.
        begin: int64 [n], of :func:`list_begin`.
        degree: int32 [n].
        value: int64 [n].
        wanted: bool [n], where the answer matters.
        TIERED: as in :func:`load_edges`.
    """
    low = tl.zeros_like(degree)
    high = tl.where(wanted, degree, 0)
    while tl.max((low < high).to(tl.int32)) > 0:
        middle = low + (high - low) // 2
        searching = low < high
        found = load_edges(column, residents, edges, begin + middle, searching, 0, TIERED).to(tl.int64)
        is_below = searching & (found < value)
        high = tl.where(searching & (found >= value), middle, high)
        low = tl.where(is_below, middle + 1, low)
    return low


@triton.jit
def upper_bound(column, residents, edges, begin, degree, value, wanted, TIERED: tl.constexpr):
    """Return how many of ``degree`` values from ``begin`` on, which ascend, are not above ``value``.

    Args:
        column: as in :func:`load_edges`.
        residents: as there.
        edges: as there.
        begin: int64, of :func:`list_begin`, of a shape that broadcasts to that of ``degree``.
        degree: int32.
        value: of the column's dtype and the shape of ``degree``.
        wanted: bool, as large, where the answer matters.
        TIERED: as in :func:`load_edges`.
    """
    low = tl.zeros_like(degree)
    high = tl.where(wanted, degree, 0)
    while tl.max((low < high).to(tl.int32)) > 0:
        middle = low + (high - low) // 2
        searching = low < high
        found = load_edges(column, residents, edges, begin + middle, searching, 0, TIERED)
        is_above = searching & (found > value)
        high = tl.where(is_above, middle, high)
        low = tl.where(searching & (found <= value), middle + 1, low)
    return low


@triton.jit
def _copy_elements(source, source_positions, target, target_positions, size, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    read_at = tl.load(source_positions + number, mask=inside, other=0)
    value = tl.load(source + read_at, mask=inside, other=0)
    write_at = tl.load(target_positions + number, mask=inside, other=0)
    tl.store(target + write_at, value, mask=inside)


class TieredReads(NamedTuple):
    """Arguments of kernels that read a column of edges.

    Attributes:
        column: values of all edges.
        residents: copies of lists; without, the column.
        places: int64 of each row; without, any tensor.
        edges: length of the column.
    """

    column: Tensor
    residents: Tensor
    places: Tensor
    edges: int


def tiered_reads(column: Tensor, residents: Residents | None, indptr: Tensor) -> TieredReads:
    """Return the arguments of kernels that read a column; they are ``TIERED`` if there are residents."""
    if residents is None:
        return TieredReads(column, column, indptr, len(column))
    return TieredReads(column, residents.values, residents.places, len(column))


def copy_elements(source: Tensor, source_positions: Tensor, target: Tensor, target_positions: Tensor) -> None:
    """Write ``source[source_positions]`` to ``target[target_positions]``.

    Args:
        source: [n], on the device or in pinned host memory, which the device reads by itself.
        source_positions: int64 [m].
        target: [k] of the same dtype, on the device.
        target_positions: int64 [m].
    """
    size = len(source_positions)
    if size > 0:
        _copy_elements[triton.cdiv(size, _BLOCK),](
            source,
            source_positions,
            target,
            target_positions,
            size,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
