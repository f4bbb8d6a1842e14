"""Loaders on a device, with kernels run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceFeatures
from tests.sample.device_loaders import KNOWN_OF_ROWS, DeviceLoaders, Papers

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceLoaders):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    names = ["y", "x", "year", "half"]
    features = DeviceFeatures(Papers(), device, names, hbm_bytes=4 * KNOWN_OF_ROWS)
    with compiling("graphbox.sample.feature_rows_gpu"):
        for name in names:
            features.rows("node", name, np.arange(9))
