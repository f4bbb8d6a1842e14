"""Tasks of kind `click`: which rows are held out, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.config import (
    ClickTaskConfig,
    GivenSplitConfig,
    RandomSplitConfig,
    RowTimeSplitConfig,
    load_config,
)
from graphbox.errors import ConfigError, DataError, GraphboxError, UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.columns import Column
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import FeatureSpec
from graphbox.train import GraphView, make_split
from graphbox.train.click.labels import ClickLabel
from graphbox.train.click.trainer import row_groups
from graphbox.train.tasks import ClickSplit, load_split, save_split

ROWS = 400


def table(rows: int = ROWS) -> dict[str, Any]:
    generator = np.random.default_rng(2)
    return {
        "clicked": generator.random(rows) < 0.4,
        "answer": [("yes", "no", "")[int(number)] or None for number in generator.integers(0, 3, rows)],
        "always": np.ones(rows, bool),
        "at": generator.permutation(rows) // 10,
        "part": ["train" if number % 4 else "test" for number in range(rows)],
        "price": generator.random(rows),
    }


FEATURES: dict[str, Any] = {
    "clicked": "boolean",
    "answer": "categorical",
    "always": "boolean",
    "at": "integer",
    "part": "categorical",
    "price": "number",
}


def build(folder: Path, rows: dict[str, Any]) -> Graph:
    import_graph(GraphSource("log", {"row": NodeSource(rows, id=None, features=FEATURES)}, ()), folder)
    return Graph.open(folder)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build(tmp_path_factory.mktemp("log") / "graph", table())


def split_of(graph: Graph, seed: int = 0, **keys: Any) -> ClickSplit:
    task = ClickTaskConfig(**{"kind": "click", "node_type": "row", "label": "clicked", **keys})
    split = make_split(graph, task, seed)
    assert isinstance(split, ClickSplit)
    return split


def test_a_hash_of_the_id_decides(graph: Graph, tmp_path: Path) -> None:
    split = split_of(graph)
    shares = np.bincount(split.fold, minlength=3) / ROWS
    np.testing.assert_allclose(shares, [0.72, 0.08, 0.2], atol=0.05)
    np.testing.assert_array_equal(split.labels, graph.feature("row", "clicked"))
    other = split_of(graph, seed=1)
    both = (split.fold == 2) & (other.fold == 2)
    assert 0.1 < both.sum() / (split.fold == 2).sum() < 0.35  # seeds have nothing to do with each other
    more = {name: [*values, *list(values)[:7]] for name, values in table().items()}
    longer = split_of(build(tmp_path / "graph", more))
    np.testing.assert_array_equal(longer.fold[:ROWS], split.fold)
    save_split(split, tmp_path / "split.npz")
    loaded = load_split(tmp_path / "split.npz")
    assert isinstance(loaded, ClickSplit)
    np.testing.assert_array_equal(loaded.rows("train", "test"), split.rows("train", "test"))
    assert loaded.digest == split.digest != other.digest


def test_the_latest_rows_are_tested(graph: Graph) -> None:
    split = split_of(graph, split=RowTimeSplitConfig(kind="time", feature="at"))
    time = graph.feature("row", "at")
    assert time[split.rows("train")].max() < time[split.rows("validation")].min()
    assert time[split.rows("validation")].max() < time[split.rows("test")].min()
    assert len(split.rows("test")) == pytest.approx(0.2 * ROWS, abs=10)
    view = GraphView(graph, split)
    assert "at" in view.features("row")


def test_a_column_says_the_part_and_is_not_seen(graph: Graph) -> None:
    split = split_of(graph, split=GivenSplitConfig(kind="given", feature="part"))
    assert split.rows("test").tolist() == list(range(0, ROWS, 4))
    assert len(split.rows("validation")) == pytest.approx(30, abs=15)
    view = GraphView(graph, split)
    assert {"clicked", "part"}.isdisjoint(view.features("row"))
    for name in ("clicked", "part"):
        with pytest.raises(UsageError, match="does not read"):
            view.feature_rows("row", name, 0, 1)


def test_one_category_is_positive_or_not_as_the_task_says() -> None:
    no = FeatureSpec("categorical", categories=("no",))
    with pytest.raises(DataError, match="two categories, received 1: no") as error:
        ClickLabel.of("row", "answer", None, no)  # it would be positive now, and `yes` when that comes
    assert "`positive`" in str(error.value.hint)
    label = ClickLabel.of("row", "answer", "yes", no)
    labels = label.read(Column("categorical", np.array([0, 0, -1], np.int32), pa.array(["no"])))
    assert labels.tolist() == [0, 0, -1]


def test_rows_of_nobody_are_no_group(graph: Graph) -> None:
    task = ClickTaskConfig(kind="click", node_type="row", label="clicked", group="answer")
    chosen = np.arange(ROWS) % 3 > 0
    groups = row_groups(GraphView(graph, None), task, chosen)
    assert groups is not None
    codes = np.asarray(graph.feature("row", "answer"))[chosen]
    np.testing.assert_array_equal(groups[codes >= 0], codes[codes >= 0])
    unknown = groups[codes < 0]
    assert (unknown < 0).all()
    assert len(np.unique(unknown)) == len(unknown) > 1


def test_a_row_without_a_label_is_in_no_part(graph: Graph) -> None:
    split = split_of(graph, label="answer")
    codes = np.asarray(graph.feature("row", "answer"))
    np.testing.assert_array_equal(split.fold < 0, codes < 0)
    np.testing.assert_array_equal(split.labels, codes == 1)  # `yes` comes after `no`
    other = split_of(graph, label="answer", positive="no")
    np.testing.assert_array_equal(other.labels, codes == 0)


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({"label": "price"}, UsageError, "boolean or categorical feature as label"),
        ({"label": "none"}, UsageError, "none of that name"),
        ({"label": "always"}, DataError, "(?s)positive and negative rows.*nothing to learn"),
        ({"positive": "yes"}, UsageError, "no `positive` of a boolean label"),
        ({"label": "answer", "positive": "maybe"}, UsageError, "received `maybe`"),
        ({"split": RowTimeSplitConfig(kind="time", feature="part")}, UsageError, "when a row came to be"),
        ({"split": GivenSplitConfig(kind="given", feature="price")}, UsageError, "categorical feature"),
        (
            {"split": GivenSplitConfig(kind="given", feature="part", test=("x",), ignored=("test",))},
            DataError,
            "received 0 and 0 in test",
        ),
        ({"split": RandomSplitConfig(kind="random"), "test_fraction": 1e-6}, DataError, "each fold"),
    ],
)
def test_what_cannot_be_is_refused(
    graph: Graph, keys: dict[str, Any], error: type[GraphboxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        split_of(graph, **keys)


RUN_FILE = """\
version: 1
name: log
graph:
  name: log
  nodes:
    row: {path: log.csv, id: null, features: {clicked: boolean, at: integer, part: categorical, tags: slots}}
