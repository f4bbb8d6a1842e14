"""Budgets of memory: batches sampled from disk and rows on SSD train the same model, bit for bit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.config import (
    ClassifyTaskConfig,
    DeepWalkConfig,
    GraphNetworkConfig,
    HbmConfig,
    LightGCNConfig,
    MemoryConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
)
from graphbox.errors import DoesNotFitError, InterruptedRunError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import ClassifySplit, GraphView, fit, load_outcome, make_split
from graphbox.train.memory import TrainingMemory

NODES, WIDTH = 1500, 48
TASK = ClassifyTaskConfig(kind="classify", node_type="node", label="label")
LITTLE = MemoryConfig(topology=30_000, features=NODES * WIDTH * 4 // 5, tables=12 << 20, passes=8 << 20)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph on disk whose nodes have a vector, a number and a label."""
    folder = tmp_path_factory.mktemp("stored")
    generator = np.random.default_rng(0)
    label = generator.integers(0, 4, NODES)
    vectors = generator.normal(size=(NODES, WIDTH)).astype(np.float32)
    vectors[:, :4] += np.eye(4)[label]
    vectors[7, 3] = np.nan
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
    nodes = {"id": np.arange(NODES), "label": [f"l{each}" for each in label], "x": flat, "size": label * 1.5}
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    source, target = generator.integers(0, NODES, (2, 8 * NODES))
    pq.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")
    features: Any = {"label": "categorical", "x": "vector", "size": "number"}
    links = EdgeSource(("node", "links", "node"), folder / "edges.parquet", csr=True)
    import_graph(
        GraphSource("stored", {"node": NodeSource(folder / "nodes.parquet", features=features)}, (links,)),
        folder / "graph",
    )
    return Graph.open(folder / "graph")


@pytest.fixture(scope="module")
def split(graph: Graph) -> ClassifySplit:
    split = make_split(graph, TASK, 0)
    assert isinstance(split, ClassifySplit)
    return split


def config(**changes: Any) -> GraphNetworkConfig:
    settings: dict[str, Any] = {
        "kind": "gnn",
        "task": "t",
        "dim": 16,
        "epochs": 2,
        "batch_size": 256,
        "num_neighbors": (4, 3),
        "embeddings": ("node",),
        "merge_relations": False,
        **changes,
    }
    return GraphNetworkConfig.model_validate(settings)


def train(graph: Graph, split: ClassifySplit, folder: Path, memory: MemoryConfig, **options: Any) -> Any:
    settings = options.pop("config", config())
    return fit(
        graph,
        split,
        name="m",
        config=settings,
        task=TASK,
        run_folder=folder,
        seed=1,
        threads=1,
        memory=memory,
        **options,
    )


