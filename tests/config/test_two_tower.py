"""Run files of two towers: what `graphbox check` refuses of their inputs, exports and settings."""

from __future__ import annotations

from typing import Any

import pytest

from graphbox.config import load_config
from graphbox.errors import ConfigError

GRAPH: dict[str, Any] = {
    "name": "shop",
    "nodes": {"user": {"path": "user.parquet", "features": {"age": "number"}}, "item": {}},
    "edges": [{"type": ["user", "bought", "item"], "path": "bought.parquet"}],
}
TASK = {"kind": "recommend", "node_type": "user", "target_type": "item", "relations": ["bought"]}
TOWERS = {"kind": "two_tower", "task": "next"}
NO_INPUT = "expected features or rows of ids for the tower of `{}`, received neither"


def load(
    model: dict[str, Any], export: dict[str, Any] | None = None, compress: dict[str, Any] | None = None
) -> None:
    sections = {} if export is None else {"export": {"served": {"model": "towers", **export}}}
    if compress is not None:
        sections["compress"] = {"served": compress}
    load_config(
        {
            "version": 1,
            "name": "x",
            "graph": GRAPH,
            "tasks": {"next": TASK},
            "models": {"towers": {**TOWERS, **model}},
            **sections,
        },
        check_files=False,
    )


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"embeddings": ["item"]},
        {"embeddings": ["item"], "features": {"user": ["age"]}},
        {"features": {}},
        {"layers": 3},
    ],
)
def test_each_tower_has_an_input(model: dict[str, Any]) -> None:
    load(model)


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ({"embeddings": []}, ["item"]),
        ({"embeddings": ["user"]}, ["item"]),
        ({"embeddings": ["item"], "features": {"user": []}}, ["user"]),
        ({"embeddings": ["item"], "features": {"item": []}}, ["user"]),
        ({"embeddings": [], "features": {}}, ["item", "user"]),
    ],
)
def test_a_tower_without_inputs_is_refused(model: dict[str, Any], refused: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(model)
    assert len(caught.value.problems) == len(refused)
    for node_type, problem in zip(refused, caught.value.problems, strict=True):
        assert NO_INPUT.format(node_type) in problem
        assert f"`{node_type}` under `embeddings`" in problem


@pytest.mark.parametrize("key", ["distil", "positions", "relations", "num_neighbors"])
def test_keys_of_other_networks_are_unknown(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"models\.towers\.{key}: unknown key"):
        load({key: {} if key == "distil" else ["a"]})


@pytest.mark.parametrize(
    ("export", "said"),
    [
        (
            {"tower": "candidate", "form": "vectors"},
            "expected an encoder of a model of kind two_tower beside",
        ),
        ({"tower": "item"}, "'query' or 'candidate'"),
    ],
)
def test_exports_that_cannot_be_are_refused(export: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, export)
    assert said in "\n".join(caught.value.problems)


def test_the_tower_of_candidates_is_not_compressed() -> None:
    with pytest.raises(ConfigError, match="received one with `tower: candidate`"):
        load({}, {"tower": "candidate"}, {"max_drop": 0.1})


@pytest.mark.parametrize(
    ("export", "message"),
    [
        (
            {"tower": "candidate", "promote": "if_better"},
            "expected `always` or `never` beside `tower: candidate`, received `if_better`",
        ),
        (
            {"form": "encoder", "max_neighbors": 4},
            "expected a model that reads neighbours, received one of kind two_tower",
        ),
    ],
)
def test_settings_of_an_artifact_that_mean_nothing_for_towers_are_refused(
    export: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load({}, export)
