"""Streams in memory: progressive measures, and matrix factorization beside a plain reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from graphbox.config import MatrixFactorizationConfig, RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.chunks import ChunkLabel, begin_stream, stream_of
from graphbox.graph.delta import append
from graphbox.table.host_table import host_table
from graphbox.train import GraphView
from graphbox.train.assignment import Assignment, make_streaming_trainer
from graphbox.train.stream import Chunk, ChunkScores, StreamingTrainer
from graphbox.train.stream.chunk import chunk_of
from graphbox.train.stream.factorization import StreamingFactorization
from graphbox.train.stream.progressive import RunningScores, chunk_figures
from tests.train.chunk_by_chunk import score_then_learn
from tests.train.purchases import purchases

BUYS = ("user", "buys", "item")
TASK = RecommendTaskConfig(kind="recommend", node_type="user", target_type="item", relations=("buys",))
CONFIG = MatrixFactorizationConfig(
    kind="matrix_factorization", task="next", dim=8, epochs=3, batch_size=16, candidates=16
)


def chunks_in(folder: Path, days: int, flipped: int | None = None) -> list[Chunk]:
    """Return the chunks of a shop; on the day ``flipped`` everybody buys something else."""
    begin_stream(folder, "shop", "here")
    chunks = []
    for day in range(days):
        user, item, time = purchases(day)
        if day == flipped:
            item = (item + 1) % 24
        table = {
            "source": [f"u{each}" for each in user],
            "target": [f"i{each}" for each in item],
            "time": time,
        }
        edges = EdgeSource(BUYS, table, timestamp="time", keep_duplicates=True)
        nodes = {name: NodeSource(None, id_type="string") for name in ("user", "item")}
        append(folder, GraphSource("shop", nodes, (edges,)), chunk=ChunkLabel(day, f"day {day}", ""))
        stream = stream_of(folder)
        assert stream is not None
        chunks.append(chunk_of(Graph.open(folder), stream, day))
    return chunks


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> list[Chunk]:
    return chunks_in(tmp_path_factory.mktemp("chunks") / "graph", 5)


def trainer_of(
    view: GraphView, config: MatrixFactorizationConfig = CONFIG, threads: int = 1
) -> StreamingTrainer:
    return make_streaming_trainer(config, Assignment("rows", view, None, TASK, 5, threads))


# Progressive measures


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(
        st.lists(st.tuples(st.integers(-40, 40), st.booleans()), min_size=1, max_size=30),
        min_size=1,
        max_size=5,
    )
)
def test_running_figures_are_those_of_all_scores(parts: list[list[tuple[int, bool]]]) -> None:
    running = RunningScores.empty()
    scores = [np.array([value for value, _ in part], np.float32) / 8 for part in parts]
    labels = [np.array([label for _, label in part]) for part in parts]
    for score, label in zip(scores, labels, strict=True):
        running = running.with_scores(ChunkScores(label, score))
        running = RunningScores.of_tensor(running.tensor())
    every, of_all = np.concatenate(scores), np.concatenate(labels)
    if of_all.all() or not of_all.any():
        assert running.figures() == {}
        return
    assert running.figures() == pytest.approx(
        {
            "running_auc": roc_auc_score(of_all, every),
            "running_average_precision": average_precision_score(of_all, every),
        }
    )


def test_running_figures_of_close_scores_are_close() -> None:
    generator = np.random.default_rng(0)
    labels = generator.random(20_000) < 0.2
    scores = generator.normal(labels * 0.5, 1.0).astype(np.float32)
    running = RunningScores.empty()
    for part in np.array_split(np.arange(len(labels)), 7):
        running = running.with_scores(ChunkScores(labels[part], scores[part]))
    figures = running.figures()
    assert figures["running_auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-4)
    assert figures["running_average_precision"] == pytest.approx(
        average_precision_score(labels, scores), abs=1e-4
    )
    assert len(running.bins) < 20_000


def test_figures_that_cannot_be_had_are_left_out() -> None:
    one_class = ChunkScores(np.ones(3, bool), np.arange(3.0))
    assert chunk_figures(one_class) == {}
    labels = np.array([True, False, True, False])
    apart = ChunkScores(labels, np.arange(4.0), groups=np.array([0, 1, 0, 1]))
    assert set(chunk_figures(apart)) == {"auc", "average_precision"}
    together = ChunkScores(labels, np.array([3.0, 1.0, 0.0, 2.0]), groups=np.array([0, 0, 1, 1]))
    assert chunk_figures(together)["gauc"] == 0.5


# Matrix factorization


class PlainFactorization:
    """The same training in NumPy, pair by pair: cosines, sampled softmax, Adam of each row."""

    def __init__(self, trainer: StreamingFactorization, chunk: Chunk) -> None:
        users, items = chunk.view.num_nodes("user"), chunk.view.num_nodes("item")
        tables = trainer.tables()
        self.rows = {
            "queries": tables["queries"].pull(np.arange(users), create=False).astype(np.float64),
            "targets": tables["targets"].pull(np.arange(items), create=False).astype(np.float64),
        }
        degree = np.bincount(chunk.view.csc(BUYS).coo()[1], minlength=items)
        self.bias = CONFIG.popularity * np.log(np.maximum(degree, 0.5))
        weight = (degree + 0.1) ** CONFIG.popularity_exponent
        self.log_drawn = np.log(-np.expm1(CONFIG.candidates * np.log1p(-weight / weight.sum())))

    def loss(self, batch: dict[str, NDArray[np.int64]]) -> float:
        queries, offsets, answers, drawn = (
            batch[name] for name in ("queries", "offsets", "answers", "candidates")
        )
        unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in self.rows.items()}

        def logit(query: int, item: int) -> float:
            return float(unit["queries"][query] @ unit["targets"][item] / 0.1 + self.bias[item])

        losses = []
        for number, query in enumerate(queries):
            own = answers[offsets[number] : offsets[number + 1]]
            against = np.logaddexp.reduce(
                [logit(query, item) - self.log_drawn[item] for item in drawn if item not in own]
            )
            losses += [np.logaddexp(0.0, against - logit(query, item)) for item in own]
        return float(np.mean(losses))


def test_the_loss_is_that_of_a_plain_loop(chunks: list[Chunk]) -> None:
    trainer = trainer_of(chunks[-1].view)
    assert isinstance(trainer, StreamingFactorization)
    for chunk in chunks[:2]:
        for batch in range(trainer.open_chunk(chunk)):
            if batch % 3 == 0:
                plain = PlainFactorization(trainer, chunk)
                expected = plain.loss(dict(trainer.batch_arrays(chunk.number, batch)))
                loss, count = trainer.train_batch(chunk.number, batch)
                assert loss == pytest.approx(expected, rel=1e-4)
                assert count > 0
            else:
                trainer.train_batch(chunk.number, batch)


def test_all_new_answers_are_learnt_once_in_each_pass(chunks: list[Chunk]) -> None:
    trainer = trainer_of(chunks[-1].view)
    chunk = chunks[2]
    edges = chunk.edges[BUYS]
    expected = sorted(set(zip(edges.source.tolist(), edges.target.tolist(), strict=True)))
    batches = trainer.open_chunk(chunk)
    assert batches % CONFIG.epochs == 0
    for in_pass in range(CONFIG.epochs):
        seen = []
        for batch in range(in_pass * batches // CONFIG.epochs, (in_pass + 1) * batches // CONFIG.epochs):
            arrays = trainer.batch_arrays(chunk.number, batch)
            rows = np.repeat(arrays["queries"], np.diff(arrays["offsets"]))
            seen += list(zip(rows.tolist(), arrays["answers"].tolist(), strict=True))
        assert sorted(seen) == expected


def test_what_is_learnt_helps_with_what_comes_next(chunks: list[Chunk]) -> None:
    trainer = trainer_of(chunks[0].view)
    figures = [
        None if scores is None else chunk_figures(scores) for _, scores in score_then_learn(trainer, chunks)
    ]
    assert figures[0] is None
    assert figures[4] is not None
    assert figures[4]["auc"] > 0.75


def test_a_chunk_does_not_reach_its_own_scores(tmp_path: Path) -> None:
    """The same state scores a day by what was before it, whatever came with it."""
    chunks = chunks_in(tmp_path / "graph", 4, flipped=3)
    trainer = trainer_of(chunks[0].view)
    figures = [scores and chunk_figures(scores) for _, scores in score_then_learn(trainer, chunks)]
    assert figures[2]
    assert figures[3]
    assert figures[2]["auc"] > 0.6
    assert figures[3]["auc"] < 0.5  # everybody bought what nobody like them had bought


def test_edges_are_scored_by_the_popularity_of_before_they_came(chunks: list[Chunk]) -> None:
    trainer = trainer_of(chunks[0].view)
    list(score_then_learn(trainer, chunks[:2]))
    scores, edges = trainer.score_chunk(chunks[2]), chunks[2].edges[BUYS]
    assert scores is not None
    tables = trainer.tables()
    bought = np.concatenate([chunk.edges[BUYS].target for chunk in chunks[:2]])
    degree = np.bincount(bought, minlength=chunks[2].view.num_nodes("item"))
    rows = [
        tables[name].pull(ends, create=False).astype(np.float64)
        for name, ends in (("queries", edges.source), ("targets", edges.target))
    ]
    unit = [each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in rows]
    popularity = CONFIG.popularity * np.log(np.maximum(degree, 0.5))
    expected = (unit[0] * unit[1]).sum(axis=1) / 0.1 + popularity[edges.target]
    np.testing.assert_allclose(scores.scores[scores.labels], expected, atol=1e-4)


def test_scoring_changes_nothing_and_is_the_same_again(chunks: list[Chunk]) -> None:
    trainer = trainer_of(chunks[0].view)
    list(score_then_learn(trainer, chunks[:2]))
    before = {
        name: (len(host_table(table, "counting")), table.pull(np.arange(64), create=False))
        for name, table in trainer.tables().items()
    }
    first, again = trainer.score_chunk(chunks[2]), trainer.score_chunk(chunks[2])
    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(first.scores, again.scores)
    assert first.groups is not None
    positives = first.labels.sum()
    assert positives == chunks[2].rows
    assert len(first.scores) - positives > 0.9 * positives
    for name, (rows, values) in before.items():
        assert len(host_table(trainer.tables()[name], "counting")) == rows
        np.testing.assert_array_equal(trainer.tables()[name].pull(np.arange(64), create=False), values)


def test_a_model_that_was_made_later_goes_on_the_same(chunks: list[Chunk]) -> None:
    whole = trainer_of(chunks[0].view)
    list(score_then_learn(whole, chunks))
    first = trainer_of(chunks[0].view)
    list(score_then_learn(first, chunks[:3]))
    later = trainer_of(chunks[-1].view, threads=2)  # with a graph of more nodes
    later.restore(first.dense(), first.tables())
    list(score_then_learn(later, chunks[3:]))
    for name, table in whole.tables().items():
        np.testing.assert_array_equal(later.tables()[name].pull(np.arange(64)), table.pull(np.arange(64)))


def test_vectors_of_all_nodes_come_with_the_model(chunks: list[Chunk]) -> None:
    trainer = trainer_of(chunks[0].view)
    list(score_then_learn(trainer, chunks))
    model = trainer.trained("rows", chunks[-1].view)
    assert model.target is not None
    users, items = chunks[-1].view.num_nodes("user"), chunks[-1].view.num_nodes("item")
    assert model.embeddings["user"].shape == (users, 8)
    assert model.target.shape == (items, 8)
    assert np.isfinite(model.score(np.arange(users))).all()


def test_other_kinds_and_tasks_are_refused(chunks: list[Chunk]) -> None:
    view = chunks[0].view
    with pytest.raises(UsageError, match="expected a task of kind recommend"):
        make_streaming_trainer(CONFIG, Assignment("rows", view, None, None, 0, 1))
    other = TASK.model_copy(update={"node_type": "customer"})
    with pytest.raises(UsageError, match="expected one of the node types user, item, received `customer`"):
        make_streaming_trainer(CONFIG, Assignment("rows", view, None, other, 0, 1))
    with pytest.raises(UsageError, match="received epoch 1 over a whole graph"):
        trainer_of(view).begin_epoch(0)
