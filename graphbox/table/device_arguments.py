"""Checks of the arguments of a table on a device, and their conversion for kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from graphbox.errors import DataError, UsageError
from graphbox.native import integer_array

if TYPE_CHECKING:
    from torch import Tensor

_INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def key_tensor(keys: Any, name: str, device: torch.device) -> Tensor:
    """Return keys as contiguous int64 on ``device``, of their shape.

    Raises:
        UsageError: they are no integers that fit int64.
    """
    if not isinstance(keys, torch.Tensor):
        return torch.from_numpy(integer_array(keys, name, dimensions=None)).to(device)
    if keys.dtype not in _INTEGERS:
        if keys.numel() == 0 and keys.dtype == torch.get_default_dtype():  # what torch makes of an empty list
            return keys.to(device, torch.int64)
        raise UsageError(
            f"expected integers that fit int64, received {keys.dtype}",
            where=name,
            hint="make them integers, say by values.long()",
        )
    return keys.detach().to(device, torch.int64).contiguous()


def gradient_rows(gradients: Any, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return gradients of ``shape``, [..., dim], as contiguous float32 [n, dim] on ``device``.

    Raises:
        UsageError: another shape or dtype.
    """
    rows = gradients if isinstance(gradients, torch.Tensor) else torch.as_tensor(gradients)
    if tuple(rows.shape) != shape or rows.dtype != torch.float32:
        raise UsageError(f"expected float32 {shape}, received {rows.dtype} {tuple(rows.shape)}", where=name)
    return rows.detach().to(device).reshape(-1, shape[-1]).contiguous()


def output_rows(out: Any, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return a view, [n, dim], of the memory of a tensor that is to be overwritten.

    Raises:
        UsageError: another shape or dtype, another device, or memory that is not contiguous.
    """
    if not isinstance(out, torch.Tensor) or tuple(out.shape) != shape or out.dtype != torch.float32:
        received = f"{out.dtype} {tuple(out.shape)}" if isinstance(out, torch.Tensor) else type(out).__name__
        raise UsageError(f"expected float32 {shape}, received {received}", where=name)
    if out.device != device or not out.is_contiguous():
        raise UsageError(f"expected contiguous memory on {device}, received it on {out.device}", where=name)
    return out.detach().view(-1, shape[-1])


def count_tensor(counts: Any, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor | None:
    """Return shows or clicks of a push as float32 [n] on ``device``, or None.

    Raises:
        UsageError: another shape, or no numbers.
    """
    if counts is None:
        return None
    tensor = counts if isinstance(counts, torch.Tensor) else torch.as_tensor(counts)
    if tuple(tensor.shape) != shape or tensor.is_complex():
        raise UsageError(
            f"expected numbers of shape {shape}, received {tensor.dtype} {tuple(tensor.shape)}", where=name
        )
    return tensor.detach().to(device, torch.float32).reshape(-1)


def check_counts(keys: Tensor, shows: Tensor | None, clicks: Tensor | None) -> None:
    """Check the shows and clicks of a push.

    Raises:
        DataError: they are negative or not finite, or more were clicked than shown.
    """
    if shows is None and clicks is None:
        return
    shown = torch.ones(len(keys), device=keys.device) if shows is None else shows
    clicked = torch.zeros_like(shown) if clicks is None else clicks
    is_wrong = ~((shown >= 0) & (clicked >= 0) & (clicked <= shown) & torch.isfinite(shown))
    wrong = torch.nonzero(is_wrong)
    if len(wrong):
        first = int(wrong[0])
        raise DataError(
            f"expected finite shows, 0 or more, and clicks from 0 to those; at position {first} there are "
            f"{float(shown[first]):g} shows and {float(clicked[first]):g} clicks, and nothing was applied",
            where=f"key {int(keys[first])}",
        )
