"""The hash table of a device, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from graphbox.table.hash_gpu import DeviceHash
from tests.table.device_hash import DeviceHashes

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceHashes):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    table = DeviceHash(100, device)
    keys = torch.arange(90)
    with compiling("graphbox.table.hash_gpu"):
        table.insert(keys, keys)
        table.erase(keys)
        table._rebuild()
