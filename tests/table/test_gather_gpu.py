"""Gathering on a device, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from graphbox.table.gather_gpu import gather_rows
from tests.table.device_gather import DeviceGathers

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceGathers):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    index = torch.tensor([1, 0])
    with compiling("graphbox.table.gather_gpu"):
        gather_rows(torch.ones(2, 128), index)
        gather_rows(torch.ones(2, 100), index.int(), dtype=torch.bfloat16)
        gather_rows(torch.ones(2, 3, dtype=torch.bool), index)
