"""Trainings on a GPU, as far as that shows without one: nothing is made, read or left on the wrong device."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from graphbox.config import (
    ClassifyTaskConfig,
    ClickTaskConfig,
    CompleteTaskConfig,
    GivenSplitConfig,
    HbmConfig,
    MemoryConfig,
    NextTaskConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
    model_kind,
)
from graphbox.errors import DoesNotFitError, InterruptedRunError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.sample import DeviceGraph
from graphbox.sample.resident_lists import ResidentStatistics
from graphbox.table import EmbeddingTable
from graphbox.train import TrainedModel, fit, load_outcome, make_split
from graphbox.train.assignment import Assignment
from graphbox.train.memory import TrainingMemory
from graphbox.train.optimization import Optimization
from graphbox.train.transfer import place_of
from graphbox.train.walks.skip_gram import SkipGramTrainer
from tests.train.atlas import build_atlas
from tests.train.conftest import build_graph
from tests.train.letters import stream_graph, stream_task
from tests.train.pretended_gpu import PretendedTensor, pretended_gpu
from tests.train.shop import build_shop

CPU = torch.device("cpu")
_DIM = {"dim": 8, "epochs": 2}

TASKS: dict[str, Any] = {
    "topics": ClassifyTaskConfig(kind="classify", node_type="item", label="topic"),
    "items": RecommendTaskConfig(
        kind="recommend", node_type="user", target_type="item", relations=("bought",), k=5
    ),
    "near": RecommendTaskConfig(
        kind="recommend",
        node_type="item",
        relations=("likes", "fits"),
        group=("item", "part_of", "group"),
        exclude_relations=("needs",),
        k=5,
    ),
    "pairs": PredictLinksTaskConfig(
        kind="predict_links", node_type="user", target_type="item", relations=("bought",)
    ),
    "letters": stream_task(),
    "readers": NextTaskConfig(kind="next", node_type="person", relations=("wrote",), k=5),
    "facts": CompleteTaskConfig(
        kind="complete",
        relations=(("place", "links", "place"),),
        relation_feature="relation",
        split=GivenSplitConfig(kind="given", feature="part"),
    ),
    "clicks": ClickTaskConfig(kind="click", node_type="row", label="clicked"),
}
_SAMPLED = {"epochs": 1, "layers": 2, "num_neighbors": [3, 2], "batch_size": 128}
_CLICKS = {"dim": 4, "epochs": 2, "hidden": [16], "batch_size": 64, "dropout": 0.2, "row_dropout": 0.1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gnn whole": ("topics", {"kind": "gnn", **_DIM, "layer": "gcn", "row_dropout": 0.2}),
    "gnn sampled": ("topics", {"kind": "gnn", **_DIM, **_SAMPLED, "layer": "sage", "input_dropout": 0.1}),
    "gnn relational": ("topics", {"kind": "gnn", **_DIM, **_SAMPLED, "layer": "rgcn"}),
    "gnn attention": ("topics", {"kind": "gnn", **_DIM, **_SAMPLED, "layer": "gatv2", "normalize": True}),
    "gnn transformer": ("topics", {"kind": "gnn", **_DIM, "layer": "hgt", "layers": 1}),
    "gnn ranks": ("items", {"kind": "gnn", **_DIM, **_SAMPLED, "layer": "lightgcn"}),
    "gnn tells": ("pairs", {"kind": "gnn", **_DIM, "layer": "gcn", "batch_size": 128, "average_decay": 0.9}),
    "lightgcn": (
        "items",
        {"kind": "lightgcn", **_DIM, "batch_size": 32, "candidates": 16, "contrast": 0.1, "auto": ()},
    ),
    "factorization": (
        "items",
        {
            "kind": "matrix_factorization",
            **_DIM,
            "batch_size": 32,
            "candidates": 16,
            "loss": "nce",
            "auto": (),
        },
    ),
    "sage": (
        "near",
        {
            "kind": "sage",
            **_DIM,
            "batch_size": 32,
            "candidates": 16,
            "num_neighbors": 4,
            "features": ["topic", "size", "kept"],
        },
    ),
    "pinsage": (
        "items",
        {"kind": "pinsage", **_DIM, "batch_size": 32, "negatives": 16, "hard_negative_ranks": [3, 30]},
    ),
    "two_tower": ("items", {"kind": "two_tower", **_DIM, "batch_size": 32, "negatives": 16}),
    "temporal": (
        "letters",
        {"kind": "temporal", "dim": 8, "epochs": 1, "recent": 4, "row_dim": 4, "batch_size": 32},
    ),
    "sasrec": ("readers", {"kind": "sasrec", **_DIM, "batch_size": 8, "candidates": 16, "heads": 2}),
    "gru4rec": ("readers", {"kind": "gru4rec", **_DIM, "batch_size": 8, "hidden": 6}),
    "comirec": ("readers", {"kind": "comirec", **_DIM, "batch_size": 8, "hidden": 6, "interests": 3}),
    "deepfm": ("clicks", {"kind": "deepfm", **_CLICKS}),
    "dcn": ("clicks", {"kind": "dcn", **_CLICKS, "average_decay": 0.9}),
    "wide_and_deep": ("clicks", {"kind": "wide_and_deep", **_CLICKS, "crosses": [["user", "item"]]}),
    "din": ("clicks", {"kind": "din", **_CLICKS, "interests": [{"history": "tags", "target": "item"}]}),
    "mmoe": ("clicks", {"kind": "mmoe", **_CLICKS, "experts": 2}),
} | {
    kind: ("facts", {"kind": kind, "dim": 8, "epochs": 2, "batch_size": 32, "candidates": 24})
    for kind in ("distmult", "complex", "transe", "rotate")
}


OWN_KERNELS = ("sasrec", "gru4rec", "comirec", "gnn whole", "gnn ranks", "gnn tells", "lightgcn")
"""Cases with attention, recurrence or propagation: other kernels on a GPU, which round otherwise."""


def build_log(folder: Path) -> Graph:
    folder = folder / "graph"
    generator = np.random.default_rng(0)
    user, item = generator.integers(0, 8, 400), generator.integers(0, 6, 400)
    columns = {
        "clicked": (user + item) % 2 == 0,
        "user": [f"u{each}" for each in user],
        "item": [f"i{each}" for each in item],
        "tags": [[int(each) % 5, int(each) % 7] for each in item],
        "price": generator.lognormal(size=400),
    }
    features: Any = {"clicked": "boolean", "user": "categorical", "item": "categorical", "tags": "slots"}
    table = pa.table({name: list(each) for name, each in columns.items()})
    rows = NodeSource(table, id=None, features={**features, "price": "number"})
    import_graph(GraphSource("log", {"row": rows}, ()), folder)
    return Graph.open(folder)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Graph]:
    """Return the graph of a task, made when it is first asked for."""
    made: dict[Any, Graph] = {}
    build: dict[str, Any] = {
        "topics": build_graph,
        "near": build_graph,
        "items": build_shop,
        "pairs": build_shop,
        "letters": lambda folder: stream_graph(folder, messages=300),
        "readers": lambda folder: stream_graph(folder, messages=300),
        "facts": build_atlas,
        "clicks": build_log,
    }

    def graph(task: str) -> Graph:
        if build[task] not in made:
            made[build[task]] = build[task](tmp_path_factory.mktemp(task))
        return made[build[task]]

    return graph


def train(graph: Graph, case: str, folder: Path, device: torch.device, **options: Any) -> TrainedModel:
    task, settings = CASES[case]
    config: Any = model_kind(settings["kind"]).section.model_validate(
        {"task": task, **settings}, strict=False
    )
    return fit(
        graph,
        make_split(graph, TASKS[task], 0),
        name="model",
        config=config,
        task=TASKS[task],
        run_folder=folder,
        seed=5,
        threads=1,
        device=device,
        **options,
    )


def arrays(trained: TrainedModel) -> dict[str, Any]:
    found: dict[str, Any] = dict(trained.embeddings)
    for name in ("target", "logits", "link_scores"):
        if getattr(trained, name) is not None:
            found[name] = getattr(trained, name)
    if trained.triples is not None:
        found["relations"] = trained.triples.rows
    if trained.encoder is not None:
        found |= {"target": trained.encoder.target, **trained.encoder.inputs}
    if trained.sequence is not None:
        found |= {name: each.detach().numpy() for name, each in trained.sequence.network.named_parameters()}
    if trained.click is not None:
        found |= {name: each.detach().numpy() for name, each in trained.click.network.named_parameters()}
    return found


def measured(folder: Path) -> list[dict[str, float]]:
    """Return the figures of the validation part that a training wrote."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line["values"].items() if name.startswith("validation_")}
        for line in lines
    ]


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("ranked in host memory")


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")  # which recurrent layers ask for
@pytest.mark.parametrize("case", CASES)
def test_trains_as_on_the_cpu(
    case: str, graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graphs(CASES[case][0])
    expected = arrays(train(graph, case, tmp_path / "cpu", CPU))
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)  # no GPU runs them
    monkeypatch.setattr("graphbox.metrics.ranking.top_k", refuse)
    monkeypatch.setattr("graphbox.train.completion.triple_rows.TripleRows.scores", refuse)
    with pretended_gpu() as gpu:
        found = arrays(train(graph, case, tmp_path / "gpu", gpu))
    for one, other in zip(measured(tmp_path / "gpu"), measured(tmp_path / "cpu"), strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    assert set(found) == set(expected)
    for name, each in found.items():
        assert not isinstance(each, PretendedTensor)
        rounding = 1e-5 if case in OWN_KERNELS else 0.0
        np.testing.assert_allclose(each, expected[name], rounding, rounding, err_msg=name)
    assert load_outcome(tmp_path / "gpu", "model").devices == ["cuda:0 (pretended)"]
    assert load_outcome(tmp_path / "cpu", "model").devices == ["cpu"]


@pytest.mark.parametrize("first", ["cpu", "gpu"])
@pytest.mark.parametrize("case", ["gnn tells", "sage", "dcn", "temporal", "complex"])
def test_goes_on_on_another_device(
    case: str,
    first: str,
    graphs: Callable[[str], Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graphs(CASES[case][0])
    expected = arrays(train(graph, case, tmp_path / "cpu", CPU))
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)
    asked = iter(range(100))

    def stop() -> bool:
        return next(asked) == 2

    with pretended_gpu() as gpu:
        devices = (CPU, gpu) if first == "cpu" else (gpu, CPU)
        with pytest.raises(InterruptedRunError):
            train(graph, case, tmp_path / "both", devices[0], stop=stop)
        found = arrays(train(graph, case, tmp_path / "both", devices[1], resume=True))
    rounding = 1e-5 if case in OWN_KERNELS else 0.0
    for name, each in found.items():
        np.testing.assert_allclose(each, expected[name], rounding, rounding, err_msg=name)
    told = load_outcome(tmp_path / "both", "model").devices
    assert [each.partition(":")[0] for each in told] == [each.type for each in devices]


def test_the_pretended_gpu_refuses_what_a_gpu_would() -> None:
    with pretended_gpu() as gpu:
        here, there = torch.arange(3.0), torch.arange(3.0).to(gpu)
        assert (there + there).device == gpu
        assert there.cpu().device == CPU
        with pytest.raises(RuntimeError, match="expected all tensors on cuda:0"):
            here + there
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            there.numpy()


def test_what_is_kept_for_a_while_is_on_the_gpu_if_it_has_room() -> None:
    assert place_of(1, CPU) == CPU
    with pretended_gpu() as gpu:  # which has 1 TiB free
        assert place_of(1 << 39, gpu) == gpu
        assert place_of((1 << 39) + 1, gpu) == CPU


@pytest.mark.gpu_kernel
@pytest.mark.parametrize(
    "case", ["gnn ranks", "gnn sampled", "sage", "factorization", "distmult", "wide_and_deep", "temporal"]
)
def test_samples_and_rows_of_kernels_are_those_of_the_cpu(
    case: str, graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graphs(CASES[case][0])
    expected = arrays(train(graph, case, tmp_path / "host", CPU))
    assert "tables" not in load_outcome(tmp_path / "host", "model").places
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)
    # Loaders sample in threads of their own, and the interpreter runs one kernel at a time.
    has_loader = case in ("gnn ranks", "gnn sampled")
    hbm = HbmConfig(tables=0 if has_loader else 1 << 20, topology=1 << 20)
    found = arrays(train(graph, case, tmp_path / "kernels", CPU, memory=MemoryConfig(hbm=hbm)))
    places = load_outcome(tmp_path / "kernels", "model").places
    assert places["tables"] == "cpu" or has_loader
    assert places.get("sampling", "cpu") == "cpu"
    for name, each in found.items():
        np.testing.assert_array_equal(each, expected[name], err_msg=name)


@pytest.mark.gpu_kernel
def test_lists_that_have_no_room_on_the_gpu_are_read_from_host_memory(
    graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, topology = graphs("near"), 20_000
    expected = arrays(train(graph, "sage", tmp_path / "host", CPU))
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)
    passes: list[tuple[ResidentStatistics, int]] = []

    class Watched(DeviceGraph):
        def end_pass(self) -> ResidentStatistics:
            passes.append((super().end_pass(), self.device_bytes))
            return passes[-1][0]

    monkeypatch.setattr("graphbox.train.memory.DeviceGraph", Watched)
    memory = MemoryConfig(hbm=HbmConfig(tables=0, topology=topology))
    found = arrays(train(graph, "sage", tmp_path / "kernels", CPU, memory=memory))
    assert max(held_bytes for _, held_bytes in passes) <= topology
    assert max(each.hit_rate or 0.0 for each, _ in passes) > 0.5
    for name, each in found.items():
        np.testing.assert_array_equal(each, expected[name], err_msg=name)


@pytest.mark.gpu_kernel
def test_walks_that_are_learnt_first_and_towers_have_the_memory_of_the_gpu_in_turn(
    graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = {"metapaths": [[["item", "needs", "item"]]], "walk_length": 4, "epochs": 1, "negatives": 16}
    task, settings = CASES["sage"]
    monkeypatch.setitem(CASES, "pretrained", (task, {**settings, "epochs": 1, "pretrain": walks}))
    graph = graphs(task)
    expected = arrays(train(graph, "pretrained", tmp_path / "host", CPU))
    seen: list[tuple[str, int, Any]] = []
    rows: list[weakref.ref[torch.Tensor]] = []

    class Watched(SkipGramTrainer):
        def begin_epoch(self, epoch: int) -> int:
            assert self._on_device is not None
            rows.extend(weakref.ref(each.arrays.first.values) for each in self._on_device._rows)
            seen.append(("walks", len(self._memory._on_device), self._room.device_budget_bytes))
            return super().begin_epoch(epoch)

        def close(self) -> None:
            super().close()
            left = sum(each() is not None for each in rows)  # no later collection of garbage frees them
            seen.append(("closed", len(self._memory._on_device), left))

    monkeypatch.setattr("graphbox.train.walks.skip_gram.SkipGramTrainer", Watched)
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)
    monkeypatch.setattr(Assignment, "kernel_device", property(lambda _: CPU))
    memory = MemoryConfig(hbm=HbmConfig(tables=1 << 15, topology=1 << 20))
    found = arrays(train(graph, "pretrained", tmp_path / "kernels", CPU, memory=memory))
    assert seen[:2] == [("walks", 0, 1 << 15), ("closed", 0, 0)]
    for name, each in found.items():
        np.testing.assert_allclose(each, expected[name], atol=1e-3, err_msg=name)


def test_why_neighbours_are_sampled_on_the_cpu() -> None:
    on_gpu = TrainingMemory(device=torch.device("cuda", 0))
    assert on_gpu.why_on_cpu([10, 5]) is None
    with_rows_on_disk = TrainingMemory(MemoryConfig(tables=1 << 20), device=torch.device("cuda", 0))
    assert str(with_rows_on_disk.why_on_cpu([10])).startswith("rows of tables are on disk")
    assert on_gpu.why_on_cpu([1000]) == "more than 512 neighbours of a node are asked for"
    on_disk = TrainingMemory(MemoryConfig(topology=1 << 20), device=torch.device("cuda", 0))
    assert on_disk.why_on_cpu([10]) == "the graph is on disk"
    assert on_disk.why_on_cpu([10], in_tiers=True) is None
    rows_too = TrainingMemory(MemoryConfig(features=1, tables=1 << 20), device=torch.device("cuda", 0))
    assert rows_too.why_on_cpu([10], in_tiers=True) is None
    assert TrainingMemory().why_on_cpu([10]) == "the model computes there"


def test_memory_of_the_gpu_that_ends_is_told_with_what_would_fit(
    graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")

    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)
    monkeypatch.setattr(Optimization, "backward", full)
    is_on = torch.are_deterministic_algorithms_enabled()
    with pretended_gpu() as gpu, pytest.raises(DoesNotFitError) as caught:
        train(graphs("topics"), "gnn sampled", tmp_path, gpu)
    text = str(caught.value)
    assert caught.value.exit_code == 3
    assert "expected more memory of cuda:0 (pretended) than it has to train `model`" in text
    assert "CUDA out of memory" in text
    assert "`models.model.batch_size=64` takes smaller batches" in text
    assert "`device=cpu` resumes in host memory from the last checkpoint" in text
    assert torch.are_deterministic_algorithms_enabled() == is_on


def test_sums_are_in_order_where_that_is_affordable(
    graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, bool] = {}
    backward = Optimization.backward

    def noted(self: Optimization, loss: torch.Tensor) -> float:
        seen[case] = torch.are_deterministic_algorithms_enabled()
        return backward(self, loss)

    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)
    monkeypatch.setattr(Optimization, "backward", noted)
    with pretended_gpu() as gpu:
        for case in ("gnn ranks", "gnn tells"):
            train(graphs("items"), case, tmp_path / case, gpu)
    assert seen == {"gnn ranks": True, "gnn tells": False}
    assert "sums" in load_outcome(tmp_path / "gnn tells", "model").places
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu_kernel
def test_a_training_over_rows_on_a_device_is_gone_on_with(
    graphs: Callable[[str], Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graphs("facts")
    expected = arrays(train(graph, "complex", tmp_path / "host", CPU))
    asked = iter(range(100))
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)
    with pytest.raises(InterruptedRunError):
        train(graph, "complex", tmp_path / "both", CPU, stop=lambda: next(asked) == 2)
    found = arrays(train(graph, "complex", tmp_path / "both", CPU, resume=True))
    for name, each in found.items():
        np.testing.assert_array_equal(each, expected[name], err_msg=name)


@pytest.mark.gpu_kernel
def test_budgets_of_rows_are_divided_by_size_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: True)
    place = TrainingMemory(MemoryConfig(hbm=HbmConfig(tables=4 << 20)))
    rows = {"many": 3000, "few": 1000}
    tables = place.new_tables(rows, 8, "adagrad", 0.1, seeds=dict.fromkeys(rows, 0))
    near = place.near(tables)
    assert place.kept(near) == tables
    taken = {name: each.statistics().hbm_bytes for name, each in near.items()}  # type: ignore[attr-defined]
    assert taken["many"] <= 3 << 20
    assert taken["few"] <= 1 << 20
    assert taken["many"] > 2 * taken["few"]
    again = place.near(tables)
    assert repr(near["few"]) == "DeviceTable(closed)"
    place.release()
    assert repr(again["many"]) == "DeviceTable(closed)"
    assert place.kept(again) == tables
    other = EmbeddingTable(8, "adagrad", 0.1, eviction="clock", memory_bytes=64 << 20)
    assert place.near({"other": other})["other"] is other
    assert place.table_places()["tables"].startswith("other on the cpu: ")
    nothing = TrainingMemory(MemoryConfig(hbm=HbmConfig(tables=0)))
    assert nothing.near(tables) == tables
