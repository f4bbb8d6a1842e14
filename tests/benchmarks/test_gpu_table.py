"""The benchmark of tables on a GPU runs."""

from __future__ import annotations

import pytest

from benchmarks import gpu_table
from tests.gpu_benchmarks import printed_figures


@pytest.mark.gpu_kernel
def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_table.main, monkeypatch, capsys)
    assert [figure["goal"] for figure in figures.values()] == [0.8, None, None, None]
    assert {figure["unit"] for figure in figures.values()} == {"rows/s"}
    assert [figure["limit"] for figure in figures.values()] == [
        "index_select",
        "copy device to device",
        "copy host to device",
        "copy there and back",
    ]
