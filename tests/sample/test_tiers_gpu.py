"""Graphs on disk sampled by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="graphs need pyarrow, which is not installed")

from graphbox.sample import DeviceGraph
from tests.sample.device_tiers import KNOWN, ROWS, DeviceTiers, batches_of, check, shop
from tests.train.pretended_gpu import pretended_gpu

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


def test_tensors_of_the_host_and_of_the_device_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that is pretended, whose kernels read what pinned memory and its own hold."""

    def pinned_empty(shape: tuple[int, ...], dtype: torch.dtype, _: torch.device) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype).pin_memory()

    for module in ("disk_lists", "resident_lists"):
        monkeypatch.setattr(f"graphbox.sample.{module}.pinned_empty", pinned_empty)
    graph = shop(tmp_path / "shop")
    with pretended_gpu() as gpu:
        monkeypatch.setattr(torch.cuda, "current_stream", mock.MagicMock())
        tiered = graph.tiered(topology_bytes=1_500, pass_bytes=1 << 16)
        for hbm_bytes in (0, KNOWN * ROWS + 900):
            on_device = DeviceGraph(tiered, gpu, hbm_bytes=hbm_bytes)
            seeds = batches_of(graph, np.random.default_rng(0))
            for _ in range(3):
                check(on_device, seeds, [3, 2], edge_attributes=["weight"])
                on_device.end_pass()
        assert on_device.statistics.lists > 0
        far = on_device.pinned_statistics
        assert far is not None
        assert far.lists > 0
