"""Rows gathered by a device: from its memory, from pinned host memory that it reads itself, or from both."""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphbox.device import check_device, on_device
from graphbox.errors import UsageError

_TILE_BYTES: Final = 8192  # of a program: enough that all of them together keep the memory busy
_MOST_COLUMNS: Final = 4096
_WARPS: Final = 4


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _gather(
    source, index, out, size, num_rows,
    STRIDE: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = tl.load(index + number, mask=number < size, other=-1).to(tl.int64)
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    is_there = ((row >= 0) & (row < num_rows))[:, None] & (column < DIM)
    values = tl.load(source + row[:, None] * STRIDE + column, mask=is_there, other=0)
    written = (number < size)[:, None] & (column < DIM)
    tl.store(out + number[:, None] * DIM + column, values.to(out.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _gather_tiered(
    hot, slot_of, cold, index, out, size, num_slots, num_rows,
    HOT_STRIDE: tl.constexpr, COLD_STRIDE: tl.constexpr,
    DIM: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = tl.load(index + number, mask=number < size, other=-1).to(tl.int64)
    is_row = (row >= 0) & (row < num_rows)
    slot = tl.load(slot_of + row, mask=is_row, other=-1).to(tl.int64)
    is_hot = (slot >= 0) & (slot < num_slots)
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    in_row = column < DIM
    # Both are on their way before either is waited for; a lane reads one of them.
    from_hot = tl.load(hot + slot[:, None] * HOT_STRIDE + column, mask=is_hot[:, None] & in_row, other=0).to(
        out.dtype.element_ty
    )
    from_cold = tl.load(
        cold + row[:, None] * COLD_STRIDE + column, mask=(is_row & (is_hot == 0))[:, None] & in_row, other=0
    ).to(out.dtype.element_ty)
    written = (number < size)[:, None] & in_row
    values = tl.where(is_hot[:, None], from_hot, from_cold)
    tl.store(out + number[:, None] * DIM + column, values, mask=written)


def gather_rows(
    source: Tensor, index: Tensor, *, dtype: torch.dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """Return rows of ``source``.

    Args:
        source: [rows, dim], each row's values side by side, on the device or in pinned host memory.
        index: int64 or int32 [n], on the device; the rows of others than 0 to rows - 1, such as -1, are 0.
        dtype: of the result, where both are floating; None: the one of ``source``, or of ``out``.
        out: contiguous [n, dim], to be written.

    Raises:
        UsageError: wrong dtypes, shapes or devices.
        BackendMissingError: kernels do not run on the device.
    """
    out = _checked_out(index, dtype, out, source=source)
    if out.numel() > 0:
        grid, constants = _layout(out)
        with on_device(index.device):
            _gather[grid](
                _plain(source),
                index,
                _plain(out),
                len(index),
                len(source),
                STRIDE=source.stride(0),
                **constants,
                num_warps=_WARPS,
                enable_fp_fusion=False,
            )
    return out


def gather_tiered(
    hot: Tensor,
    slot_of: Tensor,
    cold: Tensor,
    index: Tensor,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return rows, each from ``hot`` where it is there, else from ``cold``.

    Args:
        hot: [slots, dim], each row's values side by side, on the device.
        slot_of: int32 or int64 [rows], on the device: where each row is in ``hot``; -1: it is not.
        cold: [rows, dim], like ``hot``, in pinned host memory or on the device.
        index: as in :func:`gather_rows`.
        dtype: as there.
        out: as there.

    Raises:
        UsageError: wrong dtypes, shapes or devices.
        BackendMissingError: kernels do not run on the device.
    """
    out = _checked_out(index, dtype, out, cold=cold, hot=hot)
    _check_vector(slot_of, "slot_of", index.device)
    if len(slot_of) != len(cold):
        raise UsageError(
            f"expected one for each of {len(cold)} rows, received {len(slot_of)}", where="slot_of"
        )
    if hot.device != index.device:
        raise UsageError(f"expected a tensor on {index.device}, received one on {hot.device}", where="hot")
    if out.numel() > 0:
        grid, constants = _layout(out)
        with on_device(index.device):
            _gather_tiered[grid](
                _plain(hot),
                slot_of,
                _plain(cold),
                index,
                _plain(out),
                len(index),
                len(hot),
                len(cold),
                HOT_STRIDE=hot.stride(0),
                COLD_STRIDE=cold.stride(0),
                **constants,
                num_warps=_WARPS,
                enable_fp_fusion=False,
            )
    return out


def _layout(out: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Return grid and constants: a tile of whole rows, or where they are long of a part of one."""
    size, dim = out.shape
    columns = min(triton.next_power_of_2(dim), _MOST_COLUMNS)
    rows = max(_TILE_BYTES // (columns * out.element_size()), 1)
    grid = (triton.cdiv(size, rows), triton.cdiv(dim, columns))
    return grid, {"DIM": dim, "COLUMNS": columns, "ROWS": rows}


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor as kernels take it: they know no bool."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _checked_out(index: Tensor, dtype: torch.dtype | None, out: Tensor | None, **sources: Tensor) -> Tensor:
    """Check what is gathered; return where it goes."""
    check_device(index.device)
    _check_vector(index, "index", index.device)
    first = next(iter(sources.values()))
    for name, source in sources.items():
        _check_source(source, name, index.device)
        if source.shape[1] != first.shape[1]:
            raise UsageError(
                f"expected rows of {first.shape[1]} values, received rows of {source.shape[1]}", where=name
            )
    shape = (len(index), first.shape[1])
    if out is None:
        out = torch.empty(shape, dtype=first.dtype if dtype is None else dtype, device=index.device)
    expected = out.dtype if dtype is None else dtype
    right = out.shape == shape and out.dtype == expected and out.device == index.device
    if not (right and out.is_contiguous()):
        raise UsageError(
            f"expected contiguous {expected} {shape} on {index.device}, received {out.dtype} "
            f"{tuple(out.shape)} of strides {out.stride()} on {out.device}",
            where="out",
        )
    for name, source in sources.items():
        if source.dtype != out.dtype and not (source.is_floating_point() and out.is_floating_point()):
            raise UsageError(
                f"expected {source.dtype}, or floating rows for a floating result, received {out.dtype}",
                where=f"dtype of {name}",
            )
    return out


def _check_source(source: Tensor, name: str, device: torch.device) -> None:
    if source.ndim != 2 or (source.shape[1] > 1 and source.stride(1) != 1) or source.is_complex():
        raise UsageError(
            f"expected [rows, dim] with values side by side, received {source.dtype} "
            f"{tuple(source.shape)} of strides {source.stride()}",
            where=name,
        )
    if source.device != device and not (source.device.type == "cpu" and source.is_pinned()):
        raise UsageError(
            f"expected a tensor on {device} or in pinned host memory, received one on {source.device}",
            where=name,
            hint="tensor.pin_memory() copies it to pinned memory",
        )


def _check_vector(vector: Tensor, name: str, device: torch.device) -> None:
    right = vector.ndim == 1 and vector.dtype in (torch.int64, torch.int32) and vector.device == device
    if not (right and vector.is_contiguous()):
        raise UsageError(
            f"expected contiguous int64 or int32 [n] on {device}, received {vector.dtype} "
            f"{tuple(vector.shape)} on {vector.device}",
            where=name,
        )
