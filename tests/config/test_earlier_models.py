"""Models that take something from others of a run file: what they cannot is refused with the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphbox.config import MlpConfig, RankingDistillationSection, load_config
from graphbox.errors import ConfigError

TASKS = {
    "topic": {"kind": "classify", "node_type": "user", "label": "topic"},
    "other": {"kind": "classify", "node_type": "user", "label": "other"},
    "friend": {"kind": "recommend", "node_type": "user", "relations": ["knows"]},
    "enemy": {"kind": "recommend", "node_type": "user", "relations": ["knows"]},
}
GNN = {"kind": "gnn", "task": "topic"}
RANKER = {"kind": "lightgcn", "task": "friend"}


def load(models: dict[str, Any], **sections: Any) -> Any:
    features = {"topic": "categorical", "other": "categorical"}
    run_file = {
        "version": 1,
        "name": "run",
        "graph": {
            "name": "g",
            "nodes": {"user": {"path": "user.csv", "features": features}},
            "edges": [{"type": ["user", "knows", "user"], "path": "knows.csv"}],
        },
        "tasks": TASKS,
        "models": models,
        **sections,
    }
    return load_config(run_file, check_files=False)


def student(*teachers: str, **settings: Any) -> dict[str, Any]:
    return {"kind": "mlp", "task": "topic", "distil": {"teachers": list(teachers)}, **settings}


def ranker(*teachers: str, **settings: Any) -> dict[str, Any]:
    return {
        "kind": "matrix_factorization",
        "task": "friend",
        "distil": {"teachers": list(teachers)},
        **settings,
    }


def test_teachers_that_rank() -> None:
    models = {
        "big": RANKER,
        "factors": {"kind": "matrix_factorization", "task": "friend"},
        "small": ranker("big", "factors", dim=8),
        "last": ranker("small", train_on="train_and_validation"),
    }
    distil = load(models).models["small"].distil
    assert isinstance(distil, RankingDistillationSection)
    assert distil.teachers == ("big", "factors")


def test_teachers_and_positions_that_come_before() -> None:
    models = {
        "gcn": GNN,
        "sage": {"kind": "gnn", "task": "topic"},
        "walks": {"kind": "deepwalk"},
        "mlp": student("gcn", "sage", positions="walks"),
        "small": student("mlp"),
        "alone": {"kind": "mlp", "task": "topic"},
    }
    config = load(models)
    mlp = config.models["mlp"]
    assert isinstance(mlp, MlpConfig)
    assert mlp.distil is not None
    assert (mlp.distil.teachers, mlp.distil.temperature, mlp.positions) == (("gcn", "sage"), 1.0, "walks")


@pytest.mark.parametrize(
    ("models", "key", "said"),
    [
        ({"gcn": GNN, "mlp": student("gnc")}, "mlp.distil.teachers.0", "there is no model `gnc`"),
        ({"gcn": GNN, "mlp": student("gcn", positions="x")}, "mlp.positions", "there is no model `x`"),
        ({"mlp": student("mlp")}, "mlp.distil.teachers.0", "another model than `mlp`, received itself"),
        (
            {"mlp": student(positions="mlp") | {"distil": None}},
            "mlp.positions",
            "another model than `mlp`, received itself",
        ),
        (
            {"mlp": student("gcn"), "gcn": GNN},
            "mlp.distil.teachers.0",
            "a model that comes before `mlp`, as models are trained in this order, received `gcn`",
        ),
        (
            {"a": student("b"), "b": student("c"), "c": student("a")},
            "a.distil.teachers.0",
            "do not wait for each other, received `a` takes from `b` takes from `c` takes from `a`",
        ),
        (
            {"gcn": {**GNN, "task": "other"}, "mlp": student("gcn")},
            "mlp.distil.teachers.0",
            "a teacher of the task `topic`, received `gcn` of the task `other`",
        ),
        (
            {"walks": {"kind": "deepwalk", "task": "topic"}, "mlp": student("walks")},
            "mlp.distil.teachers.0",
            "a teacher that tells classes itself, received `walks` of kind deepwalk",
        ),
        (
            {"gcn": GNN, "mlp": student("gcn", "gcn")},
            "mlp.distil.teachers.1",
            "each teacher once, received `gcn` again",
        ),
        (
            {
                "gcn": {**GNN, "task": "friend"},
                "b": {**GNN, "task": "friend", "distil": {"teachers": ["gcn"]}},
            },
            "b.distil",
            "a task of kind classify beside `distil`, received `friend` of kind recommend",
        ),
        (
            {"gcn": {**GNN, "task": "friend"}, "small": ranker("gcn")},
            "small.distil.teachers.0",
            "a teacher that ranks by the links that it learnt alone, received `gcn` of kind gnn",
        ),
        (
            {"big": {**RANKER, "train_on": "train_and_validation"}, "small": ranker("big")},
            "small.distil.teachers.0",
            "a teacher that has not seen the validation part",
        ),
        (
            {"big": {**RANKER, "task": "enemy"}, "small": ranker("big")},
            "small.distil.teachers.0",
            "a teacher of the task `friend`, received `big` of the task `enemy`",
        ),
        ({"small": ranker("big"), "big": RANKER}, "small.distil.teachers.0", "that comes before `small`"),
        (
            {"big": RANKER, "small": ranker("big") | {"distil": {"teachers": ["big"], "k": 0}}},
            "small.distil.k",
            "at least 1",
        ),
        (
            {"big": RANKER, "small": ranker("big") | {"distil": {"teachers": ["big"], "label_weight": 0.5}}},
            "small.distil.label_weight",
            "unknown key",
        ),
        (
            {"mlp": {"kind": "mlp", "task": "friend"}},
            "mlp.task",
            "a task of kind classify, received `friend` of kind recommend",
        ),
        (
            {"mlp": {"kind": "mlp", "task": "topic", "relations": [["user", "knows", "user"]]}},
            "mlp.relations",
            "unknown key",
        ),
        ({"gcn": GNN, "mlp": student()}, "mlp.distil.teachers", "at least 1"),
        (
            {"gcn": GNN, "mlp": student("gcn") | {"distil": {"teachers": ["gcn"], "temperature": 0}}},
            "mlp.distil.temperature",
            "greater than 0",
        ),
    ],
)
def test_refused(models: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(models)
    text = "\n".join(caught.value.problems)
    assert f"models.{key}" in text
    assert said in text


def test_a_cycle_is_told_once_for_each_model_that_waits(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"a": student("b"), "b": student("a")})
    assert sum("wait for each other" in each for each in caught.value.problems) == 1


def test_a_model_that_follows_a_stream_has_no_teachers() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"big": RANKER, "small": ranker("big")}, stream={"folder": "chunks"})
    text = "\n".join(caught.value.problems)
    assert "models.small.distil: expected a model that is trained on a whole graph" in text
