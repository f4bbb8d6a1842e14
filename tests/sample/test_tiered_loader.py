"""Loaders over a graph on disk: the batches of the graph in memory, whatever the budgets."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import ConflictError, DoesNotFitError, FormatError, UsageError
from graphbox.graph import Graph
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.sample import NeighborLoader
from graphbox.sample.fetch import PassFetch, TierFetch
from graphbox.sample.loader.stages import Neighborhood
from graphbox.sample.options import NeighborOptions
from graphbox.sample.sampling_plan import SampleRequest
from tests.graph.test_tiered_graph import TO, change, make_graph
from tests.sample.passes import sample_pass

NAMES = ("age", "paid", "taste", "words")
MIB = 1 << 20


def loader(graph: Any, **arguments: Any) -> NeighborLoader:
    options: dict[str, Any] = {"features": NAMES, "output": "numpy", "seed": 5, "shuffle": True}
    options |= {"batch_size": 200, "num_threads": 2} | arguments
    return NeighborLoader(graph, options.pop("num_neighbors", [5, 3]), **options)


def flat(batch: Any) -> Iterator[tuple[str, Any]]:
    """Give every array of a batch with its name."""
    for name in ("nodes", "row", "col", "edge_ids", "weight", "timestamp", "trees"):
        for key, values in getattr(batch.sample, name).items():
            yield f"{name} {key}", values
    for node_type, features in batch.features.items():
        for name, values in sorted(features.items()):
            yield f"{node_type} {name}", values
    for _, name, value in batch.seeds.attributes():
        yield name, np.asarray(value)


def check_same(batches: Any, expected: Any) -> None:
    count = 0
    for one, other in zip(batches, expected, strict=True):
        assert (one.epoch, one.number) == (other.epoch, other.number)
        for (name, values), (other_name, other_values) in zip(flat(one), flat(other), strict=True):
            assert name == other_name
            assert values.dtype == other_values.dtype, name
            assert values.shape == other_values.shape, name
            assert values.tobytes() == other_values.tobytes(), name
        count += 1
    assert count


BUDGETS: list[dict[str, Any]] = [
    {},
    {"topology_bytes": 30_000, "feature_bytes": 60_000},
    {"topology_bytes": 60_000, "feature_bytes": 200_000, "pass_bytes": 1 << 20},
    {"topology_bytes": 8 * MIB, "feature_bytes": 8 * MIB},
]


@pytest.mark.parametrize("budgets", BUDGETS)
@pytest.mark.parametrize("pass_batches", [None, 1, 3])
def test_batches_are_those_of_the_graph_in_memory(
    tmp_path: Path, budgets: dict[str, Any], pass_batches: int | None
) -> None:
    graph = make_graph(tmp_path / "graph")
    attributes = {"edge_attributes": ("weight", "timestamp")}
    ours = loader(graph.tiered(**budgets), pass_batches=pass_batches, **attributes)
    expected = loader(graph, **attributes)
    assert len(ours) == len(expected) == 10
    for _ in range(2):  # epochs
        check_same(ours, expected)


def test_changed_graphs_give_the_values_that_changes_set(tmp_path: Path) -> None:
    make_graph(tmp_path / "graph", csr=True)
    graph = change(tmp_path / "graph")
    for budget in (0, 100_000, 8 * MIB):
        tiered = graph.tiered(topology_bytes=2 * MIB, feature_bytes=budget)
        check_same(loader(tiered, pass_batches=4), loader(graph))


def shop(path: Path) -> Graph:
    """Save a graph of two node types with features of their own, one of them a category."""
    rng = np.random.default_rng(3)
    users, items = 400, 900
    graph = Graph.from_coo(
        [0],
        [0],
        num_nodes=users,
        node_features={"x": rng.random((users, 7)), "city": rng.choice(["a", "b"], users)},
    )
    goods = Graph.from_coo([0], [0], num_nodes=items, node_features={"price": rng.random(items)})
    edges = {
        ("user", "buys", "item"): edge_table(
            rng.integers(0, users, 9000), (rng.pareto(1.0, 9000) * 9).astype(np.int64) % items, users, items
        ),
        ("item", "bought_by", "user"): edge_table(
            rng.integers(0, items, 5000), rng.integers(0, users, 5000), items, users
        ),
    }
    nodes = {"user": graph.node_table("node"), "item": goods.node_table("node"), "none": numbered_nodes(3)}
    Graph("shop", nodes, edges).save(path)
    return Graph.open(path)


@pytest.mark.parametrize("feature_bytes", [0, 5_000, 30_000, 4 * MIB])
def test_several_types_have_windows_of_their_own(tmp_path: Path, feature_bytes: int) -> None:
    graph = shop(tmp_path / "shop")
    arguments: dict[str, Any] = {
        "features": None,
        "input_nodes": "item",
        "batch_size": 64,
        "num_neighbors": [4, 3],
    }
    tiered = graph.tiered(topology_bytes=20_000, feature_bytes=feature_bytes)
    for pass_batches in (None, 1, 2, 5):
        check_same(loader(tiered, pass_batches=pass_batches, **arguments), loader(graph, **arguments))


def test_pyg_batches_transforms_and_resuming(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered(feature_bytes=200_000)
    arguments: dict[str, Any] = {"output": "pyg", "features": ("taste",), "transform": lambda data: (data, 1)}
    for (one, mark), (other, _) in zip(loader(tiered, **arguments), loader(graph, **arguments), strict=True):
        assert mark == 1
        assert one.keys() == other.keys()
        assert np.array_equal(one.taste, other.taste)
        assert np.array_equal(one.edge_index, other.edge_index)
    whole = list(loader(graph))
    first = loader(tiered, pass_batches=4)
    iterator = iter(first)
    check_same(itertools.islice(iterator, 4), whole[:4])
    resumed = loader(tiered, pass_batches=2)
    resumed.load_state_dict(first.state_dict())
    iterator.close()
    check_same(resumed, whole[4:])
    custom = loader(tiered, fetch=TierFetch(tiered, {"node": ["age"]}))
    for one, other in zip(custom, whole, strict=True):
        assert list(one.features["node"]) == ["age"]
        assert np.array_equal(one.features["node"]["age"], other.features["node"]["age"])


def test_a_loop_that_is_left_leaves_nothing_behind(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    ours = loader(graph.tiered(feature_bytes=300_000), pass_batches=4)
    for stop in (0, 1, 6):
        ours.set_epoch(0)
        for number, _ in enumerate(ours):
            if number == stop:
                break
    ours.set_epoch(0)
    one, other = iter(ours), iter(loader(graph.tiered(), pass_batches=2))
    check_same(one, other)


def test_memory_keeps_rows_from_pass_to_pass(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered(feature_bytes=MIB)
    rng = np.random.default_rng(0)
    seeds = [{"node": rng.integers(0, 2000, 50)} for _ in range(12)]
    passes = [sample_pass(tiered, seeds[first : first + 4], [5, 5]) for first in (0, 4, 8)]
    fetch = PassFetch(tiered, {"node": ["taste", "age"]})
    for _ in range(2):
        for sample, features in fetch.fetch(passes):
            assert np.array_equal(
                features["node"]["taste"], graph.feature("node", "taste")[sample.nodes["node"]]
            )
    wanted = {int(node) for each in passes for nodes in each.nodes("node") for node in nodes}
    assert fetch.counts.misses == len(wanted)  # all rows fit: each was read once
    assert fetch.size_bytes <= MIB
    taste = tiered.stats["node/taste"]
    assert (taste.requests, taste.misses, taste.hits) == (len(wanted), len(wanted), 0)
    assert taste.resident_bytes < 4096  # nothing is held twice
    little = PassFetch(tiered, {"node": ["taste"]}, memory_bytes=100_000)
    held = [little.size_bytes for _ in little.fetch(passes)]
    assert little.counts.windows > 3
    # What the trace takes comes on top, for as long as a pass is used.
    assert max(held) <= 100_000 + 40 * sum(len(nodes) for nodes in passes[0].nodes("node"))
    running = little.fetch(passes)
    next(running)
    with pytest.raises(ConflictError, match="one loop"):
        next(little.fetch(passes))
    running.close()
    assert sum(1 for _ in little.fetch(passes)) == 12
    with pytest.raises(UsageError, match="0 bytes or more"):
        PassFetch(tiered, {"node": ["taste"]}, memory_bytes=-1)


def test_a_file_that_shrinks_is_an_error_of_its_batch(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    ours = loader(graph.tiered(feature_bytes=300_000), pass_batches=2)
    path = graph.feature_file("node", "taste").path
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError, match=rf"batch 0 of epoch 0.*{path.name}"):
        list(ours)
    path.write_bytes(content)
    ours.set_epoch(0)
    check_same(ours, loader(graph))


def test_no_option_of_sampling_is_passed_over() -> None:
    """An option added to loaders has to be done over tiers, or refused: see TieredStages."""
    assert {each.name for each in fields(NeighborOptions)} == {
        "replace",
        "weight_attr",
        "disjoint",
        "temporal_strategy",
        "edge_attributes",
        "seed",
    }
    assert {each.name for each in fields(Neighborhood)} == {"num_neighbors", "options", "node_times"}
    assert {each.name for each in fields(SampleRequest)} == {
        "seeds",
        "times",
        "epoch",
        "batch",
        "excluded_edges",
    }


WAYS: list[dict[str, Any]] = [
    {"weight_attr": "weight"},
    {"disjoint": True},
    {"temporal_strategy": "last"},
    {"temporal_strategy": "uniform", "weight_attr": "weight", "replace": True},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_nodes_by_weight_by_time_and_in_trees(tmp_path: Path, way: dict[str, Any]) -> None:
    graph = make_graph(tmp_path / "graph")
    options = {"edge_attributes": ("timestamp",), "num_neighbors": [4, 2]} | way
    if "temporal_strategy" in way:
        times = np.random.default_rng(2).integers(0, 10**12, 2000)
        options |= {"input_time": times, "time_attr": "timestamp"}
    expected = list(loader(graph, **options))
    for pass_batches, pass_bytes in ((None, 1 << 20), (1, 1 << 20), (3, 8 << 20)):
        tiered = graph.tiered(topology_bytes=30_000, feature_bytes=100_000, pass_bytes=pass_bytes)
        check_same(loader(tiered, pass_batches=pass_batches, **options), expected)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    tiered = graph.tiered(pass_bytes=100_000)
    with pytest.raises(DoesNotFitError, match="received 10 batches a pass"):
        list(loader(tiered, pass_batches=10))
    with pytest.raises(DoesNotFitError, match=r"batch 0 of epoch 0: .*lists of neighbours that take"):
        list(loader(graph.tiered(pass_bytes=20_000), weight_attr="weight"))
    with pytest.raises(UsageError, match="0 bytes or more"):
        graph.tiered(pass_bytes=-1)
    assert TO in tiered.graph.edge_types


@pytest.mark.parametrize("pass_batches", [None, 1, 3])
def test_closing_a_loop_ends_all_its_threads(tmp_path: Path, pass_batches: int | None) -> None:
    graph = make_graph(tmp_path / "graph")
    batches = iter(loader(graph.tiered(feature_bytes=60_000), pass_batches=pass_batches))
    next(batches)
    batches.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("graphbox-")]
    assert list(batches) == []


def test_rows_in_memory_serve_the_next_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PassFetch] = []

    def fetch(*arguments: Any) -> PassFetch:
        made.append(PassFetch(*arguments))
        return made[-1]

    monkeypatch.setattr("graphbox.sample.loader.tiered.PassFetch", fetch)
    graph = make_graph(tmp_path / "graph")
    ours = loader(graph.tiered(feature_bytes=8 * MIB), pass_batches=5)
    list(ours)
    (rows,) = made
    misses = rows.counts.misses
    assert misses > 0
    list(ours)
    assert made == [rows]
    assert rows.counts.misses < 1.5 * misses
