"""Tasks about links with the graph on disk: the bits of training in memory, and nothing held out is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.config import (
    ClassifyTaskConfig,
    GraphNetworkConfig,
    MemoryConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
    SageConfig,
)
from graphbox.errors import InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.graph.snapshot import as_live
from graphbox.train import GraphView, LinkSplit, RecommendSplit, fit, load_split, make_split, save_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.memory import TrainingMemory
from graphbox.train.network.links import GraphLinkTrainer
from graphbox.train.recommendation import held_out_links
from graphbox.train.recommendation.held_out_links import HeldOutLinks
from graphbox.train.recommendation.known_links import known_links_of
from graphbox.train.recommendation.queries import ranking_queries, validation_queries
from tests.train.shop import build_shop

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
BY_TIME = LINKS.model_validate({**LINKS.model_dump(), "split": {"kind": "time"}})
TASTE = ClassifyTaskConfig(kind="classify", node_type="user", label="taste")
LITTLE = MemoryConfig(topology=6_000, passes=64 << 10)
"""So that lists are sorted in many parts, and read again and again."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """One node type, weights, times, repeated edges; on disk without edges by source."""
    generator = np.random.default_rng(5)
    source, target = generator.integers(0, 60, (2, 900))
    graph = Graph.from_coo(
        source,
        target,
        num_nodes=60,
        weight=generator.integers(1, 5, 900),  # sums of which have no rounding
        timestamp=generator.integers(0, 50, 900),
    )
    folder = tmp_path_factory.mktemp("weighted") / "graph"
    graph.save(folder)
    return Graph.open(folder)


def trained(graph: Graph, task: Any, folder: Path, memory: MemoryConfig | None, **settings: Any) -> Any:
    options = {name: settings.pop(name) for name in ("resume", "stop", "threads") if name in settings}
    values = {
        "kind": "gnn",
        "task": "t",
        "dim": 8,
        "epochs": 2,
        "batch_size": 64,
        "num_neighbors": (5, 3),
        "layer": "sage",
        **settings,
    }
    section = SageConfig if values["kind"] == "sage" else GraphNetworkConfig
    config = section.model_validate({name: value for name, value in values.items() if value is not None})
    return fit(
        graph,
        make_split(graph, task, 3),
        name="net",
        config=config,
        task=task,
        run_folder=folder,
        seed=3,
        memory=memory or MemoryConfig(),
        **{"threads": 1, **options},
    )


def equal(first: Any, second: Any) -> None:
    assert first.embeddings.keys() == second.embeddings.keys()
    for name, vectors in first.embeddings.items():
        np.testing.assert_array_equal(vectors, second.embeddings[name])
    if first.target is not None:
        np.testing.assert_array_equal(first.target, second.target)


class TestTheSameBits:
    @pytest.mark.parametrize("merge", [False, True], ids=["apart", "merged"])
    @pytest.mark.parametrize("task", [LINKS, BUYS, BY_TIME], ids=["pairs", "recommend", "events"])
    def test_between_two_types(self, shop: Graph, task: Any, merge: bool, tmp_path: Path) -> None:
        settings = {"merge_relations": merge, "threads": 2}
        there = trained(shop, task, tmp_path / "memory", None, **settings)
        equal(there, trained(shop, task, tmp_path / "disk", LITTLE, **settings))

    @pytest.mark.parametrize("layer", ["sage", "gcn", "lightgcn"])
    @pytest.mark.parametrize("merge", [False, True], ids=["apart", "merged"])
    def test_within_one_type_with_weights(
        self, weighted: Graph, layer: str, merge: bool, tmp_path: Path
    ) -> None:
        task = PredictLinksTaskConfig(
            kind="predict_links", node_type="node", relations=("to",), validation_fraction=0.2
        )
        settings = {"layer": layer, "merge_relations": merge, "edge_weights": layer != "sage"}
        there = trained(weighted, task, tmp_path / "memory", None, **settings)
        equal(there, trained(weighted, task, tmp_path / "disk", LITTLE, **settings))

    @pytest.mark.parametrize("kind", ["gnn", "sage"])
    def test_of_groups(
        self, graph: Graph, recommend_task: RecommendTaskConfig, kind: str, tmp_path: Path
    ) -> None:
        settings: dict[str, Any] = (
            {} if kind == "gnn" else {"kind": "sage", "num_neighbors": 4, "layer": None}
        )
        there = trained(graph, recommend_task, tmp_path / "memory", None, **settings)
        equal(there, trained(graph, recommend_task, tmp_path / "disk", LITTLE, **settings))

    @pytest.mark.parametrize("merge", [False, True], ids=["apart", "merged"])
    def test_of_classes_without_edges_by_source(self, shop: Graph, merge: bool, tmp_path: Path) -> None:
        assert not GraphView(shop, None).with_reverse_edges().is_on_disk([("item", "bought_by", "user")])
        there = trained(shop, TASTE, tmp_path / "memory", None, merge_relations=merge)
        equal(there, trained(shop, TASTE, tmp_path / "disk", LITTLE, merge_relations=merge))

    def test_after_a_stop(self, shop: Graph, tmp_path: Path) -> None:
        whole = trained(shop, BUYS, tmp_path / "whole", LITTLE)
        batches = iter(range(1_000))
        with pytest.raises(InterruptedRunError):
            trained(shop, BUYS, tmp_path / "parts", LITTLE, stop=lambda: next(batches) == 3)
        equal(whole, trained(shop, BUYS, tmp_path / "parts", LITTLE, resume=True))

    def test_nothing_is_left_in_the_folder(self, shop: Graph, tmp_path: Path) -> None:
        trained(shop, BUYS, tmp_path, LITTLE)
        left = [each.name for each in (tmp_path / "tables" / "net").glob("*")]
        assert not left, "lists are removed with the graphs that they are of"


def test_an_epochs_graph_on_disk_lacks_its_links(shop: Graph, tmp_path: Path) -> None:
    split = make_split(shop, BUYS, 3)
    memory = TrainingMemory(LITTLE, tmp_path)
    config = GraphNetworkConfig(kind="gnn", task="t", dim=8, num_neighbors=(4, 3), batch_size=64)
    trainer = make_trainer(
        config, Assignment("net", GraphView(shop, split), split, BUYS, 3, 1, memory=memory)
    )
    assert isinstance(trainer, GraphLinkTrainer)
    for epoch in range(2):
        trainer.begin_epoch(epoch)
        tiers = trainer._epoch_tiers
        assert tiers is not None
        held = {(int(each), int(other)) for each, other in trainer.epoch_links}
        for edge_type in trainer.epoch_graph.edge_types:
            nodes = np.arange(shop.num_nodes(edge_type[2]))
            offsets, sources = tiers.edges(edge_type).neighbor_lists(nodes)
            target = np.repeat(nodes, np.diff(offsets))
            pairs = zip(sources.tolist(), target.tolist(), strict=True)
            joined = set(pairs if edge_type[0] == "user" else (pair[::-1] for pair in pairs))
            assert joined
            assert not joined & held
    trainer.close()


@pytest.mark.parametrize("task", [LINKS, BUYS], ids=["pairs", "recommend"])
def test_known_links_on_disk_are_those_in_memory(shop: Graph, task: Any, tmp_path: Path) -> None:
    split = make_split(shop, task, 3)
    assert isinstance(split, RecommendSplit | LinkSplit)
    view = GraphView(shop, split).with_reverse_edges()
    expected = known_links_of(view, split, TrainingMemory())
    found = known_links_of(view, split, TrainingMemory(LITTLE, tmp_path))
    rows = np.random.default_rng(0).integers(0, shop.num_nodes("user"), 50)
    for each, other in zip(found.take(rows), expected.take(rows), strict=True):
        np.testing.assert_array_equal(each, other)


@pytest.mark.parametrize("kind", ["pairs", "recommend", "events", "one_type", "groups"])
def test_held_out_links_on_disk_are_those_in_memory(
    kind: str,
    shop: Graph,
    weighted: Graph,
    graph: Graph,
    recommend_task: RecommendTaskConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_one = LINKS.model_validate(
        {**LINKS.model_dump(), "node_type": "node", "target_type": None, "relations": ("to",)}
    )
    graphs = {"one_type": weighted, "groups": graph}
    tasks: dict[str, Any] = {"pairs": LINKS, "recommend": BUYS, "events": BY_TIME, "one_type": in_one}
    split = make_split(graphs.get(kind, shop), tasks.get(kind, recommend_task), 3)
    assert isinstance(split, RecommendSplit | LinkSplit)
    monkeypatch.setattr(held_out_links, "_BLOCK_LINKS", 16)
    expected = HeldOutLinks(split, TrainingMemory())
    found = HeldOutLinks(split, TrainingMemory(LITTLE, tmp_path))
    np.testing.assert_array_equal(found.edges, expected.edges)
    for epoch in range(3):
        held, same = (each.hold_out(0.3, np.random.default_rng(epoch)) for each in (found, expected))
        for one, other in zip(held, same, strict=True):
            np.testing.assert_array_equal(one, other)
        keys = split.pair_keys(expected.edges[:, 0], expected.edges[:, 1])
        np.testing.assert_array_equal(expected.edges[np.isin(keys, held[0])], held[1])
        np.testing.assert_array_equal(found.shuffled(held[1], 3, epoch), expected.shuffled(same[1], 3, epoch))
    assert not list(tmp_path.iterdir()), "files are removed as soon as they are mapped"


def test_a_large_split_is_mapped(shop: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.train.tasks._MAPPED_BYTES", 256)
    for task in (BUYS, BY_TIME):
        split = make_split(shop, task, 3)
        save_split(split, tmp_path / "split.npz")
        again = load_split(tmp_path / "split.npz")
        for name, value in vars(split).items():
            np.testing.assert_array_equal(getattr(again, name), value)
        edges = again.edges("train") if isinstance(again, RecommendSplit) else vars(again)["edges"]
        assert isinstance(edges.base, np.memmap)
        assert not edges.flags.writeable


def test_validation_queries_are_some_of_all(shop: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.train.recommendation.queries.VALIDATION_QUERIES", 7)
    split = make_split(shop, BUYS, 3)
    assert isinstance(split, RecommendSplit)
    view = GraphView(shop, split)
    expected = ranking_queries(view, split, "validation").sample(7, 5)
    for name, value in vars(validation_queries(view, split, 5)).items():
        np.testing.assert_array_equal(value, getattr(expected, name))


def test_edges_written_are_those_that_are_seen(weighted: Graph, tmp_path: Path) -> None:
    view = GraphView(weighted, None).without_edges({("node", "to", "node"): np.arange(0, 900, 3)})
    view = view.with_reverse_edges()
    written = view.on_disk(tmp_path, 1 << 14)
    for edge_type in view.edge_types:
        for name in ("csc", "csr"):
            expected, found = getattr(view, name)(edge_type), getattr(written, name)(edge_type)
            for array in ("indptr", "indices", "weight", "timestamp"):
                np.testing.assert_array_equal(getattr(found, array), getattr(expected, array))
    table = as_live(written._stored.own_edges(("node", "to", "node")))
    assert table.columns == ("weight", "timestamp")
    assert table.base is not None
    csr = table.base.stored_csr
    assert csr is not None
    np.testing.assert_array_equal(table.base.csc.indices[csr.edge_ids], csr_sources(csr))


def csr_sources(csr: Any) -> Any:
    return np.repeat(np.arange(len(csr.indptr) - 1), np.diff(csr.indptr))


def test_a_view_without_edges_that_the_files_have_is_not_read_from_them(shop: Graph) -> None:
    view = GraphView(shop, make_split(shop, BUYS, 3))
    with pytest.raises(UsageError, match="expected edges that are all in files"):
        view.tiered(topology_bytes=0, feature_bytes=0)


def test_a_whole_graph_is_not_trained_from_disk(shop: Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trained on batches of sampled neighbours"):
        trained(shop, BUYS, tmp_path, LITTLE, num_neighbors=None)
