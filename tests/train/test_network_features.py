"""Features of graph networks on a device: wherever their rows are, networks read the same."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from graphbox.config import (
    ClassifyTaskConfig,
    GraphNetworkConfig,
    HbmConfig,
    MemoryConfig,
    PredictLinksTaskConfig,
    RunConfig,
    TaskConfig,
)
from graphbox.errors import InterruptedRunError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.models.graph_inputs import NodeBatch
from graphbox.sample import Batch, DeviceGraph
from graphbox.sample.device_arrays import DeviceArrays, RowBlocks
from graphbox.train import GraphView, TrainedModel, fit, load_outcome, make_split
from graphbox.train.network.node_data import NetworkData, node_data
from graphbox.train.network.trainer import NetworkTrainer
from graphbox.train.plan.accesses import DegreeClasses
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.device_plan import Gpu, plan_devices
from tests.train.pretended_gpu import PretendedTensor, pretended_gpu

PAPERS, AUTHORS, WIDTH = 240, 40, 24
VECTOR_BYTES = 4 * (WIDTH + 2) * PAPERS
PART = 20_000
"""Of features, in which all but the vectors of papers fit, and some of those."""

TASKS: dict[str, TaskConfig] = {
    "classify": ClassifyTaskConfig(kind="classify", node_type="paper", label="topic"),
    "links": PredictLinksTaskConfig(kind="predict_links", node_type="paper", relations=("cites",)),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph with features of all kinds; few papers are cited by most."""
    folder = tmp_path_factory.mktemp("papers")
    generator = np.random.default_rng(0)
    topic = generator.integers(0, 3, PAPERS)
    vectors = generator.normal(size=(PAPERS, WIDTH)).astype(np.float32)
    vectors[:, :3] += 2 * np.eye(3)[topic]
    vectors[5, 2] = np.nan
    pair = generator.normal(size=(PAPERS, 2)).astype(np.float32)
    papers = pa.table(
        {
            "id": np.arange(PAPERS),
            "topic": [f"t{each}" for each in topic],
            "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(pair.ravel()), 2),
            "venue": [f"v{each % 5}" if each % 7 else None for each in range(PAPERS)],
            "year": generator.integers(1990, 2020, PAPERS),
            "words": [[int(each) for each in range(number % 4)] for number in range(PAPERS)],
        }
    )
    features: Any = {
        "topic": "categorical",
        "x": "vector",
        "pair": "vector",
        "venue": "categorical",
        "year": "number",
        "words": "slots",
    }
    authors = pa.table({"id": np.arange(AUTHORS), "fame": generator.lognormal(size=AUTHORS)})
    cited = (generator.pareto(1.2, 1500) * 4).astype(np.int64) % PAPERS
    cites = pa.table({"source": generator.integers(0, PAPERS, 1500), "target": cited})
    wrote = pa.table(
        {"source": generator.integers(0, AUTHORS, 400), "target": generator.integers(0, PAPERS, 400)}
    )
    source = GraphSource(
        "papers",
        {
            "paper": NodeSource(papers, features=features),
            "author": NodeSource(authors, features={"fame": "number"}),
        },
        (
            EdgeSource(("paper", "cites", "paper"), cites, reverse="cited_by", csr=True),
            EdgeSource(("author", "wrote", "paper"), wrote, reverse="written_by", csr=True),
        ),
    )
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")


def config(**changes: Any) -> GraphNetworkConfig:
    settings: dict[str, Any] = {
        "kind": "gnn",
        "task": "t",
        "dim": 8,
        "epochs": 2,
        "batch_size": 64,
        "layers": 2,
        "num_neighbors": (4, 3),
        "input_dropout": 0.1,
        **changes,
    }
    return GraphNetworkConfig.model_validate(settings, strict=False)


def train(graph: Graph, task: str, folder: Path, memory: MemoryConfig, **options: Any) -> TrainedModel:
    return fit(
        graph,
        make_split(graph, TASKS[task], 0),
        name="m",
        config=options.pop("config", config()),
        task=TASKS[task],
        run_folder=folder,
        seed=3,
        threads=1,
        memory=memory,
        **options,
    )


