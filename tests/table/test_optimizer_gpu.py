"""Optimizers on a device, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from graphbox.table.optimizer_gpu import first_nonfinite
from tests.table.device_optimizer import SETTINGS, Both, DeviceOptimizers

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceOptimizers):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    slots = np.array([1, 2, 1])
    with compiling("graphbox.table.optimizer_gpu"):
        for dim, name, settings in ((64, "rowwise_adagrad", "plain"), (100, "adagrad", "limits")):
            Both(device, dim, name, **SETTINGS[settings]).push(slots, np.ones((3, dim), np.float32))
        for name, settings in (("sgd", "plain"), ("rowwise_adam", "decoupled"), ("ftrl", "limits")):
            both = Both(device, 3, name, **SETTINGS[settings])
            counts = torch.ones(3, dtype=torch.int32)
            both.optimizer.apply(both.values, both.state, torch.arange(3), torch.ones(3, 3), counts)
        both = Both(device, 200, "adam", "float16", **SETTINGS["limits"], mean_gradient=True)
        gradients = np.ones((3, 200), np.float32)
        first_nonfinite(torch.from_numpy(gradients))
        both.push(slots, gradients, shows=gradients[:, 0].copy())
