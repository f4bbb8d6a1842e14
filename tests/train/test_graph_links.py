"""Graph networks on links: what an epoch holds out is nowhere in its graph; losses are what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.config import GraphNetworkConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.graph import Graph
from graphbox.table import EmbeddingTable
from graphbox.train import GraphView, LinkSplit, RecommendSplit, evaluate_baselines, fit, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.evaluate import evaluate_trained
from graphbox.train.network.links import GraphLinkTrainer
from tests.train.shop import USERS, build_shop

LINKS = PredictLinksTaskConfig(
    kind="predict_links", node_type="user", target_type="item", relations=("bought",), validation_fraction=0.2
)
BUYS = RecommendTaskConfig(
    kind="recommend",
    node_type="user",
    target_type="item",
    relations=("bought",),
    validation_fraction=0.2,
    k=5,
)
Task = PredictLinksTaskConfig | RecommendTaskConfig


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


def trainer_of(graph: Graph, task: Task, split: Any = None, **settings: Any) -> GraphLinkTrainer:
    split = make_split(graph, task, 3) if split is None else split
    options = {"dim": 8, "layer": "lightgcn", "dropout": 0.0, "batch_size": 64, **settings}
    config = GraphNetworkConfig(kind="gnn", task="t", **options)
    made = make_trainer(config, Assignment("net", GraphView(graph, split), split, task, 3, 1))
    assert isinstance(made, GraphLinkTrainer)
    return made


def keys_in(trainer: GraphLinkTrainer, split: Any) -> NDArray[np.uint64]:
    """Return the keys of the pairs that any edge of the epoch's graph joins."""
    found = [np.empty(0, np.uint64)]
    view = trainer.epoch_graph.view
    for edge_type in view.edge_types:
        source, target = view.csc(edge_type).coo()
        if (edge_type[0], edge_type[2]) == (split.node_type, split.target_type):
            found.append(split.pair_keys(source, target))
        if (edge_type[2], edge_type[0]) == (split.node_type, split.target_type):
            found.append(split.pair_keys(target, source))
    return np.unique(np.concatenate(found))


class TestNoLinkReachesItsOwnPrediction:
    @pytest.mark.parametrize("merge", [False, True])
    @pytest.mark.parametrize("task", [LINKS, BUYS], ids=["predict_links", "recommend"])
    def test_between_two_types(self, shop: Graph, task: Task, merge: bool) -> None:
        split = make_split(shop, task, 3)
        trainer = trainer_of(shop, task, split, merge_relations=merge)
        assert isinstance(split, RecommendSplit | LinkSplit)
        self.check(trainer, split)

    def test_within_one_type(
        self, graph: Graph, recommend_split: RecommendSplit, recommend_task: RecommendTaskConfig
    ) -> None:
        self.check(trainer_of(graph, recommend_task, recommend_split, layer="sage"), recommend_split)

    def check(self, trainer: GraphLinkTrainer, split: RecommendSplit | LinkSplit) -> None:
        held = []
        for epoch in (0, 1):
            assert trainer.begin_epoch(epoch) > 1
            links = trainer.epoch_links
            keys = split.pair_keys(links[:, 0], links[:, 1])
            there = keys_in(trainer, split)
            assert len(there)
            assert not np.isin(keys, there).any()
            assert not np.isin(split.hidden_pairs("train"), there).any()
            known = split.known("train")
            assert np.isin(keys, split.pair_keys(known[:, 0], known[:, 1])).all()
            count = len(split.known("train"))
            assert 0.1 < len(links) / count < 0.4
            degree = np.bincount(known[~np.isin(split.pair_keys(*known.T), keys)][:, 1])
            np.testing.assert_array_equal(trainer._epoch_degree.numpy()[: len(degree)], degree)
            held.append(keys)
        assert not np.array_equal(np.unique(held[0]), np.unique(held[1]))


