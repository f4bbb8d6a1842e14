"""The temporal model: it learns, it never knows what it is asked for, and a stop changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphbox.config import PredictLinksTaskConfig, RecommendTaskConfig, TemporalConfig
from graphbox.errors import InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.train import GraphView, LinkSplit, TrainedModel, fit, load_trained, make_split, torch_trainer
from graphbox.train.assignment import Assignment
from graphbox.train.evaluate import evaluate_baselines, evaluate_trained
from graphbox.train.seeded import seeded
from graphbox.train.stream import Chunk, NewEdges
from graphbox.train.temporal.trainer import TemporalTrainer
from tests.train.chunk_by_chunk import score_then_learn
from tests.train.letters import stream_graph, stream_task
from tests.train.shop import build_shop

SETTINGS: dict[str, Any] = {
    "task": "letters",
    "recent": 8,
    "dim": 16,
    "epochs": 2,
    "batch_size": 40,
    "learning_rate": 0.01,
}


def config_of(**settings: Any) -> TemporalConfig:
    return TemporalConfig.model_validate({"kind": "temporal", **SETTINGS, **settings})


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return stream_graph(tmp_path_factory.mktemp("letters"), messages=700)


@pytest.fixture(scope="module")
def task() -> PredictLinksTaskConfig:
    return stream_task().model_copy(update={"events_per_batch": 30})


@pytest.fixture(scope="module")
def split(letters: Graph, task: PredictLinksTaskConfig) -> LinkSplit:
    split = make_split(letters, task, 0)
    assert isinstance(split, LinkSplit)
    return split


def trainer_of(
    graph: Graph, split: LinkSplit | None, task: PredictLinksTaskConfig | None, **settings: Any
) -> TemporalTrainer:
    view = GraphView(graph, split)
    named = {} if split is not None else {"task": None}
    return TemporalTrainer(config_of(**named, **settings), Assignment("temporal", view, split, task, 7, 1))


def run(
    graph: Graph,
    split: LinkSplit,
    task: PredictLinksTaskConfig,
    folder: Path,
    *,
    stop: Callable[[], bool] | None = None,
    resume: bool = False,
    **settings: Any,
) -> TrainedModel:
    return fit(
        graph,
        split,
        name="temporal",
        config=config_of(**settings),
        task=task,
        run_folder=folder,
        seed=7,
        threads=1,
        stop=stop,
        resume=resume,
    )


def test_learns_who_writes_to_whom(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit, tmp_path: Path
) -> None:
    trained = run(letters, split, task, tmp_path, epochs=3)
    report = evaluate_trained(letters, split, task, trained)
    still = evaluate_baselines(letters, split, task)["popularity"]
    assert report["average_precision"] > still["average_precision"] + 0.1
    assert report["positives"] == len(split.part("test").edges)
    assert trained.embeddings["person"].shape == (30, 32)
    again = load_trained(tmp_path, "temporal")
    np.testing.assert_array_equal(again.link_scores, trained.link_scores)
    assert evaluate_trained(letters, split, task, again) == report


@pytest.mark.parametrize("row_dim", [0, 4])
def test_stopped_and_resumed_ends_like_one_never_stopped(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit, tmp_path: Path, row_dim: int
) -> None:
    whole = run(letters, split, task, tmp_path / "whole", row_dim=row_dim)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked % 9 == 0  # in the middle of both epochs

    stops = 0
    while True:
        try:
            resumed = run(
                letters, split, task, tmp_path / "cut", stop=stop, resume=stops > 0, row_dim=row_dim
            )
            break
        except InterruptedRunError:
            stops += 1
    assert stops >= 2
    np.testing.assert_array_equal(whole.link_scores, resumed.link_scores)
    np.testing.assert_array_equal(whole.embeddings["person"], resumed.embeddings["person"])


def test_scores_know_nothing_of_their_batch_or_later(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit
) -> None:
    """The leak test: other events from the second test batch on change no score of the first two."""
    size, first = 30, int(np.flatnonzero(split.fold == 2)[0])
    edges = split.edges.copy()
    edges[first + size :, 1] = (edges[first + size :, 1] + 3) % 30
    other = LinkSplit(**{**vars(split), "edges": edges})
    negative = np.flatnonzero(split.negative_fold == 2)
    scores, vectors = [], []
    for each in (split, other):
        trainer = trainer_of(letters, each, task)
        for batch in range(trainer.begin_epoch(0)):
            trainer.train_batch(0, batch)
        trained = trainer.trained("temporal", GraphView(letters, each, "test"))
        assert trained.link_scores is not None
        scores.append(trained.link_scores)
        vectors.append(trained.embeddings["person"])
        positives = int((split.fold == 2).sum())
    np.testing.assert_array_equal(scores[0][:size], scores[1][:size])
    rows, others = next(iter(split.part("test").batches(size)))
    assert (rows.start, rows.stop) == (0, size)
    early = slice(positives + others.start, positives + others.stop)
    np.testing.assert_array_equal(scores[0][early], scores[1][early])
    # Negatives of the second batch are scored from the first one alone, which is the same.
    second = list(split.part("test").batches(size))[1][1]
    late = slice(positives + second.start, positives + second.stop)
    np.testing.assert_array_equal(scores[0][late], scores[1][late])
    assert (scores[0][positives + second.stop :] != scores[1][positives + second.stop :]).any()
    assert len(negative) == len(scores[0]) - positives
    np.testing.assert_array_equal(vectors[0], vectors[1])  # they are as of before the test part


def test_held_out_events_are_remembered_though_nothing_is_learnt_of_them(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit
) -> None:
    """Without ``learn_online`` a test batch is scored by one network, knowing the events before it."""
    first = int(np.flatnonzero(split.fold == 2)[0])
    edges = split.edges.copy()
    edges[first : first + 30, 1] = (edges[first : first + 30, 1] + 3) % 30
    found = []
    for each in (split, LinkSplit(**{**vars(split), "edges": edges})):
        trainer = trainer_of(letters, each, task, learn_online=False)
        trainer.begin_epoch(0)
        trainer.train_batch(0, 0)
        before = [value.clone() for value in trainer.network.parameters()]
        found.append(trainer.trained("temporal", GraphView(letters, each, "test")).link_scores)
        assert all(map(torch.equal, before, trainer.network.parameters()))
    assert found[0] is not None
    assert found[1] is not None
    later = slice(30, int((split.fold == 2).sum()))
    assert (found[0][later] != found[1][later]).any()


def test_validation_leaves_no_trace(letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit) -> None:
    trainer = trainer_of(letters, split, task)
    for batch in range(trainer.begin_epoch(0)):
        trainer.train_batch(0, batch)
    before = {name: value.clone() for name, value in trainer.dense().items()}
    figures = trainer.end_epoch(0)
    assert 0 < figures["validation_average_precision"] <= 1
    after = trainer.dense()
    assert set(before) == set(after)
    for name, value in before.items():
        assert torch.equal(value, after[name]), name


def test_no_two_batches_draw_the_same(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does any draw what parameters started from: negatives and dropout are of each batch alone."""
    trainer = trainer_of(letters, split, task, learn_online=True, dropout=0.5)
    drawn: list[tuple[int, ...]] = []
    dropped: list[tuple[int, ...]] = [seed_key(trainer._seed, torch_trainer.START_STREAM)]
    draw = trainer._draw

    def draw_and_note(events: Any, key: Any, *rest: Any) -> Any:
        drawn.append(seed_key(*key))
        return draw(events, key, *rest)

    def seeded_and_note(*numbers: int, **place: Any) -> Any:
        dropped.append(seed_key(*numbers))
        return seeded(*numbers, **place)

    monkeypatch.setattr(trainer, "_draw", draw_and_note)
    monkeypatch.setattr(torch_trainer, "seeded", seeded_and_note)
    for epoch in range(2):
        for batch in range(trainer.begin_epoch(epoch)):
            trainer.train_batch(epoch, batch)
        trainer.end_epoch(epoch)
    before = len(drawn)
    trainer.trained("temporal", GraphView(letters, split, "test"))
    parts = [split.part(fold) for fold in ("validation", "test")]
    assert len(drawn) - before == sum(-(-len(part.edges) // 30) for part in parts)
    assert len(drawn) == len(set(drawn))
    assert len(dropped) == len(set(dropped)) == len(drawn) + 1


def seed_key(*numbers: int) -> tuple[int, ...]:
    """Return a key as seeds are made of it: without zeros at its end."""
    key = list(numbers)
    while key and key[-1] == 0:
        key.pop()
    return tuple(key)


def test_loss_that_is_no_number_changes_nothing(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit
) -> None:
    trainer = trainer_of(letters, split, task)
    trainer.begin_epoch(0)
    trainer.train_batch(0, 0)
    with torch.no_grad():
        trainer.network.kind.weight.fill_(float("nan"))
    before = {name: value.clone() for name, value in trainer.dense().items()}
    loss, count = trainer.train_batch(0, 1)
    assert np.isnan(loss)
    assert count == 40
    for name, value in trainer.dense().items():
        assert torch.equal(torch.nan_to_num(before[name]), torch.nan_to_num(value)), name
    assert set(trainer.batch_arrays(0, 1)) == {"source", "target", "relation", "time", "negatives"}


def test_negatives_are_others_and_some_known_partners(
    letters: Graph, task: PredictLinksTaskConfig, split: LinkSplit
) -> None:
    shares = []
    for share in (0.0, 1.0):
        trainer = trainer_of(letters, split, task, historical_negatives=share, negatives=3)
        for batch in range(trainer.begin_epoch(0) - 1):
            trainer.train_batch(0, batch)
        for seen in range(batch + 2):
            arrays = trainer.batch_arrays(0, seen)
            assert (arrays["negatives"] != arrays["target"][:, None]).all()
            assert arrays["negatives"].max() < 30
        known = {tuple(pair) for pair in split.known("validation").tolist()}
        known |= {(target, source) for source, target in known}
        asked = zip(
            np.repeat(arrays["source"], 3).tolist(), arrays["negatives"].ravel().tolist(), strict=True
        )
        shares.append(np.mean([pair in known for pair in asked]))
    assert shares[1] > shares[0] + 0.3


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


class TestStream:
    """Users buy items, in chunks of time; chunk 0 is what was there before."""

    def chunks(self, shop: Graph) -> list[Chunk]:
        edge_type = ("user", "bought", "item")
        csc = shop.csc(edge_type)
        source, target = csc.coo()
        assert csc.timestamp is not None
        order = np.argsort(csc.timestamp, kind="stable")
        parts = np.array_split(order, 5)
        made = []
        for number, rows in enumerate(parts):
            later = np.concatenate([*parts[number + 1 :], np.empty(0, np.int64)])
            view = GraphView(shop.without_edges({edge_type: later}) if len(later) else shop, None)
            edges = NewEdges(source[rows], target[rows], rows, csc.timestamp[rows])
            made.append(Chunk(number, f"part {number}", view, {}, {edge_type: edges}))
        return made

    def trainer(self, shop: Graph, **settings: Any) -> TemporalTrainer:
        return trainer_of(shop, None, None, relations=(("user", "bought", "item"),), **settings)

    def test_predicts_then_trains(self, shop: Graph) -> None:
        trainer = self.trainer(shop, row_dim=4)
        seen = []
        for chunk, scores in score_then_learn(trainer, self.chunks(shop)):
            if chunk.number == 0:
                assert scores is None
                continue
            assert scores is not None
            assert scores.labels.sum() * 2 == len(scores.labels) == 2 * chunk.rows
            assert np.isfinite(scores.scores).all()
            seen.append(chunk.rows)
        assert len(seen) == 4
        vectors = trainer.trained("temporal", GraphView(shop, None)).embeddings
        assert {name: len(each) for name, each in vectors.items()} == {"user": 120, "item": 80}

    @pytest.mark.parametrize("average_decay", [None, 0.9])
    def test_publishes_what_scores(self, shop: Graph, average_decay: float | None) -> None:
        trainer = self.trainer(shop, average_decay=average_decay)
        for _ in score_then_learn(trainer, self.chunks(shop)):
            pass
        served = trainer.served_parameters()
        own = {f"model.{name}": value.detach() for name, value in trainer.network.named_parameters()}
        assert served.keys() == own.keys() != set()
        same = all(torch.equal(value, own[name]) for name, value in served.items())
        assert same == (average_decay is None), "the moving averages are what scores"
        for name, value in served.items():
            assert value.isfinite().all(), name

    def test_scoring_changes_nothing_and_a_new_process_goes_on(self, shop: Graph) -> None:
        chunks = self.chunks(shop)
        whole, cut = self.trainer(shop), self.trainer(shop)
        for _ in score_then_learn(whole, chunks):
            pass
        for chunk in chunks:
            before = {name: value.clone() for name, value in cut.dense().items()}
            if chunk.number:
                cut.score_chunk(chunk)
            batches = cut.open_chunk(chunk)
            for name, value in cut.dense().items():
                assert torch.equal(before[name], value), name
            for batch in range(batches):
                cut.train_batch(chunk.number, batch)
                state = {name: value.clone() for name, value in cut.dense().items()}
                cut = self.trainer(shop)
                cut.restore(state, {})
                cut.open_chunk(chunk)
            cut.close_chunk(chunk)
        for name, value in whole.dense().items():
            assert torch.equal(value, cut.dense()[name]), name


class TestMistakes:
    def test_task_without_events(self, shop: Graph) -> None:
        graph = shop
        task = PredictLinksTaskConfig(
            kind="predict_links", node_type="user", target_type="item", relations=("bought",)
        )
        split = make_split(graph, task, 0)
        assert isinstance(split, LinkSplit)
        with pytest.raises(UsageError, match="predict_links that holds pairs out whole"):
            trainer_of(graph, split, task)
        last = PredictLinksTaskConfig.model_validate(
            {**task.model_dump(), "split": {"kind": "leave_last_out"}}
        )
        split = make_split(graph, last, 0)
        assert isinstance(split, LinkSplit)
        with pytest.raises(UsageError, match="one part after the other"):
            trainer_of(graph, split, last)
        ranked = RecommendTaskConfig(
            kind="recommend", node_type="user", target_type="item", relations=("bought",)
        )
        with pytest.raises(UsageError, match="received one of kind recommend"):
            trainer_of(graph, make_split(graph, ranked, 0), task)  # type: ignore[arg-type]

    def test_edge_types(self, graph: Graph, letters: Graph) -> None:
        with pytest.raises(UsageError, match="between the same two node types, received none"):
            trainer_of(graph, None, None)
        with pytest.raises(UsageError, match="with a timestamp, received item__likes__item"):
            trainer_of(graph, None, None, relations=(("item", "likes", "item"),))
        task = stream_task()
        split = make_split(letters, task, 0)
        assert isinstance(split, LinkSplit)
        with pytest.raises(UsageError, match="no relations beside a task"):
            trainer_of(letters, split, task, relations=(("person", "wrote", "person"),))
