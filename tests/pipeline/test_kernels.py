"""Shares of kernels: every one is measured, beside the right probe, of the work that was done."""

from __future__ import annotations

import pytest
import torch

from graphbox.pipeline import kernels
from graphbox.pipeline.kernels import kernel_shares

pytestmark = pytest.mark.gpu_kernel


def test_every_kernel_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, bytes_per_s = 0.5, 1000.0
    monkeypatch.setattr(kernels, "run_seconds", lambda work, device: [seconds])
    monkeypatch.setattr(kernels, "sector_bandwidth", lambda where, device, size_bytes: bytes_per_s)
    monkeypatch.setattr(kernels, "copy_bandwidth", lambda direction, device: bytes_per_s)
    shares = list(kernel_shares(torch.device("cpu")))
    assert [(each.kernel, each.unit, each.limit) for each in shares] == [
        ("sampling 10 of 16 neighbours, device", "edges/s", "device sectors"),
        ("sampling 10 of 16 neighbours, pinned", "edges/s", "pinned sectors"),
        ("walks of 40 steps, device", "steps/s", "device sectors"),
        ("gathering rows of 512 bytes, device", "rows/s", "copy device to device"),
        ("gathering rows of 512 bytes, pinned", "rows/s", "copy host to device"),
        ("pull and push of rows of 64, row-wise Adagrad", "rows/s", "copy device to device"),
    ]
    by_kernel = {each.kernel: each for each in shares}
    walks = by_kernel["walks of 40 steps, device"]
    assert walks.rate == 16 * 40 / seconds
    assert walks.limit_rate == pytest.approx(bytes_per_s / (2.25 * 32))
    gathered = by_kernel["gathering rows of 512 bytes, pinned"]
    assert (gathered.rate, gathered.limit_rate) == (32 / seconds, bytes_per_s / 512)
    sampled = by_kernel["sampling 10 of 16 neighbours, pinned"]
    assert sampled.rate == 16 * 10 / seconds
    assert 16 / 160 * 32 <= bytes_per_s / sampled.limit_rate <= 2 * 16 / 160 * 32  # lists are of two sectors
    for each in shares:
        assert each.share == each.rate / each.limit_rate


def test_every_kernel_runs() -> None:
    assert all(each.share > 0 and each.rate > 0 for each in kernel_shares(torch.device("cpu")))
