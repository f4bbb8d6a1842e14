"""Arrays on a device, with kernels run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from graphbox.sample.device_arrays import DeviceArrays, RowBlocks
from tests.sample.device_arrays import KNOWN, DeviceArrayReads, some_arrays

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceArrayReads):
    pass


@pytest.mark.parametrize("misses", ["read", "copy"])
def test_kernels_compile(
    misses: str, device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    arrays = some_arrays()
    blocks = {name: RowBlocks.of(each) for name, each in arrays.items()}
    held = DeviceArrays(blocks, device, hbm_bytes=6 * KNOWN, misses=misses)  # type: ignore[arg-type]
    with compiling("graphbox.sample.feature_rows_gpu"):
        for name, each in arrays.items():
            held.rows(name, torch.arange(min(9, len(each))))
