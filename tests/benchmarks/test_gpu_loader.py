"""The benchmark of loaders on a GPU runs."""

from __future__ import annotations

import pytest

from benchmarks import gpu_loader
from tests.gpu_benchmarks import printed_figures

pytestmark = pytest.mark.gpu_kernel


def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_loader.main, monkeypatch, capsys)
    rows = [figure for case, figure in figures.items() if " rows of " in case]
    assert [figure["goal"] for figure in rows] == [0.8, 0.8, 0.8]
    loaders = [figure for case, figure in figures.items() if " batches of " in case]
    assert [figure["limit"] is None for figure in loaders] == [True, False, False, False]
