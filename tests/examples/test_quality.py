"""The data sets of the quality benchmark, and how their results are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import quality, quality_defaults
from benchmarks.quality_data import data_sets, defaults_table
from benchmarks.quality_data.protocol import DataSet, Figure
from benchmarks.quality_data.templates import CASES, ORIGINS, Case, overrides_of
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.data)
def test_templates_take_the_place_of_the_run_file_s_models(case: Case) -> None:
    data = data_sets()[case.data]
    assert case.figure in {figure.name for figure in data.figures}
    config = load_config(ROOT / data.run_file, overrides_of(case, data), check_files=False)
    (model,) = config.models.values()
    assert list(config.models) == [case.model]
    assert model.kind == case.kind
    assert model.model_fields_set <= {"kind", "task", "train_on", "validate_first"}
    assert model.task in (None, *config.tasks)
    searched = load_config(ROOT / data.run_file, overrides_of(case, data, "10min"), check_files=False)
    assert searched.models[case.model].tune == 600.0


def test_no_default_is_chosen_on_data_it_is_reported_on() -> None:
    cases = {(case.kind, case.data) for case in CASES}
    for origin in ORIGINS:
        for data in origin.chosen_on:
            if (origin.kind, data) in cases:
                assert origin.without[data] == origin.value, f"{origin.kind} {origin.setting}: {data}"


def test_the_table_of_defaults_has_ratios_and_searches(tmp_path: Path) -> None:
    path = tmp_path / "defaults.json"
    case = next(case for case in CASES if case.data == "cora")
    quality_defaults.keep(case, 0, None, 0.8, 0.5, path)
    quality_defaults.keep(case, 1, None, 0.82, 0.7, path)
    quality_defaults.keep(case, 0, "10min", 0.85, 11.0, path)
    tuned = [{"data": "cora", "metric": "accuracy", "minutes": 0.65}]
    text = defaults_table.table(defaults_table.read_results(path), tuned)
    assert "| cora | `classify` | accuracy | 0.85 (GPRGNN) | 0.8100 | 0.953 | 0, 1 | 0.60 | 0.65 |" in text
    assert "| 0.65 | 0.8500 | 1.000 |" in text
