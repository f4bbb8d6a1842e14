"""Loaders on a device, with kernels run by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.sample.device_loaders import DeviceLoaders

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceLoaders):
    pass
