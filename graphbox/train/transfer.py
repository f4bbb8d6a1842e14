"""Batches on their way to the device of a training, and numbers on their way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

CPU: Final = torch.device("cpu")

_SHARE_OF_FREE = 0.5
"""Of the memory that a GPU has free, for what is measured with beside a training."""

Batch = TypeVar("Batch")


def moved(batch: Batch, device: torch.device) -> Batch:
    """Return a batch with its tensors on a device.

    To a GPU they are copied through pinned memory, in the order of its stream: what is queued after it finds
    them there, and the host goes on at once.

    Args:
        batch: a tensor; or a dataclass, mapping or tuple of such, in which anything else stays as it is.
        device: where to.
    """
    result: Any = _moved(batch, device)
    return result  # type: ignore[no-any-return]  # it is of the same type


def tensor_on(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device; on the CPU it has the memory of the array."""
    return moved(torch.from_numpy(array), device)


def place_of(needed_bytes: int, device: torch.device) -> torch.device:
    """Return where so many bytes are kept for a while: on the device of a training, or the CPU.

    Args:
        needed_bytes: how many.
        device: of the training.
    """
    if device.type != "cuda":
        return CPU
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(
        device
    )  # kept for tensors to come
    return device if needed_bytes <= _SHARE_OF_FREE * free else CPU


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        if value.device == device:
            return value
        pinned = value.pin_memory() if value.device.type == "cpu" and device.type == "cuda" else value
        return pinned.to(device, non_blocking=device.type == "cuda")
    if isinstance(value, Mapping):
        return {name: _moved(each, device) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_moved(each, device) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {each.name: _moved(getattr(value, each.name), device) for each in fields(value)}
        return replace(value, **changes)
    return value


class LossOnItsWay:
    """The value of a loss, on its way to the host while what is queued after it goes on.

    Args:
        loss: a tensor of one number.
    """

    def __init__(self, loss: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        self._value = loss.detach()
        if loss.device.type == "cuda":
            self._value = torch.empty((), dtype=loss.dtype, pin_memory=True)
            self._value.copy_(loss.detach(), non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record(torch.cuda.current_stream(loss.device))

    def value(self) -> float:
        """Wait for the number."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return float(self._value)
