"""Gradients of equal rows summed on a device, in the order of the batch: so no thread changes what comes out.

Rows were sorted, stably, so that equal ones are next to each other in that order. The program that meets the
first of them adds the others, several of whose gradients are on their way at a time.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphbox.device import check_device, on_device
from graphbox.errors import UsageError

__all__ = [
    "check_rows",
    "check_vector",
    "gradients_at",
    "is_first_of_equal",
    "sum_equal_rows",
    "sum_of_equal",
]

_TILE: Final = 1024  # values of a program
_FLAT_BLOCK: Final = 1024
_MOST_COLUMNS: Final = 1024
_UNROLLED = tl.constexpr(8)  # gradients of a row that are on their way together
_INFINITE = tl.constexpr(float("inf"))


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
def _finite_rows(rows):
    return tl.min((tl.abs(rows) < _INFINITE).to(tl.int32), axis=1) != 0


@triton.jit
def _is_still(in_order, at, row, wanted, size):
    """Return where there is the same row further on."""
    inside = wanted & (at < size)
    return inside & (tl.load(in_order + at, mask=inside, other=0) == row)


@triton.jit
def sum_of_equal(
    in_order, order, gradients, shows, skipped, number, row, is_first, size, column,
    DIM: tl.constexpr, SKIPS: tl.constexpr, HAS_SHOWS: tl.constexpr,
):  # fmt: skip
    """Return sums of the gradients of rows and of their shows, in the order of the batch, and how many.

    Args:
        in_order: as in :func:`is_first_of_equal`.
        order: int64, the position in the batch of each.
        gradients: floating [n, DIM].
        shows: float32 [n], if there are shows.
        skipped: int64 [1], counts gradients with NaN or infinity, if they are left out.
        number: as there.
        row: as there.
        is_first: which are to be summed.
        size: of the batch.
        column: [1, columns], all values of a row if gradients are left out.
        DIM: values of a row.
        SKIPS: leave gradients with NaN or infinity out.
        HAS_SHOWS: otherwise each was shown once.
    """
    position = tl.load(order + number, mask=is_first, other=0)
    total = gradients_at(gradients, position, is_first, column, DIM)
    count = is_first.to(tl.int32)
    left_out = tl.zeros_like(count)
    shown = count.to(tl.float32)
    if HAS_SHOWS:
        shown = tl.load(shows + position, mask=is_first, other=0.0)
    if SKIPS:
        is_finite = _finite_rows(total)
        left_out += (is_first & (is_finite == 0)).to(tl.int32)
        total = tl.where(is_finite[:, None], total, -0.0)
        shown = tl.where(is_finite, shown, -0.0)
        count = tl.where(is_finite, count, 0)
    done = 1
    more = _is_still(in_order, number + 1, row, is_first, size)
    while tl.max(more.to(tl.int32)) > 0:
        for ahead in tl.static_range(_UNROLLED):
            at = number + done + ahead
            # Both are asked for before either is waited for.
            position = tl.load(order + at, mask=more & (at < size), other=0)
            is_same = _is_still(in_order, at, row, more, size)
            gradient = gradients_at(gradients, position, is_same, column, DIM)
            if SKIPS:
                is_finite = _finite_rows(gradient)
                left_out += (is_same & (is_finite == 0)).to(tl.int32)
                is_same = is_same & is_finite
                gradient = tl.where(is_same[:, None], gradient, -0.0)
            total += gradient
            count += is_same.to(tl.int32)
            if HAS_SHOWS:
                shown += tl.load(shows + position, mask=is_same, other=-0.0)
        done += _UNROLLED
        more = _is_still(in_order, number + done, row, more, size)
    if not HAS_SHOWS:
        shown = count.to(tl.float32)
    if SKIPS:
        all_left_out = tl.sum(left_out.to(tl.int64), axis=0)
        if all_left_out > 0:
            tl.atomic_add(skipped, all_left_out, sem="relaxed")
    return total, shown, count


@triton.jit
def _mark_first(in_order, order, is_first, size, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    row = tl.load(in_order + number, mask=inside, other=0)
    position = tl.load(order + number, mask=inside, other=0)
    is_new = is_first_of_equal(in_order, number, row, inside)
    tl.store(is_first + position, is_new.to(tl.int8), mask=inside)


@triton.jit
def _sum(
    in_order, order, ranks, gradients, distinct, sums, counts, size,
    DIM: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = number < size
    row = tl.load(in_order + number, mask=inside, other=0)
    is_first = is_first_of_equal(in_order, number, row, inside)
    position = tl.load(order + number, mask=is_first, other=0)
    rank = tl.load(ranks + position, mask=is_first, other=1) - 1
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    total, _, count = sum_of_equal(
        in_order, order, gradients, gradients, counts, number, row, is_first, size, column,
        DIM, False, False,
    )  # fmt: skip
    tl.store(sums + rank[:, None] * DIM + column, total, mask=is_first[:, None] & (column < DIM))
    if tl.program_id(1) == 0:
        tl.store(distinct + rank, row, mask=is_first)
        tl.store(counts + rank, count, mask=is_first)


def sum_equal_rows(rows: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the gradients of equal rows, in the order of the batch; waits for how many there are.

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
