"""Gradients of equal rows summed on a device, in the order of ``csrc/table/ordered_sum.h``.

Rows were sorted, stably, so that equal ones are next to each other in the order of the batch. A long sum is
one of parts: those but the first are summed by programs of their own (:func:`sums_of_parts`), so that a row
with many gradients holds nothing up. The program that meets the first gradient of a row sums the first part,
several gradients of which are on their way at a time, and adds the others.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphbox import _core
from graphbox.device import check_device, on_device
from graphbox.errors import UsageError

_TILE: Final = 1024  # values of a program
_FLAT_BLOCK: Final = 1024
_MOST_COLUMNS: Final = 1024
_PART: Final = _core.SUMMED_TOGETHER  # gradients
_PART_LENGTH = tl.constexpr(_PART)
_UNROLLED = tl.constexpr(8)  # gradients of a row that are on their way together
_COLUMNS_PER_WARP: Final = 128
_LEAST_ROW: Final = -(2**63)


@triton.jit
def gradients_at(gradients, position, wanted, column, DIM: tl.constexpr):
    """Return gradients as float32 [rows, columns]; what is not wanted is -0, which changes no sum.

    Args:
        gradients: floating [n, DIM].
        position: int64 [rows].
        wanted: bool [rows].
        column: [1, columns], which values of a row.
        DIM: values of a row.
    """
    cells = wanted[:, None] & (column < DIM)
    return tl.load(gradients + position[:, None] * DIM + column, mask=cells, other=-0.0).to(tl.float32)


@triton.jit
def is_first_of_equal(in_order, number, row, inside):
    """Return which are the first of equal rows.

    Args:
        in_order: int32 or int64, rows in ascending order.
        number: int64 [rows], places there.
        row: what is there.
        inside: bool [rows], which places there are.
    """
    has_before = inside & (number > 0)
    before = tl.load(in_order + number - 1, mask=has_before, other=0)
    return inside & ((number == 0) | (before != row))


@triton.jit
def _is_still(in_order, at, row, wanted, size):
    """Return where there is the same row further on."""
    inside = wanted & (at < size)
    return inside & (tl.load(in_order + at, mask=inside, other=0) == row)


@triton.jit
def _sum_of_part(
    in_order, order, gradients, shows, number, row, wanted, size, column,
    DIM: tl.constexpr, HAS_SHOWS: tl.constexpr,
):  # fmt: skip
    """Return sums of the gradients of a part that begins at a place, and of shows, and how many there are."""
    position = tl.load(order + number, mask=wanted, other=0)
    total = gradients_at(gradients, position, wanted, column, DIM)
    count = wanted.to(tl.int32)
    shown = count.to(tl.float32)
    if HAS_SHOWS:
        shown = tl.load(shows + position, mask=wanted, other=0.0)
    done = 1
    more = _is_still(in_order, number + 1, row, wanted, size)
    while (tl.max(more.to(tl.int32)) > 0) & (done < _PART_LENGTH):
        for ahead in tl.static_range(_UNROLLED):
            at = number + done + ahead
            is_in_part = more & (at - number < _PART_LENGTH)
            # Both are asked for before either is waited for.
            position = tl.load(order + at, mask=is_in_part & (at < size), other=0)
            is_same = _is_still(in_order, at, row, is_in_part, size)
            total += gradients_at(gradients, position, is_same, column, DIM)
            count += is_same.to(tl.int32)
            if HAS_SHOWS:
                shown += tl.load(shows + position, mask=is_same, other=-0.0)
        done += _UNROLLED
        more = _is_still(in_order, number + done, row, more, size)
    return total, shown, count


@triton.jit
def sum_of_row(
    in_order, order, gradients, shows, parts, part_shows, part_counts, number, row, is_first, size, column,
    DIM: tl.constexpr, HAS_SHOWS: tl.constexpr,
):  # fmt: skip
    """Return sums of the gradients of rows and of their shows, and how many there are.

    Args:
        in_order: as in :func:`is_first_of_equal`.
        order: int64, the position in the batch of each.
        gradients: floating [n, DIM].
        shows: float32 [n], if there are shows.
        parts: of :func:`sums_of_parts`, as the next two.
        part_shows: of shows.
        part_counts: how many gradients each has.
        number: as there.
        row: as there.
        is_first: which are to be summed.
        size: of the batch.
        column: [1, columns], which values of a row.
        DIM: values of a row.
        HAS_SHOWS: otherwise each was shown once.
    """
    total, shown, count = _sum_of_part(
        in_order, order, gradients, shows, number, row, is_first, size, column, DIM, HAS_SHOWS
    )
    done = tl.full((), 1, tl.int64)
    more = _is_still(in_order, number + _PART_LENGTH, row, is_first, size)
    while tl.max(more.to(tl.int32)) > 0:
        for ahead in tl.static_range(_UNROLLED):
            later = done + ahead
            is_part = _is_still(in_order, number + later * _PART_LENGTH, row, more, size)
            part = number // _PART_LENGTH + later
            total += gradients_at(parts, part, is_part, column, DIM)
            count += tl.load(part_counts + part, mask=is_part, other=0)
            if HAS_SHOWS:
                shown += tl.load(part_shows + part, mask=is_part, other=-0.0)
        done += _UNROLLED
        more = _is_still(in_order, number + done * _PART_LENGTH, row, more, size)
    if not HAS_SHOWS:
        shown = count.to(tl.float32)
    return total, shown, count


@triton.jit
def _first_place_of(in_order, row, place):
    """Return the first place of a row that has this place, too."""
    low = tl.zeros((), tl.int64)
    high = place
    while low < high:
        middle = (low + high) // 2
        is_before = tl.load(in_order + middle) < row
        low = tl.where(is_before, middle + 1, low)
        high = tl.where(is_before, high, middle)
    return low


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _sum_parts(
    in_order, order, gradients, shows, parts, part_shows, part_counts, size, least_row,
    DIM: tl.constexpr, COLUMNS: tl.constexpr, HAS_SHOWS: tl.constexpr,
):  # fmt: skip
    # Of so many places as a part has, one at most begins a part that is not the first of its row: that row is
    # the one of the first of these places, and of the place before.
    window = tl.program_id(0).to(tl.int64) + 1
    place = window * _PART_LENGTH
    row = tl.load(in_order + place)
    if (row == tl.load(in_order + place - 1)) & (row >= least_row):
        first = _first_place_of(in_order, row, place)
        number = first + tl.cdiv(place - first, _PART_LENGTH) * _PART_LENGTH + tl.zeros((1,), tl.int64)
        has_part = _is_still(in_order, number, row, number >= 0, size)
        column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
        total, shown, count = _sum_of_part(
            in_order, order, gradients, shows, number, row, has_part, size, column, DIM, HAS_SHOWS
        )
        part = window + tl.zeros((1,), tl.int64)
        tl.store(parts + part[:, None] * DIM + column, total, mask=has_part[:, None] & (column < DIM))
        if tl.program_id(1) == 0:
            tl.store(part_counts + part, count, mask=has_part)
            if HAS_SHOWS:
                tl.store(part_shows + part, shown, mask=has_part)


def sums_of_parts(
    in_order: Tensor,
    order: Tensor,
    gradients: Tensor,
    shows: Tensor | None = None,
    *,
    least_row: int = _LEAST_ROW,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what :func:`sum_of_row` adds to the first parts of long sums; waits for nothing.

    Args:
        in_order: int32 or int64 [n], rows in ascending order.
        order: int64 [n], the position in the batch of each.
        gradients: floating [n, dim], contiguous.
        shows: float32 [n]; None: there are none.
        least_row: rows below are passed over.

    Returns:
        Sums of gradients, float32 [parts, dim], of shows, float32 [parts], and counts, int32 [parts]. A part
        is at the number of its row's first place, in parts, and its own in the row.
    """
    (size, dim), device = gradients.shape, gradients.device
    windows = triton.cdiv(size, _PART)
    parts = torch.empty(windows, dim, dtype=torch.float32, device=device)
    part_shows = torch.empty(windows, dtype=torch.float32, device=device)
    part_counts = torch.empty(windows, dtype=torch.int32, device=device)
    if windows > 1:
        columns = min(triton.next_power_of_2(max(dim, 1)), _MOST_COLUMNS)
        with on_device(device):
            _sum_parts[windows - 1, max(triton.cdiv(dim, columns), 1)](
                in_order,
                order,
                gradients,
                part_shows if shows is None else shows,
                parts,
                part_shows,
                part_counts,
                size,
                least_row,
                DIM=dim,
                COLUMNS=columns,
                HAS_SHOWS=shows is not None,
                num_warps=max(columns // _COLUMNS_PER_WARP, 1),
                enable_fp_fusion=False,
            )
    return parts, part_shows, part_counts


@triton.jit
def _mark_first(in_order, order, is_first, size, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    row = tl.load(in_order + number, mask=inside, other=0)
    position = tl.load(order + number, mask=inside, other=0)
    is_new = is_first_of_equal(in_order, number, row, inside)
    tl.store(is_first + position, is_new.to(tl.int8), mask=inside)


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _sum(
    in_order, order, ranks, gradients, parts, part_shows, part_counts, distinct, sums, counts, size,
    DIM: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = number < size
    row = tl.load(in_order + number, mask=inside, other=0)
    is_first = is_first_of_equal(in_order, number, row, inside)
    position = tl.load(order + number, mask=is_first, other=0)
    rank = tl.load(ranks + position, mask=is_first, other=1) - 1
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    total, _, count = sum_of_row(
        in_order, order, gradients, gradients, parts, part_shows, part_counts,
        number, row, is_first, size, column, DIM, False,
    )  # fmt: skip
    tl.store(sums + rank[:, None] * DIM + column, total, mask=is_first[:, None] & (column < DIM))
    if tl.program_id(1) == 0:
        tl.store(distinct + rank, row, mask=is_first)
        tl.store(counts + rank, count, mask=is_first)


def sum_equal_rows(rows: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the gradients of equal rows, in the order of the core; waits for how many there are.

    :meth:`graphbox.table.optimizer_gpu.DeviceOptimizer.push` sums and applies them without writing them out.

    Args:
        rows: int64 or int32 [n], any numbers.
        gradients: floating [n, dim], contiguous.

    Returns:
        the d different rows in the order of their first appearance, float32 [d, dim] sums of their gradients,
        and int32 [d] how many these are.

    Raises:
        UsageError: wrong dtypes, shapes or devices.
        BackendMissingError: kernels do not run on the device.
    """
    check_device(rows.device)
    check_vector(rows, "rows", (torch.int64, torch.int32), None, rows.device)
    check_rows(
        gradients, "gradients", gradients.shape[-1] if gradients.ndim == 2 else 1, len(rows), rows.device
    )
    size, dim = gradients.shape
    in_order, order = torch.sort(rows, stable=True)
    is_first = torch.empty(size, dtype=torch.int8, device=rows.device)
    with on_device(rows.device):
        if size > 0:
            _mark_first[triton.cdiv(size, _FLAT_BLOCK),](
                in_order, order, is_first, size, BLOCK=_FLAT_BLOCK, enable_fp_fusion=False
            )
        ranks = torch.cumsum(is_first, 0)
        found = int(ranks[-1]) if size > 0 else 0
        distinct = torch.empty(found, dtype=rows.dtype, device=rows.device)
        sums = torch.empty(found, dim, dtype=torch.float32, device=rows.device)
        counts = torch.empty(found, dtype=torch.int32, device=rows.device)
        if size > 0:
            columns = min(triton.next_power_of_2(max(dim, 1)), _MOST_COLUMNS)
            block = max(_TILE // columns, 1)
            _sum[triton.cdiv(size, block), max(triton.cdiv(dim, columns), 1)](
                in_order,
                order,
                ranks,
                gradients,
                *sums_of_parts(in_order, order, gradients),
                distinct,
                sums,
                counts,
                size,
                DIM=dim,
                COLUMNS=columns,
                ROWS=block,
                enable_fp_fusion=False,
            )
    return distinct, sums, counts


def check_rows(
    rows: Tensor, name: str, dim: int, length: int | None = None, device: torch.device | None = None
) -> None:
    """Check that rows are floating [length, dim], contiguous, on the device; None: on any that runs kernels.

    Raises:
        UsageError: they are not.
        BackendMissingError: kernels do not run on their device.
    """
    is_right = rows.ndim == 2 and rows.shape[1] == dim and length in (None, len(rows))
    if not (is_right and rows.is_floating_point() and rows.is_contiguous() and device in (None, rows.device)):
        where = "" if device is None else f" on {device}"
        raise UsageError(
            f"expected contiguous floating [{'n' if length is None else length}, {dim}]{where}, received "
            f"{rows.dtype} {tuple(rows.shape)} of strides {rows.stride()} on {rows.device}",
            where=name,
        )
    check_device(rows.device)


def check_vector(
    vector: Tensor, name: str, dtypes: tuple[torch.dtype, ...], length: int | None, device: torch.device
) -> None:
    """Check that a vector is of one of the dtypes and of this length, contiguous, on the device.

    Raises:
        UsageError: it is not.
    """
    is_right = vector.ndim == 1 and vector.dtype in dtypes and length in (None, len(vector))
    if not (is_right and vector.device == device and vector.is_contiguous()):
        raise UsageError(
            f"expected contiguous {' or '.join(map(str, dtypes))} [{'n' if length is None else length}] on "
            f"{device}, received {vector.dtype} {tuple(vector.shape)} on {vector.device}",
            where=name,
        )
