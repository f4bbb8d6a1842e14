"""Models of clicks learn, end the same however they were stopped, learn streams, and tell of new rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.config import ClickTaskConfig, model_kind
from graphbox.errors import DataError, GraphboxError, InterruptedRunError, UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.delta import append
from graphbox.graph.ingest import import_graph
from graphbox.metrics import binary_report
from graphbox.train import (
    ClassifySplit,
    GraphView,
    evaluate_baselines,
    evaluate_trained,
    fit,
    load_trained,
    make_split,
)
from graphbox.train.assignment import Assignment, make_streaming_trainer, make_trainer
from graphbox.train.click.rows import BLOCK_ROWS, LogRows, ShuffledBatches
from graphbox.train.click.trainer import ClickTrainer
from graphbox.train.seeded import seed_of
from graphbox.train.stream import Chunk
from graphbox.train.tasks import FOLDS, ClickSplit
from tests.train.chunk_by_chunk import score_then_learn

ROWS = 1200
KINDS = ("deepfm", "dcn", "wide_and_deep")
FEATURES: dict[str, Any] = {
    "clicked": "boolean",
    "user": "categorical",
    "item": "categorical",
    "tags": "slots",
    "price": "number",
    "hour": "integer",
    "fresh": "boolean",
    "look": "vector",
}
TASK = ClickTaskConfig(kind="click", node_type="row", label="clicked", group="user")


def log_table(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Return a log in which users like items of their own parity, and nobody what is dear."""
    generator = np.random.default_rng(seed)
    user, item = generator.integers(0, 8, rows), generator.integers(0, 6, rows)
    price = generator.lognormal(size=rows)
    chance = 1 / (1 + np.exp(-(3.0 * ((user + item) % 2) - 1.5 - 0.8 * np.log(price))))
    price[generator.random(rows) < 0.1] = np.nan
    return {
        "clicked": generator.random(rows) < chance,
        "user": [f"u{number}" for number in user],
        "item": [f"i{number}" for number in item],
        "tags": [[int(number) % 5, int(number) % 7][: int(number) % 3] for number in item],
        "price": price,
        "hour": generator.integers(0, 24, rows),
        "fresh": generator.random(rows) < 0.5,
        "look": list(generator.normal(size=(rows, 2))),
    }


def source_of(table: dict[str, Any]) -> GraphSource:
    rows = NodeSource(
        pa.table({name: list(each) for name, each in table.items()}), id=None, features=FEATURES
    )
    return GraphSource("log", {"row": rows}, ())


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("log") / "graph"
    import_graph(source_of(log_table()), folder)
    return Graph.open(folder)


@pytest.fixture(scope="module")
def split(graph: Graph) -> ClickSplit:
    made = make_split(graph, TASK, 0)
    assert isinstance(made, ClickSplit)
    return made


def section(kind: str, **keys: Any) -> Any:
    if kind == "wide_and_deep":
        keys = {"crosses": [["user", "item"]], **keys}
    if kind == "din":
        keys = {"interests": [{"history": "tags", "target": "hour"}], "window": 2, **keys}
    chosen = {"kind": kind, "task": "click", "epochs": 3, "dim": 4, "hidden": [16], "batch_size": 256}
    return model_kind(kind).section.model_validate_json(json.dumps({**chosen, **keys}))


def trainer_of(graph: Graph, split: ClickSplit | None, kind: str = "deepfm", **keys: Any) -> ClickTrainer:
    make: Any = make_streaming_trainer if split is None else make_trainer
    trainer = make(
        section(kind, **keys), Assignment("model", GraphView(graph, split), split, TASK, seed=3, threads=1)
    )
    assert isinstance(trainer, ClickTrainer)
    return trainer


