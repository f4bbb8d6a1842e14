"""Optimizers and sums of gradients by compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.table.reduce_gpu import sum_equal_rows
from tests.table.device_optimizer import KEYS, Both, DeviceOptimizers
from tests.table.device_reduce import DeviceReductions
from tests.table.summed_rows import summed

pytestmark = pytest.mark.gpu


class TestCompiledOptimizers(DeviceOptimizers):
    pass


class TestCompiledReductions(DeviceReductions):
    pass


@pytest.mark.parametrize("name", ["rowwise_adagrad", "adam"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_same_gradients_give_the_same_rows_a_hundred_times(
    device: torch.device, name: str, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    both = Both(device, 64, name, dtype)
    slots = rng.integers(0, len(KEYS), 5_000)
    gradients = rng.normal(0, 1, (5_000, 64)).astype(np.float32)
    before = both.values.clone(), both.state.clone()
    both.push(slots, gradients)
    both.assert_same()
    for _ in range(100):
        both.values.copy_(before[0])
        both.state.copy_(before[1])
        both.push_on_device(slots, gradients)
        both.assert_same()


def test_many_rows(device: torch.device) -> None:
    """More rows than caches hold, one of which has a tenth of all gradients."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 400_000, 1_000_000)
    rows[::10] = 7
    gradients = rng.normal(0, 1, (len(rows), 16)).astype(np.float32)
    expected = summed(rows, gradients)
    distinct, sums, counts = sum_equal_rows(
        torch.from_numpy(rows).to(device), torch.from_numpy(gradients).to(device)
    )
    assert distinct.tolist() == expected[0]
    np.testing.assert_array_equal(sums.cpu().numpy(), expected[1])
    assert counts.tolist() == expected[2]
