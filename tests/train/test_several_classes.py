"""Nodes with several classes: what is held out, classifiers over embeddings, and graph networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.metrics import several_classes_report
from graphbox.train import (
    ClassifySplit,
    GraphView,
    evaluate_baselines,
    evaluate_embeddings,
    evaluate_logits,
    fit,
    load_trained,
    make_split,
)
from graphbox.train.assignment import Assignment
from graphbox.train.choosing.facts import facts_of
from graphbox.train.network.classify import GraphNetworkTrainer
from graphbox.train.tasks import load_split, save_split

PAPERS, TOPICS = 240, 5
ABOUT = ("paper", "about", "topic")


def topics_of(seed: int = 0) -> NDArray[np.bool_]:
    """One to three topics of each paper, none of the last ten."""
    generator = np.random.default_rng(seed)
    found = np.zeros((PAPERS, TOPICS), bool)
    for paper in range(PAPERS - 10):
        found[paper, generator.permutation(TOPICS)[: generator.integers(1, 4)]] = True
    return found


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Papers that cite papers with a topic in common, their topics as slots and as edges."""
    folder = tmp_path_factory.mktemp("library")
    generator, topics = np.random.default_rng(1), topics_of()
    names = [f"p{paper}" for paper in range(PAPERS)]
    part = np.where(np.arange(PAPERS) % 4 == 0, "test", np.where(np.arange(PAPERS) % 4 == 1, "val", "train"))
    table = {
        "id": names,
        "topics": pa.array([np.flatnonzero(each).astype(np.int64) + 100 for each in topics]),
        "part": part,
        "x": pa.array(
            list(topics @ generator.normal(size=(TOPICS, 8)) + generator.normal(size=(PAPERS, 8)) / 2)
        ),
    }
    pq.write_table(pa.table(table), folder / "paper.parquet")
    pq.write_table(pa.table({"id": [f"t{topic}" for topic in range(TOPICS)]}), folder / "topic.parquet")
    source, target = generator.integers(0, PAPERS, (2, 6000))
    alike = (topics[source] & topics[target]).any(axis=1) & (source != target)
    pairs = np.unique(np.stack([source, target], axis=1)[alike][:900], axis=0)
    for name, first, second in (
        ("cites", [names[each] for each in pairs[:, 0]], [names[each] for each in pairs[:, 1]]),
        (
            "about",
            [names[each] for each in topics.nonzero()[0]],
            [f"t{each}" for each in topics.nonzero()[1]],
        ),
    ):
        pq.write_table(pa.table({"source": first, "target": second}), folder / f"{name}.parquet")
    source_of = GraphSource(
        "library",
        {
            "paper": NodeSource(
                folder / "paper.parquet", features={"topics": "slots", "part": "categorical", "x": "vector"}
            ),
            "topic": NodeSource(folder / "topic.parquet"),
        },
        (
            EdgeSource(("paper", "cites", "paper"), folder / "cites.parquet"),
            EdgeSource(ABOUT, folder / "about.parquet", reverse="of"),
        ),
    )
    import_graph(source_of, folder / "graph")
    return Graph.open(folder / "graph")


def task_of(**settings: Any) -> ClassifyTaskConfig:
    return ClassifyTaskConfig.model_validate({"kind": "classify", "node_type": "paper", **settings})


BY_SLOTS, BY_EDGES = task_of(labels="topics"), task_of(memberships=ABOUT)


def split_of(graph: Graph, task: ClassifyTaskConfig) -> ClassifySplit:
    split = make_split(graph, task, 0)
    assert isinstance(split, ClassifySplit)
    return split


