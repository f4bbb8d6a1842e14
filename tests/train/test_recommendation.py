"""LightGCN and matrix factorization between nodes of two types, and within one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphbox.config import LightGCNConfig, MatrixFactorizationConfig, RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.graph import Graph
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
from graphbox.train.assignment import Assignment
from graphbox.train.recommendation.trainer import RecommendationTrainer
from tests.train.shop import ITEMS, USERS, build_shop

Config = LightGCNConfig | MatrixFactorizationConfig
SETTINGS: dict[str, Any] = {
    "task": "items",
    "dim": 16,
    "epochs": 12,
    "batch_size": 32,
    "candidates": 64,
    "validate_every": 6,
}


def config_of(kind: str, **settings: Any) -> Config:
    section = LightGCNConfig if kind == "lightgcn" else MatrixFactorizationConfig
    return section.model_validate({"kind": kind, **SETTINGS, **settings})


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
    split = make_split(shop, task, 0)
    assert isinstance(split, RecommendSplit)
    return split


def run(
    shop: Graph,
    split: RecommendSplit,
    task: RecommendTaskConfig,
    config: Config,
    folder: Path,
    **options: Any,
) -> TrainedModel:
    settings: dict[str, Any] = {"name": "model", "run_folder": folder, "seed": 4, "threads": 1, **options}
    return fit(shop, split, config=config, task=task, **settings)


class TestLearns:
    @pytest.mark.parametrize(
        ("kind", "loss", "contrast"),
        [
            ("lightgcn", "sampled_softmax", 0.0),
            ("lightgcn", "sampled_softmax", 0.1),
            ("lightgcn", "bpr", 0.0),
            ("lightgcn", "hinge", 0.0),
            ("lightgcn", "nce", 0.0),
            ("lightgcn", "sigmoid", 0.0),
            ("matrix_factorization", "sampled_softmax", 0.0),
            ("matrix_factorization", "bpr", 0.0),
        ],
    )
    def test_beats_popularity(
        self,
        shop: Graph,
        split: RecommendSplit,
        task: RecommendTaskConfig,
        tmp_path: Path,
        kind: str,
        loss: str,
        contrast: float,
    ) -> None:
        trained = run(shop, split, task, config_of(kind, loss=loss, contrast=contrast), tmp_path)
        reached = evaluate_scores(shop, split, task, trained.score)
        popular = evaluate_baselines(shop, split, task)["popular"]
        assert reached["recall@5"] > popular["recall@5"] + 0.1
        assert reached["queries"] == len(np.unique(split.test[:, 0]))

    def test_within_one_type(
        self,
        graph: Graph,
        recommend_split: RecommendSplit,
        recommend_task: RecommendTaskConfig,
        tmp_path: Path,
    ) -> None:
        trained = run(graph, recommend_split, recommend_task, config_of("lightgcn"), tmp_path)
        reached = evaluate_scores(graph, recommend_split, recommend_task, trained.score)
        popular = evaluate_baselines(graph, recommend_split, recommend_task)["popular"]
        assert reached["recall@10"] > popular["recall@10"]

    def test_on_train_and_validation(
        self, shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, tmp_path: Path
    ) -> None:
        config = config_of("lightgcn", train_on="train_and_validation", epochs=2)
        run(shop, split, task, config, tmp_path)
        assert "validation_recall" not in (tmp_path / "metrics.jsonl").read_text()
        view = GraphView(shop, split, "test")
        trainer = RecommendationTrainer(config, Assignment("model", view, split, task, 0, None))
        assert trainer.answers.nnz == len(split.train) + len(split.validation)


class TestWhatIsWritten:
    def test_comes_back(
        self, shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, tmp_path: Path
    ) -> None:
        trained = run(shop, split, task, config_of("lightgcn", epochs=2), tmp_path)
        again = load_trained(tmp_path, "model")
        queries = np.arange(USERS)
        np.testing.assert_array_equal(again.score(queries), trained.score(queries))
        assert again.score(queries).shape == (USERS, ITEMS)
        vectors = np.load(tmp_path / "embeddings/model/user.npy")
        assert vectors.shape == (USERS, 16)
        targets = np.load(tmp_path / "embeddings/model/target/item.npy")
        np.testing.assert_allclose(vectors @ targets.T, trained.score(queries), rtol=1e-5)
        assert (tmp_path / "embeddings/model/target/item.ids.txt").read_text().split()[:2] == ["i0", "i1"]


class TestLosses:
    @pytest.mark.parametrize("loss", ["sampled_softmax", "bpr", "hinge", "nce", "sigmoid"])
    def test_wiring_is_the_definition(
        self, shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, loss: str
    ) -> None:
        config = config_of("lightgcn", loss=loss, popularity=0.5, temperature=0.5, candidates=200)
        trainer = RecommendationTrainer(
            config, Assignment("model", GraphView(shop, split), split, task, 3, 1)
        )
        trainer.begin_epoch(0)
        with torch.no_grad():
            query, target = (
                torch.nn.functional.normalize(each, dim=1) for each in trainer.network.all_vectors()
            )
        popularity = np.log(np.maximum(np.asarray(trainer.answers.sum(axis=0)).ravel(), 0.5))
        logits = (query @ target.T).numpy() / 0.5 + 0.5 * (popularity - popularity.mean())
        arrays = trainer.batch_arrays(0, 0)
        candidates = arrays["candidates"]
        row = np.repeat(np.arange(len(arrays["queries"])), np.diff(arrays["offsets"]))
        column = np.random.default_rng([3, 0, 0]).integers(0, len(candidates), len(row))
        weight = (trainer.answers.sum(axis=0) + 0.1) ** config.popularity_exponent
        share = weight / weight.sum()
        among = np.log(1 - (1 - share) ** config.candidates)
        terms = []
        for place, answer in enumerate(arrays["answers"]):
            user = arrays["queries"][row[place]]
            known = set(trainer.answers[[user]].indices.tolist())
            found = logits[user, answer]
            if loss == "sampled_softmax":
                rest = [logits[user, node] - among[node] for node in candidates if node not in known]
                terms.append(np.log1p(np.exp(np.logaddexp.reduce(rest) - found)))
                continue
            node = candidates[column[place]]
            if node in known:
                continue
            against = logits[user, node]
            terms.append(
                {
                    "bpr": np.log1p(np.exp(against - found)),
                    "hinge": max(0.0, 1.0 - found + against),
                    "sigmoid": np.log1p(np.exp(-found)) + np.log1p(np.exp(against)),
                    "nce": np.log1p(np.exp(-(found - np.log(share[answer]))))
                    + np.log1p(np.exp(against - np.log(share[node]))),
                }[loss]
            )
        assert terms
        value, _ = trainer.train_batch(0, 0)
        assert value == pytest.approx(np.mean(terms), rel=1e-4)


class TestLogits:
    def test_score_is_cosine_and_popularity(
        self, shop: Graph, split: RecommendSplit, task: RecommendTaskConfig
    ) -> None:
        config = config_of("lightgcn", popularity=0.7, temperature=0.25)
        view = GraphView(shop, split)
        trainer = RecommendationTrainer(config, Assignment("model", view, split, task, 0, 1))
        score = trainer.trained("model", view).score(np.arange(USERS))
        with torch.no_grad():
            query, target = (each.numpy() for each in trainer.network.all_vectors())
        norms = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(target, axis=1)[None, :]
        popularity = np.log(np.maximum(np.asarray(trainer.answers.sum(axis=0)).ravel(), 0.5))
        expected = query @ target.T / norms + 0.25 * 0.7 * (popularity - popularity.mean())[None, :]
        np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-6)

    def test_task_of_another_kind_is_refused(
        self, shop: Graph, split: RecommendSplit, tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match="expected a task of kind recommend"):
            fit(
                shop,
                None,
                name="model",
                config=config_of("lightgcn"),
                task=None,
                run_folder=tmp_path,
                seed=0,
            )
