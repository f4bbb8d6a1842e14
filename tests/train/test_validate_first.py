"""Models that are trained twice: on the training part for a figure, then on the validation part as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from graphbox.config import (
    CompleteTaskConfig,
    ComplExConfig,
    LightGCNConfig,
    MatrixFactorizationConfig,
    RecommendTaskConfig,
)
from graphbox.errors import InterruptedRunError
from graphbox.graph import Graph
from graphbox.train import CompleteSplit, RecommendSplit, TrainedModel, fit, load_outcome, make_split
from graphbox.train.figure_notes import figure_note
from graphbox.train.tasks import Split
from tests.train.atlas import build_atlas
from tests.train.shop import build_shop

BOTH = {"train_on": "train_and_validation", "validate_first": True}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def items() -> RecommendTaskConfig:
    return RecommendTaskConfig(
        kind="recommend", node_type="user", target_type="item", relations=("bought",), k=5
    )


@pytest.fixture(scope="module")
def split(shop: Graph, items: RecommendTaskConfig) -> Split:
    return make_split(shop, items, 0)


def light(**settings: Any) -> LightGCNConfig:
    sizes = {"dim": 8, "epochs": 4, "batch_size": 32, "candidates": 32, "validate_every": 2, "auto": ()}
    return LightGCNConfig.model_validate({"kind": "lightgcn", "task": "items", **sizes, **settings})


def trained(graph: Graph, split: Split, task: Any, config: Any, folder: Path, **options: Any) -> TrainedModel:
    settings: dict[str, Any] = {"name": "model", "run_folder": folder, "seed": 4, "threads": 1, **options}
    return fit(graph, split, config=config, task=task, **settings)


def vectors(model: TrainedModel) -> list[np.ndarray]:
    assert model.target is not None
    return [model.embeddings[model.node_type], model.target]


def test_the_final_model_is_that_of_one_training_and_the_figure_that_of_the_other(
    shop: Graph, split: Split, items: RecommendTaskConfig, tmp_path: Path
) -> None:
    twice = trained(shop, split, items, light(**BOTH), tmp_path / "twice")
    both = trained(shop, split, items, light(train_on="train_and_validation"), tmp_path / "both")
    trained(shop, split, items, light(), tmp_path / "alone")
    for one, other in zip(vectors(twice), vectors(both), strict=True):
        np.testing.assert_array_equal(one, other)
    outcomes = {name: load_outcome(tmp_path / name, "model") for name in ("twice", "both", "alone")}
    assert outcomes["both"].validation == {}
    assert outcomes["both"].first is None
    assert set(outcomes["alone"].validation) == {"validation_recall@5", "validation_ndcg@5"}
    assert outcomes["twice"].validation == outcomes["alone"].validation
    assert outcomes["twice"].first is not None
    assert outcomes["twice"].first["epochs"] == outcomes["twice"].epochs == 4
    lines = [json.loads(line) for line in (tmp_path / "twice" / "metrics.jsonl").read_text().splitlines()]
    assert {line["model"] for line in lines} == {"model:first", "model"}
    assert sorted(each.name for each in (tmp_path / "twice" / "checkpoints").iterdir()) == ["model"]


@pytest.mark.parametrize("stop_after", [2, 9])
def test_either_training_is_resumed(
    shop: Graph, split: Split, items: RecommendTaskConfig, tmp_path: Path, stop_after: int
) -> None:
    whole = trained(shop, split, items, light(**BOTH), tmp_path / "whole")
    batches = 0

    def stop() -> bool:
        nonlocal batches
        batches += 1
        return batches == stop_after

    folder = tmp_path / "stopped"
    with pytest.raises(InterruptedRunError, match="stopped on request") as raised:
        trained(shop, split, items, light(**BOTH), folder, stop=stop)
    of_first = load_outcome(tmp_path / "whole", "model").first
    assert of_first is not None
    is_in_first = stop_after < of_first["steps"]
    assert ("model:first" in str(raised.value)) == is_in_first
    assert (folder / "trained" / "model" / "first.json").exists() != is_in_first
    resumed = trained(shop, split, items, light(**BOTH), folder, resume=True)
    for one, other in zip(vectors(resumed), vectors(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    assert load_outcome(folder, "model").validation == load_outcome(tmp_path / "whole", "model").validation


def test_epochs_are_those_that_were_best_in_validation(tmp_path: Path) -> None:
    atlas = build_atlas(tmp_path / "atlas")
    task = CompleteTaskConfig(kind="complete")
    split = make_split(atlas, task, 0)
    assert isinstance(split, CompleteSplit)
    sizes = {"dim": 8, "epochs": 12, "batch_size": 16, "candidates": 16, "validate_every": 1, "patience": 2}
    config = ComplExConfig.model_validate(
        {"kind": "complex", "task": "t", "learning_rate": 2.0, **sizes, **BOTH}
    )
    trained(atlas, split, task, config, tmp_path / "run")
    outcome = load_outcome(tmp_path / "run", "model")
    assert outcome.first is not None
    assert outcome.best_epoch is not None
    assert outcome.epochs == outcome.best_epoch < 12
    assert outcome.first["epochs"] == outcome.best_epoch + 2
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [line["values"]["validation_mrr"] for line in lines if "validation_mrr" in line["values"]]
    assert outcome.validation["validation_mrr"] == max(measured)
    note = figure_note(config, task, split, outcome.validation)
    assert note is not None
    assert note.startswith(f"validation mrr {max(measured):.3f}, ")
    assert "not to be compared with test: a first training made it without the validation part" in note


def test_notes_say_what_differs(split: Split, items: RecommendTaskConfig) -> None:
    assert isinstance(split, RecommendSplit)
    figures = {"validation_recall@5": 0.25}
    assert figure_note(light(), items, split, figures) == "validation recall@5 0.250"
    late = RecommendTaskConfig.model_validate({**items.model_dump(), "split": {"kind": "time"}})
    assert figure_note(light(), late, split, figures) == (
        "validation recall@5 0.250; not to be compared with test: test comes later in time"
    )
    given = RecommendTaskConfig.model_validate(
        {**items.model_dump(), "split": {"kind": "given", "test_relations": ("later",)}}
    )
    assert "validation was cut from the training part at random" in str(
        figure_note(light(), given, split, figures)
    )
    untold = figure_note(light(train_on="train_and_validation"), items, split, {})
    assert untold is not None
    assert untold.startswith("no validation figure")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validate_first": True}, "has no meaning with `train_on: train`"),
        ({**BOTH, "distil": {"teachers": ("other",)}}, "its teachers have"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        light(**settings)


def test_several_processes_train_twice_as_one_does(
    shop: Graph, split: Split, items: RecommendTaskConfig, tmp_path: Path
) -> None:
    sizes = {"dim": 8, "epochs": 2, "batch_size": 64, "candidates": 32, "validate_every": 2}
    config = MatrixFactorizationConfig.model_validate(
        {"kind": "matrix_factorization", "task": "items", **sizes, **BOTH}
    )
    one = trained(shop, split, items, config, tmp_path / "one")
    two = trained(shop, split, items, config, tmp_path / "two", processes=2)
    for alone, divided in zip(vectors(one), vectors(two), strict=True):
        np.testing.assert_allclose(divided, alone, atol=0.02)
    outcomes = [load_outcome(tmp_path / name, "model") for name in ("one", "two")]
    assert outcomes[1].validation == pytest.approx(outcomes[0].validation, abs=0.05)
    assert outcomes[0].first is not None
    assert outcomes[1].first is not None
    assert outcomes[1].first["steps"] == outcomes[0].first["steps"]