def run(graph: Graph, split: ClickSplit, folder: Path, config: Any, **options: Any) -> Any:
    options = {"seed": 3, "threads": 1, **options}
    return fit(graph, split, name="model", config=config, task=TASK, run_folder=folder, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_models_learn_more_than_baselines(graph: Graph, split: ClickSplit, kind: str, tmp_path: Path) -> None:
    # No patience: a product of two features is met late, after epochs that seem to lead nowhere.
    rates: dict[str, Any] = {"learning_rate": 0.01, "table_learning_rate": 0.1}
    config = section(kind, epochs=12, batch_size=64, dropout=0.0, patience=None, **rates)
    trained = run(graph, split, tmp_path, config)
    report = evaluate_trained(graph, split, TASK, trained)
    assert report["auc"] > 0.7
    assert report["grouped_auc"] > 0.7
    assert report["impressions"] == len(split.rows("test"))
    loaded = load_trained(tmp_path, "model")
    assert evaluate_trained(graph, split, TASK, loaded) == report


def test_baselines_are_the_prior_and_a_logistic_regression(graph: Graph, split: ClickSplit) -> None:
    reports = evaluate_baselines(graph, split, TASK)
    assert list(reports) == ["prior", "logistic_regression"]
    rate = split.labels[split.is_in("train", "validation")].mean()
    observed = split.labels[split.is_in("test")].mean()
    expected = -(observed * np.log(rate) + (1 - observed) * np.log(1 - rate))
    assert reports["prior"]["log_loss"] == pytest.approx(expected, rel=1e-5)
    assert reports["prior"]["auc"] == 0.5
    assert 0.55 < reports["logistic_regression"]["auc"] < 0.75


def test_a_logistic_regression_meets_the_few_rows_of_a_class(
    graph: Graph, split: ClickSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log larger than it learns from, in which one row is positive, or all but one are."""
    monkeypatch.setattr("graphbox.train.click.evaluation._MOST_ROWS", 40)
    for few in (True, False):
        labels = np.full(len(split.labels), not few)
        for fold in FOLDS:
            labels[np.flatnonzero(split.is_in(fold))[1]] = few
        report = evaluate_baselines(graph, replace(split, labels=labels), TASK)["logistic_regression"]
        assert 0.0 <= report["auc"] <= 1.0
        assert report["log_loss"] < 0.5


class StopAfter:
    """Asks to stop after some batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("kind", [*KINDS, "din"])
@pytest.mark.parametrize("stops", [(0, 2, 5), (7,)])
def test_a_training_that_was_stopped_ends_with_the_same_bits(
    graph: Graph, split: ClickSplit, kind: str, stops: tuple[int, ...], tmp_path: Path
) -> None:
    config = section(kind, average_decay=0.9, schedule="cosine", warmup=0.1, dropout=0.3, row_dropout=0.1)
    whole = run(graph, split, tmp_path / "whole", config)
    for batches in stops:
        with pytest.raises(InterruptedRunError):
            run(graph, split, tmp_path / "parts", config, resume=True, stop=StopAfter(batches))
    parts = run(graph, split, tmp_path / "parts", config, resume=True)
    run(graph, split, tmp_path / "parts", config, resume=True)  # of which nothing is left to do
    log = LogRows(GraphView(graph, split), "row", whole.click.fields, split.fold >= 0, split.all_labels())
    np.testing.assert_array_equal(whole.click.predict_log(log), parts.click.predict_log(log))
    for name, table in whole.click.network.tables().items():
        other = parts.click.network.tables()[name]
        keys = np.sort(table.keys())
        np.testing.assert_array_equal(keys, np.sort(other.keys()))
        np.testing.assert_array_equal(table.pull(keys), other.pull(keys))
    metrics = [(tmp_path / each / "metrics.jsonl").read_text().splitlines() for each in ("whole", "parts")]
    values = [[json.loads(line)["values"] for line in each] for each in metrics]
    assert [each.get("loss") for each in values[0]] == [each.get("loss") for each in values[1]]


def test_a_loss_that_is_no_number_keeps_its_batch(graph: Graph, split: ClickSplit, tmp_path: Path) -> None:
    config = section("dcn", learning_rate=1e30, clip_norm=None)
    with pytest.raises(GraphboxError, match="expected a finite loss"):
        run(graph, split, tmp_path, config)
    with np.load(tmp_path / "failed" / "model" / "batch.npz") as arrays:
        assert {"keys", "offsets", "weights", "numbers", "labels"} <= set(arrays)


def test_the_best_epoch_is_kept_by_either_figure(graph: Graph, split: ClickSplit, tmp_path: Path) -> None:
    for name, best in (("auc", max), ("log_loss", min)):
        config = section("deepfm", select_by=name, epochs=5, table_learning_rate=0.3, patience=2)
        trained = run(graph, split, tmp_path / name, config)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        values = [json.loads(line)["values"] for line in lines]
        found = [each[f"validation_{name}"] for each in values if f"validation_{name}" in each]
        report = evaluate_trained(graph, split, TASK, trained, "validation")
        assert report[name] == pytest.approx(best(found))


def test_the_validation_part_is_learnt_where_that_is_asked(graph: Graph, split: ClickSplit) -> None:
    trainer = trainer_of(graph, split, train_on="train_and_validation", batch_size=100)
    assert trainer.selection is None
    assert trainer.begin_epoch(0) == round(len(split.rows("train", "validation")) / 100)
    assert trainer.end_epoch(0) == {}


def test_neither_label_nor_test_rows_reach_what_is_learnt(
    graph: Graph, split: ClickSplit, tmp_path: Path
) -> None:
    changed = log_table()
    held_out = split.is_in("validation", "test")
    other = log_table(seed=99)
    table = {
        name: [b if out else a for a, b, out in zip(values, other[name], held_out, strict=True)]
        for name, values in changed.items()
    }
    import_graph(source_of(table), tmp_path / "graph")
    elsewhere = Graph.open(tmp_path / "graph")
    found = []
    for one in (graph, elsewhere):
        trainer = trainer_of(one, split, epochs=2)
        for epoch in range(2):
            for batch in range(trainer.begin_epoch(epoch)):
                trainer.train_batch(epoch, batch)
        found.append(trainer.trained("model", GraphView(one, split)).click)
    assert found[0] is not None
    assert found[1] is not None
    rows = {name: list(values)[:50] for name, values in log_table(seed=5).items()}
    np.testing.assert_array_equal(found[0].predict(pa.table(rows)), found[1].predict(pa.table(rows)))
    with pytest.raises(UsageError, match="does not read what it is to predict"):
        trainer_of(graph, split, features=["user", "clicked"])


@pytest.fixture(scope="module")
def model(graph: Graph, split: ClickSplit, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(graph, split, tmp_path_factory.mktemp("run"), section("deepfm")).click


def test_rows_of_tables_get_the_probabilities_of_the_log(graph: Graph, split: ClickSplit, model: Any) -> None:
    log = LogRows(GraphView(graph, split), "row", model.fields, split.fold >= 0, split.all_labels())
    table = pa.table({name: list(values) for name, values in log_table().items() if name != "clicked"})
    found = model.predict(table)
    assert (found.dtype, len(found)) == (np.float32, ROWS)
    np.testing.assert_allclose(found, model.predict_log(log)[:, 0], rtol=1e-5)
    assert ((found > 0) & (found < 1)).all()


def test_rows_of_text_files_and_of_new_values(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "user,item,tags,price,hour,fresh,look\nu1,i1,1|3,2.5,7,true,0.5|1\nnobody,,,,7,true,0.5|1\n"
    )
    known, unknown = model.predict(path)
    assert known != unknown
    path.write_text("user,item,tags,price,hour,fresh,look\nu1,i1,1,2.5,seven,true,0|1\n")
    with pytest.raises(DataError, match="received 'seven'") as error:
        model.predict(path)
    assert error.value.where == f"{path}:2, column `hour`"
    with pytest.raises(DataError, match="expected a column `item`"):
        model.predict({"user": ["u1"]})


def test_rows_without_values_and_with_other_vectors(model: Any) -> None:
    rows = {name: list(values)[:2] for name, values in log_table().items()}
    known = model.predict(pa.table({**rows, "tags": pa.array([[], []], pa.list_(pa.int64()))}))
    nones: list[Any] = [[[], []], [None, None], [[], None]]
    for none in nones:  # of no type that Arrow could know
        np.testing.assert_array_equal(model.predict(pa.table({**rows, "tags": none})), known)
    for look in ([[1.0, 2.0, 3.0]] * 2, [[1.0]] * 2):
        with pytest.raises(DataError, match="expected 2 numbers in every row") as error:
            model.predict(pa.table({**rows, "tags": [[1], [2]], "look": look}))
        assert error.value.where == "rows, row 1, column `look`"
    nothing = {"user": [None] * 2, "price": [None] * 2, "tags": [None] * 2}
    assert np.isfinite(model.predict(pa.table({**rows, **nothing}))).all()


def chunks_of(graph: Graph, parts: int = 4) -> Iterator[Chunk]:
    rows = np.array_split(np.arange(graph.num_nodes("row")), parts)
    for number, nodes in enumerate(rows):
        yield Chunk(number, f"chunk {number}", GraphView(graph, None), {"row": nodes}, {})


def test_a_stream_is_scored_before_it_is_learnt(graph: Graph) -> None:
    keys: dict[str, Any] = {"learning_rate": 0.01, "table_learning_rate": 0.2, "batch_size": 8}
    trainer = trainer_of(graph, None, **keys)
    assert trainer.score_chunk(next(chunks_of(graph))) is None  # nothing was learnt yet
    areas = []
    for chunk, scores in score_then_learn(trainer, chunks_of(graph)):
        if scores is None:
            assert chunk.number == 0
            continue
        assert scores.groups is not None
        np.testing.assert_array_equal(scores.labels, graph.feature("row", "clicked")[chunk.nodes["row"]])
        areas.append(binary_report(scores.labels, scores.scores)["auc"])
    assert len(areas) == 3
    assert min(areas) > 0.65


def test_labels_of_a_chunk_do_not_reach_its_own_scores(graph: Graph, tmp_path: Path) -> None:
    """The leak test of streams: a chunk is scored before it is learnt, whatever its labels are."""
    table = log_table()
    asked = np.arange(ROWS) >= ROWS // 2
    import_graph(source_of({**table, "clicked": table["clicked"] ^ asked}), tmp_path / "graph")
    found = []
    for one in (graph, Graph.open(tmp_path / "graph")):
        scored = score_then_learn(trainer_of(one, None, batch_size=64), chunks_of(one, parts=2))
        found.append([scores for _, scores in scored][1])
    assert found[0] is not None
    assert found[1] is not None
    np.testing.assert_array_equal(found[0].labels, ~found[1].labels)
    np.testing.assert_array_equal(found[0].scores, found[1].scores)


def test_a_stream_goes_on_with_a_later_graph(graph: Graph, tmp_path: Path) -> None:
    import_graph(source_of(log_table(600)), tmp_path / "graph")
    first = Graph.open(tmp_path / "graph")
    append(tmp_path / "graph", source_of({**log_table(600, seed=8), "user": ["newcomer"] * 600}))
    later = Graph.open(tmp_path / "graph")
    new = Chunk(1, "new", GraphView(later, None), {"row": np.arange(600, 1200)}, {})
    start = Chunk(0, "start", GraphView(first, None), {"row": np.arange(600)}, {})
    without = trainer_of(first, None)
    for _ in score_then_learn(without, [start, new]):
        pass
    before = trainer_of(first, None)
    for _ in score_then_learn(before, [start]):
        pass
    after = trainer_of(later, None)
    after.restore(before.dense(), before.tables())
    scores = after.score_chunk(new)
    assert scores is not None
    for batch in range(after.open_chunk(new)):
        after.train_batch(new.number, batch)
    expected, found = without.score_chunk(new), after.score_chunk(new)
    assert expected is not None
    assert found is not None
    np.testing.assert_array_equal(expected.scores, found.scores)


def test_a_category_that_comes_later_is_no_silent_negative(tmp_path: Path) -> None:
    features: dict[str, Any] = {"answer": "categorical", "user": "categorical"}

    def source(answers: list[str]) -> GraphSource:
        table = pa.table({"answer": answers, "user": ["a"] * len(answers)})
        return GraphSource("log", {"row": NodeSource(table, id=None, features=features)}, ())

    import_graph(source(["no", "yes"] * 4), tmp_path)
    first = GraphView(Graph.open(tmp_path), None)
    append(tmp_path, source(["maybe"] * 4))
    later = GraphView(Graph.open(tmp_path), None)
    task = ClickTaskConfig(kind="click", node_type="row", label="answer")
    trainer = make_streaming_trainer(section("deepfm"), Assignment("model", first, None, task, 3, threads=1))
    assert trainer.open_chunk(Chunk(0, "first", first, {"row": np.arange(8)}, {})) == 1
    with pytest.raises(DataError, match="two categories, received 3"):
        trainer.open_chunk(Chunk(1, "later", later, {"row": np.arange(8, 12)}, {}))


def test_random_choices_for_different_ends_have_streams_of_their_own(
    graph: Graph, split: ClickSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphbox.train.click.rows.BLOCK_ROWS", 64)
    monkeypatch.setattr("graphbox.train.click.rows._WINDOW_BLOCKS", 30)
    drawn: list[int] = []

    def noted(*numbers: int) -> int:
        drawn.append(seed_of(*numbers))
        return drawn[-1]

    monkeypatch.setattr("graphbox.train.seeded.seed_of", noted)
    trainer = trainer_of(graph, split)
    trainer.begin_epoch(0)
    trainer.train_batch(0, 0)
    assert len(drawn) == len(set(drawn)) == 2  # parameters, and the first dropout
    batches = ShuffledBatches(
        trainer._rows(GraphView(graph, split), split.fold >= 0, split.all_labels()), 9, 0, 0
    )
    of_blocks, of_rows = batches._generator(), batches._generator(0)
    assert not np.array_equal(of_blocks.permutation(50), of_rows.permutation(50))


def test_batches_are_all_rows_once_in_an_order_of_their_own(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, split: ClickSplit
) -> None:
    monkeypatch.setattr("graphbox.train.click.rows.BLOCK_ROWS", 64)
    monkeypatch.setattr("graphbox.train.click.rows._WINDOW_BLOCKS", 3)
    fields = trainer_of(graph, split)._fields
    log = LogRows(GraphView(graph, split), "row", fields, split.is_in("train"), split.all_labels())
    prices = graph.feature("row", "price").astype(float)

    def rows_of(epoch: int, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        batches = ShuffledBatches(log, 50, seed, epoch)
        found = [np.asarray(batches.batch(number)[0]["price"]) for number in range(len(batches))]
        batches.close()
        return found

    first = rows_of(0)
    joined = np.concatenate(first)
    np.testing.assert_array_equal(np.sort(joined), np.sort(prices[split.is_in("train")]))
    assert not np.array_equal(joined, prices[split.is_in("train")], equal_nan=True)
    assert all(40 <= len(batch) <= 60 for batch in first)
    np.testing.assert_array_equal(np.concatenate(rows_of(0)), joined)
    for other in (rows_of(1), rows_of(0, seed=1)):
        assert not np.array_equal(np.concatenate(other), joined, equal_nan=True)
    batches = ShuffledBatches(log, 50, 0, 0)
    for number in (7, 3, 4, len(batches) - 1):  # as after a stop
        np.testing.assert_array_equal(np.asarray(batches.batch(number)[0]["price"]), first[number])
    batches.close()
    in_order = np.concatenate([np.asarray(rows["price"]) for rows, _ in log.windows()])
    np.testing.assert_array_equal(in_order, prices[split.is_in("train")])
    assert BLOCK_ROWS > 64


def test_models_of_clicks_need_a_task_of_clicks(graph: Graph, split: ClickSplit) -> None:
    other = ClassifySplit("row", "", "user", None, (), np.zeros(1, np.int64), np.zeros(1, np.int8))
    with pytest.raises(UsageError, match="expected a task of kind click"):
        make_trainer(section("dcn"), Assignment("model", GraphView(graph, None), other, TASK, 0, 1))
    with pytest.raises(UsageError, match="crosses of features with single values") as error:
        trainer_of(graph, split, "wide_and_deep", crosses=[["user", "tags"]])
    assert error.value.where == "models.model.crosses"
    trained = trainer_of(graph, split).trained("model", GraphView(graph, split))
    assert trained.embeddings == {}
