"""Gathering by compiled kernels."""

from __future__ import annotations

import pytest
import torch

from graphbox.table.gather_gpu import gather_rows
from tests.table.device_gather import DeviceGathers

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceGathers):
    pass


def test_rows_behind_four_gigabytes(device: torch.device) -> None:
    """Offsets in values and in bytes exceed 32 bits, of what is read and of what is written."""
    rows, dim = 3 << 20, 1024
    if torch.cuda.mem_get_info(device)[0] < 30 << 30:
        pytest.skip("there are less than 30 GB free on the device")
    source = torch.empty(rows, dim, device=device)
    source[:, 0] = torch.arange(rows, device=device)
    source[:, dim - 1] = -source[:, 0]
    index = torch.arange(rows - 1, -1, -1, device=device)
    gathered = gather_rows(source, index)
    assert torch.equal(gathered[:, 0], source[:, 0].flip(0))
    assert torch.equal(gathered[:, dim - 1], source[:, dim - 1].flip(0))


def test_reading_pinned_memory_waits_for_what_wrote_it(device: torch.device) -> None:
    """Rows that a copy on the same stream brings to pinned memory are there when the kernel reads them."""
    cold = torch.zeros(1 << 16, 64).pin_memory()
    new = torch.randn(1 << 16, 64, device=device)
    index = torch.randperm(1 << 16, device=device)
    for turn in range(100):
        cold.copy_(new + turn, non_blocking=True)
        rows = gather_rows(cold, index)
        assert torch.equal(rows, (new + turn)[index])
