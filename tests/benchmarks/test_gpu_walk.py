"""The benchmark of walks on a GPU runs, and counts what walkers read."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import gpu_walk
from benchmarks.gpu_graphs import ListsGraph, WeightedLists
from tests.gpu_benchmarks import printed_figures


@pytest.mark.gpu_kernel
def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_walk.main, monkeypatch, capsys)
    assert len(figures) == 4 + 2 + 1
    assert [figure["goal"] for figure in figures.values()] == [0.5] * 4 + [0.8] * 2 + [0.5]
    assert {figure["unit"] for figure in figures.values()} == {"steps/s"}


@pytest.mark.parametrize(("q", "looks"), [(1.0, 0.0), (2.0, 0.5), (0.25, 0.75)])
def test_sectors_of_a_search(q: float, looks: float) -> None:
    lists = WeightedLists(np.array([0, 8, 40]), np.zeros(40, np.int32), np.ones(40, np.float32))
    name = ("node", "to", "node")
    graph = ListsGraph("two", {"node": 2}, {name: lists}, {name: name}, "node")
    assert gpu_walk.search_sectors(graph, q) == pytest.approx(looks * (8 * 1 + 32 * 3) / 40)
