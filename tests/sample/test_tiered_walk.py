"""Walks over a graph on disk: bit for bit those over the graph in memory, whatever the budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbox import _core
from graphbox.errors import DataError, NotFoundError, UnsupportedError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.sample import random_walk
from tests.graph.test_tiered_graph import change, make_graph

TO, FROM = ("node", "to", "node"), ("node", "from", "node")
BUYS, SOLD, KNOWS = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "knows", "user")
USERS, ITEMS = 300, 120
EVERYTHING = 1 << 30

OPTIONS: list[dict[str, Any]] = [
    {},
    {"weighted": True},
    {"p": 0.25, "q": 4.0},
    {"p": 5.0, "q": 0.3},
    {"p": 1.0, "q": 2.0, "weighted": True},
    {"p": 0.2, "q": 1.0, "weighted": True},
]


def walks(graph: Any, starts: Any, length: int = 12, **options: Any) -> Any:
    return random_walk(graph, starts, length, metapath=[TO], seed=5, epoch=2, batch=3, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("changed", [False, True])
def test_walks_are_those_in_memory(tmp_path: Path, changed: bool, options: dict[str, Any]) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    graph = change(tmp_path / "graph") if changed else graph
    starts = np.random.default_rng(0).integers(0, graph.num_nodes("node"), 700)
    expected = walks(graph, starts, **options)
    assert (expected[:, -1] >= 0).sum() > 100
    for topology_bytes in (1_400_000 if changed else 200_000, 2_000_000, EVERYTHING):
        for pass_bytes in (1, 1 << 14, EVERYTHING):
            tiered = graph.tiered(topology_bytes=topology_bytes, pass_bytes=pass_bytes)
            assert np.array_equal(walks(tiered, starts, num_threads=1, **options), expected)
            assert np.array_equal(walks(tiered, starts, num_threads=2, **options), expected)
    if not changed:
        assert np.array_equal(walks(graph.tiered(), starts, **options), expected)


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_walks_may_begin_with_an_edge(tmp_path: Path, options: dict[str, Any]) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    starts, second = np.random.default_rng(0).integers(0, graph.num_nodes("node"), (2, 200))
    for length in (1, 2, 5):
        expected = walks(graph, starts, length, second=second, **options)
        assert np.array_equal(walks(graph.tiered(), starts, length, second=second, **options), expected)


def test_walkers_in_parts_draw_as_in_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    starts, second = np.random.default_rng(0).integers(0, graph.num_nodes("node"), (2, 500))
    monkeypatch.setattr("graphbox.sample.tiered_walk._MOST_WALKERS", 64)
    for options in (*OPTIONS[:3], {"second": second}):
        assert np.array_equal(walks(graph.tiered(), starts, **options), walks(graph, starts, **options))


def shop(path: Path, *, csr: bool = True) -> Graph:
    """Import a graph of two node types, of which edges between them have weights."""
    rng = np.random.default_rng(0)

    def edges(edge_type: tuple[str, str, str], count: int, sources: int, targets: int) -> EdgeSource:
        table = {
            "a": rng.integers(0, sources, count),
            "b": (rng.pareto(1.0, count) * 10).astype(np.int64) % targets,
            "w": rng.random(count) + 0.1,
        }
        data = pa.table({name: pa.array(values) for name, values in table.items()})
        return EdgeSource(edge_type, data, source="a", target="b", weight="w", csr=csr)

    nodes = {
        "user": NodeSource(pa.table({"id": pa.array(np.arange(USERS))})),
        "item": NodeSource(pa.table({"id": pa.array(np.arange(ITEMS))})),
    }
    source = GraphSource("shop", nodes, (edges(BUYS, 900, USERS, ITEMS), edges(KNOWS, 700, USERS, USERS)))
    import_graph(source, path)
    return Graph.open(path)


@pytest.mark.parametrize("weighted", [False, True, [BUYS]], ids=str)
@pytest.mark.parametrize("topology_bytes", [0, 300_000, EVERYTHING])
def test_metapaths(tmp_path: Path, weighted: Any, topology_bytes: int) -> None:
    graph = shop(tmp_path / "graph")
    tiered = graph.tiered(topology_bytes=topology_bytes, pass_bytes=4096)
    starts = np.random.default_rng(1).integers(0, USERS, 600)
    path = [BUYS, SOLD]
    one = random_walk(graph, starts, 7, metapath=path, weighted=weighted)
    assert (one[:, -1] >= 0).any()
    assert np.array_equal(random_walk(tiered, starts, 7, metapath=path, weighted=weighted), one)
    paths = [[BUYS, SOLD], [KNOWS, BUYS, SOLD], [KNOWS]]
    for path_of in (None, np.random.default_rng(2).integers(0, 3, 600)):
        several = random_walk(graph, starts, 7, metapaths=paths, metapath_of=path_of, weighted=weighted)
        found = random_walk(tiered, starts, 7, metapaths=paths, metapath_of=path_of, weighted=weighted)
        assert np.array_equal(found, several)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 60),
    num_edges=st.integers(0, 400),
    options=st.sampled_from(OPTIONS),
    topology_bytes=st.sampled_from([0, 20_000, EVERYTHING]),
    pass_bytes=st.sampled_from([1, 3_000, EVERYTHING]),
)
def test_random_graphs(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    num_nodes: int,
    num_edges: int,
    options: dict[str, Any],
    topology_bytes: int,
    pass_bytes: int,
) -> None:
    """Against the edges themselves, by walking along their reverse type, which the CSC on disk has."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, num_nodes, (2, num_edges))
    graph = Graph.from_coo(source, target, num_nodes=num_nodes, weight=rng.random(num_edges) + 0.1)
    path = tmp_path_factory.mktemp("random") / "graph"
    graph.save(path)
    tiered = Graph.open(path).tiered(topology_bytes=topology_bytes, pass_bytes=pass_bytes)
    starts = rng.integers(0, num_nodes, 50)
    against = [("node", "rev_to", "node")]
    expected = random_walk(graph, starts, 9, metapath=against, seed=seed, **options)
    found = random_walk(tiered, starts, 9, metapath=against, seed=seed, **options)
    assert np.array_equal(found, expected)


