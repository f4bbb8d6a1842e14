"""Tables of results in terminals of any width."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from graphbox.cli.results import print_results

CLICK = {
    "auc": 0.83,
    "log_loss": 0.392,
    "click_rate": 0.231,
    "predicted_click_rate": 0.237,
    "calibration_ratio": 0.973,
    "calibration_error": 0.029,
    "mean_rank": 5534.953,
    "impressions": 785,
}
REPORT = {"metrics": {"click": {"deepfm": CLICK}}, "baselines": {"click": {"logistic_regression": CLICK}}}


def test_a_sample_of_queries_is_named() -> None:
    measured = {"recall@20": 0.1, "queries": 5000}
    sampled = {**measured, "queries_total": 70_000}
    console = Console(file=StringIO(), width=200)
    print_results(
        {"metrics": {"buys": {"lg": measured}}, "baselines": {"buys": {"user_knn": sampled}}}, console
    )
    assert isinstance(console.file, StringIO)
    assert (
        "Baselines of buys were measured on a sample of 5,000 of 70,000 queries; "
        "tasks.buys.baseline_queries=all measures all"
    ) in console.file.getvalue()


def test_notes_and_baselines_that_did_not_run_stand_under_their_task() -> None:
    console = Console(file=StringIO(), width=60)
    left_out = "left out, about 14 min on this graph; name it under `baselines` to run it"
    note = "validation recall@20 0.340; not to be compared with test: test comes later in time"
    report = {
        "metrics": {"buys": {"lg": {"recall@20": 0.1}}, "other": {"lg": {"auc": 0.9}}},
        "baselines_left_out": {"buys": {"gfcf": left_out}, "other": {}},
        "notes": {"buys": {"lg": note}, "other": {}},
    }
    print_results(report, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    first, second = text.split("Task other")
    assert f"\ngfcf: {left_out}\nlg: {note}\n" in first
    assert "left out" not in second


def test_both_trainings_of_a_model_have_their_time() -> None:
    console = Console(file=StringIO(), width=120)
    first = {"epochs": 7, "steps": 70, "stage_seconds": {"compute": 3.0, "other": 1.0}}
    outcome = {"epochs": 5, "stage_seconds": {"compute": 2.0, "other": 2.0}, "first": first}
    print_results({"training": {"lg": outcome, "mf": {**outcome, "first": None}}}, console)
    assert isinstance(console.file, StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines() if line.startswith(("lg", "mf"))]
    assert rows == [
        ["lg:first", "7", "4.0", "s", "75", "%", "25", "%"],
        ["lg", "5", "4.0", "s", "50", "%", "50", "%"],
        ["mf", "5", "4.0", "s", "50", "%", "50", "%"],
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_word_is_broken(width: int) -> None:
    console = Console(file=StringIO(), width=width)
    print_results(REPORT, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    tables = sum(line.startswith("Task click") for line in lines)
    assert sum(line.startswith("logistic_regression (baseline)") for line in lines) == tables
    assert sum(line.startswith("deepfm") for line in lines) == tables
    assert (tables == 1) == (width == 200)
    words = text.split()
    assert all(words.count(name) == 1 for name in CLICK if name != "impressions")
    assert words.count("0.973") == 2
    assert words.count("5,535") == 2
    assert "impressions" not in words


def test_settings_that_were_chosen_are_told_with_what_was_tried() -> None:
    trials = [
        {
            "settings": {
                "layer": layer,
                "layers": layers,
                "embeddings": [],
                "layer_options": {"dropout": 0.5},
            },
            "value": value,
            "cost": None if value is None else -value,
            "state": state,
            "epochs": 4,
            "median": 0.86 if state == "pruned" else None,
            "seconds": 12.0,
        }
        for layer, layers, value, state in (
            ("appnp", 10, 0.816, "measured"),
            ("sage", 2, 0.851, "measured"),
            ("gcn2", 2, None, "refused"),
            ("gat", 2, 0.83, "pruned"),
        )
    ]
    chosen = {
        "settings": trials[1]["settings"],
        "why": "best accuracy of 2, 1 more pruned: search",
        "metric": "accuracy",
        "trials": trials,
    }
    outcome = {"stage_seconds": {}, "epochs": 3, "chosen": chosen}
    console = Console(file=StringIO(), width=120)
    print_results({"training": {"net": outcome}}, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert (
        "net was trained with layer sage, layers 2, embeddings [], layer_options {dropout 0.5}: best" in text
    )
    lines = [line.split() for line in text.splitlines()]
    rows = [line for line in lines if line and line[0] in {"0.816", "0.851", "pruned", "refused"}]
    assert [row[0] for row in rows] == ["0.851", "0.816", "pruned", "refused"]  # the best first
    assert " ".join(rows[2]).startswith("pruned after epoch 4: 0.830, median 0.860 ")
    assert " ".join(rows[0]).endswith("layer sage, layers 2")  # what trials share is not repeated
    console = Console(file=StringIO(), width=120)
    print_results(
        {"training": {"net": {**outcome, "chosen": {**chosen, "settings": {}, "trials": []}}}}, console
    )
    assert isinstance(console.file, StringIO)
    assert "was trained with" not in console.file.getvalue()