def budget(features: int | None) -> MemoryConfig:
    # Rows stay below: loaders fetch in threads of their own, and the interpreter runs one kernel at a time.
    return MemoryConfig(hbm=HbmConfig(features=features, tables=0))


def vectors_of(trained: TrainedModel) -> dict[str, Any]:
    found: dict[str, Any] = dict(trained.embeddings)
    return found if trained.target is None else {**found, "target": trained.target}


def assert_same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert set(found) == set(expected)
    for name, each in found.items():
        np.testing.assert_array_equal(each, expected[name], err_msg=name)


@pytest.fixture(scope="module")
def expected(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Vectors of trainings in host memory, by task."""
    folder = tmp_path_factory.mktemp("host")
    return {task: vectors_of(train(graph, task, folder / task, MemoryConfig())) for task in TASKS}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[DeviceArrays[Any]]:
    """Let the CPU have kernels, and passes few batches; gives what features were read from."""
    made: list[DeviceArrays[Any]] = []
    start = DeviceArrays.__init__

    def noted(self: DeviceArrays[Any], arrays: Mapping[Any, RowBlocks], *args: Any, **kwargs: Any) -> None:
        start(self, arrays, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(DeviceArrays, "__init__", noted)
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)
    monkeypatch.setattr("graphbox.train.network.trainer._PASS_BATCHES", 2)
    monkeypatch.setattr("graphbox.sample.loader.device._PASS_BATCHES", 2)
    return made


@pytest.mark.gpu_kernel
@pytest.mark.parametrize("features", [None, 0, PART])
@pytest.mark.parametrize("task", TASKS)
def test_budgets_change_no_bit(
    task: str,
    features: int | None,
    graph: Graph,
    expected: dict[str, dict[str, Any]],
    kernels: list[DeviceArrays[Any]],
    tmp_path: Path,
) -> None:
    assert_same(vectors_of(train(graph, task, tmp_path, budget(features))), expected[task])
    place = load_outcome(tmp_path, "m").places["features"]
    (held,) = kernels
    if features is None:
        assert place == "cpu"
        assert held.pinned_bytes == 0
    elif features == 0:
        assert place.endswith("in pinned host memory, which it reads")
        assert held.device_bytes == 0
    else:
        assert "there, rows by their use" in place
        assert held.pinned_bytes == VECTOR_BYTES
        assert held.device_bytes <= PART
        assert 0 < held.statistics.lists < PAPERS
        assert held.statistics.passes > 2
        assert held.statistics.hit_rate is not None
        assert held.statistics.hit_rate > 0.2


@pytest.mark.gpu_kernel
def test_one_graph_at_a_time_has_the_budget_of_neighbours(
    graph: Graph,
    expected: dict[str, dict[str, Any]],
    kernels: list[DeviceArrays[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of an epoch, which lacks its links, that of all epochs, and that of the end."""
    made: list[weakref.ref[DeviceGraph]] = []
    passes: list[int] = []

    class Noted(DeviceGraph):
        def __init__(self, *args: Any, **options: Any) -> None:
            assert not any(each() for each in made)
            super().__init__(*args, **options)
            made.append(weakref.ref(self))

        def end_pass(self) -> Any:
            statistics = super().end_pass()
            passes.append(statistics.lists)
            return statistics

    monkeypatch.setattr("graphbox.train.memory.DeviceGraph", Noted)
    memory = MemoryConfig(hbm=HbmConfig(topology=7000, tables=0))
    assert_same(vectors_of(train(graph, "links", tmp_path, memory)), expected["links"])
    assert len(made) == 5  # two epochs, the validation of each, the end
    assert max(passes) > 0


@pytest.mark.gpu_kernel
def test_neighbours_of_the_host_have_features_of_the_device(
    graph: Graph,
    expected: dict[str, dict[str, Any]],
    kernels: list[DeviceArrays[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphbox.train.memory.MOST_NEIGHBORS_ON_DEVICE", 1)
    assert_same(vectors_of(train(graph, "classify", tmp_path, budget(PART))), expected["classify"])
    assert load_outcome(tmp_path, "m").places["sampling"].startswith("cpu: more than 1 neighbours")
    assert kernels[0].statistics.passes > 2
    assert kernels[0].statistics.lists > 0


@pytest.mark.gpu_kernel
def test_a_training_goes_on_with_another_budget(
    graph: Graph,
    expected: dict[str, dict[str, Any]],
    kernels: list[DeviceArrays[Any]],
    tmp_path: Path,
) -> None:
    budgets = [PART, 0, None]
    for number, features in enumerate(budgets):
        asked = iter(range(100))
        options: dict[str, Any] = {"resume": number > 0}
        if number + 1 < len(budgets):
            options["stop"] = lambda left=asked: next(left) == 2
            with pytest.raises(InterruptedRunError):
                train(graph, "classify", tmp_path, budget(features), **options)
        else:
            trained = train(graph, "classify", tmp_path, budget(features), **options)
    assert_same(vectors_of(trained), expected["classify"])
    assert [each.pinned_bytes > 0 for each in kernels] == [True, True, False]


def parts_of(batch: NodeBatch) -> list[torch.Tensor]:
    slots = [part for each in batch.slots for part in (each.values, each.offsets)]
    return [batch.keys, batch.codes, batch.numbers, batch.vectors, *slots]


def network_data(graph: Graph, **options: Any) -> NetworkData:
    split = make_split(graph, TASKS["classify"], 0)
    return node_data(GraphView(graph, split), ["paper", "author"], None, **options)


@pytest.mark.gpu_kernel
@pytest.mark.parametrize("features", [None, 0, PART])
def test_rows_are_on_the_gpu_and_the_host_is_not_asked(features: int | None, graph: Graph) -> None:
    """Kernels of a GPU that is pretended read them: there, or in pinned host memory."""
    reference = network_data(graph)
    generator = np.random.default_rng(0)
    with pretended_gpu() as gpu:

        def on_device(arrays: Mapping[Any, RowBlocks]) -> DeviceArrays[Any]:
            return DeviceArrays(arrays, gpu, hbm_bytes=features, misses="read")

        data = network_data(graph, on_device=on_device)
        assert data.place.startswith("cuda:0")
        for _ in range(3):
            nodes = {"paper": torch.from_numpy(generator.integers(0, 40, 90)), "author": torch.arange(7)}
            found = data.inputs({name: each.to(gpu) for name, each in nodes.items()})
            for name, each in reference.inputs(nodes).items():
                for part, other in zip(parts_of(found[name]), parts_of(each), strict=True):
                    assert isinstance(part, PretendedTensor)
                    assert part.dtype == other.dtype
                    assert torch.equal(part.cpu(), other)
            data.end_pass()


@pytest.mark.gpu_kernel
def test_what_the_plan_has_room_for_is_on_the_gpu(graph: Graph) -> None:
    """A budget of the size that the plan tells of all features is enough for them, whatever their dtypes."""
    document = {
        "version": 1,
        "name": "planned",
        "graph": {"name": "papers", "nodes": {"paper": {"path": "n.csv"}}, "edges": []},
        "tasks": {"t": {"kind": "classify", "node_type": "paper", "label": "topic"}},
        "models": {"m": config().model_dump(mode="json")},
    }
    for features in (None, PART):
        document["memory"] = {"hbm": {} if features is None else {"features": features}}
        run = RunConfig.model_validate_json(json.dumps(document))
        plan = plan_devices(run, GraphCounts.of(graph), DegreeClasses.of(graph), Gpu("gpu", 80 << 30))["m"]
        assert plan is not None
        assert plan.is_whole == (features is None)
        room = plan.budgets["features"]

        def on_device(arrays: Mapping[Any, RowBlocks], room: int = room) -> DeviceArrays[Any]:
            return DeviceArrays(arrays, "cpu", hbm_bytes=room, misses="read")

        held = network_data(graph, on_device=on_device).arrays
        assert held is not None
        assert (held.pinned_bytes == 0) == plan.is_whole
        assert held.device_bytes <= room


def test_no_nodes_have_nothing(graph: Graph) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    found = network_data(graph).inputs({"paper": none, "author": none})
    assert found["paper"].vectors.shape == (0, WIDTH + 2)
    assert found["paper"].codes.shape == (0, 1)
    assert found["author"].numbers.shape == (0, 1)


def test_vectors_on_disk_come_by_one_copy_from_pinned_memory(
    graph: Graph, expected: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are put side by side, and pinned, by the thread that reads ahead."""
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)
    seen: list[bool] = []
    inputs = NetworkData.inputs

    def noted(self: NetworkData, nodes: Any, ahead: Any = None) -> dict[str, NodeBatch]:
        if ahead:
            vectors = ahead["paper"]["vectors"]
            seen.append(pinned.pop(id(vectors), False))
            assert vectors.shape == (len(nodes["paper"]), WIDTH + 2)
        return inputs(self, nodes, ahead)

    pinned: dict[int, bool] = {}
    monkeypatch.setattr(NetworkData, "inputs", noted)
    memory = MemoryConfig(features=VECTOR_BYTES // 3)
    with pretended_gpu() as gpu:
        pin = torch.Tensor.pin_memory

        def noted_pin(tensor: torch.Tensor) -> torch.Tensor:
            pinned[id(tensor)] = True
            return pin(tensor)

        monkeypatch.setattr(torch.Tensor, "pin_memory", noted_pin)
        trained = train(graph, "classify", tmp_path, memory, device=gpu, config=config(merge_relations=False))
        monkeypatch.undo()
    assert len(seen) > 4
    assert all(seen)
    assert_same(vectors_of(trained), expected["classify"])
    place = load_outcome(tmp_path, "m").places["features"]
    assert place == "vectors on disk, read ahead in host memory and copied; the rest: cpu"


def test_vectors_that_a_loader_put_on_the_gpu_are_put_side_by_side_there(graph: Graph) -> None:
    data = network_data(graph, stored=graph.tiered())
    nodes = torch.tensor([5, 0, 5])
    expected = network_data(graph)["paper"].take(nodes).vectors
    rows = {
        name: torch.from_numpy(np.array(graph.feature("paper", name)[nodes.numpy()]))
        for name in ("x", "pair")
    }
    assert data["paper"].stored_vectors == ("x", "pair")
    assert torch.equal(data["paper"].take(nodes).vectors, expected)
    nothing: Any = None
    with pretended_gpu() as gpu:
        for place in (torch.device("cpu"), gpu):
            there = {"paper": {name: each.to(place) for name, each in rows.items()}}
            batch: Batch[Any] = Batch(0, 0, nothing, there, nothing)
            vectors = data.with_vectors(batch, pinned=True).features["paper"]["vectors"]
            assert vectors.device == place
            assert torch.equal(vectors.cpu(), expected)


def test_a_whole_graph_has_all_its_features_where_it_computes(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = config(num_neighbors=None)
    expected = vectors_of(train(graph, "classify", tmp_path / "host", MemoryConfig(), config=whole))
    copies: list[int] = []
    inputs = NetworkTrainer._inputs

    def noted(self: NetworkTrainer[Any], *args: Any) -> Any:
        copies.append(1)
        return inputs(self, *args)

    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)
    monkeypatch.setattr(NetworkTrainer, "_inputs", noted)
    with pretended_gpu() as gpu:
        trained = train(graph, "classify", tmp_path / "gpu", MemoryConfig(), config=whole, device=gpu)
    assert_same(vectors_of(trained), expected)
    assert len(copies) == 1
    assert load_outcome(tmp_path / "gpu", "m").places["features"] == "cuda:0"