tasks:
  click: {kind: click, node_type: row, label: clicked, group: part, split: {kind: time, feature: at}}
models:
  net: {kind: wide_and_deep, task: click, features: [at, part, tags], crosses: [[at, part]]}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", None),
        ("label: clicked", "label: at", "expected a categorical or boolean feature, received `at`"),
        ("label: clicked", "label: click", "there is no feature `click`"),
        ("group: part", "group: tags", "expected a categorical or integer feature, received `tags`"),
        ("feature: at}", "feature: part}", "expected an integer or number feature, received `part`"),
        ("{kind: time, feature: at}", "{kind: given, feature: at}", "a categorical feature, received `at`"),
        ("{kind: time, feature: at}", "{kind: given, test_relations: [a]}", "needs a `feature` of theirs"),
        (
            "split: {kind: time, feature: at}",
            "split: {kind: given, feature: part}, test_fraction: 0.5",
            "`test_fraction` has no meaning",
        ),
        ("[[at, part]]", "[[at, parts]]", "there is no feature `parts`"),
        ("[[at, part]]", "[[at, at]]", "expected each feature once, received `at`"),
        ("[at, part, tags]", "[at, part, at]", "expected each feature once, received `at`"),
        ("kind: wide_and_deep", "kind: gnn", "expected a task of kind"),
    ],
)
def test_run_files_are_checked(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    (tmp_path / "log.csv").write_text("clicked,at,part,tags\n")
    (tmp_path / "run.yaml").write_text(RUN_FILE.replace(old, new, 1))
    if message is None:
        assert load_config(tmp_path / "run.yaml").tasks["click"].deciding_metric == "auc"
        return
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "run.yaml")
