"""Devices that kernels run on: which one a name means, and whether kernels run there."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from graphbox.errors import BackendMissingError, UsageError, missing_extra

if TYPE_CHECKING:
    import torch

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
            GPU that is current where there is one that works and Triton is installed, else the CPU.

    Raises:
        UsageError: no such name.
        BackendMissingError: the GPU is not there or does not work, or PyTorch or Triton is not installed; the
            message says what was found.
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

    if name == "cpu":
        return torch.device("cpu")
    lacks = lacks_for_cuda()
    if name == "auto" and lacks is not None:
        return torch.device("cpu")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = match["number"]
    if there == 0 or (number is not None and int(number) >= there):
        raise BackendMissingError(
            f"expected the device {name}, found {lacks if there == 0 else _numbers(there)}",
            where="device",
            hint="`graphbox doctor` says what is missing; `device: auto` takes a GPU where there is one that "
            "works, else the CPU",
        )
    device = torch.device("cuda", torch.cuda.current_device() if number is None else int(number))
    check_device(device)
    fault = _fault(device)
    if fault is not None:
        raise BackendMissingError(
            f"expected the device {device} to work, it says: {fault}",
            where="device",
            hint="`nvidia-smi` tells more; `device: cpu` does without it",
        )
    return device


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Return the context for launches of kernels on ``device``: they go to the GPU that is current."""
    if device.type != "cuda":
        return nullcontext()
    import torch

    return torch.cuda.device(device)


def keep_until_used(tensor: torch.Tensor) -> None:
    """Keep the memory of a tensor that is to be let go of until what was launched so far has used it.

    It may be of another stream than the current one, which would give it to others at once.
    """
    if tensor.is_cuda:
        import torch

        tensor.record_stream(torch.cuda.current_stream(tensor.device))


def lacks_for_cuda() -> str | None:
    """Return what keeps PyTorch and kernels from the current GPU, in words; None: nothing does."""
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() == 0:
        return _no_device()
    if find_spec("triton") is None:
        return "a GPU, but Triton is not installed: pip install 'graphbox[gpu]'"
    fault = _fault(torch.device("cuda", torch.cuda.current_device()))
    return None if fault is None else f"a GPU that does not work: {fault}"


def device_in_words(device: torch.device) -> str:
    """Return what a device is called in reports, such as ``cuda:0 (NVIDIA H200)``."""
    if device.type != "cuda":
        return str(device)
    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})"


def _no_device() -> str:
    """Return why there is no CUDA device."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return f"no CUDA device: PyTorch {torch.__version__} is built without CUDA"
    hidden_by = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden_by is not None and not re.search(r"(^|,)\s*(\d|GPU|MIG)", hidden_by):
        return f"no CUDA device: CUDA_VISIBLE_DEVICES={hidden_by!r} hides all"
    if not Path("/proc/driver/nvidia/version").exists() and torch.version.hip is None:
        return "no CUDA device: NVIDIA's driver is not loaded"
    return "no CUDA device that PyTorch can use, though there is a driver"


def _numbers(there: int) -> str:
    return "cuda:0 alone" if there == 1 else f"cuda:0 to cuda:{there - 1}"


@cache
def _fault(device: torch.device) -> str | None:
    """Return what a GPU says when it is to add two numbers; None: it adds them."""
    import torch

    try:
        torch.ones(1, device=device).add_(1.0).item()
    except RuntimeError as error:  # such as: no kernel of this PyTorch is for it, or it is in use exclusively
        return str(error).partition("\n")[0]
    return None
