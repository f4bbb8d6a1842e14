"""Measurement and output of GPU benchmarks."""

from __future__ import annotations

import argparse
import re
import sys

import pytest
import torch

from benchmarks.gpu_measure import GpuBench, run, share_text
from tests.gpu_benchmarks import printed_figures


def show_sums(bench: GpuBench) -> None:
    numbers = torch.arange(1000.0)
    for limit, goal in (
        (bench.sector_limit("pinned", 2.0), 0.5),
        (bench.row_limit("device", 512), None),
        (bench.copy_limit("device_to_device", 4.0), 0.8),
        (None, None),
    ):
        name = limit.name if limit else "its own"
        bench.show(f"sum beside {name}", numbers.sum, units=1000, unit="numbers/s", limit=limit, goal=goal)


@pytest.mark.gpu_kernel
def test_figures_for_machines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(lambda: run("sums", show_sums), monkeypatch, capsys)
    assert list(figures) == [
        "sum beside pinned sectors",
        "sum beside device rows of 512 bytes",
        "sum beside copy device to device",
        "sum beside its own",
    ]
    assert figures["sum beside pinned sectors"]["goal"] == 0.5
    assert figures["sum beside its own"]["share"] is None


@pytest.mark.gpu_kernel
def test_figures_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sums", "--device", "cpu"])
    run("sums", show_sums)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("sum beside pinned sectors")
    assert re.search(r"(%| times) of pinned sectors \(goal: 50%\)$", first)
    assert last.endswith("]")


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["sums"])
    with pytest.raises(SystemExit) as stopped:
        run("sums", show_sums)
    assert stopped.value.code == 5
    assert "expected the device cuda, found no CUDA device" in capsys.readouterr().err


def test_seconds_that_were_timed_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    bench = GpuBench(torch.device("cpu"), argparse.Namespace(quick=False, json=False, data=None))
    measured = bench.show_seconds("case", [4.0, 1.0, 2.0], units=8, unit="things/s", limit=None)
    assert (measured.rate, measured.min, measured.max, measured.repeats) == (4.0, 2.0, 8.0, 3)
    assert bench.quick
    assert "4.00 things/s [2.00 - 8.00]" in capsys.readouterr().out


def test_shares_are_percents_or_factors() -> None:
    assert [share_text(share) for share in (0.004, 0.5, 1.25, 2, 20.04)] == [
        "0%",
        "50%",
        "125%",
        "2.0 times",
        "20.0 times",
    ]
