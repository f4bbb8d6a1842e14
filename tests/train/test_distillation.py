"""Distillation: what a student learns from its teachers, and that it needs no neighbours to answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.special import log_softmax, softmax

from graphbox.config import (
    ClassifyTaskConfig,
    DeepWalkConfig,
    DistillationSection,
    GraphNetworkConfig,
    MlpConfig,
    ModelSection,
)
from graphbox.errors import ConflictError, InterruptedRunError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.train import TrainedModel, fit, load_trained
from graphbox.train.distillation import Distillation, teacher_agreement
from graphbox.train.forgetting import holds_rows, without_rows
from tests.train.test_graph_network import PAPERS, build, split_of

CLASSES = 3


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build(tmp_path_factory.mktemp("papers") / "graph")


def train(graph: Graph, folder: Path, name: str, config: ModelSection, **options: Any) -> TrainedModel:
    split = None if config.task is None else split_of(graph)
    arguments = {"seed": 3, "threads": 1, "checkpoint_interval_s": 0.0, **options}
    return fit(graph, split, name=name, config=config, task=None, run_folder=folder, **arguments)


def teacher(graph: Graph, folder: Path, name: str = "gcn", **settings: Any) -> TrainedModel:
    settings = {"layer": "gcn", "dim": 8, "epochs": 30, "dropout": 0.0, **settings}
    return train(graph, folder, name, GraphNetworkConfig(kind="gnn", task="t", **settings))


def mlp(*teachers: str, **settings: Any) -> MlpConfig:
    distil = DistillationSection(teachers=teachers, temperature=2.0) if teachers else None
    settings = {"dim": 16, "epochs": 5, "batch_size": 16, "distil": distil, **settings}
    return MlpConfig(kind="mlp", task="t", **settings)


@pytest.fixture
def run(papers: Graph, tmp_path: Path) -> Path:
    """Return the folder of a run with a trained teacher and rows of walks."""
    teacher(papers, tmp_path)
    walks = DeepWalkConfig(kind="deepwalk", dim=6, epochs=1, walk_length=10)
    train(papers, tmp_path, "walks", walks)
    return tmp_path


def agreement(graph: Graph, student: TrainedModel, teachers: list[TrainedModel]) -> float:
    task = ClassifyTaskConfig(kind="classify", node_type="paper", label="topic")
    return teacher_agreement(student, teachers, graph, split_of(graph), task, "validation")


def same(mine: TrainedModel, theirs: TrainedModel) -> bool:
    assert mine.logits is not None
    assert theirs.logits is not None
    return bool((mine.logits == theirs.logits).all())


class TestLoss:
    """The loss beside its definition in NumPy."""

    @pytest.mark.parametrize("temperature", [1.0, 4.0, 0.5])
    @pytest.mark.parametrize("label_weight", [0.0, 0.3])
    @pytest.mark.parametrize("teachers", [1, 3])
    def test_it_is_its_definition(
        self, papers: Graph, temperature: float, label_weight: float, teachers: int
    ) -> None:
        generator = np.random.default_rng(1)
        said = [generator.normal(size=(PAPERS, CLASSES)).astype(np.float32) * 3 for _ in range(teachers)]
        student = generator.normal(size=(17, CLASSES)).astype(np.float32)
        nodes = generator.permutation(PAPERS)[:17]
        split = split_of(papers)
        section = DistillationSection(
            teachers=tuple(f"t{number}" for number in range(teachers)),
            temperature=temperature,
            label_weight=label_weight,
        )
        loss = Distillation(section, said, split, torch.device("cpu"))
        found = loss.loss(torch.from_numpy(student), torch.from_numpy(nodes))

        soft = np.mean([softmax(each[nodes].astype(float) / temperature, axis=1) for each in said], axis=0)
        own = log_softmax(student.astype(float) / temperature, axis=1)
        divergence = (soft * (np.log(soft) - own)).sum(axis=1).mean() * temperature**2
        train_nodes = split.nodes("train")
        of_known = [
            -log_softmax(student[place].astype(float))[split.labels[node]]
            for place, node in enumerate(nodes)
            if node in train_nodes
        ]
        by_label = np.sum(of_known) * PAPERS / len(train_nodes) / len(nodes)
        expected = (1 - label_weight) * divergence + label_weight * by_label
        np.testing.assert_allclose(float(found), expected, rtol=1e-5)

    def test_it_is_zero_where_both_say_the_same(self, papers: Graph) -> None:
        said = np.random.default_rng(2).normal(size=(PAPERS, CLASSES)).astype(np.float32)
        loss = Distillation(
            DistillationSection(teachers=("t",), temperature=3.0),
            [said],
            split_of(papers),
            torch.device("cpu"),
        )
        nodes = torch.arange(PAPERS)
        assert abs(float(loss.loss(torch.from_numpy(said), nodes))) < 1e-6
        assert float(loss.loss(torch.zeros(PAPERS, CLASSES), nodes)) > 0.1

    def test_teachers_of_other_classes_are_refused(self, papers: Graph) -> None:
        section = DistillationSection(teachers=("wide",))
        said = np.zeros((PAPERS, CLASSES + 1), np.float32)
        with pytest.raises(UsageError, match=r"40 nodes and 3 classes, received `wide` with \[40, 4\]"):
            Distillation(section, [said], split_of(papers), torch.device("cpu"))


class TestStudent:
    """Models of kind mlp, with teachers and with rows of another model."""

    def test_it_says_what_its_teacher_says(self, papers: Graph, run: Path) -> None:
        taught = train(papers, run, "mlp", mlp("gcn", epochs=150, dropout=0.0, positions="walks"))
        alone = train(papers, run, "alone", mlp(epochs=1))
        said = [load_trained(run, "gcn")]
        assert agreement(papers, taught, said) >= 0.9
        assert agreement(papers, alone, said) < 0.9

    def test_same_seed_same_student(self, papers: Graph, run: Path) -> None:
        config = mlp("gcn", positions="walks", row_dropout=0.3)
        first = train(papers, run, "mlp", config)
        assert same(first, train(papers, run, "again", config))
        assert not same(first, train(papers, run, "other", config, seed=4))

    def test_teachers_and_labels_make_a_difference(self, papers: Graph, run: Path) -> None:
        teacher(papers, run, "sage", layer="sage")
        one = train(papers, run, "one", mlp("gcn"))
        assert not same(one, train(papers, run, "two", mlp("gcn", "sage")))
        labelled = DistillationSection(teachers=("gcn",), temperature=2.0, label_weight=0.5)
        assert not same(one, train(papers, run, "labelled", mlp(distil=labelled)))

    def test_stopped_and_resumed_it_ends_with_the_same_bits(self, papers: Graph, run: Path) -> None:
        config = mlp("gcn", positions="walks")
        whole = train(papers, run, "mlp", config)
        calls = iter(range(1000))
        with pytest.raises(InterruptedRunError):
            train(papers, run, "stopped", config, stop=lambda: next(calls) == 7)
        assert same(train(papers, run, "stopped", config, resume=True), whole)

    def test_it_ends_as_it_agreed_best(self, papers: Graph, run: Path) -> None:
        config = mlp("gcn", positions="walks", epochs=30, validate_every=3)
        student = train(papers, run, "mlp", config)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        name = "validation_teacher_agreement"
        figures = [each["values"][name] for each in lines if name in each["values"]]
        assert len(figures) == 10
        said = [load_trained(run, "gcn")]
        assert agreement(papers, student, said) == max(figures)

    def test_a_checkpoint_of_another_teacher_is_refused(self, papers: Graph, run: Path) -> None:
        train(papers, run, "mlp", mlp("gcn"))
        teacher(papers, run, epochs=3)
        with pytest.raises(ConflictError):
            train(papers, run, "mlp", mlp("gcn"), resume=True)

    def test_a_graph_network_can_be_a_student(self, papers: Graph, run: Path) -> None:
        distil = DistillationSection(teachers=("gcn",))
        small = teacher(papers, run, "small", layers=1, distil=distil, epochs=60)
        assert agreement(papers, small, [load_trained(run, "gcn")]) >= 0.8

    def test_it_comes_back_from_disk(self, papers: Graph, run: Path) -> None:
        trained = train(papers, run, "mlp", mlp("gcn", positions="walks"))
        found = load_trained(run, "mlp").over(papers).logits
        assert found is not None
        assert trained.logits is not None
        np.testing.assert_allclose(found, trained.logits, rtol=1e-5, atol=1e-6)

    def test_edges_are_not_read(self, papers: Graph, run: Path) -> None:
        network = train(papers, run, "mlp", mlp("gcn", positions="walks")).network
        assert network is not None
        alone = papers.without_edges({each: np.arange(papers.num_edges(each)) for each in papers.edge_types})
        kept = network.over(papers).logits, network.over(alone).logits
        np.testing.assert_array_equal(*kept)
        assert network.edge_types == ()

    def test_later_nodes_enter_without_a_position(
        self, papers: Graph, run: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        network = train(papers, run, "mlp", mlp("gcn", positions="walks", features={"paper": ()})).network
        assert network is not None
        more = build(tmp_path_factory.mktemp("more") / "graph", PAPERS + 2)
        logits = network.over(more).logits
        assert logits is not None
        np.testing.assert_array_equal(logits[PAPERS], logits[PAPERS + 1])
        assert (logits[0] != logits[PAPERS]).any()
        known = network.is_known(more, "paper")
        assert known[:PAPERS].all()
        assert not known[PAPERS:].any()

    def test_positions_are_forgotten(self, papers: Graph, run: Path) -> None:
        network = train(papers, run, "mlp", mlp("gcn", positions="walks")).network
        assert network is not None
        ids = {"paper": pa.array(["3", "7"], pa.large_string())}
        assert holds_rows(network, ids)
        left = without_rows(network, ids)
        assert not holds_rows(left, ids)
        assert left.positions is not None
        assert len(left.positions.ids) == PAPERS - 2


class TestRefusals:
    """Settings that a student cannot use are refused with their key."""

    def test_a_teacher_that_is_not_trained(self, papers: Graph, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="there is no trained model `gcn` in this run"):
            train(papers, tmp_path, "mlp", mlp("gcn"))

    def test_a_teacher_that_tells_no_classes(self, papers: Graph, run: Path) -> None:
        with pytest.raises(UsageError, match="tells classes itself, received `walks`") as caught:
            train(papers, run, "mlp", mlp("walks"))
        assert caught.value.where == "models.mlp.distil.teachers"

    def test_positions_of_other_nodes(self, papers: Graph, run: Path) -> None:
        edges = ("author", "wrote", "paper")
        teacher(papers, run, "authors", relations=(edges,))
        trained = load_trained(run, "authors")
        path = run / "embeddings" / "authors" / "paper.npy"
        np.save(path, np.array(trained.embeddings["paper"][:-1]))
        with pytest.raises(UsageError, match="a row of `authors` for each of 40 nodes of paper, received 39"):
            train(papers, run, "mlp", mlp("gcn", positions="authors"))
