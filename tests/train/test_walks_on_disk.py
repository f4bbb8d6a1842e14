"""Walk models whose topology is on disk: the same rows as in memory, bit for bit, whatever the budgets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.config import (
    DeepWalkConfig,
    MemoryConfig,
    Metapath2VecConfig,
    Node2VecConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
    RunConfig,
)
from graphbox.errors import DataError, InterruptedRunError, UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.graph.written_lists import Entries, write_lists
from graphbox.train import GraphView, fit, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.memory import TrainingMemory
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.footprint import footprint_of
from graphbox.train.walks.on_disk import ListFolder, one_type_on_disk
from graphbox.train.walks.one_type import one_type_graph
from tests.graph.test_tiered_graph import change, make_graph
from tests.sample.test_tiered_walk import BUYS, KNOWS, SOLD, shop

TO = ("node", "to", "node")
WALKS: dict[str, Any] = {
    "dim": 6,
    "epochs": 2,
    "negatives": 9,
    "walk_length": 7,
    "window": 2,
    "batch_size": 30,
}
ONE_TYPE: dict[str, Any] = {**WALKS, "walks_per_node": 2}
METAPATHS = ((BUYS, SOLD), (KNOWS, BUYS, SOLD))
CONFIGS = {
    "deepwalk": DeepWalkConfig(kind="deepwalk", **ONE_TYPE),
    "thinned out": DeepWalkConfig(kind="deepwalk", subsample=1e-2, **ONE_TYPE),
    "node2vec": Node2VecConfig(kind="node2vec", p=0.3, q=3.0, **ONE_TYPE),
    "by weight": Node2VecConfig(kind="node2vec", p=2.0, q=0.5, weighted=True, **ONE_TYPE),
    "metapath2vec": Metapath2VecConfig(kind="metapath2vec", metapaths=METAPATHS, **WALKS),
    "metapaths by weight": Metapath2VecConfig(
        kind="metapath2vec", metapaths=METAPATHS, weighted=True, walks_per_node=2, **WALKS
    ),
}


@pytest.fixture(autouse=True)
def several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups of batches be small, so that an epoch has many."""
    monkeypatch.setattr("graphbox.skip_gram.group_size._WALKS_OF_GROUP", 90)


def memory_of(folder: Path, **budgets: Any) -> TrainingMemory:
    return TrainingMemory(MemoryConfig(**budgets), folder)


def trained(
    graph: Graph, config: Any, memory: TrainingMemory, threads: int = 1
) -> tuple[dict[str, NDArray[np.float32]], list[float]]:
    """Return the embeddings after all epochs, and the losses of all groups of batches."""
    trainer = make_trainer(
        config, Assignment("model", GraphView(graph, None), None, None, 3, threads, memory=memory)
    )
    losses = []
    for epoch in range(trainer.epochs):
        losses += [trainer.train_batch(epoch, group)[0] for group in range(trainer.begin_epoch(epoch))]
    embeddings = trainer.trained("model", GraphView(graph, None)).embeddings
    trainer.close()
    return embeddings, losses


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_are_those_of_the_graph_in_memory(tmp_path: Path, name: str) -> None:
    graph, config = shop(tmp_path / "graph", csr=False), CONFIGS[name]
    expected, losses = trained(graph, config, TrainingMemory())
    for number, (topology, passes, threads) in enumerate(
        [(1, 1, 2), (100_000, 50_000, 1), (1 << 30, 1 << 30, 2)]
    ):
        folder = tmp_path / str(number)
        found, found_losses = trained(
            graph, config, memory_of(folder, topology=topology, passes=passes), threads
        )
        assert found_losses == losses
        assert list(found) == list(expected)
        for node_type, rows in expected.items():
            assert np.array_equal(found[node_type], rows)
        assert not list(folder.iterdir())  # what was written is gone


def test_rows_of_tables_and_topology_on_disk_together(tmp_path: Path) -> None:
    graph, config = shop(tmp_path / "graph"), CONFIGS["deepwalk"]
    expected, _ = trained(graph, config, TrainingMemory())
    found, _ = trained(graph, config, memory_of(tmp_path / "rows", topology=1, tables=1 << 25))
    for node_type, rows in expected.items():
        assert np.array_equal(found[node_type], rows)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("passes", [1, 100_000, 1 << 28])
