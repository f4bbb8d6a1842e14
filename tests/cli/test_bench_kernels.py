"""`graphbox bench --kernels` with and without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from graphbox import device_report
from graphbox.device_report import GpuReport
from graphbox.pipeline import kernels
from graphbox.pipeline.kernels import KernelShare
from tests.cli.conftest import Call

NONE = GpuReport(None, "2.13.0", None, "3.9.0", None, [], "there is no NVIDIA driver", None)
SHARE = KernelShare("walks", 2.5e9, "steps/s", "device sectors", 5e9, 0.5)


def test_without_a_gpu(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_report, "gpu_report", lambda *, bandwidths: NONE)
    outcome = graphbox("bench", "--kernels")
    assert outcome.code == 5
    assert "--device: expected the device cuda: there is no NVIDIA driver" in outcome.err


def test_shares(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def shares(device: torch.device) -> Iterator[KernelShare]:
        yield SHARE

    monkeypatch.setattr(kernels, "kernel_shares", shares)
    outcome = graphbox("bench", "--kernels", "--device", "cpu")
    assert outcome.code == 0
    assert ["walks", "2.5G", "steps/s", "50%", "device", "sectors"] in [
        line.split() for line in outcome.out.splitlines()
    ]
    document = graphbox("bench", "--kernels", "--device", "cpu", "--json").json
    assert document["device"] == "cpu"
    assert document["kernels"][0]["share"] == 0.5


def test_a_model_or_kernels(graphbox: Call) -> None:
    assert "expected the name of a model, or --kernels" in graphbox("bench").err
    both = graphbox("bench", "ours", "--kernels")
    assert both.code == 2
    assert "received both" in both.err
