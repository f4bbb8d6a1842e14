"""Stages of loaders: features, plain arrays, passes of several batches, and resuming."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from graphbox.errors import BackendMissingError, UsageError
from graphbox.graph import Graph
from graphbox.native import Int64Array
from graphbox.sample import Batch, HeteroSample, NeighborLoader
from graphbox.sample.loader import NodeSeeds
from graphbox.sample.loader.stages import Features

NODES = 60


@pytest.fixture(scope="module")
def graph() -> Graph:
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, NODES, (2, 400))
    tags = [10 * (node + k) for node in range(NODES) for k in range(node % 3)]
    features = {
        "x": generator.normal(size=(NODES, 3)).astype(np.float32),
        "y": np.arange(NODES),
        "kind": np.array(["red", "green", "blue"])[np.arange(NODES) % 3],
        "tags": (np.append(0, np.cumsum(np.arange(NODES) % 3)), np.array(tags)),
    }
    return Graph.from_coo(source, target, num_nodes=NODES, node_features=features)


def same(one: Any, other: Any) -> bool:
    """Return whether two batches hold the same, bit for bit."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype) and one.tobytes() == other.tobytes()
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return bool(one == other)


def batches(graph: Graph, **arguments: Any) -> list[Any]:
    settings = {"batch_size": 8, "shuffle": True, "seed": 3, "num_threads": 2} | arguments
    return list(NeighborLoader(graph, [3, 2], **settings))


def test_features_of_the_graph_are_in_the_batch(graph: Graph) -> None:
    for batch in batches(graph):
        nodes = batch.n_id.numpy()
        np.testing.assert_array_equal(batch.x.numpy(), graph.feature("node", "x")[nodes])
        np.testing.assert_array_equal(batch.y.numpy(), nodes)
        categories = graph.features("node")["kind"].categories
        assert categories is not None
        assert [categories[code] for code in batch.kind] == [["red", "green", "blue"][n % 3] for n in nodes]
        assert batch.kind.dtype == torch.int64
        assert "tags" not in batch
    assert "x" not in batches(graph, features=())[0]
    assert "y" not in batches(graph, features=["x"])[0]


def test_slots_come_as_values_and_offsets(graph: Graph) -> None:
    for batch in batches(graph, features=["tags"]):
        lists = [
            batch.tags[start:end].tolist()
            for start, end in zip(batch.tags_ptr[:-1], batch.tags_ptr[1:], strict=True)
        ]
        assert lists == [[10 * (node + k) for k in range(node % 3)] for node in batch.n_id.tolist()]


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_plain_arrays_hold_what_pyg_data_holds(graph: Graph, output: str) -> None:
    kind = np.ndarray if output == "numpy" else torch.Tensor
    for number, (plain, data) in enumerate(zip(batches(graph, output=output), batches(graph), strict=True)):
        assert isinstance(plain, Batch)
        assert (plain.epoch, plain.number) == (0, number)
        assert isinstance(plain.seeds, NodeSeeds)
        edge_type = graph.edge_type()
        for array, tensor in [
            (plain.sample.nodes["node"], data.n_id),
            (plain.sample.row[edge_type], data.edge_index[0]),
            (plain.sample.col[edge_type], data.edge_index[1]),
            (plain.sample.edge_ids[edge_type], data.e_id),
            (plain.features["node"]["x"], data.x),
            (plain.seeds.input_id, data.input_id),
        ]:
            assert isinstance(array, kind)
            assert torch.equal(torch.as_tensor(array), tensor)
        assert len(plain.seeds.input_id) == data.batch_size