@pytest.mark.parametrize("changed", [False, True])
def test_a_graph_taken_for_one_type(tmp_path: Path, weighted: bool, passes: int, changed: bool) -> None:
    graph = make_graph(tmp_path / "graph")
    graph = change(tmp_path / "graph") if changed else graph
    for view in (
        GraphView(graph, None),
        GraphView(graph, None).without_edges({TO: np.arange(0, 9000, 7)}),
    ):
        expected = one_type_graph(view, (), weighted=weighted)
        folder = ListFolder(memory_of(tmp_path / "lists", topology=1, passes=passes), 1)
        found = one_type_on_disk(view, (), weighted=weighted, folder=folder)
        assert found.keys.total == expected.keys.total
        assert found.types == expected.types
        assert np.array_equal(found.lengths, expected.lengths)
        assert np.array_equal(found.degree(), expected.degree())
        edges = found.step.edges
        offsets, neighbors = edges.neighbor_lists(np.arange(found.keys.total))
        assert np.array_equal(offsets, expected.indptr)
        assert np.array_equal(neighbors, expected.indices)
        assert edges.has("weight") == weighted
        if expected.weight is not None:
            assert np.array_equal(edges.payload("weight", np.arange(len(neighbors))), expected.weight)


@pytest.mark.parametrize("memory_bytes", [1, 5_000, 1 << 30])
@pytest.mark.parametrize("num_rows", [1, 7, 300, 70_000])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_lists_are_those_of_a_sort(tmp_path: Path, num_rows: int, count: int, memory_bytes: int) -> None:
    rng = np.random.default_rng(num_rows)
    rows, neighbors = rng.integers(0, num_rows, count) ** 2 % num_rows, rng.integers(0, 50, count)
    weight = rng.random(count).astype(np.float32)

    def entries() -> Any:
        for begin in range(0, count, 700):
            part = slice(begin, begin + 700)
            yield Entries(rows[part], neighbors[part], {"weight": weight[part]})

    options: Any = {"columns": {"weight": np.float32}, "merge": False, "memory_bytes": memory_bytes}
    lists = write_lists(tmp_path / "lists", entries, num_rows, **options)
    order = np.lexsort((np.arange(count), neighbors, rows))
    assert np.array_equal(lists.lengths, np.bincount(rows, minlength=num_rows))
    for name, values in (("indices", neighbors), ("weight", weight)):
        file = lists.files.items[name]
        assert np.array_equal(np.fromfile(file.path, file.dtype), values[order])
    offsets = np.fromfile(lists.files.offsets.path, np.int64)
    assert np.array_equal(np.diff(offsets), lists.lengths)
    assert lists.weight_sums is not None
    assert np.allclose(lists.weight_sums, np.bincount(rows, weight, minlength=num_rows))
    assert sorted(each.name for each in (tmp_path / "lists").iterdir()) == ["indices", "indptr", "weight"]


def test_refusals(tmp_path: Path) -> None:
    memory = memory_of(tmp_path / "lists", topology=1)
    graph = shop(tmp_path / "graph")
    with pytest.raises(UsageError, match="no edge type `user__sells__item`"):
        trained(
            graph,
            DeepWalkConfig(kind="deepwalk", edge_types=(("user", "sells", "item"),), **ONE_TYPE),
            memory,
        )
    plain = Graph.from_coo([0, 1], [1, 0])
    with pytest.raises(UsageError, match="expected edges with weights, received some without"):
        trained(plain, DeepWalkConfig(kind="deepwalk", weighted=True, **ONE_TYPE), memory)
    by_weight = Metapath2VecConfig(kind="metapath2vec", weighted=True, metapaths=((TO,),), **WALKS)
    with pytest.raises(UsageError, match="expected edges with a weight"):
        trained(plain, by_weight, memory)
    with pytest.raises(DataError, match="expected edges to walk along"):
        trained(Graph.from_coo([1], [1]), CONFIGS["deepwalk"], memory)
    on_gpu = TrainingMemory(memory.config, memory.folder, device=torch.device("cuda"))
    with pytest.raises(UnsupportedError, match="walks over lists on disk train on the CPU"):
        ListFolder(on_gpu, 1)


