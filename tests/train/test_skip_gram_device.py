"""Trainers of skip-gram with kernels, run by Triton's interpreter: they train what the native core does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from graphbox.config import DeepWalkConfig, HbmConfig, LineConfig, MemoryConfig
from graphbox.config.models.walks import NegativeSamplingSection
from graphbox.errors import DoesNotFitError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.table import EmbeddingTable
from graphbox.train import GraphView, embed
from graphbox.train.assignment import Assignment
from graphbox.train.memory import TrainingMemory
from graphbox.train.walks import sources
from graphbox.train.walks.line import LineTrainer, make_line_trainer
from graphbox.train.walks.one_type import one_type_graph
from graphbox.train.walks.skip_gram import SkipGramTrainer

pytestmark = pytest.mark.gpu_kernel

DEVICE = torch.device("cpu")
LEARNING = NegativeSamplingSection(negatives=3, negative_weight=3.0, learning_rate=0.3)
BUYS, BOUGHT_BY = ("user", "buys", "item"), ("item", "rev_buys", "user")
LIKE = ("item", "like", "item")
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> GraphView:
    folder = tmp_path_factory.mktemp("few")
    rng = np.random.default_rng(0)

    def some(kinds: str, counts: tuple[int, int], edges: int) -> pa.Table:
        ends = [
            [f"{kind}{each}" for each in rng.integers(0, count, edges)]
            for kind, count in zip(kinds, counts, strict=True)
        ]
        return pa.table({"source": ends[0], "target": ends[1], "w": rng.random(edges) + 0.1})

    source = GraphSource(
        "few",
        {"user": NodeSource(), "item": NodeSource()},
        (
            EdgeSource(BUYS, some("ui", (5, 7), 14), weight="w", reverse=BOUGHT_BY[1], csr=True),
            EdgeSource(LIKE, some("ii", (7, 7), 9), weight="w", csr=True),
        ),
    )
    import_graph(source, folder / "graph")
    return GraphView(Graph.open(folder / "graph"), None)


def along_metapaths(view: GraphView) -> sources.WalkSource:
    return sources.MetapathSource(
        view,
        [[BUYS, BOUGHT_BY], [LIKE], [BUYS, LIKE, BOUGHT_BY]],
        walks_per_node=1,
        walk_length=5,
        window=2,
        batch_size=3,
        weighted=True,
        seed=4,
        threads=1,
    )


def looking_back(view: GraphView) -> sources.WalkSource:
    graph = one_type_graph(view, [LIKE], weighted=True)
    return sources.OneTypeSource(
        graph, walks_per_node=1, walk_length=4, window=2, batch_size=2, p=0.5, seed=4, threads=1
    )


def edges(view: GraphView) -> sources.WalkSource:
    return sources.EdgeSource(one_type_graph(view, (), weighted=True), batch_size=9, seed=4, threads=1)


def trainer_of(source: sources.WalkSource, device: torch.device | None, **options: Any) -> SkipGramTrainer:
    settings = {"dim": 5, "epochs": 2, "seed": 4, "threads": 1, **options}
    return SkipGramTrainer(source, LEARNING, device=device, **settings)


def train(trainer: SkipGramTrainer, epochs: range = range(2)) -> list[tuple[float, int]]:
    return [
        trainer.train_batch(epoch, group) for epoch in epochs for group in range(trainer.begin_epoch(epoch))
    ]


def assert_same_rows(ours: SkipGramTrainer, theirs: SkipGramTrainer) -> None:
    expected = theirs.embeddings()
    for name, rows in ours.embeddings().items():
        np.testing.assert_allclose(rows, expected[name], atol=TOLERANCE)


def assert_same_bits(ours: SkipGramTrainer, theirs: SkipGramTrainer) -> None:
    expected = theirs.embeddings()
    for name, rows in ours.embeddings().items():
        np.testing.assert_array_equal(rows, expected[name])


@pytest.mark.parametrize("make", [along_metapaths, looking_back, edges])
def test_kernels_train_what_the_native_core_does(
    view: GraphView, make: Callable[[GraphView], sources.WalkSource]
) -> None:
    options = {"subsample": 1e-1, "context_share": 1.0}
    native, by_kernels = (trainer_of(make(view), device, **options) for device in (None, DEVICE))
    expected, losses = train(native), train(by_kernels)
    assert [pairs for _, pairs in losses] == [pairs for _, pairs in expected]
    np.testing.assert_allclose([each for each, _ in losses], [each for each, _ in expected], rtol=1e-5)
    assert_same_rows(by_kernels, native)
    assert by_kernels.places() == {}
    by_kernels.close()
    with pytest.raises(RuntimeError, match="nothing after close"):
        by_kernels.train_batch(0, 0)


def test_goes_on_from_a_checkpoint_of_the_other(view: GraphView, tmp_path: Path) -> None:
    native = trainer_of(looking_back(view), None)
    train(native)
    first: torch.device | None
    for first, then in ((None, DEVICE), (DEVICE, None)):
        begins = trainer_of(looking_back(view), first)
        train(begins, range(1))
        folder = tmp_path / str(first)
        folder.mkdir()
        for name, table in begins.tables().items():
            table.save(folder / name)
        goes_on = trainer_of(looking_back(view), then)
        goes_on.restore({}, {name: EmbeddingTable.load(folder / name) for name in begins.tables()})
        train(goes_on, range(1, 2))
        assert_same_rows(goes_on, native)


def test_rows_on_ssd_train_where_they_fit(view: GraphView, tmp_path: Path) -> None:
    native = trainer_of(looking_back(view), None)
    train(native)
    memory = TrainingMemory(MemoryConfig(tables=64 << 20), tmp_path)
    by_kernels = trainer_of(looking_back(view), DEVICE, memory=memory)
    train(by_kernels)
    assert_same_rows(by_kernels, native)
    by_kernels.close()
    for table in by_kernels.tables().values():
        assert table.path is not None
        table.close()


def test_budgets_of_rows_on_a_device_change_no_bit(view: GraphView) -> None:
    def trained(tables: int | None) -> SkipGramTrainer:
        memory = TrainingMemory(MemoryConfig(hbm=HbmConfig(tables=tables)))
        trainer = trainer_of(looking_back(view), DEVICE, memory=memory)
        train(trainer)
        return trainer

    whole = trained(None)
    assert whole.places() == trained(600).places() == {}
    for budget, where in ((599, "50 bytes, and 598"), (0, "600 bytes, and 0")):
        trainer = trained(budget)
        assert trainer.places() == {"rows": f"pinned host memory, {where} on the device"}
        assert_same_bits(trainer, whole)


def test_rows_in_all_tiers(view: GraphView, tmp_path: Path) -> None:
    """Of a budget of host memory pinned rows have their part; without room for them nothing begins."""
    whole = trainer_of(looking_back(view), DEVICE)
    train(whole)

    def trainer_with(mebibytes: int) -> SkipGramTrainer:
        memory = TrainingMemory(MemoryConfig(tables=mebibytes << 20, hbm=HbmConfig(tables=300)), tmp_path)
        return trainer_of(looking_back(view), DEVICE, memory=memory)

    trainer = trainer_with(64)
    train(trainer)
    assert_same_bits(trainer, whole)
    trainer.close()
    for table in trainer.tables().values():
        table.close()
    with pytest.raises(
        DoesNotFitError, match=r"rows that the device has no room for, .* a budget of 41,9"
    ) as told:
        trainer_with(40)
    assert told.value.where == "memory.tables"
    assert "`device: cpu`" in str(told.value.hint)


def test_orders_of_line_share_a_budget(view: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Assignment, "kernel_device", DEVICE)  # as if it were a GPU
    config = LineConfig(kind="line", dim=4, epochs=1, batch_size=20, negatives=2)

    def trained(tables: int | None) -> LineTrainer:
        memory = TrainingMemory(MemoryConfig(hbm=HbmConfig(tables=tables)))
        trainer = make_line_trainer(config, Assignment("line", view, None, None, 0, 1, memory=memory))
        for epoch in range(trainer.epochs):
            for group in range(trainer.begin_epoch(epoch)):
                trainer.train_batch(epoch, group)
        return trainer

    whole = trained(None)
    assert whole.places() == trained(3 * 12 * 13).places() == {}
    part = trained(300)  # of 36 rows of 13 bytes: 100 for the first order, of which positions take 48
    assert part.places() == {
        "rows of order_1": "pinned host memory, 104 bytes, and 100 on the device",
        "rows of order_2": "pinned host memory, 182 bytes, and 178 on the device",
    }
    for name, rows in part.embeddings().items():
        np.testing.assert_array_equal(rows, whole.embeddings()[name])


def test_embed_names_its_device(view: GraphView) -> None:
    config = DeepWalkConfig(kind="deepwalk", dim=4, walk_length=3, epochs=1, walks_per_node=1)
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0])
    by_default, automatic = embed(graph, config), embed(graph, config, device="auto")
    np.testing.assert_array_equal(by_default["node"], automatic["node"])
