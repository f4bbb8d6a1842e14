"""Tests of compiled kernels: skipped, with the reason, where there is no CUDA device."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return torch.device("cuda")