@pytest.mark.parametrize("name", CONFIGS)
def test_lists_on_disk_are_planned_with_their_budgets(name: str) -> None:
    document = {
        "version": 1,
        "name": "planned",
        "graph": {
            "name": "shop",
            "nodes": {"user": {"path": "u.csv"}, "item": {"path": "i.csv"}},
            "edges": [],
        },
        "models": {},
    }
    counts = GraphCounts({"user": 1000, "item": 1000}, {BUYS: 10**8, KNOWS: 10**8}, {}, {})
    found = []
    for memory in ({}, {"topology": "64MiB"}, {"topology": "64MiB", "passes": "16MiB"}):
        run = RunConfig.model_validate_json(json.dumps({**document, "memory": memory}))
        footprint = footprint_of(CONFIGS[name], counts, run)
        assert footprint is not None
        demand = footprint.demand()
        assert demand is not None
        found.append(demand.edges_bytes)
    assert found[0] > 10**9
    assert found[1:] == [(64 + 256) << 20, (64 + 16) << 20]


@pytest.mark.parametrize("name", ["deepwalk", "metapath2vec"])
def test_a_training_that_is_stopped_goes_on_with_other_budgets(tmp_path: Path, name: str) -> None:
    graph, config = shop(tmp_path / "graph"), CONFIGS[name]
    options: Any = {"name": "m", "config": config, "task": None, "seed": 3, "threads": 2}
    expected = fit(graph, None, run_folder=tmp_path / "whole", **options)
    asked = iter([False] * 9 + [True] * 1000)
    little = MemoryConfig(topology=1, passes=1)
    with pytest.raises(InterruptedRunError):
        fit(graph, None, run_folder=tmp_path / "run", memory=little, stop=lambda: next(asked), **options)
    for memory in (MemoryConfig(topology=10**9), MemoryConfig()):
        copy = tmp_path / str(memory.topology)
        shutil.copytree(tmp_path / "run", copy)
        found = fit(graph, None, run_folder=copy, memory=memory, resume=True, **options)
        for node_type, rows in expected.embeddings.items():
            assert np.array_equal(found.embeddings[node_type], rows)
        assert not list((copy / "tables" / "m").glob("*"))


@pytest.mark.parametrize("kind", ["recommend", "predict_links"])
def test_held_out_edges_are_not_walked_along(tmp_path: Path, kind: str) -> None:
    graph = shop(tmp_path / "graph")
    tasks: dict[str, Any] = {
        "recommend": RecommendTaskConfig(
            kind="recommend", node_type="user", target_type="item", relations=("buys",)
        ),
        "predict_links": PredictLinksTaskConfig(kind="predict_links", node_type="user", relations=("knows",)),
    }
    task = tasks[kind]
    split = make_split(graph, task, 0)
    view = GraphView(graph, split)
    expected = one_type_graph(view, (), weighted=False)
    assert len(expected.indices) < len(one_type_graph(GraphView(graph, None), (), weighted=False).indices)
    folder = ListFolder(memory_of(tmp_path / "lists", topology=1), 1)
    found = one_type_on_disk(view, (), weighted=False, folder=folder)
    offsets, neighbors = found.step.edges.neighbor_lists(np.arange(found.keys.total))
    assert np.array_equal(offsets, expected.indptr)
    assert np.array_equal(neighbors, expected.indices)
    options: Any = {"name": "m", "config": CONFIGS["metapath2vec"], "task": task, "seed": 3, "threads": 1}
    whole = fit(graph, split, run_folder=tmp_path / "whole", **options)
    tiers = fit(graph, split, run_folder=tmp_path / "run", memory=MemoryConfig(topology=1), **options)
    for node_type, rows in whole.embeddings.items():
        assert np.array_equal(tiers.embeddings[node_type], rows)
