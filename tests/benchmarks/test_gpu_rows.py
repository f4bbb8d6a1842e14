"""The benchmark of rows on a GPU runs."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu_rows
from tests.gpu_benchmarks import printed_figures


@pytest.mark.gpu_kernel
def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_rows.main, monkeypatch, capsys)
    goals = [figure["goal"] for figure in figures.values() if figure["goal"] is not None]
    assert goals == [0.8, 0.8, 0.8, 0.5]
    assert len(figures) == 3 + 2 + 12 + 2 + 3
    assert {figure["unit"] for figure in figures.values()} == {"rows/s", "keys/s"}


def test_skewed_slots() -> None:
    torch.manual_seed(0)
    slots = gpu_rows.skewed_slots(1000, 20_000, torch.device("cpu"))
    counts = torch.bincount(slots, minlength=1000).sort(descending=True).values
    assert counts[0] > 1000
    assert counts[500] > 0