@pytest.fixture(scope="module")
def expected(graph: Graph, split: ClassifySplit, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(graph, split, tmp_path_factory.mktemp("whole"), MemoryConfig()).embeddings["node"]


@pytest.mark.parametrize(
    "memory",
    [LITTLE, MemoryConfig(topology=4096), MemoryConfig(features=4096), MemoryConfig(tables=12 << 20)],
    ids=["all", "topology", "features", "tables"],
)
def test_the_same_bits_under_budgets(
    memory: MemoryConfig, graph: Graph, split: ClassifySplit, expected: Any, tmp_path: Path
) -> None:
    trained = train(graph, split, tmp_path, memory)
    np.testing.assert_array_equal(trained.embeddings["node"], expected)
    assert not list((tmp_path / "tables" / "m").glob("*")), "rows are in the checkpoint and the embeddings"


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train by kernels, which the interpreter runs one at a time: trainings launch in several threads."""
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="kernels need Triton")
    run, lock = interpreter.GridExecutor.__call__, threading.RLock()

    def run_alone(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return run(*args, **kwargs)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", run_alone)
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)


FROM_DISK = "cpu, lists by their use there and in pinned memory, others from disk"


@pytest.mark.gpu_kernel
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("memory", "topology", "sampling"),
    [
        (LITTLE, 28 * (NODES + 1) + 5_000, FROM_DISK),
        (MemoryConfig(topology=4096), 0, FROM_DISK),
        (MemoryConfig(features=4096, passes=8 << 20), 10_000, "cpu"),
    ],
    ids=["all", "nothing on the device", "features"],
)
def test_kernels_sample_graphs_on_disk(
    memory: MemoryConfig,
    topology: int,
    sampling: str,
    graph: Graph,
    split: ClassifySplit,
    expected: Any,
    tmp_path: Path,
) -> None:
    hbm = HbmConfig(topology=topology, features=0, tables=0)
    trained = train(graph, split, tmp_path, memory.model_copy(update={"hbm": hbm}))
    np.testing.assert_array_equal(trained.embeddings["node"], expected)
    places = load_outcome(tmp_path, "m").places
    assert places["sampling"] == sampling
    assert ("inference" in places) == (sampling == FROM_DISK)


def test_interrupted_under_budgets_it_goes_on(
    graph: Graph, split: ClassifySplit, expected: Any, tmp_path: Path
) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 7

    with pytest.raises(InterruptedRunError):
        train(graph, split, tmp_path, LITTLE, stop=stop)
    trained = train(graph, split, tmp_path, LITTLE, resume=True)
    np.testing.assert_array_equal(trained.embeddings["node"], expected)


def test_where_rows_are_changes_between_attempts(
    graph: Graph, split: ClassifySplit, expected: Any, tmp_path: Path
) -> None:
    left = iter([False] * 5 + [True])
    with pytest.raises(InterruptedRunError):
        train(graph, split, tmp_path, MemoryConfig(), stop=lambda: next(left))
    trained = train(graph, split, tmp_path, LITTLE, resume=True)
    np.testing.assert_array_equal(trained.embeddings["node"], expected)


def test_relations_taken_as_one_are_on_disk(graph: Graph, split: ClassifySplit, tmp_path: Path) -> None:
    merged = config(merge_relations=None, epochs=1)
    there, *others = (
        train(graph, split, tmp_path / str(number), memory, config=merged).embeddings["node"]
        for number, memory in enumerate((MemoryConfig(), MemoryConfig(features=4096), LITTLE))
    )
    for found in others:
        np.testing.assert_array_equal(found, there)


def test_budgets_that_cannot_be_kept_are_refused(graph: Graph, split: ClassifySplit, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"memory.topology: expected models that are trained on batches"):
        train(graph, split, tmp_path, LITTLE, config=config(num_neighbors=None))
    kept: dict[str, Any] = {"name": "m", "task": None, "run_folder": tmp_path, "seed": 0}
    tables = MemoryConfig(tables=12 << 20)
    with pytest.raises(UsageError, match=r"memory.tables: expected models that keep their tables"):
        fit(graph, None, config=LightGCNConfig(kind="lightgcn", task="t"), memory=tables, **kept)
    with pytest.raises(UsageError, match=r"memory.tables: expected tables .* received `m` with `lock_free`"):
        fit(graph, None, config=DeepWalkConfig(kind="deepwalk", lock_free=True), memory=tables, **kept)


@pytest.mark.parametrize("tables", [1 << 20, (11 << 20)])
def test_a_budget_of_tables_that_is_too_small_is_named_by_its_key(tables: int, tmp_path: Path) -> None:
    memory = TrainingMemory(MemoryConfig(tables=tables), tmp_path)
    with pytest.raises(
        DoesNotFitError, match=r"memory.tables: expected .* the table `node` of 1,000,000 rows"
    ):
        memory.new_table("node", 64, "adam", 0.1, rows=1_000_000)


@pytest.mark.parametrize(
    "task",
    [
        RecommendTaskConfig(kind="recommend", node_type="node", relations=("links",)),
        PredictLinksTaskConfig(kind="predict_links", node_type="node", relations=("links",)),
    ],
    ids=["recommend", "predict_links"],
)
def test_held_out_edges_are_never_read_from_disk(task: Any, graph: Graph) -> None:
    view = GraphView(graph, make_split(graph, task, 0))
    for each in (view, view.with_reverse_edges(), view.without_edges({})):
        with pytest.raises(UsageError, match="expected edges that are all in files"):
            TrainingMemory(LITTLE).tiered(each)
