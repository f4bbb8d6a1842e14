"""The benchmark of skip-gram on a GPU runs, and what it counts is right."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import gpu_skip_gram
from tests.gpu_benchmarks import printed_figures


@pytest.mark.gpu_kernel
def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_skip_gram.main, monkeypatch, capsys)
    assert [figure["goal"] for figure in figures.values()] == [20.0, None, None, 20.0, None, 0.99]
    *_, quality = figures.values()
    assert quality["share"] == pytest.approx(1, abs=1e-3)


def test_area_under_curve() -> None:
    assert gpu_skip_gram.area_under_curve(np.array([3.0, 1.0]), np.array([2.0, 0.0, 1.0])) == 4.5 / 6


def test_planted_edges_are_held_out() -> None:
    graph, held_out, pairs = gpu_skip_gram.planted(4, 30)
    assert held_out.shape == pairs.shape
    assert (held_out[0] // 30 == held_out[1] // 30).all()
    assert graph.indptr[-1] == len(graph.indices)
    assert 0.6 < np.mean(np.repeat(np.arange(120), np.diff(graph.indptr)) // 30 == graph.indices // 30) < 0.9
