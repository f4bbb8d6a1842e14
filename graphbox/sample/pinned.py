"""Arrays in pinned host memory, which a device reads by itself and copies from without waiting."""

from __future__ import annotations

import contextlib
import math
import mmap
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from graphbox.errors import DoesNotFitError
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    import torch

_PORTABLE = 1  # cudaHostRegisterPortable


def as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a tensor of the same memory. It is only read: what is mapped from a file cannot be written."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def pinned_copy(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor in host memory that ``device`` reads; for the CPU the same one.

    Raises:
        DoesNotFitError: there is not so much memory that can be pinned.
    """
    if device.type != "cuda":
        return tensor
    return pinned_empty(tuple(tensor.shape), tensor.dtype, device).copy_(tensor)


def pinned_empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor in host memory that kernels of ``device`` read, not initialised.

    Not from PyTorch's own pool: that gives memory to others while kernels still read it, since it knows only
    of copies, and rounds it up to a power of two. For what lives long: its release waits for the device.

    Raises:
        DoesNotFitError: there is not so much memory that can be pinned.
    """
    import torch

    size_bytes = dtype.itemsize * math.prod(shape)
    if device.type != "cuda" or size_bytes == 0:  # nothing that CUDA would register
        return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")
    tensor = on_own_pages(shape, dtype)
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    with torch.cuda.device(device):
        status = int(runtime.cudaHostRegister(tensor.data_ptr(), size_bytes, _PORTABLE))
        if status != 0:
            _forget_last_error(device)
            raise DoesNotFitError(
                f"expected {counted_bytes(size_bytes)} of host memory to pin, CUDA refused: "
                f"{torch.cuda.CudaError(status)}",
                hint="`ulimit -l` bounds what a process may pin, and a container its memory",
            )
    weakref.finalize(tensor, _unregister, tensor.data_ptr(), device).atexit = False
    return tensor


def on_own_pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in host memory, not initialised, that begins with a page and shares none.

    CUDA pins a page once only.
    """
    import torch

    room = torch.empty(dtype.itemsize * math.prod(shape) + 2 * mmap.PAGESIZE, dtype=torch.uint8)
    first = -room.data_ptr() % mmap.PAGESIZE
    # Not a view, whose own views would keep the room and not what tells when it is let go of.
    tensor = torch.empty(0, dtype=dtype)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tensor.set_(room.untyped_storage(), first // dtype.itemsize, shape, strides)


def _unregister(address: int, device: torch.device) -> None:
    import torch

    torch.cuda.synchronize(device)  # kernels may still read it
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if int(runtime.cudaHostUnregister(address)) != 0:
        _forget_last_error(device)


def _forget_last_error(device: torch.device) -> None:
    """Launch what reports the error that CUDA keeps of a refused call: otherwise the next launch would."""
    import torch

    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device=device).add_(1.0)


def to_device(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """Return a small array on ``device``; the host does not wait for the copy."""
    tensor = as_tensor(array)
    if device.type != "cuda":
        return tensor.clone()
    return tensor.pin_memory().to(device, non_blocking=True)
