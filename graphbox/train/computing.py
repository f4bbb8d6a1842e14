"""Setup of torch for training on a device: errors of its memory, and bitwise reproducible results."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from graphbox.config import ModelConfig
from graphbox.device import device_in_words
from graphbox.errors import DoesNotFitError

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_FIXED_WORKSPACE = ":4096:8"
"""With it the products of cuBLAS are the same each time; read when the first is computed."""

_PRODUCTS = "MKL_CBWR"
_SAME_PRODUCTS = "AUTO,STRICT"
"""With it the products of Intel's MKL are the same for any number of threads; read at the first one."""

_VECTOR_FUNCTIONS = (
    *(torch.exp, torch.expm1, torch.log, torch.log1p, torch.log2, torch.log10, torch.sqrt),
    *(torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan),
    *(torch.sinh, torch.cosh, torch.tanh, torch.sigmoid, torch.erf, torch.erfc, torch.erfinv),
)
"""Those that torch computes by MKL, of what models compute."""


def _fix_products() -> None:
    """Let products on Intel processors not depend on the number of threads; on others they do not anyway."""
    try:
        is_intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return
    if is_intel:
        os.environ.setdefault(_PRODUCTS, _SAME_PRODUCTS)


def _begin_vector_functions() -> None:
    """Call each vector function of MKL once in one thread.

    Threads that make the first call of one together may take different code for it: in a tenth of the
    processes the first logsumexp of two threads had other bits than the second (MKL 2024.2).
    """
    numbers = torch.full((64,), 0.5)  # few enough that torch does not share them among threads
    for function in _VECTOR_FUNCTIONS:
        function(numbers)


_fix_products()  # on import: later the process may have computed one already
_begin_vector_functions()


@contextmanager
def computing_on(device: torch.device, model: str, config: ModelConfig) -> Iterator[None]:
    """Let a device be the one that kernels run on while the block runs.

    Args:
        device: where the model computes.
        model: its name.
        config: its section of the run file.

    Raises:
        DoesNotFitError: the block wanted more memory of a GPU than it has.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault(_WORKSPACE, _FIXED_WORKSPACE)
    try:
        with torch.cuda.device(device):
            yield
    except torch.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info(device)
        torch.cuda.empty_cache()
        raise DoesNotFitError(
            f"expected more memory of {device_in_words(device)} than it has to train `{model}`: of {total:,} "
            f"bytes {free:,} were free ({str(error).partition('. ')[0]})",
            where=f"models.{model}",
            hint="; ".join(_ways(model, config)),
        ) from error


@contextmanager
def summing_in_order(device: torch.device, *, wanted: bool) -> Iterator[None]:
    """Let operations of torch take the implementations that sum in a fixed order, where they have such.

    On the CPU that is always so: the gradient of ``rows[index]``, where several entries of the index are
    equal, is otherwise added up in the order in which threads get there.

    Args:
        device: where the model computes.
        wanted: on a GPU it is to be so; else the block runs there as it is.
    """
    if device.type == "cuda" and not wanted:
        yield
        return
    mode = torch.get_deterministic_debug_mode()
    settings: Any = torch.utils.deterministic
    filled = settings.fill_uninitialized_memory
    # Not use_deterministic_algorithms: it imports torch's compiler, which takes 180 MB and a second.
    torch.set_deterministic_debug_mode("warn")
    settings.fill_uninitialized_memory = False  # all of it is written before it is read
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have a deterministic implementation", UserWarning)
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        settings.fill_uninitialized_memory = filled


def _ways(model: str, config: ModelConfig) -> Iterator[str]:
    size = getattr(config, "batch_size", None)
    if size is not None and size > 1:
        yield f"`models.{model}.batch_size={size // 2}` takes smaller batches"
    if getattr(config, "num_neighbors", 0) is None:
        yield f"`models.{model}.num_neighbors=[10,10]` trains on parts of the graph"
    yield "smaller budgets of `memory.hbm` leave more to batches"
    yield "`device=cpu` resumes in host memory from the last checkpoint"
