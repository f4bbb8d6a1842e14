"""Rows gathered by a device, from its memory or from pinned host memory that it reads itself."""

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
    out = _checked_out(source, index, dtype, out)
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


def _checked_out(source: Tensor, index: Tensor, dtype: torch.dtype | None, out: Tensor | None) -> Tensor:
    """Check what is gathered; return where it goes."""
    check_device(index.device)
    _check_index(index)
    _check_source(source, index.device)
    shape = (len(index), source.shape[1])
    if out is None:
        out = torch.empty(shape, dtype=source.dtype if dtype is None else dtype, device=index.device)
    expected = out.dtype if dtype is None else dtype
    right = out.shape == shape and out.dtype == expected and out.device == index.device
    if not (right and out.is_contiguous()):
        raise UsageError(
            f"expected contiguous {expected} {shape} on {index.device}, received {out.dtype} "
            f"{tuple(out.shape)} of strides {out.stride()} on {out.device}",
            where="out",
        )
    if source.dtype != out.dtype and not (source.is_floating_point() and out.is_floating_point()):
        raise UsageError(
            f"expected {source.dtype}, or floating rows for a floating result, received {out.dtype}",
            where="dtype of source",
        )
    return out


def _check_source(source: Tensor, device: torch.device) -> None:
    if source.ndim != 2 or (source.shape[1] > 1 and source.stride(1) != 1) or source.is_complex():
        raise UsageError(
            f"expected [rows, dim] with values side by side, received {source.dtype} "
            f"{tuple(source.shape)} of strides {source.stride()}",
            where="source",
        )
    if source.device != device and not (source.device.type == "cpu" and source.is_pinned()):
        raise UsageError(
            f"expected a tensor on {device} or in pinned host memory, received one on {source.device}",
            where="source",
            hint="tensor.pin_memory() copies it to pinned memory",
        )


def _check_index(index: Tensor) -> None:
    if index.ndim != 1 or index.dtype not in (torch.int64, torch.int32) or not index.is_contiguous():
        raise UsageError(
            f"expected contiguous int64 or int32 [n], received {index.dtype} {tuple(index.shape)}",
            where="index",
        )
