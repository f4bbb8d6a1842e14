"""Trainings of SASRec, GRU4Rec, ComiRec: their loss beside plain sums, what they see, and what they learn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.config import NextTaskConfig, SASRecConfig, SequenceSection, model_kind
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.train import (
    GraphView,
    NextSplit,
    TrainedModel,
    evaluate_baselines,
    evaluate_trained,
    fit,
    load_trained,
    make_split,
)
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.compressed import CompressedRows
from graphbox.train.sequences.evaluation import rank_events
from graphbox.train.sequences.trainer import SequenceTrainer
from tests.train.visits import PLACES, Visits, graph_of, some_visits, task_of

SETTINGS: dict[str, dict[str, Any]] = {
    "sasrec": {"dim": 16, "heads": 2, "learning_rate": 0.005},
    "gru4rec": {"dim": 16, "hidden": 24, "learning_rate": 0.01},
    "comirec": {"dim": 16, "interests": 3, "hidden": 24, "learning_rate": 0.01},
}

every_kind = pytest.mark.parametrize("kind", SETTINGS)


def config_of(kind: str, **settings: Any) -> SequenceSection:
    given = {"kind": kind, "task": "next", "dropout": 0.1, "batch_size": 16, "epochs": 30, "window": 12}
    given |= {"table_learning_rate": 0.02, "validate_every": 5} | SETTINGS[kind] | settings
    section = model_kind(kind).section.model_validate(given)
    assert isinstance(section, SequenceSection)
    return section


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("visits"), some_visits(150))


@pytest.fixture(scope="module")
def task() -> NextTaskConfig:
    return task_of(repeat=True)


@pytest.fixture(scope="module")
def split(graph: Graph, task: NextTaskConfig) -> NextSplit:
    found = make_split(graph, task, 0)
    assert isinstance(found, NextSplit)
    return found


def trainer_of(graph: Graph, split: NextSplit, task: NextTaskConfig, config: SequenceSection) -> Any:
    view = GraphView(graph, split, "test" if config.sees_validation else "train")
    trainer = make_trainer(config, Assignment("model", view, split, task, 3, 1))
    assert isinstance(trainer, SequenceTrainer)
    return trainer


def run(
    graph: Graph, split: NextSplit, task: NextTaskConfig, config: SequenceSection, folder: Path, **more: Any
) -> TrainedModel:
    options: dict[str, Any] = {"name": "model", "run_folder": folder, "seed": 4, "threads": 1, **more}
    return fit(graph, split, config=config, task=task, **options)


class TestLoss:
    @every_kind
    @pytest.mark.parametrize("candidates", [9, PLACES])
    def test_is_the_softmax_over_candidates_and_the_next_item(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, kind: str, candidates: int
    ) -> None:
        trainer = trainer_of(
            graph, split, task, config_of(kind, candidates=candidates, dropout=0.0, initial_row_scale=1.0)
        )
        assert trainer.begin_epoch(1) > 1
        part = trainer.draw(1, 0)
        rows = trainer.item_rows().double().numpy()
        events, losses = part.windows.events, []
        # One window at a time, so that blocks and padding are no part of what is expected.
        row, place = events.cells()
        for number in range(row.max() + 1):
            own = np.flatnonzero(row == number)
            assert place[own].tolist() == list(range(len(own)))
            items = events.items[events.events[own]]
            with torch.no_grad():
                lookup = torch.from_numpy(rows[items]).float()
                vectors = trainer.network.eval()(lookup, [(1, len(items))]).double().numpy()
            for several, target in zip(vectors, part.windows.targets[own].tolist(), strict=True):
                vector = max(several.reshape(-1, rows.shape[1]), key=lambda each: float(each @ rows[target]))
                others = part.candidates[part.candidates != target]
                logits = rows[others] @ vector
                if candidates < PLACES:
                    logits = logits - log_probability(split, candidates)[others]
                positive = float(rows[target] @ vector)
                losses.append(np.log(np.exp(positive) + np.exp(logits).sum()) - positive)
        if candidates == PLACES:
            assert part.candidates.tolist() == list(range(PLACES))
        trainer.network.train()
        found, count = trainer.loss(part, 1, 0)
        assert count == len(losses) == part.num_targets
        np.testing.assert_allclose(found.item(), np.mean(losses), rtol=1e-4)

    def test_of_all_items_is_the_cross_entropy(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig
    ) -> None:
        trainer = trainer_of(graph, split, task, config_of("gru4rec", dropout=0.0))
        trainer.begin_epoch(0)
        part = trainer.draw(0, 0)
        rows = trainer.item_rows()
        packed = part.windows.events
        vectors = trainer.network(rows[torch.from_numpy(packed.items)], packed.shapes)
        logits = vectors[torch.from_numpy(packed.events)] @ rows.T
        expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(part.windows.targets))
        np.testing.assert_allclose(trainer.loss(part, 0, 0)[0].item(), expected.item(), rtol=1e-5)


def log_probability(split: NextSplit, draws: int) -> NDArray[np.float64]:
    """Return how likely each item is among those drawn by the root of how often it occurs."""
    weight = np.sqrt(np.bincount(split.known("train").values, minlength=PLACES) + 0.1)
    found: NDArray[np.float64] = np.log(1.0 - (1.0 - weight / weight.sum()) ** draws)
    return found


class TestSees:
    @pytest.mark.parametrize("train_on", ["train", "train_and_validation"])
    def test_each_known_event_once_an_epoch_and_no_other(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, train_on: str
    ) -> None:
        trainer = trainer_of(graph, split, task, config_of("sasrec", train_on=train_on))
        known = split.is_known("test" if train_on == "train_and_validation" else "train")
        has_history = np.ones(len(split.items), bool)
        has_history[split.offsets[:-1][np.diff(split.offsets) > 0]] = False
        expected = np.bincount(split.items[known & has_history], minlength=PLACES)
        for epoch in range(2):
            found = np.zeros(PLACES, np.int64)
            for batch in range(trainer.begin_epoch(epoch)):
                arrays = trainer.batch_arrays(epoch, batch)
                found += np.bincount(arrays["targets"], minlength=PLACES)
            np.testing.assert_array_equal(found, expected)

    @every_kind
    def test_nothing_of_held_out_events_changes_a_training(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, kind: str, tmp_path: Path
    ) -> None:
        """The rows and parameters are those of a split whose held-out events have other items."""
        items = split.items.copy()
        hidden = split.fold > 0
        items[hidden] = (items[hidden] + 7) % PLACES
        other = NextSplit(**{**vars(split), "items": items})
        config = config_of(kind, epochs=2, patience=None, validate_every=2)
        first, second = (
            trained_state(graph, each, task, config, tmp_path / name)
            for name, each in (("first", split), ("second", other))
        )
        for name, value in first.items():
            np.testing.assert_array_equal(value, second[name], err_msg=name)


def trained_state(
    graph: Graph, split: NextSplit, task: NextTaskConfig, config: SequenceSection, folder: Path
) -> dict[str, NDArray[Any]]:
    trained = run(graph, split, task, config, folder)
    assert trained.sequence is not None
    assert trained.target is not None
    state = {name: value.numpy() for name, value in trained.sequence.network.state_dict().items()}
    return {"items": np.asarray(trained.target), **state}


def some_tastes(visitors: int = 150) -> Visits:
    """Return visits to places of two tastes of each visitor, five places for a taste, in any order."""
    generator = np.random.default_rng(6)
    found: Visits = []
    for visitor in range(visitors):
        tastes = generator.choice(PLACES // 5, 2, replace=False)
        places = 5 * generator.choice(tastes, 20) + generator.integers(0, 5, 20)
        found += [(f"v{visitor}", f"p{place}", time) for time, place in enumerate(places.tolist())]
    return found


class TestLearns:
    @pytest.mark.parametrize("kind", ["sasrec", "gru4rec"])
    def test_what_comes_next_better_than_counts_of_items(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, kind: str, tmp_path: Path
    ) -> None:
        trained = run(graph, split, task, config_of(kind), tmp_path)
        report = evaluate_trained(graph, split, task, trained)
        baselines = evaluate_baselines(graph, split, task)
        assert report["hit@5"] == report["recall@5"]
        assert report["ndcg@5"] > 0.6 > 2 * baselines["popular"]["ndcg@5"]
        assert baselines["markov"]["ndcg@5"] > 0.6

    def test_several_tastes_of_a_visitor(self, task: NextTaskConfig, tmp_path: Path) -> None:
        """Means of rows know no steps from a place to the next, but which places are liked together."""
        graph = graph_of(tmp_path, some_tastes())
        split = make_split(graph, task, 0)
        assert isinstance(split, NextSplit)
        trained = run(graph, split, task, config_of("comirec"), tmp_path / "run")
        report = evaluate_trained(graph, split, task, trained)
        # At best the next of ten places is among the first five half of the time, at a mean gain of 0.59.
        assert report["recall@5"] > 0.4
        assert report["ndcg@5"] > 0.22 > 1.5 * evaluate_baselines(graph, split, task)["popular"]["ndcg@5"]

    @every_kind
    def test_saved_and_read_it_is_the_same(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, kind: str, tmp_path: Path
    ) -> None:
        trained = run(graph, split, task, config_of(kind, epochs=2), tmp_path)
        read = load_trained(tmp_path, "model")
        assert read.sequence is not None
        assert trained.sequence is not None
        assert read.sequence.config == trained.sequence.config
        assert evaluate_trained(graph, split, task, read) == evaluate_trained(graph, split, task, trained)
        nodes = np.arange(graph.num_nodes("visitor"))
        np.testing.assert_array_equal(read.score(nodes), trained.score(nodes))

    @every_kind
    def test_vectors_of_nodes_are_those_of_all_but_test(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, kind: str, tmp_path: Path
    ) -> None:
        trained = run(graph, split, task, config_of(kind, epochs=2), tmp_path)
        assert trained.sequence is not None
        assert trained.target is not None
        nodes = split.nodes_of(split.test)
        of_events = trained.sequence.encode(np.asarray(trained.target), split.histories(split.test))
        np.testing.assert_allclose(trained.embeddings["visitor"][nodes], of_events, atol=1e-6)
        # A history longer than the window is its last events.
        long = CompressedRows(np.array([0, 40, 52]), np.arange(52) % PLACES)
        last = CompressedRows(np.array([0, 12, 24]), np.r_[long.values[28:40], long.values[40:]])
        first, second = (trained.sequence.encode(np.asarray(trained.target), each) for each in (long, last))
        np.testing.assert_array_equal(first, second)
        none = CompressedRows(np.array([0, 0]), long.values[:0])
        empty = trained.sequence.encode(np.asarray(trained.target), none)
        assert empty.shape == (1, trained.sequence.config.vectors * 16)
        assert not empty.any()

    def test_the_score_of_several_vectors_is_the_largest_of_theirs(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, tmp_path: Path
    ) -> None:
        trained = run(graph, split, task, config_of("comirec", epochs=2), tmp_path)
        assert trained.target is not None
        nodes = np.arange(graph.num_nodes("visitor"))
        several = trained.embeddings["visitor"].reshape(len(nodes), 3, 16)
        assert (several.std(axis=1) > 1e-4).any()  # of the interests
        expected = np.einsum("nid,md->nim", several, trained.target).max(axis=1)
        np.testing.assert_allclose(trained.score(nodes), expected, rtol=1e-4, atol=1e-6)


class TestMeasures:
    @pytest.mark.parametrize("fold", ["validation", "test"])
    @pytest.mark.parametrize("repeat", [False, True])
    def test_ranks_as_a_plain_loop(self, graph: Graph, fold: Any, repeat: bool) -> None:
        task = task_of(repeat=repeat)
        split = make_split(graph, task, 0)
        assert isinstance(split, NextSplit)
        scores = np.random.default_rng(0).normal(size=(len(split.items), PLACES)).astype(np.float32)
        report = rank_events(graph, split, task, lambda events: scores[events], fold)
        hits, gains, reciprocal = [], [], []
        for event in split.tested(fold).tolist():
            first = split.offsets[np.searchsorted(split.offsets, event, side="right") - 1]
            history = set() if repeat else set(split.items[first:event].tolist())
            ranked = [each for each in np.argsort(-scores[event]).tolist() if each not in history]
            rank = ranked.index(split.items[event]) + 1
            hits.append(rank <= 5)
            gains.append((rank <= 5) / np.log2(rank + 1.0))
            reciprocal.append(1.0 / rank)
        assert report["queries"] == len(hits)
        assert report["recall@5"] == pytest.approx(np.mean(hits))
        assert report["ndcg@5"] == pytest.approx(np.mean(gains))
        assert report["mrr"] == pytest.approx(np.mean(reciprocal))

    def test_baselines_are_counts(self, graph: Graph, split: NextSplit) -> None:
        from graphbox.train.sequences.baselines import NEXT_BASELINES

        known, followed = split.known("test"), np.zeros((PLACES, PLACES))
        met = np.zeros((graph.num_nodes("visitor"), PLACES))
        for node, items in enumerate(np.split(known.values, known.offsets[1:-1])):
            met[node, items] = 1.0
            for before, after in pairwise(items.tolist()):
                followed[before, after] += 1.0
        counts = np.bincount(known.values, minlength=PLACES)
        unit = met / np.maximum(np.linalg.norm(met, axis=0), 1.0)
        events = split.test[:20]
        histories = split.histories(events)
        asked = [
            np.bincount(each, minlength=PLACES)
            for each in np.split(histories.values, histories.offsets[1:-1])
        ]
        expected = {
            "popular": np.broadcast_to(counts, (len(events), PLACES)),
            "markov": followed[split.items[events - 1]] + counts / (counts.max() + 1.0),
            "item_knn": np.stack(asked) @ (unit.T @ unit),
        }
        assert NEXT_BASELINES.keys() == expected.keys()
        for name, values in expected.items():
            found = NEXT_BASELINES[name](split, "test", PLACES)(events)
            np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-6, err_msg=name)

    def test_a_sample_of_events_says_of_how_many_it_is(self, graph: Graph, split: NextSplit) -> None:
        report = evaluate_baselines(graph, split, task_of(repeat=True, baseline_queries=20))
        assert report["markov"]["queries"] == 20
        assert report["markov"]["queries_total"] == len(split.test)


class TestRefuses:
    def test_heads_that_do_not_divide(self) -> None:
        with pytest.raises(ValueError, match="expected `heads` that divide `dim`, received 3 of 16"):
            SASRecConfig.model_validate({"kind": "sasrec", "task": "next", "dim": 16, "heads": 3})

    def test_other_models_on_the_task(
        self, graph: Graph, split: NextSplit, task: NextTaskConfig, tmp_path: Path
    ) -> None:
        trained = run(graph, split, task, config_of("sasrec", epochs=1), tmp_path)
        vectors = TrainedModel("rows", "embedding", "next", "visitor", trained.embeddings)
        with pytest.raises(UsageError, match="expected a model of sequences for a task of kind next"):
            evaluate_trained(graph, split, task, vectors)
