"""PinSAGE: pooling and loss beside plain NumPy, held-out links, hard negatives, and what it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from graphbox.config import RecommendTaskConfig
from graphbox.errors import InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.kinds.pinsage import PinSageConfig
from graphbox.sample import ppr_neighbors
from graphbox.train import (
    GraphView,
    RecommendSplit,
    TrainedModel,
    evaluate_baselines,
    evaluate_scores,
    fit,
    load_trained,
    make_split,
)
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.recommendation.pinsage import PinSageTrainer
from tests.train.atlas import build_atlas
from tests.train.shop import ITEMS, USERS, build_shop

SETTINGS: dict[str, Any] = {
    "task": "items",
    "dim": 16,
    "epochs": 3,
    "batch_size": 48,
    "num_neighbors": 6,
    "negatives": 40,
    "hard_negatives": 3,
    "hard_negative_ranks": [8, 60],
}


def config_of(**settings: Any) -> PinSageConfig:
    return PinSageConfig.model_validate({"kind": "pinsage", **SETTINGS, **settings}, strict=False)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def task() -> RecommendTaskConfig:
    return RecommendTaskConfig(
        kind="recommend", node_type="user", target_type="item", relations=("bought",), k=5
    )


@pytest.fixture(scope="module")
def split(shop: Graph, task: RecommendTaskConfig) -> RecommendSplit:
    made = make_split(shop, task, 0)
    assert isinstance(made, RecommendSplit)
    return made


def trainer_of(
    graph: Graph, split: RecommendSplit, task: RecommendTaskConfig, **settings: Any
) -> PinSageTrainer:
    view = GraphView(graph, split)
    made = make_trainer(config_of(**settings), Assignment("model", view, split, task, 3, 1))
    assert isinstance(made, PinSageTrainer)
    return made


def plain_vectors(trainer: PinSageTrainer) -> NDArray[np.float64]:
    """Return the vectors of all nodes over the epoch's neighbourhoods by algorithm 2, node by node."""
    state = {name: value.detach().double().numpy() for name, value in trainer.network.named_parameters()}
    around = trainer.epoch_neighborhoods
    assert around is not None
    rows = []
    for name, table in trainer.tables().items():
        keys = np.arange(trainer._view.num_nodes(name))
        rows.append(table.pull(keys).astype(np.float64) + state[f"inputs.{name}.bias"])
    vectors = np.concatenate(rows)
    for layer in range(len(trainer.network.convolutions)):
        part = {
            each: state[f"convolutions.{layer}.{each}"]
            for each in ("message.weight", "message.bias", "update.weight", "update.bias")
        }
        following = np.zeros_like(vectors)
        for node, own in enumerate(vectors):
            pooled = np.zeros_like(own)
            for neighbor, weight in zip(around.nodes[node], around.weights[node], strict=True):
                if neighbor >= 0:
                    message = part["message.weight"] @ vectors[neighbor] + part["message.bias"]
                    pooled += weight * np.maximum(message, 0.0)
            update = part["update.weight"] @ np.concatenate([own, pooled]) + part["update.bias"]
            update = np.maximum(update, 0.0)
            following[node] = update / max(np.linalg.norm(update), 1e-12)
        vectors = following
    hidden = np.maximum(vectors @ state["output.0.weight"].T + state["output.0.bias"], 0.0)
    return np.asarray(hidden @ state["output.2.weight"].T)


def joined(trainer: PinSageTrainer) -> set[tuple[int, int]]:
    """Return the users and items that any relation joins as training sees it."""
    found: set[tuple[int, int]] = set()
    for relation in ("bought", "bought_later"):
        users, items = trainer._view.csc(("user", relation, "item")).coo()
        found |= set(zip(users.tolist(), items.tolist(), strict=True))
    return found


def plain_loss(trainer: PinSageTrainer, epoch: int, batch: int) -> float:
    """Return the max-margin loss of a batch, pair by pair."""
    vectors = plain_vectors(trainer)
    queries, targets = vectors[:USERS], vectors[USERS:]
    arrays = trainer.batch_arrays(epoch, batch)
    known = joined(trainer)
    sources = np.unique(arrays["links"][:, 0])
    hard = trainer._hard_negatives(sources, epoch, batch)
    losses = []
    for user, item in arrays["links"].tolist():
        found = queries[user] @ targets[item]
        against = [0.0 if (user, node) in known else queries[user] @ targets[node] - found + 0.7 for node in
                   arrays["negatives"].tolist()]  # fmt: skip
        against += [0.0 if node < 0 else queries[user] @ targets[node] - found + 0.7 for node in
                    hard[np.searchsorted(sources, user)].tolist()]  # fmt: skip
        losses.append(np.mean(np.maximum(against, 0.0)))
    return float(np.mean(losses))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_batch_has_the_loss_of_plain_loops(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, layers: int, epoch: int
) -> None:
    trainer = trainer_of(
        shop,
        split,
        task,
        layers=layers,
        margin=0.7,
        features={},
        hard_negative_ranks=[2, 40],
    )
    for number in range(epoch + 1):
        trainer.begin_epoch(number)
    drawn = trainer.draw(epoch, 1)
    assert drawn.hard.shape[1] == epoch
    loss, count = trainer.loss(drawn, epoch, 1)
    assert count == len(trainer.batch_arrays(epoch, 1)["links"])
    assert loss.item() == pytest.approx(plain_loss(trainer, epoch, 1), rel=1e-4)


