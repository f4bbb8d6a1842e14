"""Sums of equal rows on a device, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from graphbox.table.reduce_gpu import sum_equal_rows
from tests.table.device_reduce import DeviceReductions

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceReductions):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    with compiling("graphbox.table.reduce_gpu"):
        sum_equal_rows(torch.tensor([1, 0, 1]), torch.ones(3, 64))
        sum_equal_rows(torch.tensor([1, 0], dtype=torch.int32), torch.ones(2, 100, dtype=torch.bfloat16))
        sum_equal_rows(torch.zeros(300, dtype=torch.int64), torch.ones(300, 3))