def test_tensors_and_no_walkers(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    starts = torch.arange(20)
    found = walks(graph.tiered(), starts)
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, walks(graph, starts))
    for options in OPTIONS:
        assert walks(graph.tiered(), [], **options).shape == (0, 13)
        assert np.array_equal(walks(graph.tiered(), [3, 4], 0, **options), [[3], [4]])


def test_refusals(tmp_path: Path) -> None:
    graph = shop(tmp_path / "graph")
    tiered = graph.tiered()
    unsupported: dict[str, Any] = {"restart_probability": 0.5, "temporal": True, "start_time": 0}
    for name, value in unsupported.items():
        with pytest.raises(UnsupportedError, match=f"`{name}` needs the graph in memory"):
            random_walk(tiered, [0], 3, metapath=[KNOWS], **{name: value})
    with pytest.raises(UsageError, match="expected a metapath, since the graph has"):
        random_walk(tiered, [0], 3)
    with pytest.raises(UsageError, match="p, q and restart_probability need one edge type"):
        random_walk(tiered, [0], 3, 2.0, metapath=[BUYS, SOLD])
    with pytest.raises(UsageError, match=rf"start must hold .* \[0, {USERS}\), received 900 at position 1"):
        random_walk(tiered, [0, 900], 3, metapath=[KNOWS])
    with pytest.raises(UsageError, match=r"second must hold .* received -4 at position 0"):
        random_walk(tiered, [0], 3, metapath=[KNOWS], second=[-4])
    with pytest.raises(UsageError, match="each step must start where the one before ends"):
        random_walk(tiered, [0], 3, metapath=[BUYS, BUYS])


def test_steps_need_what_is_on_disk(tmp_path: Path) -> None:
    tiered = shop(tmp_path / "shop", csr=False).tiered()
    assert random_walk(tiered, [0], 1, metapath=[SOLD]).shape == (1, 2)
    with pytest.raises(NotFoundError, match="no out-neighbours on disk") as caught:
        random_walk(tiered, [0], 1, metapath=[BUYS])
    assert "csr: true" in str(caught.value.hint)
    Graph.from_coo([0, 1], [1, 0]).save(tmp_path / "unweighted")
    with pytest.raises(UsageError, match="expected edges with a weight"):
        random_walk(
            Graph.open(tmp_path / "unweighted").tiered(),
            [0],
            1,
            metapath=[("node", "rev_to", "node")],
            weighted=True,
        )


def test_bad_weights_are_named(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    files = graph.array_file(TO, "weight")
    weights = np.memmap(files.path, np.float32, "r+", files.offset, files.shape)
    weights[:] = -1
    weights.flush()
    starts = np.arange(graph.num_nodes("node"))
    with pytest.raises(DataError, match=r"weights must be positive .* an edge of node \d+ has -1"):
        walks(graph.tiered(), starts, weighted=True)


def test_native_steps_check_what_they_get() -> None:
    offsets = np.array([0, 2], np.int64)
    draws = _core.WalkerDraws((0, 0, 0), offsets)
    numbers, bounds = np.array([0, 1], np.int64), np.zeros((2, 2), np.int64)
    assert _core.walk_any_edges(draws, 0, numbers, bounds, 1).tolist() == [-1, -1]
    with pytest.raises(UsageError, match=r"walkers in \[0, 2\)"):
        _core.walk_any_edges(draws, 0, np.array([2], np.int64), bounds[:1], 1)
    with pytest.raises(UsageError, match="expected one for each of 2 walkers, received 1"):
        _core.walk_any_edges(draws, 0, numbers, bounds[:1].copy(), 1)
    with pytest.raises(UsageError, match="offsets that rise"):
        _core.WalkerDraws((0, 0, 0), np.array([0, 3, 2], np.int64))
    tables = _core.AliasTables(np.array([0, 1], np.int64), np.ones(1, np.float32), "edges", 1)
    with pytest.raises(UsageError, match=r"expected rows in \[0, 1\), received 1"):
        _core.walk_weighted_edges(draws, 0, numbers, numbers, tables, 1)
    lists = np.array([0, 1], np.int64), np.array([0], np.int32)
    with pytest.raises(UsageError, match="rows must hold node indices"):
        _core.walk_next_nodes(
            draws, 0, numbers, *lists, None, 1, (numbers, numbers, numbers), (1.0, 2.0, 1), "edges", 1
        )
