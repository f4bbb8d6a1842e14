"""Devices that kernels run on: which one a name means, and whether kernels run there."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from graphbox.errors import BackendMissingError, UsageError, missing_extra

if TYPE_CHECKING:
    import torch

__all__ = ["check_device", "chosen_device"]

_NAMES = re.compile(r"auto|cpu|cuda(:(?P<number>\d{1,4}))?")


def check_device(device: torch.device) -> None:
    """Check that kernels run on ``device``: a GPU, or the CPU with Triton's interpreter.

    Raises:
        BackendMissingError: they do not.
    """
    try:
        import triton
    except ImportError:
        raise BackendMissingError(
            f"expected Triton for kernels on {device}, which is not installed",
            hint="pip install 'graphbox[gpu]'",
        ) from None
    if device.type != "cuda" and not triton.knobs.runtime.interpret:
        raise BackendMissingError(
            f"expected a CUDA device, received {device}",
            where="device",
            hint="what is in host memory needs no device; tests set TRITON_INTERPRET=1",
        )


def chosen_device(name: str = "auto") -> torch.device:
    """Return the device that ``name`` means, with its number if it is a GPU.

    Args:
        name: ``cpu``; ``cuda``, the GPU that is current; ``cuda:`` and the number of a GPU; or ``auto``, the
            GPU that is current where there is one and Triton is installed, else the CPU.

    Raises:
        UsageError: no such name.
        BackendMissingError: the GPU is not there, or PyTorch or Triton is not installed.
    """
    match = _NAMES.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(
            f"expected auto, cpu, cuda or cuda: and a number, received {name!r}",
            where="device",
            hint="graphbox doctor lists the devices",
        )
    if find_spec("torch") is None:
        raise missing_extra("torch", "train")
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and (there == 0 or find_spec("triton") is None)):
        return torch.device("cpu")
    number = match["number"]
    if there == 0 or (number is not None and int(number) >= there):
        raise BackendMissingError(
            f"expected the device {name}, found {_found(there)}",
            where="device",
            hint="device: auto takes a GPU where there is one",
        )
    device = torch.device("cuda", torch.cuda.current_device() if number is None else int(number))
    check_device(device)
    return device


def _found(there: int) -> str:
    if there == 0:
        return "no CUDA device"
    return "cuda:0 alone" if there == 1 else f"cuda:0 to cuda:{there - 1}"
