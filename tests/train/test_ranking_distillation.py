"""Distillation of rankings: the teachers' lists, what a student learns of them, and that nothing leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from graphbox.config import (
    LightGCNConfig,
    MatrixFactorizationConfig,
    RankingDistillationSection,
    RecommendTaskConfig,
)
from graphbox.errors import ConflictError, InterruptedRunError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.metrics import RankingQueries
from graphbox.train import GraphView, RecommendSplit, TrainedModel, fit, load_trained, make_split
from graphbox.train.assignment import Assignment
from graphbox.train.distillation import earlier_models, teacher_agreement
from graphbox.train.recommendation.distillation import (
    RankedLists,
    Vectors,
    list_agreement,
    listwise_divergence,
    ranked_lists,
)
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


def config_of(kind: str = "lightgcn", distil: dict[str, Any] | None = None, **settings: Any) -> Config:
    section = LightGCNConfig if kind == "lightgcn" else MatrixFactorizationConfig
    if distil is not None:
        settings["distil"] = RankingDistillationSection(**{"teachers": ("teacher",), "k": 20, **distil})
    return section(**{"kind": kind, **SETTINGS, **settings})


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


class Run:
    """The folder of a run, in which models are trained one after the other."""

    def __init__(self, graph: Graph, split: RecommendSplit, task: RecommendTaskConfig, folder: Path) -> None:
        self.graph, self.split, self.task, self.folder = graph, split, task, folder
        self.teacher = self.train("teacher", config_of(dim=32))

    def train(self, name: str, config: Config, **options: Any) -> TrainedModel:
        settings = {"seed": 4, "threads": 1, **options}
        return fit(
            self.graph,
            self.split,
            name=name,
            config=config,
            task=self.task,
            run_folder=self.folder,
            **settings,
        )

    def trainer(self, config: Config) -> RecommendationTrainer:
        earlier = earlier_models(config, "student", self.folder)
        view = GraphView(self.graph, self.split)
        return RecommendationTrainer(
            config, Assignment("student", view, self.split, self.task, 4, 1, earlier=earlier)
        )

    def agreement(self, student: TrainedModel, *teachers: TrainedModel) -> float:
        said = teachers or (self.teacher,)
        return teacher_agreement(student, said, self.graph, self.split, self.task)


@pytest.fixture
def run(shop: Graph, split: RecommendSplit, task: RecommendTaskConfig, tmp_path: Path) -> Run:
    return Run(shop, split, task, tmp_path)


def same(mine: TrainedModel, theirs: TrainedModel) -> bool:
    queries = np.arange(USERS)
    return bool((mine.score(queries) == theirs.score(queries)).all())


def divergence(
    listed: NDArray[Any],
    said: NDArray[Any],
    others: NDArray[Any],
    log_drawn: NDArray[Any],
    temperature: float,
) -> float:
    """Return the loss by its definition, query by query and in double precision."""
    terms = []
    for own, wanted, rest in zip(listed, said, others, strict=True):
        there = wanted > 0
        weights = [*(own[there] / temperature), logsumexp(rest / temperature - log_drawn)]
        log_own = np.array(weights) - logsumexp(weights)
        classes = np.array([*wanted[there], 1.0 - wanted.sum()])
        terms.append(np.sum(classes * (np.log(classes) - log_own)))
    return float(np.mean(terms) * temperature**2)


class TestLoss:
    """The loss beside its definition in NumPy."""

    @pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
    def test_it_is_its_definition(self, temperature: float) -> None:
        generator = np.random.default_rng(1)
        listed, others = generator.normal(size=(9, 6)) * 3, generator.normal(size=(9, 15)) * 3
        said = softmax(generator.normal(size=(9, 7)) * 2, axis=1)[:, :6]
        said[2, 4:] = said[5] = 0.0  # shorter lists, and one of nothing
        log_drawn = np.log(generator.uniform(0.1, 1.0, 15))
        others[generator.random(others.shape) < 0.3] = -np.inf
        own, wanted, rest, log_probability = (
            torch.from_numpy(each.astype(np.float32)) for each in (listed, said, others, log_drawn)
        )
        found = listwise_divergence(own, wanted, rest, log_probability, temperature)
        assert float(found) == pytest.approx(
            divergence(listed, said, others, log_drawn, temperature), rel=1e-4
        )

    def test_of_all_candidates_it_is_least_where_both_say_the_same(self) -> None:
        generator = np.random.default_rng(2)
        logits = torch.from_numpy(generator.normal(size=(5, 30)).astype(np.float32))
        said = torch.softmax(logits / 2.0, dim=1)[:, :8]
        own = logits.clone().requires_grad_()
        loss = listwise_divergence(own[:, :8], said, own[:, 8:], torch.zeros(22), 2.0)
        loss.backward()  # type: ignore[no-untyped-call]
        assert abs(float(loss.detach())) < 1e-5
        assert own.grad is not None
        assert float(own.grad.abs().max()) < 1e-6
        assert float(listwise_divergence(-logits[:, :8], said, logits[:, 8:], torch.zeros(22), 2.0)) > 0.1

    def test_queries_without_other_candidates_have_gradients(self) -> None:
        listed = torch.zeros(2, 3, requires_grad=True)
        others = torch.full((2, 4), -torch.inf, requires_grad=True)
        said = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]])
        listwise_divergence(listed, said, others, torch.zeros(4)).backward()  # type: ignore[no-untyped-call]
        assert listed.grad is not None
        assert torch.isfinite(listed.grad).all()
        assert torch.isfinite(others.grad if others.grad is not None else torch.zeros(1)).all()

    def test_drawn_candidates_stand_for_all(self) -> None:
        """In the mean over draws the others have the weight of all of them."""
        generator = np.random.default_rng(3)
        logits, kept = generator.normal(size=400), generator.uniform(0.2, 0.8, 400)
        said, listed = torch.ones(1, 1), torch.zeros(1, 1)
        weights = []
        for _ in range(500):
            drawn = generator.random(400) < kept
            others = torch.from_numpy(logits[None, drawn].astype(np.float32))
            log_kept = torch.from_numpy(np.log(kept[drawn]).astype(np.float32))
            # The only listed candidate has weight 1: the loss is log(1 + the others' weight).
            weights.append(np.expm1(float(listwise_divergence(listed, said, others, log_kept))))
        assert np.mean(weights) == pytest.approx(np.exp(logits).sum(), rel=0.02)


def towers(generator: np.random.Generator, queries: int, candidates: int, dim: int) -> Vectors:
    return (
        generator.normal(size=(queries, dim)).astype(np.float32),
        generator.normal(size=(candidates, dim)).astype(np.float32),
    )


def asked(nodes: NDArray[np.int64], masked: sp.csr_array, removed: tuple[int, ...] = ()) -> RankingQueries:
    return RankingQueries(
        nodes,
        np.zeros(len(nodes) + 1, np.int64),
        np.zeros(0, np.int64),
        masked.indptr.astype(np.int64),
        masked.indices.astype(np.int64),
        np.array(removed, np.int64),
    )


class TestLists:
    """The teachers' lists beside a full ranking in NumPy."""

    @pytest.mark.parametrize("teachers", [1, 3])
    @pytest.mark.parametrize("k", [7, 500])
    def test_they_are_the_best_of_a_full_ranking(self, teachers: int, k: int) -> None:
        generator = np.random.default_rng(4)
        of_teachers = [towers(generator, 200, 60, dim) for dim in (4, 8, 5)[:teachers]]
        nodes = generator.permutation(200)[:150]  # several blocks
        known = sp.csr_array((generator.random((150, 60)) < 0.3).astype(np.float32))
        removed = (3, 41)
        found = ranked_lists(of_teachers, asked(nodes, known, removed), k, 0.7)
        assert found.candidates.shape == found.probability.shape == (150, min(k, 60))
        for place, node in enumerate(nodes):
            allowed = np.setdiff1d(np.arange(60), [*known[[place]].indices, *removed])
            said = np.mean(
                [
                    softmax((queries[node] @ items[allowed].T).astype(float) / 0.7)
                    for queries, items in of_teachers
                ],
                axis=0,
            )
            best = np.argsort(-said)[: min(k, 60)]
            np.testing.assert_array_equal(found.candidates[place, : len(best)], allowed[best])
            np.testing.assert_allclose(found.probability[place, : len(best)], said[best], rtol=1e-4)
            assert (found.candidates[place, len(best) :] == -1).all()
            assert (found.probability[place, len(best) :] == 0).all()

    def test_a_query_that_knows_all(self) -> None:
        generator = np.random.default_rng(5)
        known = sp.csr_array(np.array([[1.0] * 9, [0.0] * 9], np.float32))
        lists = ranked_lists([towers(generator, 2, 9, 3)], asked(np.arange(2), known), 4, 1.0)
        assert (lists.candidates[0] == -1).all()
        assert (lists.probability[0] == 0).all()
        assert (lists.candidates[1] >= 0).all()

    def test_agreement(self) -> None:
        generator = np.random.default_rng(6)
        one, other = (towers(generator, 30, 50, 6) for _ in range(2))
        queries = asked(np.arange(30), sp.csr_array((30, 50), dtype=np.float32))
        assert list_agreement(one, [one], queries, 10) == 1.0
        shares = [
            len(
                set(np.argsort(-(one[0][node] @ one[1].T))[:10])
                & set(np.argsort(-(other[0][node] @ other[1].T))[:10])
            )
            / 10
            for node in range(30)
        ]
        assert list_agreement(one, [other], queries, 10) == pytest.approx(np.mean(shares))