def test_plain_arrays_do_not_need_pyg(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    assert len(batches(graph, output="numpy")) == len(batches(graph, output="torch")) == 8
    with pytest.raises(BackendMissingError, match=r"graphbox\[train\](.|\n)*output='numpy'"):
        NeighborLoader(graph, [1])
    monkeypatch.setitem(sys.modules, "torch", None)
    assert len(batches(graph, output="numpy")) == 8
    with pytest.raises(BackendMissingError, match="torch"):
        NeighborLoader(graph, [1], output="torch")


@pytest.mark.parametrize("pass_batches", [2, 3, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_passes_change_nothing(graph: Graph, pass_batches: int, threads: int) -> None:
    expected = batches(graph, output="numpy")
    assert same(
        dict(enumerate(batches(graph, output="numpy", pass_batches=pass_batches, num_threads=threads))),
        dict(enumerate(expected)),
    )


class CountingFetch:
    """Gives and remembers how many batches it was asked for at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def fetch(self, samples: Sequence[HeteroSample[Int64Array]]) -> list[Features]:
        self.asked.append(len(samples))
        return [{"node": {"asked": np.full(len(sample.nodes["node"]), len(samples))}} for sample in samples]


def test_features_are_fetched_for_all_batches_of_a_pass() -> None:
    source, target = np.random.default_rng(1).integers(0, NODES, (2, 300))
    fetch = CountingFetch()
    got = batches(Graph.from_coo(source, target, num_nodes=NODES), fetch=fetch, pass_batches=3)
    assert fetch.asked == [3, 3, 2]
    assert [int(batch.asked[0]) for batch in got] == [3] * 6 + [2] * 2


def test_an_error_names_its_pass(graph: Graph) -> None:
    loader = NeighborLoader(graph, [1], [0, 1, 2, NODES, 3], batch_size=1, pass_batches=2)
    received = iter(loader)
    assert [next(received).n_id[0].item() for _ in range(2)] == [0, 1]
    with pytest.raises(UsageError, match="batches 2 to 3 of epoch 0"):
        next(received)


@pytest.mark.parametrize("stop", [0, 1, 5, 7])
@pytest.mark.parametrize("pass_batches", [None, 3])
def test_a_loader_goes_on_where_another_stopped(graph: Graph, stop: int, pass_batches: int | None) -> None:
    def loader(threads: int) -> NeighborLoader:
        return NeighborLoader(
            graph,
            [3, 2],
            batch_size=8,
            shuffle=True,
            output="numpy",
            num_threads=threads,
            pass_batches=pass_batches,
        )

    whole = loader(2)
    expected = [*whole, *whole]
    first = loader(3)
    received = iter(first)
    for _ in range(stop):
        next(received)
    state = json.loads(json.dumps(first.state_dict()))
    assert (state["epoch"], state["batch"]) == (0, stop)
    del received
    assert first.state_dict() == state
    second = loader(1)
    second.load_state_dict(state)
    assert second.state_dict() == state
    assert same(dict(enumerate([*second, *second])), dict(enumerate(expected[stop:])))


def test_the_state_after_an_epoch_is_the_next_epoch(graph: Graph) -> None:
    loader = NeighborLoader(graph, [2], batch_size=20, shuffle=True)
    assert len(list(loader)) == 3
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 0)
    loader.set_epoch(5)
    assert loader.state_dict()["epoch"] == 5


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "expected what state_dict returns"),
        (None, "received None"),
        ({"epoch": 0, "batch": 99}, "expected a batch from 0 to 3, received 99"),
        ({"epoch": -1, "batch": 0}, "epoch"),
    ],
)
def test_what_is_no_state_is_refused(graph: Graph, state: Any, message: str) -> None:
    loader = NeighborLoader(graph, [2], batch_size=20)
    if state:
        state = loader.state_dict() | state
    with pytest.raises(UsageError, match=message):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"batch_size": 10}, "batch_size 20, here 10"),
        ({"input_nodes": [1, 2]}, "seeds"),
        ({"shuffle": True}, "shuffle False, here True"),
        ({"replace": True}, "replace"),
        ({"seed": 1}, "seed 0, here 1"),
    ],
)
def test_the_state_of_another_loader_is_refused(graph: Graph, change: dict[str, Any], name: str) -> None:
    state = NeighborLoader(graph, [2], batch_size=20).state_dict()
    with pytest.raises(UsageError, match=name):
        NeighborLoader(graph, [2], **({"batch_size": 20} | change)).load_state_dict(state)
