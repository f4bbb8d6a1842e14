"""Sampling by times of nodes: no neighbour later than the seed's time, against a plain implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox import _core
from graphbox.errors import DataError, UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.sample import LinkNeighborLoader, NeighborLoader, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType
from graphbox.sample.derived import times_of
from tests.sample.test_live import BACKWARD, FORWARD, alone, graph_of, live_table
from tests.sample.test_neighbor import NEIGHBOR_STREAM, Draws, choose

PAPER, AUTHOR = 60, 25
CITES: EdgeType = ("paper", "cites", "paper")
WRITES: EdgeType = ("author", "writes", "paper")
OF: EdgeType = ("paper", "of", "author")


@dataclass(eq=False)
class Csc:
    indptr: np.ndarray
    indices: np.ndarray
    weight: Any = None


def random_csc(rng: np.random.Generator, rows: int, sources: int, degrees: list[int]) -> Csc:
    indptr = np.concatenate([[0], np.cumsum(rng.choice(degrees, rows))]).astype(np.int64)
    edges = int(indptr[-1])
    return Csc(
        indptr, rng.integers(0, sources, edges).astype(np.int32), rng.random(edges).astype(np.float32) + 1
    )


def typed(rng: np.random.Generator, degrees: list[int]) -> dict[EdgeType, Csc]:
    return {
        CITES: random_csc(rng, PAPER, PAPER, degrees),
        WRITES: random_csc(rng, PAPER, AUTHOR, degrees),
        OF: random_csc(rng, AUTHOR, PAPER, degrees),
    }


# ------------------------------------------------------------------ the plain implementation


def plain_edges(
    graph: dict[EdgeType, Csc],
    seeds: dict[str, list[int]],
    times: list[int],
    node_time: dict[str, np.ndarray],
    num_neighbors: list[int],
    last: bool,
    replace: bool,
    key: int,
) -> dict[EdgeType, list[int]]:
    """Return the sampled edge ids by edge type."""
    node_types = list(dict.fromkeys(name for edge_type in graph for name in (edge_type[0], edge_type[2])))
    nodes: dict[str, list[tuple[int, int]]] = {name: [] for name in node_types}
    trees = 0
    for name in node_types:
        for seed in seeds.get(name, []):
            nodes[name].append((trees, seed))
            trees += 1
    frontier = {name: range(len(nodes[name])) for name in node_types}
    edge_ids: dict[EdgeType, list[int]] = {edge_type: [] for edge_type in graph}
    for hop, wanted in enumerate(num_neighbors):
        before = {name: len(nodes[name]) for name in node_types}
        for relation, (edge_type, csc) in enumerate(graph.items()):
            source, _, target = edge_type
            for col in frontier[target]:
                tree, node = nodes[target][col]
                within = sum(other == tree for other, _ in nodes[target][:col])
                edges = list(range(int(csc.indptr[node]), int(csc.indptr[node + 1])))
                if source in node_time:
                    time_of = node_time[source][csc.indices]
                    edges = [
                        e for _, e in sorted((int(time_of[e]), e) for e in edges if time_of[e] <= times[tree])
                    ]
                if last and wanted >= 0 and source in node_time:
                    chosen = edges[max(len(edges) - wanted, 0) :]
                else:
                    draws = Draws(key, hop, relation, tree << 32 | within)
                    chosen = [edges[place] for place in choose(draws, 0, len(edges), wanted, replace)]
                for edge in chosen:
                    edge_ids[edge_type].append(edge)
                    neighbor = (tree, int(csc.indices[edge]))
                    if neighbor not in nodes[source]:
                        nodes[source].append(neighbor)
        frontier = {name: range(before[name], len(nodes[name])) for name in node_types}
    return edge_ids


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    graph = typed(rng, data.draw(st.sampled_from([[0, 1, 4, 9], [3, 40]])))
    num_neighbors = data.draw(st.lists(st.sampled_from([-1, 0, 1, 2, 4, 20]), min_size=1, max_size=3))
    seeds = {"paper": rng.integers(0, PAPER, 4).tolist(), "author": rng.integers(0, AUTHOR, 3).tolist()}
    node_time = {"paper": rng.integers(-9, 9, PAPER), "author": rng.integers(-9, 9, AUTHOR)}
    if data.draw(st.booleans()):
        del node_time["author"]
    times = {"paper": rng.integers(-10, 10, 4), "author": rng.integers(-10, 10, 3)}
    last = data.draw(st.booleans())
    replace = not last and data.draw(st.booleans())
    sample = sample_heterogeneous(
        graph,
        seeds,
        num_neighbors,
        replace=replace,
        seed=5,
        input_time=times,
        node_time=node_time,
        temporal_strategy="last" if last else "uniform",
    )
    key = _core.philox_key(NEIGHBOR_STREAM, 5, 0, 0)
    of_tree = np.concatenate([times["paper"], times["author"]])
    expected = plain_edges(graph, seeds, of_tree.tolist(), node_time, num_neighbors, last, replace, key)
    assert {edge_type: ids.tolist() for edge_type, ids in sample.edge_ids.items()} == expected
    for edge_type in (CITES, OF):
        reached = sample.nodes["paper"][sample.row[edge_type]]
        trees = sample.trees[edge_type[2]][sample.col[edge_type]]
        assert (node_time["paper"][reached] <= of_tree[trees]).all()


# ------------------------------------------------------------------ what it promises


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_edges_with_the_times_of_their_sources(strategy: Any, weighted: bool) -> None:
    if weighted and strategy == "last":
        return
    rng = np.random.default_rng(1)
    csc = random_csc(rng, 300, 300, [0, 3, 50])
    node_time = rng.integers(0, 99, 300)
    timed = Csc(csc.indptr, csc.indices, csc.weight)
    timed.timestamp = node_time[csc.indices]  # type: ignore[attr-defined]
    seeds, times = rng.integers(0, 300, 80), rng.integers(0, 99, 80)
    arguments: dict[str, Any] = {
        "weight_attr": "weight" if weighted else None,
        "input_time": times,
        "temporal_strategy": strategy,
        "num_threads": 2,
    }
    one = sample_neighbors(csc, seeds, [5, 3], node_time=node_time, **arguments)
    other = sample_neighbors(timed, seeds, [5, 3], **arguments)
    for name in ("nodes", "row", "col", "edge_ids", "trees"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_seeds_have_their_own_times_unless_told_otherwise() -> None:
    rng = np.random.default_rng(2)
    csc = random_csc(rng, 300, 300, [5, 20])
    node_time = rng.integers(0, 99, 300)
    seeds = rng.integers(0, 300, 50)
    sample = sample_neighbors(csc, seeds, [4, 4], node_time=node_time)
    told = sample_neighbors(csc, seeds, [4, 4], node_time=node_time, input_time=node_time[seeds])
    np.testing.assert_array_equal(sample.edge_ids, told.edge_ids)
    assert (node_time[sample.nodes] <= node_time[seeds][sample.trees]).all(), "nothing of the future"
    as_torch = sample_neighbors(csc, torch.from_numpy(seeds), [4, 4], node_time=torch.from_numpy(node_time))
    np.testing.assert_array_equal(as_torch.edge_ids.numpy(), sample.edge_ids)


def test_times_of_edges_do_not_count() -> None:
    rng = np.random.default_rng(3)
    graph = Graph.from_coo(
        *rng.integers(0, 40, (2, 500)), num_nodes=40, timestamp=rng.integers(0, 9, 500) + 1000
    )
    sample = sample_neighbors(
        graph, np.arange(40), [-1], node_time=np.zeros(40, int), edge_attributes=["timestamp"]
    )
    assert len(sample.row) == 500
    assert sample.timestamp.min() >= 1000


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("seed", range(4))
def test_changed_graphs(seed: int, strategy: Any) -> None:
    graph = alone(live_table(seed, base=0 if seed == 3 else 400, columns=True))
    csc = graph.csc()
    rng = np.random.default_rng(seed)
    node_time = {name: rng.integers(0, 50, graph.num_nodes(name)) for name in graph.node_types}
    (name,) = graph.node_types
    live, merged = (
        sample_neighbors(
            what,
            np.arange(50),
            [5, 2],
            seed=seed,
            node_time=node_time[name],
            weight_attr="weight" if strategy == "uniform" else None,
            temporal_strategy=strategy,
        )
        for what in (graph, csc)
    )
    np.testing.assert_array_equal(live.nodes, merged.nodes)
    assert csc.edge_ids is not None
    np.testing.assert_array_equal(live.edge_ids, csc.edge_ids[merged.edge_ids])


def test_changed_graphs_of_several_types() -> None:
    graph = graph_of(live_table(2, columns=True))
    times = {name: np.random.default_rng(1).integers(0, 9, graph.num_nodes(name)) for name in "ab"}
    seeds = {"a": np.arange(20), "b": np.arange(10)}
    sample = sample_heterogeneous(graph, seeds, [4, 3], node_time=times)
    of_tree = np.concatenate([times["a"][:20], times["b"][:10]])
    for edge_type in (FORWARD, BACKWARD):
        source, _, target = edge_type
        reached = sample.nodes[source][sample.row[edge_type]]
        assert len(reached)
        assert (times[source][reached] <= of_tree[sample.trees[target][sample.col[edge_type]]]).all()


def test_the_order_is_kept_until_times_are_others() -> None:
    csc = random_csc(np.random.default_rng(4), 10, 10, [5])
    times = np.arange(10)
    first = times_of(csc, "csc", node_time=times).base
    assert times_of(csc, "csc", node_time=times).base is first
    assert times_of(csc, "csc", node_time=times[::-1].copy()).base is not first


# ------------------------------------------------------------------ loaders


def timed_graph(rng: np.random.Generator) -> tuple[Graph, np.ndarray]:
    from torch_geometric.data import Data

    year = rng.integers(1990, 2020, 60)
    edge_index = torch.from_numpy(rng.integers(0, 60, (2, 900)))
    data = Data(edge_index=edge_index, num_nodes=60, year=torch.from_numpy(year))
    return Graph.from_pyg(data), year


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_neighbor_loader(strategy: Any) -> None:
    rng = np.random.default_rng(5)
    graph, year = timed_graph(rng)
    own = rng.integers(1990, 2020, 60)
    for times in (None, own):
        expected = year if times is None else own
        for batch in NeighborLoader(
            graph,
            [5, 2],
            batch_size=8,
            shuffle=True,
            input_time=times,
            time_attr="year",
            temporal_strategy=strategy,
        ):
            seeds = batch.n_id[: batch.batch_size]
            assert batch.seed_time.tolist() == expected[seeds].tolist()
            reached = batch.n_id[batch.edge_index[0]]
            assert (year[reached] <= batch.seed_time[batch.batch[batch.edge_index[1]]].numpy()).all()


def test_link_loader() -> None:
    rng = np.random.default_rng(6)
    graph, year = timed_graph(rng)
    links, times = rng.integers(0, 60, (2, 40)), rng.integers(1990, 2020, 40)
    loader = LinkNeighborLoader(
        graph, [4, 2], links, edge_label_time=times, batch_size=10, time_attr="year", neg_sampling="binary"
    )
    for batch in loader:
        reached = batch.n_id[batch.edge_index[0]]
        of_link = batch.batch[batch.edge_index[1]]
        assert (year[reached] <= times[batch.input_id][of_link]).all()
    with pytest.raises(UsageError, match="a time for each link, since time_attr names the `year` of nodes"):
        LinkNeighborLoader(graph, [4], links, time_attr="year")


def test_a_loader_goes_on_only_with_the_same_times() -> None:
    graph, _ = timed_graph(np.random.default_rng(7))
    state = NeighborLoader(graph, [2], time_attr="year").state_dict()
    NeighborLoader(graph, [2], time_attr="year").load_state_dict(state)
    with pytest.raises(UsageError, match="node_times 'year', here None"):
        NeighborLoader(graph, [2]).load_state_dict(state)


def test_graphs_in_tiers_take_times_of_edges(tmp_path: Any) -> None:
    graph, _ = timed_graph(np.random.default_rng(8))
    graph.save(tmp_path / "graph")
    tiered = Graph.open(tmp_path / "graph").tiered(topology_bytes=1 << 22, feature_bytes=1 << 22)
    with pytest.raises(UnsupportedError, match="expected times of edges for a graph in tiers"):
        NeighborLoader(tiered, [2], time_attr="year")


# ------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"node_time": [1, 2]}, "a time for each of 3 nodes, received 2"),
        ({"node_time": [0.5, 1, 2]}, "expected integers"),
        ({"node_time": [1, 2, 3], "input_time": [1, 2]}, "a time for each of 1 seeds, received 2"),
        ({"node_time": [1, 2, 3], "temporal_strategy": "last", "replace": True}, "with replacement"),
        (
            {"node_time": [1, 2, 3], "temporal_strategy": "last", "weight_attr": "weight"},
            "so their weights cannot count",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    graph = Graph.from_coo([0, 1], [1, 2], weight=[1, 1])
    with pytest.raises(UsageError, match=message):
        sample_neighbors(graph, [1], [2], **arguments)


def test_wrong_types() -> None:
    graph = typed(np.random.default_rng(9), [3])
    with pytest.raises(UsageError, match="unknown node type; the graph has: paper, author"):
        sample_heterogeneous(graph, {"paper": [0]}, [2], node_time={"venue": [1]})
    with pytest.raises(UsageError, match="since nodes of type `paper` have none"):
        sample_heterogeneous(graph, {"paper": [0]}, [2], node_time={"author": np.zeros(AUTHOR, int)})
    with pytest.raises(UsageError, match="no sampled edges lead from nodes with times: author writes paper"):
        sample_heterogeneous(graph, {"paper": [0]}, {WRITES: [2]}, node_time={"paper": np.zeros(PAPER, int)})
    with pytest.raises(UsageError, match="received 99 at position 1"):
        sample_heterogeneous(graph, {"paper": [0, 99]}, [2], node_time={"paper": np.zeros(PAPER, int)})
    graph[CITES].indices[7] = 10**6
    with pytest.raises(DataError, match="indices must be in"):
        sample_heterogeneous(graph, {"paper": [0]}, [2], node_time={"paper": np.zeros(PAPER, int)})


def test_features_that_are_no_times() -> None:
    from torch_geometric.data import Data

    data = Data(
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        num_nodes=2,
        x=torch.zeros(2, 3),
        timestamp=torch.arange(2),
        edge_time=torch.arange(2),
    )
    graph = Graph.from_pyg(data)
    with pytest.raises(UsageError, match="expected an integer feature, `x` of `node` is of kind vector"):
        NeighborLoader(graph, [2], time_attr="x")
    with pytest.raises(UsageError, match="or an integer feature of nodes as time_attr"):
        NeighborLoader(graph, [2], time_attr="date")
    with pytest.raises(UsageError, match=r"both nodes \(node\) and edges"):
        NeighborLoader(graph, [2], time_attr="timestamp")