class TestSplit:
    @pytest.mark.parametrize(("task", "prefix"), [(BY_SLOTS, "10"), (BY_EDGES, "t")])
    def test_classes_are_those_of_the_data(
        self, library: Graph, task: ClassifyTaskConfig, prefix: str, tmp_path: Path
    ) -> None:
        split = split_of(library, task)
        assert split.has_several
        assert split.classes == tuple(f"{prefix}{topic}" for topic in range(TOPICS))
        save_split(split, tmp_path / "split.npz")
        again = load_split(tmp_path / "split.npz")
        assert isinstance(again, ClassifySplit)
        known = again.nodes("train", "validation", "test")
        np.testing.assert_array_equal(known, np.arange(PAPERS - 10))
        np.testing.assert_array_equal(again.members(known).toarray() > 0, topics_of())
        some = known[::7]
        members = again.members(some).toarray() > 0
        np.testing.assert_array_equal(members[some], topics_of()[some])
        assert not np.delete(members, some, axis=0).any()
        assert again.digest == split.digest

    def test_both_forms_are_held_out_alike(self, library: Graph) -> None:
        np.testing.assert_array_equal(split_of(library, BY_SLOTS).fold, split_of(library, BY_EDGES).fold)
        given = {"split": {"kind": "given", "feature": "part"}}
        split = split_of(library, task_of(labels="topics", **given))
        assert (split.nodes("test") % 4 == 0).all()
        assert (split.nodes("validation") % 4 == 1).all()

    def test_models_do_not_see_classes(self, library: Graph) -> None:
        seen = GraphView(library, split_of(library, BY_EDGES), "test")
        assert {edge_type[1] for edge_type in seen.edge_types} == {"cites"}
        with pytest.raises(UsageError, match="held out"):
            seen.csc(ABOUT)
        seen = GraphView(library, split_of(library, BY_SLOTS), "test")
        assert set(seen.features("paper")) == {"part", "x"}
        with pytest.raises(UsageError, match="is to predict"):
            seen.feature("paper", "topics")

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({}, "received none"),
            ({"label": "part", "labels": "topics"}, "received label and labels"),
            ({"memberships": ("topic", "of", "paper")}, "expected `memberships` that leave from `paper`"),
        ],
    )
    def test_one_form_is_asked_for(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            task_of(**settings)

    def test_columns_of_another_kind_are_refused(self, library: Graph) -> None:
        with pytest.raises(UsageError, match=r"of kind slots, received `part` \(categorical\)"):
            make_split(library, task_of(labels="part"), 0)
        with pytest.raises(UsageError, match="a list of classes is named under `labels`"):
            make_split(library, task_of(label="topics"), 0)

    def test_nodes_without_classes_are_none(self, library: Graph) -> None:
        task = task_of(labels="topics", split={"kind": "given", "feature": "part", "test": ("none",)})
        with pytest.raises(DataError):
            make_split(library, task, 0)


@pytest.mark.parametrize("task", [BY_SLOTS, BY_EDGES])
def test_the_classifier_over_embeddings_is_one_versus_the_rest(
    library: Graph, task: ClassifyTaskConfig
) -> None:
    split = split_of(library, task)
    rows = np.asarray(library.feature("paper", "x"), np.float32)
    known, test = split.nodes("train", "validation"), split.nodes("test")
    columns = ((rows - rows[known].mean(axis=0)) / rows[known].std(axis=0)).astype(np.float32)
    reference = OneVsRestClassifier(LogisticRegression(C=1.0, tol=1e-3, max_iter=200))
    reference.fit(columns[known], topics_of()[known].astype(int))
    expected = several_classes_report(
        topics_of()[test], reference.predict_proba(columns[test]).astype(np.float32)
    )
    report = evaluate_embeddings(library, split, task, {"paper": rows})
    assert report == pytest.approx(expected, abs=1e-9)
    assert report["micro_f1"] > 0.7


def test_baselines_vote_for_shares(library: Graph) -> None:
    split = split_of(library, BY_SLOTS)
    report = evaluate_baselines(library, split, BY_SLOTS)
    assert list(report) == ["majority", "neighbors_vote", "label_propagation", "sgc"]
    for name in ("neighbors_vote", "label_propagation", "sgc"):
        assert report[name]["micro_f1"] > report["majority"]["micro_f1"]
    known = split.nodes("train", "validation")
    topics = topics_of()
    source, target = (each.tolist() for each in library.csc(("paper", "cites", "paper")).coo())
    shares = topics[known].mean(axis=0)
    scores = np.tile(0.5 * shares, (PAPERS, 1))
    count = np.full((PAPERS, 1), 0.5)
    is_known = np.isin(np.arange(PAPERS), known)
    for one, other in [*zip(source, target, strict=True), *zip(target, source, strict=True)]:
        if is_known[other]:
            scores[one] += topics[other]
            count[one] += 1
    test = split.nodes("test")
    expected = several_classes_report(topics[test], (scores / count)[test].astype(np.float32))
    assert report["neighbors_vote"] == pytest.approx(expected, abs=1e-6)


def network(**settings: Any) -> GraphNetworkConfig:
    sizes = {"dim": 16, "layers": 1, "epochs": 40, "dropout": 0.0, "learning_rate": 0.02}
    return GraphNetworkConfig.model_validate({"kind": "gnn", "task": "t", **sizes, **settings})


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("task", [BY_SLOTS, BY_EDGES])
def test_networks_learn_several_classes(
    library: Graph, task: ClassifyTaskConfig, sampled: bool, tmp_path: Path
) -> None:
    split = split_of(library, task)
    config = network(**({"num_neighbors": (5,), "batch_size": 64} if sampled else {}))
    trained = fit(
        library, split, name="model", config=config, task=task, run_folder=tmp_path, seed=0, threads=1
    )
    assert trained.logits is not None
    report = evaluate_logits(split, trained.logits)
    probability = 1.0 / (1.0 + np.exp(-trained.logits.astype(np.float64)))
    test = split.nodes("test")
    assert report == several_classes_report(topics_of()[test], probability[test].astype(np.float32))
    baselines = evaluate_baselines(library, split, task)
    assert report["micro_f1"] > baselines["majority"]["micro_f1"] + 0.1
    assert report["threshold_micro_f1"] > 0.6
    assert "validation_micro_f1" in (tmp_path / "metrics.jsonl").read_text()
    kept = load_trained(tmp_path, "model").inductive_network()
    assert kept.has_several_classes
    nodes = np.arange(0, PAPERS, 9)
    if not sampled:
        found = kept.class_probabilities(library, nodes)
        np.testing.assert_allclose(found, probability[nodes], atol=1e-4)


def test_the_loss_is_the_binary_cross_entropy_of_each_class(library: Graph) -> None:
    split = split_of(library, BY_SLOTS)
    view = GraphView(library, split)
    trainer = GraphNetworkTrainer(network(), Assignment("model", view, split, BY_SLOTS, 0, 1), split)
    assert trainer.begin_epoch(0) == 1
    trainer.network.eval()
    with torch.no_grad():
        loss, count = trainer.loss(None, 0, 0)
        logits = trainer._block_by_block(
            trainer.network.head, TOPICS, trainer._embedded(view)["paper"]
        ).numpy()
    train = split.nodes("train")
    assert count == len(train)
    odds, members = logits[train].astype(np.float64), topics_of()[train]
    expected = np.mean(np.log1p(np.exp(-np.where(members, odds, -odds))))
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_what_has_one_class_alone_is_refused(library: Graph) -> None:
    split = split_of(library, BY_SLOTS)
    config = network(distil={"teachers": ("other",)})
    with pytest.raises(UsageError, match="one class each beside `distil`"):
        GraphNetworkTrainer(
            config, Assignment("model", GraphView(library, split), split, BY_SLOTS, 0, 1), split
        )


@pytest.mark.parametrize("label", [{"labels": "topics"}, {"memberships": ABOUT}])
def test_facts_are_those_of_all_classes_and_not_of_memberships(library: Graph, label: dict[str, Any]) -> None:
    task = ClassifyTaskConfig.model_validate({"kind": "classify", "node_type": "paper", **label})
    split = make_split(library, task, 0)
    assert isinstance(split, ClassifySplit)
    edge_types = [("paper", "cites", "paper")] if "labels" in label else []
    facts = facts_of(library, split, edge_types)
    known, topics = set(split.nodes("train").tolist()), topics_of()
    compared = [
        (topics[source] & topics[target]).any()
        for source, target in zip(*library.csc(("paper", "cites", "paper")).coo(), strict=True)
        if source in known and target in known
    ]
    assert facts.homophily == pytest.approx(np.mean(compared)) == 1.0
    assert facts.edges == library.num_edges(("paper", "cites", "paper"))
    assert facts.node_types == 1
