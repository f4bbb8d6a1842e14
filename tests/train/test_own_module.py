"""A user's own module: trained, resumed, in tiers, in processes, and each of its mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.config import (
    ClassifyTaskConfig,
    MemoryConfig,
    OwnModuleConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
)
from graphbox.errors import GraphboxError, InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.graph.delta import remove
from graphbox.train import Assignment, GraphView, TrainedModel, fit, make_split
from graphbox.train.assignment import make_trainer
from graphbox.train.evaluate import evaluate_baselines, evaluate_trained
from graphbox.train.own_module.trainer import OwnLinkModel
from tests.train.shop import build_shop

MODULE = "tests.train.own_modules"
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


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


def config_of(name: str, **settings: Any) -> OwnModuleConfig:
    defaults = {"epochs": 3, "batch_size": 32, "num_neighbors": (5, 5), "patience": None}
    return OwnModuleConfig(kind="module", task="t", model=f"{MODULE}:{name}", **{**defaults, **settings})


def train(graph: Graph, task: Any, name: str, folder: Path, **options: Any) -> TrainedModel:
    settings = options.pop("settings", {})
    return fit(
        graph,
        make_split(graph, task, 3),
        name="own",
        config=config_of(name, **settings),
        task=task,
        run_folder=folder,
        seed=1,
        **{"threads": 1, **options},
    )


class TestItLearns:
    def test_classes(self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path) -> None:
        settings = {"epochs": 30, "options": {"dim": 32}, "learning_rate": 0.02}
        trained = train(graph, classify_task, "Classifier", tmp_path, settings=settings)
        split = make_split(graph, classify_task, 3)
        found = evaluate_trained(graph, split, classify_task, trained)
        baselines = evaluate_baselines(graph, split, classify_task)
        assert found["accuracy"] > baselines["majority"]["accuracy"]

    @pytest.mark.parametrize("task", [LINKS, BUYS], ids=["predict_links", "recommend"])
    def test_links(self, shop: Graph, task: Any, tmp_path: Path) -> None:
        trained = train(shop, task, "LinkFinder", tmp_path, settings={"epochs": 20})
        found = evaluate_trained(shop, make_split(shop, task, 3), task, trained)
        ranks = isinstance(task, RecommendTaskConfig)
        metric, baseline = ("recall@5", "popular") if ranks else ("auc", "popularity")
        baselines = evaluate_baselines(shop, make_split(shop, task, 3), task)
        assert found[metric] > 1.2 * baselines[baseline][metric]


def equal(first: TrainedModel, second: TrainedModel) -> None:
    for name, vectors in first.embeddings.items():
        np.testing.assert_array_equal(vectors, second.embeddings[name])
    if first.target is not None:
        assert second.target is not None
        np.testing.assert_array_equal(first.target, second.target)


class TestSameBits:
    def test_after_a_stop(self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path) -> None:
        whole = train(graph, classify_task, "Classifier", tmp_path / "whole")
        batches = iter(range(1_000))
        with pytest.raises(InterruptedRunError):
            train(graph, classify_task, "Classifier", tmp_path / "parts", stop=lambda: next(batches) == 4)
        parts = train(graph, classify_task, "Classifier", tmp_path / "parts", resume=True)
        equal(whole, parts)

    def test_links_after_a_stop(self, shop: Graph, tmp_path: Path) -> None:
        whole = train(shop, BUYS, "LinkFinder", tmp_path / "whole")
        batches = iter(range(1_000))
        with pytest.raises(InterruptedRunError):
            train(shop, BUYS, "LinkFinder", tmp_path / "parts", stop=lambda: next(batches) == 4)
        equal(whole, train(shop, BUYS, "LinkFinder", tmp_path / "parts", resume=True))

    def test_two_threads(self, shop: Graph, tmp_path: Path) -> None:
        one = train(shop, LINKS, "LinkFinder", tmp_path / "one")
        equal(one, train(shop, LINKS, "LinkFinder", tmp_path / "two", threads=2))

    def test_over_tiers(self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path) -> None:
        whole = train(graph, classify_task, "Classifier", tmp_path / "whole")
        graph.save(tmp_path / "graph")
        memory = MemoryConfig(topology=1 << 16, features=1 << 16, tables=64 << 20)
        stored = Graph.open(tmp_path / "graph")
        equal(whole, train(stored, classify_task, "Classifier", tmp_path / "tiers", memory=memory))

    @pytest.mark.parametrize("task", [LINKS, BUYS], ids=["predict_links", "recommend"])
    def test_links_over_tiers(self, shop: Graph, task: Any, tmp_path: Path) -> None:
        memory = MemoryConfig(topology=1 << 14, tables=64 << 20, passes=1 << 20)
        whole = train(shop, task, "LinkFinder", tmp_path / "whole")
        equal(whole, train(shop, task, "LinkFinder", tmp_path / "tiers", memory=memory))


def test_two_processes_learn_what_one_learns(
    graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    graph.save(tmp_path / "graph")
    stored = Graph.open(tmp_path / "graph")
    alone = train(stored, classify_task, "Classifier", tmp_path / "one")
    together = train(stored, classify_task, "Classifier", tmp_path / "two", processes=2)
    assert alone.logits is not None
    assert together.logits is not None
    np.testing.assert_allclose(together.logits, alone.logits, rtol=1e-3, atol=1e-4)


class TestMistakes:
    """Each names the module, and the line at fault."""

    @pytest.mark.parametrize(
        ("name", "error", "message", "line"),
        [
            ("Nowhere", UsageError, "a class or function `Nowhere`", None),
            ("no_class", UsageError, "a class derived from torch.nn.Module", None),
            ("WithoutLoss", UsageError, "a method `loss(batch)`", "class WithoutLoss"),
            ("LossOfManyNumbers", UsageError, "a tensor of one number", "def loss"),
            ("LossIsNaN", GraphboxError, "a finite loss, received nan", "def loss"),
            ("Raises", UsageError, "received AttributeError", "no_such_attribute"),
            ("WrongShape", UsageError, "a row for each seed", "def forward"),
            ("DropsItsRows", UsageError, "to keep the rows", "def __init__"),
        ],
    )
    def test_is_named(
        self,
        graph: Graph,
        classify_task: ClassifyTaskConfig,
        tmp_path: Path,
        name: str,
        error: type[GraphboxError],
        message: str,
        line: str | None,
    ) -> None:
        with pytest.raises(error, match=re.escape(message)) as caught:
            train(graph, classify_task, name, tmp_path)
        assert name in f"{caught.value.message} {caught.value.where}"
        if line is not None:
            found = re.search(r"(\S+own_modules\.py):(\d+)", str(caught.value.where))
            assert found is not None, caught.value.where
            assert line in Path(found[1]).read_text().splitlines()[int(found[2]) - 1]

    def test_options_that_the_class_does_not_have(
        self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match="takes: dim, out; received depth") as caught:
            train(graph, classify_task, "Classifier", tmp_path, settings={"options": {"depth": 3}})
        assert caught.value.where == "models.own.options"

    def test_unknown_relations(self, shop: Graph, tmp_path: Path) -> None:
        relations = (("user", "nowhere", "item"),)
        with pytest.raises(UsageError, match="no edge type user__nowhere__item"):
            train(shop, BUYS, "LinkFinder", tmp_path, settings={"relations": relations})


def test_removed_nodes_are_no_negatives(shop: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    shop.save(folder)
    remove(folder, {"item": shop.ids("item")[:60]})
    graph = Graph.open(folder)
    split = make_split(graph, BUYS, 3)
    assignment = Assignment("own", GraphView(graph, split), split, BUYS, 1, 1)
    trainer = make_trainer(config_of("LinkFinder", negatives=8), assignment)
    assert isinstance(trainer, OwnLinkModel)
    removed = set(graph.removed_nodes("item").tolist())
    seen = 0
    for number in range(trainer.begin_epoch(0)):
        batch = trainer.draw(0, number)
        (edge_type,) = [each for each in batch.edge_types if "edge_label_index" in batch[each]]
        targets = batch["item"].n_id[batch[edge_type].edge_label_index[1]]
        assert removed.isdisjoint(targets.tolist())
        seen += int((batch[edge_type].edge_label == 0).sum())
    trainer.close()
    assert seen > 100


def links_and_edges(batch: Any, node_types: tuple[str, str]) -> tuple[set[Any], dict[Any, set[Any]]]:
    """Return the links of a batch by node index, and the pairs that edges of its subgraph join, by type."""
    source, target = node_types
    (of_links,) = [each for each in batch.edge_types if "edge_label_index" in batch[each]]
    ends = batch[of_links].edge_label_index[:, batch[of_links].edge_label > 0]
    links = set(zip(batch[source].n_id[ends[0]].tolist(), batch[target].n_id[ends[1]].tolist(), strict=True))
    edges: dict[Any, set[Any]] = {}
    for edge_type in batch.edge_types:
        if {edge_type[0], edge_type[2]} != {source, target}:
            continue
        first, second = batch[edge_type].edge_index
        pairs = zip(
            batch[edge_type[0]].n_id[first].tolist(), batch[edge_type[2]].n_id[second].tolist(), strict=True
        )
        edges[edge_type] = {pair if edge_type[0] == source else pair[::-1] for pair in pairs}
    return links, edges


def trainer_of(graph: Graph, task: Any, **settings: Any) -> Any:
    split = make_split(graph, task, 3)
    assignment = Assignment("own", GraphView(graph, split), split, task, 1, 1)
    return make_trainer(config_of("LinkFinder", **settings), assignment)


@pytest.mark.parametrize("task", [LINKS, BUYS], ids=["predict_links", "recommend"])
def test_no_link_of_a_batch_is_in_its_subgraph(shop: Graph, task: Any) -> None:
    """In no edge type and direction: not in the reverse one, nor in another relation."""
    trainer = trainer_of(shop, task, num_neighbors=(-1, -1))
    seen = 0
    for number in range(trainer.begin_epoch(0)):
        links, edges = links_and_edges(trainer.draw(0, number), ("user", "item"))
        for pairs in edges.values():
            assert not pairs & links
            seen += len(pairs)
    trainer.close()
    assert seen > 100


BY_TIME = LINKS.model_validate({**LINKS.model_dump(), "split": {"kind": "time"}})


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_nothing_later_than_a_link_is_around_it(shop: Graph, strategy: str) -> None:
    settings = {"time_attr": "timestamp", "temporal_strategy": strategy, "num_neighbors": (-1, -1)}
    trainer = trainer_of(shop, BY_TIME, **settings)
    csc = shop.csc(("user", "bought", "item"))
    source, target = csc.coo()
    assert csc.timestamp is not None
    first: dict[Any, int] = {}
    for pair, time in zip(zip(source.tolist(), target.tolist(), strict=True), csc.timestamp, strict=True):
        first[pair] = min(int(time), first.get(pair, int(time)))
    seen = later = 0
    for number in range(trainer.begin_epoch(0)):
        batch = trainer.draw(0, number)
        link_time = batch["user", "bought", "item"].edge_label_time
        for edge_type in (("user", "bought", "item"), ("item", "bought_by", "user")):
            of_target = batch[edge_type[2]].batch[batch[edge_type].edge_index[1]]
            ends = [
                batch[edge_type[place]].n_id[row]
                for place, row in zip((0, 2), batch[edge_type].edge_index, strict=True)
            ]
            users, items = ends if edge_type[0] == "user" else ends[::-1]
            pairs = zip(users.tolist(), items.tolist(), strict=True)
            for pair, tree in zip(pairs, of_target.tolist(), strict=True):
                assert first[pair] <= int(link_time[tree])
                seen += 1
                later += first[pair] > int(link_time.min())
    trainer.close()
    assert seen > 100
    assert later, "some edges are later than another link of the batch"


def test_times_that_are_not_there(shop: Graph, graph: Graph, classify_task: ClassifyTaskConfig) -> None:
    with pytest.raises(
        UsageError, match="expected links with times, received those of a task of kind predict"
    ):
        trainer_of(shop, LINKS, time_attr="timestamp")
    split = make_split(graph, classify_task, 3)
    assignment = Assignment("own", GraphView(graph, split), split, classify_task, 1, 1)
    with pytest.raises(UsageError, match="expected a feature of nodes"):
        make_trainer(config_of("Classifier", time_attr="timestamp"), assignment)