def by_hand(trainer: GraphLinkTrainer, split: Any, loss: str) -> float:
    """Return the loss of the first batch, pair by pair, over the whole epoch's graph."""
    inputs, edges = trainer._all_inputs(), [trainer.epoch_graph.whole()] * trainer._config.layers
    with torch.no_grad():
        vectors = trainer.network(inputs, trainer._rows(inputs), edges)
    head = {name: value.detach().double().numpy() for name, value in trainer._head.named_parameters()}

    def tower(side: str, node_type: str, node: int) -> NDArray[np.float64]:
        mapped = head[f"{side}.weight"] @ vectors[node_type][node].double().numpy() + head[f"{side}.bias"]
        unit: NDArray[np.float64] = mapped / np.linalg.norm(mapped)
        return unit

    def logit(source: int, target: int) -> float:
        cosine = tower("source", "user", source) @ tower("target", "item", target)
        popular = head["popularity"] * np.log1p(trainer._epoch_degree.numpy()[target])
        return float(np.exp(head["log_scale"]) * cosine + popular + head["offset"])

    row, linked = trainer.draws._known.take(np.arange(USERS))
    known = set(zip(row.tolist(), linked.tolist(), strict=True))
    drawn = trainer.batch_arrays(0, 0)["candidates"].tolist()
    weight = (trainer._degree + 0.1) ** 0.5
    share = weight / weight.sum()
    losses = []
    for source, target in trainer._links_of(0).tolist():
        others = [each for each in drawn if (source, each) not in known]
        if loss == "sampled_softmax":
            estimated = sum(
                np.exp(logit(source, each))
                / -np.expm1(trainer._config.links.negatives * np.log1p(-share[each]))
                for each in others
            )
            losses.append(np.log1p(estimated / np.exp(logit(source, target))))
        else:
            against = [np.log1p(np.exp(logit(source, each))) for each in others]
            losses.append(np.log1p(np.exp(-logit(source, target))) + np.mean(against))
    return float(np.mean(losses))


@pytest.mark.parametrize("num_neighbors", [None, (200, 200)], ids=["whole", "sampled"])
@pytest.mark.parametrize(("task", "loss"), [(LINKS, "sigmoid"), (BUYS, "sampled_softmax")])
def test_losses_are_those_of_their_formulas(shop: Graph, task: Task, loss: str, num_neighbors: Any) -> None:
    split = make_split(shop, task, 3)
    links = {"negatives": 12}
    trainer = trainer_of(shop, task, split, num_neighbors=num_neighbors, links=links, relations=(BOUGHT,))
    for name, table in trainer.tables().items():
        table.pull(np.arange(shop.num_nodes(name)))
    trainer.begin_epoch(0)
    trainer.network.train()
    found, count = trainer.loss(trainer.draw(0, 0), 0, 0)
    assert count == 64
    np.testing.assert_allclose(found.item(), by_hand(trainer, split, loss), rtol=1e-4)


BOUGHT = ("user", "bought", "item")


@pytest.mark.parametrize("task", [LINKS, BUYS], ids=["predict_links", "recommend"])
def test_learns_and_scores_by_inner_products(shop: Graph, task: Task, tmp_path: Path) -> None:
    split = make_split(shop, task, 3)
    config = GraphNetworkConfig(
        kind="gnn",
        task="t",
        layer="lightgcn",
        dim=16,
        epochs=30,
        batch_size=128,
        validate_every=5,
        dropout=0.0,
    )
    trained = fit(shop, split, name="net", config=config, task=task, run_folder=tmp_path, seed=1, threads=1)
    report, baselines = evaluate_trained(shop, split, task, trained), evaluate_baselines(shop, split, task)
    figure, baseline = ("auc", "popularity") if task is LINKS else ("recall@5", "popular")
    assert report[figure] > baselines[baseline][figure] + 0.1
    assert trained.target is not None
    scores = trained.score(np.array([4, 7]))
    np.testing.assert_allclose(scores, trained.embeddings["user"][[4, 7]] @ trained.target.T, rtol=1e-5)


def test_goes_on_from_a_checkpoint_bit_for_bit(shop: Graph, tmp_path: Path) -> None:
    options = {"num_neighbors": (4, 4), "dropout": 0.3, "layer": "sage"}
    first, other = trainer_of(shop, LINKS, **options), trainer_of(shop, LINKS, **options)
    batches = first.begin_epoch(0)
    for batch in range(batches):
        first.train_batch(0, batch)
    for name, table in first.tables().items():
        table.save(tmp_path / name)
    dense = {name: value.clone() for name, value in first.dense().items()}
    other.restore(dense, {name: EmbeddingTable.load(tmp_path / name) for name in first.tables()})
    for trainer in (first, other):
        trainer.begin_epoch(1)
    assert first.train_batch(1, 0) == other.train_batch(1, 0)
    assert first.end_epoch(1) == other.end_epoch(1)
    assert set(first.end_epoch(1)) == {"validation_average_precision", "validation_auc"}
