"""The data sets of the quality benchmark, and how their results are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import quality
from benchmarks.quality_data import data_sets
from benchmarks.quality_data.protocol import DataSet, Figure
from graphbox.config import load_config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("data", data_sets().values(), ids=lambda data: data.name)
def test_run_files_have_what_is_measured(data: DataSet) -> None:
    config = load_config(ROOT / data.run_file, data.overrides, check_files=False)
    assert len({figure.name for figure in data.figures}) == len(data.figures) > 0
    for figure in data.figures:
        if figure.source is not None:
            task, model, _ = figure.source
            assert task in config.tasks
            baselines = config.tasks[task].baselines  # None: those that fit the task
            assert model in config.models or baselines is None or model in baselines


def test_seeds_add_up_to_a_mean(tmp_path: Path) -> None:
    path = tmp_path / "quality.json"
    data = DataSet("sets", "graphbox.yaml", (), (Figure("a", goal=0.5), Figure("b")))
    quality.keep(data, 0, {"a": 0.25, "b": 1.0}, 2.0, path)
    other = DataSet("other", "graphbox.yaml", (), (Figure("a"),))
    quality.keep(other, 3, {"a": 0.0}, 1.0, path)
    quality.keep(data, 1, {"a": 0.75, "b": 1.0}, 4.0, path)
    rows = quality.read_results(path)
    assert [(row["data"], row["metric"]) for row in rows] == [("other", "a"), ("sets", "a"), ("sets", "b")]
    assert (rows[1]["value"], rows[1]["seeds"], rows[1]["minutes"], rows[1]["goal"]) == (
        0.5,
        [0, 1],
        3.0,
        0.5,
    )
    assert "| sets | a |  | ≥ 0.5 | 0.5000 ± 0.3536 | 0, 1 | 3.0 |" in quality.page(rows)