class TestStudent:
    """Models of kind lightgcn and matrix_factorization with teachers."""

    @pytest.mark.parametrize("kind", ["lightgcn", "matrix_factorization"])
    def test_it_ranks_as_its_teacher_does(self, run: Run, kind: str) -> None:
        taught = run.train("taught", config_of(kind, {}, dim=8, epochs=20))
        alone = run.train("alone", config_of(kind, dim=8, epochs=20))
        assert run.agreement(taught) > run.agreement(alone) + 0.05
        assert taught.embeddings["user"].shape == (USERS, 8)

    @pytest.mark.parametrize("kind", ["lightgcn", "matrix_factorization"])
    @pytest.mark.parametrize("answer_weight", [0.0, 0.4])
    def test_its_loss_is_the_definition(self, run: Run, kind: str, answer_weight: float) -> None:
        distil = {"temperature": 1.5, "k": 9, "answer_weight": answer_weight}
        trainer = run.trainer(config_of(kind, distil, temperature=0.5, popularity=0.5))
        trainer.begin_epoch(0)
        with torch.no_grad():
            query, target = (
                torch.nn.functional.normalize(each, dim=1).numpy() for each in trainer.network.all_vectors()
            )
        popularity = np.log(np.maximum(np.asarray(trainer.answers.sum(axis=0)).ravel(), 0.5))
        logits = (query @ target.T).astype(float) / 0.5 + 0.5 * (popularity - popularity.mean())
        batch = trainer.batch_arrays(0, 0)
        drawn = batch["candidates"]
        weight = (trainer.answers.sum(axis=0) + 0.1) ** trainer._config.popularity_exponent
        log_drawn = np.log(1 - (1 - weight / weight.sum()) ** trainer._config.candidates)[drawn]
        said, of_answers, others = [], [], []
        for place, user in enumerate(batch["queries"]):
            known = trainer.answers[[user]].indices
            allowed = np.setdiff1d(np.arange(ITEMS), known)
            scores = run.teacher.score(np.array([user]))[0, allowed].astype(float)
            likely = softmax(scores / (0.5 * 1.5))
            listed = batch["listed"][place]
            assert set(listed) == set(allowed[np.argsort(-likely)[:9]])
            said.append(likely[np.searchsorted(allowed, listed)])
            hidden = np.isin(drawn, [*known, *listed])
            others.append(np.where(hidden, -np.inf, logits[user, drawn]))
            rest = np.logaddexp.reduce((logits[user, drawn] - log_drawn)[~np.isin(drawn, known)])
            of_answers += [np.log1p(np.exp(rest - logits[user, answer])) for answer in known]
        own = np.take_along_axis(logits[batch["queries"]], batch["listed"], axis=1)
        taught = divergence(own, np.array(said), np.array(others), log_drawn, 1.5)
        value, _ = trainer.train_batch(0, 0)
        expected = answer_weight * np.mean(of_answers) + (1 - answer_weight) * taught
        assert value == pytest.approx(expected, rel=1e-3)

    def test_lists_have_no_training_answers_and_come_from_the_teacher_alone(self, run: Run) -> None:
        trainer = run.trainer(config_of(distil={"k": ITEMS}))
        batches = trainer.begin_epoch(0)
        held_out = np.concatenate([run.split.validation, run.split.test])
        met = 0
        for number in range(batches):
            batch = trainer.batch_arrays(0, number)
            for user, listed in zip(batch["queries"], batch["listed"], strict=True):
                known = trainer.answers[[user]].indices
                there = listed[listed >= 0]
                assert sorted([*there, *known]) == list(range(ITEMS))
                scores = run.teacher.score(np.array([user]))[0, there]
                assert (np.diff(scores) <= 1e-5).all(), "held-out answers have the place that they are given"
                met += int(np.isin(held_out[held_out[:, 0] == user, 1], there).sum())
        assert met, "held-out answers are candidates like any other"

    def test_within_one_type_nothing_lists_itself(
        self,
        graph: Graph,
        recommend_split: RecommendSplit,
        recommend_task: RecommendTaskConfig,
        tmp_path: Path,
    ) -> None:
        run = Run(graph, recommend_split, recommend_task, tmp_path)
        trainer = run.trainer(config_of(distil={"k": 400}))
        trainer.begin_epoch(0)
        batch = trainer.batch_arrays(0, 0)
        assert not (batch["listed"] == batch["queries"][:, None]).any()
        taught = run.train("taught", config_of(distil={}, dim=8, epochs=20))
        alone = run.train("alone", config_of(dim=8, epochs=20))
        assert run.agreement(taught) > run.agreement(alone)

    def test_same_seed_same_student(self, run: Run) -> None:
        config = config_of(distil={"answer_weight": 0.3}, epochs=3)
        first = run.train("first", config)
        assert same(first, run.train("again", config))
        assert not same(first, run.train("other", config, seed=5))

    def test_several_teachers_make_a_difference(self, run: Run) -> None:
        run.train("second", config_of("matrix_factorization"))
        one = run.train("one", config_of(distil={}, epochs=3))
        both = {"teachers": ("teacher", "second")}
        assert not same(one, run.train("both", config_of(distil=both, epochs=3)))

    @pytest.mark.parametrize("kind", ["lightgcn", "matrix_factorization"])
    def test_stopped_and_resumed_it_ends_with_the_same_bits(self, run: Run, kind: str) -> None:
        config = config_of(kind, {}, epochs=3)
        whole = run.train("whole", config)
        calls = iter(range(1000))
        with pytest.raises(InterruptedRunError):
            run.train("stopped", config, stop=lambda: next(calls) == 5, checkpoint_interval_s=0.0)
        assert same(run.train("stopped", config, resume=True), whole)

    def test_a_checkpoint_of_another_teacher_is_refused(self, run: Run) -> None:
        config = config_of(distil={}, epochs=2)
        run.train("student", config)
        run.train("teacher", config_of(dim=32, epochs=3))
        with pytest.raises(ConflictError):
            run.train("student", config, resume=True)

    def test_two_processes_learn_what_one_does(self, run: Run) -> None:
        config = config_of("matrix_factorization", {"answer_weight": 0.3}, epochs=3)
        one, two = run.train("one", config), run.train("two", config, processes=2)
        queries = np.arange(USERS)
        np.testing.assert_allclose(two.score(queries), one.score(queries), atol=1e-3)


class TestRefusals:
    """Teachers that cannot teach are refused with the key."""

    def test_one_that_is_not_trained(self, run: Run) -> None:
        with pytest.raises(NotFoundError, match="there is no trained model `other` in this run"):
            run.train("student", config_of(distil={"teachers": ("other",)}))

    def test_one_of_other_nodes(self, run: Run) -> None:
        target = run.folder / "embeddings" / "teacher" / "target" / "item.npy"
        np.save(target, np.array(load_trained(run.folder, "teacher").target)[:-1])
        with pytest.raises(
            UsageError, match="120 queries and 80 candidates, received `teacher` with 120 and 79"
        ):
            run.train("student", config_of(distil={}))


def test_lists_take_eight_bytes_for_each_candidate() -> None:
    lists = ranked_lists(
        [towers(np.random.default_rng(7), 70, 40, 3)],
        asked(np.arange(70), sp.csr_array((70, 40), dtype=np.float32)),
        10,
        1.0,
    )
    assert isinstance(lists, RankedLists)
    assert lists.candidates.nbytes + lists.probability.nbytes == 8 * 70 * 10
