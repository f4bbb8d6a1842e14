"""The benchmark of sampling on a GPU runs."""

from __future__ import annotations

import pytest

from benchmarks import gpu_sample
from tests.gpu_benchmarks import printed_figures

pytestmark = pytest.mark.gpu_kernel


def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_sample.main, monkeypatch, capsys)
    hops = [case for case in figures if " hop of " in case]
    assert len(hops) == 2 * 4 + 1
    assert len(figures) == len(hops) + 2 * 2
    assert {figures[case]["goal"] for case in hops if case.endswith("device")} == {0.5}
    assert {figures[case]["goal"] for case in hops if case.endswith("pinned")} == {0.8}
    assert all(figure["goal"] is None for case, figure in figures.items() if case.endswith("relabelled"))
    assert all(figure["limit"] for figure in figures.values())