def test_neighbours_weigh_by_their_visits(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig
) -> None:
    trainer = trainer_of(shop, split, task)
    trainer.begin_epoch(0)
    around, graph = trainer.epoch_neighborhoods, trainer.epoch_graph
    assert around is not None
    assert graph is not None
    expected = ppr_neighbors(
        graph, np.arange(USERS + ITEMS), 6, num_walks=64, walk_length=16, restart_probability=0.15,
        seed=3, epoch=1, batch=0,
    )  # fmt: skip
    np.testing.assert_array_equal(around.nodes, expected.neighbors)
    shares = expected.visits / np.maximum(expected.visits.sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(around.weights, shares, rtol=1e-6)
    assert (np.diff(around.weights, axis=1) <= 0).all()


def test_no_walk_passes_the_links_that_an_epoch_learns(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig
) -> None:
    trainer = trainer_of(shop, split, task)
    epochs = []
    for epoch in range(2):
        trainer.begin_epoch(epoch)
        graph = trainer.epoch_graph
        assert graph is not None
        row = np.repeat(np.arange(USERS + ITEMS), graph.lengths)
        walked = {
            (one, other - USERS) for one, other in zip(row.tolist(), graph.indices.tolist(), strict=True)
        }
        learnt = set(map(tuple, trainer.epoch_links.tolist()))
        assert learnt <= set(map(tuple, split.train.tolist()))
        hidden = learnt | set(map(tuple, np.concatenate([split.validation, split.test]).tolist()))
        assert not walked & hidden
        epochs.append(learnt)
    assert epochs[0] != epochs[1]


def test_hard_negatives_grow_and_are_never_known(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig
) -> None:
    trainer = trainer_of(shop, split, task)
    users = np.arange(USERS)
    known = joined(trainer)
    for epoch, count in enumerate([0, 1, 2, 3, 3]):
        trainer.begin_epoch(epoch)
        hard = trainer._hard_negatives(users, epoch, 0)
        assert hard.shape == (USERS, count)
        assert hard.max(initial=-1) < ITEMS
        found = [(user, node) for user in users for node in hard[user].tolist() if node >= 0]
        assert not known & set(found)
        assert len(set(found)) == len(found)
        assert len(found) >= count * USERS / 2


def run(graph: Graph, split: RecommendSplit, task: Any, folder: Path, **options: Any) -> TrainedModel:
    settings = {name: options.pop(name) for name in list(options) if name in PinSageConfig.model_fields}
    given: dict[str, Any] = {"name": "model", "run_folder": folder, "seed": 4, "threads": 1, **options}
    return fit(graph, split, config=config_of(**settings), task=task, **given)


def test_learns_between_two_types(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, tmp_path: Path
) -> None:
    trained = run(shop, split, task, tmp_path, epochs=30, validate_every=10, table_learning_rate=0.2)
    reached = evaluate_scores(shop, split, task, trained.score)
    popular = evaluate_baselines(shop, split, task)["popular"]
    assert reached["recall@5"] > popular["recall@5"] + 0.1
    again = load_trained(tmp_path, "model")
    np.testing.assert_array_equal(again.score(np.arange(USERS)), trained.score(np.arange(USERS)))


def test_learns_within_one_type(
    graph: Graph, recommend_split: RecommendSplit, recommend_task: Any, tmp_path: Path
) -> None:
    trained = run(
        graph, recommend_split, recommend_task, tmp_path, epochs=15, validate_every=5, margin=0.1,
        features={"item": ("topic", "size", "kept")},
    )  # fmt: skip
    reached = evaluate_scores(graph, recommend_split, recommend_task, trained.score)
    popular = evaluate_baselines(graph, recommend_split, recommend_task)["popular"]
    assert reached["recall@10"] > popular["recall@10"] + 0.1


def test_the_same_bits_by_two_threads_and_after_a_stop(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, tmp_path: Path
) -> None:
    queries = np.arange(USERS)
    whole = run(shop, split, task, tmp_path / "whole").score(queries)
    by_two = run(shop, split, task, tmp_path / "two", threads=2).score(queries)
    np.testing.assert_array_equal(by_two, whole)
    asked = iter([False] * 7 + [True] * 1000)
    with pytest.raises(InterruptedRunError):
        run(shop, split, task, tmp_path / "parts", stop=lambda: next(asked))
    parts = run(shop, split, task, tmp_path / "parts", resume=True).score(queries)
    np.testing.assert_array_equal(parts, whole)


def test_ranks_beyond_all_visits_are_refused() -> None:
    with pytest.raises(ValidationError, match="ascend up to 20 visits"):
        config_of(walks_per_node=5, walk_length=4)
    with pytest.raises(ValidationError, match=r"received \[9, 8\]"):
        config_of(hard_negative_ranks=[9, 8])


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"edge_types": [["user", "sold", "item"]]}, "models.model.edge_types"),
        ({"embeddings": ["shop"]}, "models.model.embeddings"),
        ({"features": {"shop": ["size"]}}, "models.model.features"),
    ],
)
def test_what_the_graph_does_not_have(
    shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, settings: Any, where: str
) -> None:
    with pytest.raises(UsageError) as caught:
        trainer_of(shop, split, task, **settings)
    assert caught.value.where == where


def test_walks_must_reach_what_the_task_is_about(tmp_path: Path) -> None:
    atlas = build_atlas(tmp_path)
    task = RecommendTaskConfig(
        kind="recommend", node_type="place", target_type="country", relations=("lies_in",)
    )
    split = make_split(atlas, task, 0)
    assert isinstance(split, RecommendSplit)
    with pytest.raises(UsageError, match="expected edge types that touch country") as caught:
        trainer_of(atlas, split, task, edge_types=[["place", "links", "place"]])
    assert caught.value.where == "models.model.edge_types"
