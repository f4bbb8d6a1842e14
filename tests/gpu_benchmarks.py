"""Runs a benchmark of a GPU by Triton's interpreter, and looks at what it prints for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from benchmarks.gpu_measure import GpuMeasurement

__all__ = ["printed_figures"]


def printed_figures(
    main: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capture: pytest.CaptureFixture[str],
    *options: str,
) -> dict[str, dict[str, Any]]:
    """Run ``main`` of a benchmark; return what it measured of graphbox, by case."""
    monkeypatch.setattr(sys, "argv", ["benchmark", "--device", "cpu", "--json", *options])
    main()
    figures = [json.loads(line) for line in capture.readouterr().out.splitlines()]
    for figure in figures:
        assert set(figure) == {field.name for field in fields(GpuMeasurement)}
        assert 0 < figure["min"] <= figure["rate"] <= figure["max"]
        assert figure["repeats"] > 0
        if figure["limit"] is not None:
            assert figure["share"] == pytest.approx(figure["rate"] / figure["limit_rate"])
    ours = [figure for figure in figures if figure["system"].startswith("graphbox")]
    by_case = {figure["case"]: figure for figure in ours}
    assert len(by_case) == len(ours)
    return by_case
