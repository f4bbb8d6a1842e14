"""Graphs on disk sampled by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="graphs need pyarrow, which is not installed")

from graphbox.sample import DeviceGraph
from tests.sample.device_tiers import KNOWN, ROWS, DeviceTiers, check, shop

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceTiers):
    pass


def test_kernels_compile(
    device: torch.device, tmp_path: Path, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    graph = shop(tmp_path / "shop")
    on_device = DeviceGraph(graph.tiered(topology_bytes=1_500), device, hbm_bytes=KNOWN * ROWS + 900)
    with compiling("graphbox.sample.tiered_neighbor_gpu"):
        for _ in range(2):
            check(on_device, [{"item": np.arange(9)}], [3, -1])
            check(on_device, [{"item": np.arange(9)}], [3, 2], replace=True)
            on_device.end_pass()
