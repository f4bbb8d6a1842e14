"""Sections `tasks` of run files: what their splits name must be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.config import (
    GivenSplitConfig,
    LightGCNConfig,
    RecommendTaskConfig,
    dump_config,
    load_config,
)
from graphbox.errors import ConfigError

RUN_FILE = """\
version: 1
name: shop
graph:
  name: shop
  nodes:
    user: {path: user.csv, features: {taste: categorical, part: categorical, age: number}}
    item: {}
  edges:
    - type: [user, bought, item]
      path: bought.csv
      timestamp: at
      features: {part: categorical, price: number}
    - {type: [user, bought_later, item], path: later.csv}
tasks:
  items:
    kind: recommend
    node_type: user
    target_type: item
    relations: [bought]
    split: {kind: given, test_relations: [bought_later]}
  taste:
    kind: classify
    node_type: user
    label: taste
    split: {kind: given, feature: part}
models:
  light: {kind: lightgcn, task: items}
"""


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    text = RUN_FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    for name in ("user", "bought", "later"):
        (folder / f"{name}.csv").write_text("id\n")
    (folder / "run.yaml").write_text(text)
    return folder / "run.yaml"


def load(folder: Path, *changes: tuple[str, str]) -> RecommendTaskConfig:
    config = load_config(write(folder, *changes))
    assert isinstance(config.models["light"], LightGCNConfig)
    task = config.tasks["items"]
    assert isinstance(task, RecommendTaskConfig)
    return task


GIVEN = "{kind: given, test_relations: [bought_later]}"


def test_a_table_of_its_own_is_the_test_part(tmp_path: Path) -> None:
    task = load(tmp_path)
    assert task.candidate_type == "item"
    assert isinstance(task.split, GivenSplitConfig)
    assert task.split.test_relations == ("bought_later",)


@pytest.mark.parametrize("split", ["time", "leave_last_out", "given, feature: part", "random"])
def test_other_splits(tmp_path: Path, split: str) -> None:
    task = load(tmp_path, (GIVEN, f"{{kind: {split}}}"))
    assert task.split.kind == split.partition(",")[0]


def test_queries_are_candidates_without_a_target_type(tmp_path: Path) -> None:
    task = load(
        tmp_path,
        ("    target_type: item\n", ""),
        ("[user, bought, item]", "[user, bought, user]"),
        ("[user, bought_later, item]", "[user, bought_later, user]"),
        ("    item: {}\n", ""),
    )
    assert task.candidate_type == "user"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("test_relations: [bought_later]", "test_relations: [bougt_later]", "did you mean `bought_later`?"),
        ("target_type: item", "target_type: itme", "there is no node type `itme`"),
        ("relations: [bought]", "relations: [bougth]", "did you mean `bought`?"),
        (GIVEN, "{kind: given, feature: prat}", "did you mean `part`?"),
        (GIVEN, "{kind: given, feature: price}", "expected a categorical feature, received `price` (number)"),
        (GIVEN, "{kind: given}", "expected either `feature` or `test_relations`, received neither"),
        (GIVEN, "{kind: tiem}", "did you mean `time`?"),
        (GIVEN, "{kind: time, fraction: 0.1}", "unknown key"),
        ("feature: part}", "feature: age}", "expected a categorical feature, received `age` (number)"),
        ("feature: part}", "feature: parts}", "did you mean `part`?"),
        (f"split: {GIVEN}", f"split: {GIVEN}\n    test_fraction: 0.3", "`test_fraction` has no meaning"),
        ("kind: lightgcn, task: items", "kind: lightgcn, task: taste", "expected a task of kind recommend"),
        ("kind: lightgcn, task: items", "kind: deepwalk, task: items", "received `items` from user to item"),
        ("kind: lightgcn, task: items", "kind: sage, task: items", "expected a task within one node type"),
    ],
)
def test_mistake(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, (old, new))
    assert message in str(caught.value)
    assert "run.yaml:" in str(caught.value)


def test_what_a_run_keeps_loads_again(tmp_path: Path) -> None:
    load(tmp_path)
    config = load_config(tmp_path / "run.yaml")
    (tmp_path / "kept.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "kept.yaml") == config


def test_times_that_no_column_gives(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a split of kind time needs the times of edges"):
        load(tmp_path, (GIVEN, "{kind: time}"), ("      timestamp: at\n", ""))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("relations: [bought, bought]", "tasks.items.relations.1: the relation `bought` is named already"),
        (
            "relations: [bought]\n    negative_relations: [bought]",
            "tasks.items.negative_relations.0: the relation `bought` is named already, in `relations`",
        ),
        (
            "relations: [bought]\n    exclude_relations: [bought]",
            "tasks.items.exclude_relations.0: the relation `bought` is named already, in `relations`",
        ),
    ],
)
def test_a_relation_has_one_part_in_a_task(tmp_path: Path, line: str, message: str) -> None:
    changes = (
        ("kind: recommend", "kind: predict_links"),
        ("relations: [bought]", line),
        ("{kind: lightgcn, task: items}", "{kind: gnn, task: items}"),
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("split", ["", "    split: {kind: leave_last_out}\n"])
def test_models_of_streams_need_parts_in_the_order_of_time(tmp_path: Path, split: str) -> None:
    changes = (
        ("kind: recommend", "kind: predict_links"),
        ("    split: {kind: given, test_relations: [bought_later]}\n", split),
        ("{kind: lightgcn, task: items}", "{kind: temporal, task: items}"),
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *changes)
    assert "expected a task whose parts follow one another in time" in str(caught.value)
    assert "split: {kind: time}" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("memory: {passes: 1GiB}", "memory.passes: expected a graph on disk"),
        (
            "memory: {tables: 1GiB}",
            "memory.tables: expected models that .* received `light` of kind lightgcn",
        ),
        (
            "memory: {topology: 1GiB, passes: 1GiB}",
            "memory.topology: expected models that keep their topology",
        ),
    ],
)
def test_budgets_that_nothing_keeps_to(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, ("models:", f"{line}\nmodels:"))
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("budget", "model", "message"),
    [
        ("tables", "{kind: deepwalk, lock_free: true}", "received `light` with `lock_free`"),
        ("features", "{kind: gnn, task: taste}", "which is trained on the whole graph"),
    ],
)
def test_budgets_that_settings_rule_out(tmp_path: Path, budget: str, model: str, message: str) -> None:
    changes = (("models:", f"memory: {{{budget}: 1GiB}}\nmodels:"), ("{kind: lightgcn, task: items}", model))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *changes)
    (problem,) = caught.value.problems
    assert f"memory.{budget}" in str(problem)
    assert message in str(problem)


@pytest.mark.parametrize("kind", ["deepwalk", "node2vec"])
@pytest.mark.parametrize("task", ["", ", task: taste"])
def test_walks_keep_their_topology_within_a_budget(tmp_path: Path, kind: str, task: str) -> None:
    model = f"{{kind: {kind}{task}}}"
    changes = ("models:", "memory: {topology: 1GiB}\nmodels:"), ("{kind: lightgcn, task: items}", model)
    assert load_config(write(tmp_path, *changes)).memory.topology == 1 << 30


def test_streams_have_no_budgets(tmp_path: Path) -> None:
    changes = (
        ("models:", "memory: {tables: 1GiB}\nstream: {folder: in}\nmodels:"),
        ("{kind: lightgcn, task: items}", "{kind: deepwalk}"),
    )
    with pytest.raises(ConfigError, match="memory: expected a stream whose models are in memory"):
        load(tmp_path, *changes)
