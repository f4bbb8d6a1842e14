"""Probes by compiled kernels, beyond the caches too."""

from __future__ import annotations

import pytest
import torch

from graphbox.bandwidth import ROW_BYTES, measured_bandwidths
from graphbox.bandwidth_gpu import read_rows, read_sectors
from tests.bandwidth_probes import BandwidthProbes

pytestmark = pytest.mark.gpu


class TestCompiled(BandwidthProbes):
    pass


@pytest.mark.parametrize("pinned", [False, True])
def test_blocks_beyond_the_caches_are_read_once(device: torch.device, pinned: bool) -> None:
    words = torch.randint(1 << 15, (1 << 23, 8), dtype=torch.int32, device=device)
    block = words.cpu().pin_memory() if pinned else words
    assert read_sectors(block, device, 16).sum() == words[:, 0].sum()
    assert read_rows(block, device, 4).sum().to(torch.int32) == words.sum().to(torch.int32)


def test_every_bandwidth_is_measured(device: torch.device) -> None:
    measured = measured_bandwidths(device)
    assert measured is measured_bandwidths(device)
    assert measured.device == torch.cuda.get_device_name(device)
    for row_bytes in ROW_BYTES:
        assert measured.rows("device", row_bytes) > 0
