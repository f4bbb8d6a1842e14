"""Neighbour sampling against a plain implementation of the same algorithm, and against what it promises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.sample import HeteroSample, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType

NEIGHBOR_STREAM = 1


@dataclass
class Csc:
    indptr: np.ndarray
    indices: np.ndarray


def random_csc(
    rng: np.random.Generator, targets: int, sources: int, degrees: Sequence[int], dtype: Any = np.int64
) -> Csc:
    degree = rng.choice(degrees, targets) if sources else np.zeros(targets, dtype=np.int64)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    return Csc(indptr, rng.integers(0, max(sources, 1), indptr[-1]).astype(dtype))


# ------------------------------------------------------------------ the plain implementation


class Draws:
    """The bounded integers of one node at one hop (Lemire), one after the other."""

    def __init__(self, key: int, hop: int, relation: int, node: int) -> None:
        self.key, self.place, self.node = key, hop | relation << 8, node

    def word(self, draw: int, attempt: int) -> int:
        counter = [draw // 4, self.place | attempt << 24, self.node & 0xFFFFFFFF, self.node >> 32]
        return int(_core.philox(np.array([counter], dtype=np.uint32), self.key)[0, draw % 4])

    def bounded(self, draw: int, range_: int) -> int:
        for attempt in range(256):
            product = self.word(draw, attempt) * range_
            if product % 2**32 >= 2**32 % range_:
                return product >> 32
        raise AssertionError("256 rejections")


def choose(draws: Draws, begin: int, degree: int, wanted: int, replace: bool) -> list[int]:
    if wanted == -1 or (not replace and degree <= wanted):
        return [begin + i for i in range(degree)]
    if replace:
        return [begin + draws.bounded(i, degree) for i in range(wanted if degree else 0)]
    chosen: list[int] = []
    for i in range(wanted):
        drawn = draws.bounded(i, degree - wanted + i + 1)
        chosen.append(drawn if drawn not in chosen else degree - wanted + i)
    return [begin + offset for offset in chosen]


def plain_sample(
    cscs: Mapping[EdgeType, Csc],
    seeds: Mapping[str, Sequence[int]],
    num_neighbors: Mapping[EdgeType, Sequence[int]],
    replace: bool,
    key: int,
) -> HeteroSample[Any]:
    types = list(dict.fromkeys(name for source, _, target in cscs for name in (source, target)))
    nodes = {name: list(seeds.get(name, ())) for name in types}
    position: dict[str, dict[int, int]] = {name: {} for name in types}
    for name in types:
        for i, node in enumerate(nodes[name]):
            position[name].setdefault(node, i)
    rows: dict[EdgeType, list[int]] = {edge_type: [] for edge_type in cscs}
    cols: dict[EdgeType, list[int]] = {edge_type: [] for edge_type in cscs}
    edge_ids: dict[EdgeType, list[int]] = {edge_type: [] for edge_type in cscs}
    num_sampled_nodes = {name: [len(nodes[name])] for name in types}
    num_sampled_edges: dict[EdgeType, list[int]] = {edge_type: [] for edge_type in cscs}
    frontier = {name: range(len(nodes[name])) for name in types}
    for hop in range(len(next(iter(num_neighbors.values())))):
        before = {name: len(nodes[name]) for name in types}
        for number, (edge_type, csc) in enumerate(cscs.items()):
            source, _, target = edge_type
            edges = len(rows[edge_type])
            for col in frontier[target]:
                node = nodes[target][col]
                begin, end = int(csc.indptr[node]), int(csc.indptr[node + 1])
                draws = Draws(key, hop, number, node)
                for edge in choose(draws, begin, end - begin, num_neighbors[edge_type][hop], replace):
                    neighbor = int(csc.indices[edge])
                    if neighbor not in position[source]:
                        position[source][neighbor] = len(nodes[source])
                        nodes[source].append(neighbor)
                    rows[edge_type].append(position[source][neighbor])
                    cols[edge_type].append(col)
                    edge_ids[edge_type].append(edge)
            num_sampled_edges[edge_type].append(len(rows[edge_type]) - edges)
        frontier = {name: range(before[name], len(nodes[name])) for name in types}
        for name in types:
            num_sampled_nodes[name].append(len(frontier[name]))
    return HeteroSample(nodes, rows, cols, edge_ids, num_sampled_nodes, num_sampled_edges)


def assert_equal(sample: HeteroSample[Any], expected: HeteroSample[Any]) -> None:
    assert sample.num_sampled_nodes == expected.num_sampled_nodes
    assert sample.num_sampled_edges == expected.num_sampled_edges
    for field in ("nodes", "row", "col", "edge_ids"):
        for name, values in getattr(expected, field).items():
            assert getattr(sample, field)[name].dtype == np.int64
            assert getattr(sample, field)[name].tolist() == values, (field, name)


# ------------------------------------------------------------------ exactness


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = {name: int(rng.integers(1, 40)) for name in "abc"}
    names = data.draw(st.lists(st.tuples(*[st.sampled_from("abc")] * 2), min_size=1, max_size=4))
    dtypes = data.draw(st.lists(st.sampled_from([np.int32, np.int64]), min_size=4, max_size=4))
    degrees = data.draw(st.sampled_from([[0, 1, 2], [3, 10], [0, 60, 64, 65, 130]]))
    cscs: dict[EdgeType, Csc] = {
        (source, f"r{i}", target): random_csc(rng, count[target], count[source], degrees, dtypes[i])
        for i, (source, target) in enumerate(names)
    }
    hops = data.draw(st.integers(1, 3))
    fanout = st.lists(st.sampled_from([-1, 0, 1, 2, 5, 63, 65, 100]), min_size=hops, max_size=hops)
    num_neighbors = {edge_type: data.draw(fanout) for edge_type in cscs}
    seeds = {
        target: rng.integers(0, count[target], 3).tolist()  # possibly one twice
        for _, _, target in cscs
        if data.draw(st.booleans())
    }
    replace = data.draw(st.booleans())
    seed, epoch, batch = (data.draw(st.integers(0, 2**bits - 1)) for bits in (64, 32, 64))
    sample = sample_heterogeneous(
        cscs, seeds, num_neighbors, replace=replace, seed=seed, epoch=epoch, batch=batch, num_threads=1
    )
    key = _core.philox_key(NEIGHBOR_STREAM, seed, epoch, batch)
    assert_equal(sample, plain_sample(cscs, seeds, num_neighbors, replace, key))


def test_one_type_is_the_case_of_one_relation() -> None:
    rng = np.random.default_rng(0)
    csc = random_csc(rng, 500, 500, [0, 5, 100])
    edge_type = ("node", "edge", "node")
    single = sample_neighbors(csc, [4, 2, 300], [7, 3], seed=5)
    several = sample_heterogeneous({edge_type: csc}, {"node": [4, 2, 300]}, [7, 3], seed=5)
    np.testing.assert_array_equal(single.nodes, several.nodes["node"])
    np.testing.assert_array_equal(single.edge_ids, several.edge_ids[edge_type])
    assert single.num_sampled_nodes == several.num_sampled_nodes["node"]
    np.testing.assert_array_equal(csc.indices[single.edge_ids], single.nodes[single.row])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("replace", [False, True])
def test_same_for_any_number_of_threads(dtype: Any, replace: bool) -> None:
    rng = np.random.default_rng(1)
    csc = random_csc(rng, 40_000, 40_000, [0, 3, 50, 500], dtype)
    seeds = rng.choice(40_000, 9000, replace=False)
    one = sample_neighbors(csc, seeds, [5, 4], replace=replace, seed=9, num_threads=1)
    for threads in (2, 4):
        other = sample_neighbors(csc, seeds, [5, 4], replace=replace, seed=9, num_threads=threads)
        for field in ("nodes", "row", "col", "edge_ids"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def test_a_node_draws_the_same_whatever_the_other_seeds() -> None:
    csc = random_csc(np.random.default_rng(2), 100, 100, [30])
    alone = sample_neighbors(csc, [17], [5], seed=3)
    among = sample_neighbors(csc, [4, 17, 9], [5], seed=3)
    np.testing.assert_array_equal(alone.edge_ids, among.edge_ids[among.col == 1])


def test_seed_epoch_and_batch_all_change_the_draws() -> None:
    csc = random_csc(np.random.default_rng(3), 100, 100, [1000])
    draws = [
        tuple(sample_neighbors(csc, [0], [10], seed=seed, epoch=epoch, batch=batch).edge_ids.tolist())
        for seed in (0, 1, 2**40)
        for epoch in (0, 1)
        for batch in (0, 1, 2**40)
    ]
    assert len(set(draws)) == len(draws)


# ------------------------------------------------------------------ uniformity


def offsets(degree: int, rows: int, wanted: int, replace: bool, batches: int) -> np.ndarray:
    """Chosen edges of ``rows`` nodes with ``degree`` edges each, as offsets: [batches, rows, wanted]."""
    csc = Csc(np.arange(rows + 1, dtype=np.int64) * degree, np.zeros(rows * degree, dtype=np.int32))
    seeds = np.arange(rows)
    cscs: dict[EdgeType, Csc] = {("a", "r", "b"): csc}
    samples = [
        sample_heterogeneous(cscs, {"b": seeds}, [wanted], replace=replace, batch=batch).edge_ids[
            "a", "r", "b"
        ]
        for batch in range(batches)
    ]
    return np.stack(samples).reshape(batches, rows, wanted) % degree


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("degree", "wanted"),
    [
        (7, 5),
        (64, 5),
        (65, 5),
        (65, 63),
        (1000, 5),
        (1000, 70),
        (40_000, 5),
        (40_000, 70),
        (60_000, 25),  # hubs of less than 2^16 edges, where 16 random bits would be biased
        (70_000, 70),
    ],
)
def test_every_edge_is_equally_likely(degree: int, wanted: int, replace: bool) -> None:
    rows = 20
    batches = max(40, -(-10 * degree // (rows * wanted)))
    counts = np.bincount(offsets(degree, rows, wanted, replace, batches).ravel(), minlength=degree)
    draws = rows * batches
    expected = draws * wanted / degree
    if replace:
        statistic = ((counts - expected) ** 2 / expected).sum()
    else:  # counts of draws without replacement vary less
        share = wanted / degree
        statistic = ((counts - expected) ** 2).sum() / (draws * share * (1 - share)) * (degree - 1) / degree
    p_value = stats.chi2.sf(statistic, degree - 1)
    assert 1e-4 < p_value < 1 - 1e-4


def test_every_subset_is_equally_likely() -> None:
    chosen = np.sort(offsets(7, 500, 3, False, 20).reshape(-1, 3))
    codes = chosen @ np.array([49, 7, 1])
    counts = [int((codes == np.dot(subset, [49, 7, 1])).sum()) for subset in combinations(range(7), 3)]
    assert sum(counts) == len(codes)
    assert 1e-4 < stats.chisquare(counts).pvalue < 1 - 1e-4


def test_p_values_are_uniform_over_seeds() -> None:
    csc = Csc(np.arange(201, dtype=np.int64) * 40, np.zeros(8000, dtype=np.int32))
    p_values = []
    for seed in range(50):
        sample = sample_heterogeneous(
            {("a", "r", "b"): csc}, {"b": np.arange(200)}, [20], replace=True, seed=seed
        )
        counts = np.bincount(sample.edge_ids["a", "r", "b"] % 40, minlength=40)
        p_values.append(stats.chisquare(counts).pvalue)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


# ------------------------------------------------------------------ faces, edges, errors


def test_torch_in_torch_out() -> None:
    csc = random_csc(np.random.default_rng(4), 50, 50, [10])
    sample = sample_neighbors(csc, torch.tensor([3, 1]), [4])
    assert isinstance(sample.nodes, torch.Tensor)
    assert sample.nodes[:2].tolist() == [3, 1]
    assert sample.edge_ids.dtype == torch.int64
    hetero = sample_heterogeneous({("a", "r", "a"): csc}, {"a": torch.tensor([3, 1])}, [4])
    assert torch.equal(hetero.nodes["a"], sample.nodes)


def test_samples_a_graph() -> None:
    graph = Graph.from_coo([0, 1, 2, 2], [1, 2, 0, 1], num_nodes=3)
    sample = sample_neighbors(graph, [1], [-1])
    assert sorted(sample.nodes[sample.row].tolist()) == [0, 2]


def test_results_outlive_the_next_call() -> None:
    csc = random_csc(np.random.default_rng(5), 1000, 1000, [20])
    first = sample_neighbors(csc, np.arange(100), [10], seed=1)
    copy = first.edge_ids.copy()
    for seed in range(5):
        sample_neighbors(csc, np.arange(100), [10], seed=seed)
    np.testing.assert_array_equal(first.edge_ids, copy)


def test_buffers_are_reused_and_released() -> None:
    csc = random_csc(np.random.default_rng(5), 1000, 1000, [20])
    sample_neighbors(csc, np.arange(1000), [10])
    assert _core.held_bytes() > 0
    _core.release_buffers()
    assert _core.held_bytes() == 0


def test_edge_cases() -> None:
    empty = Csc(np.zeros(6, dtype=np.int64), np.zeros(0, dtype=np.int32))
    sample = sample_neighbors(empty, [4, 0], [3, 3], replace=True)
    assert sample.nodes.tolist() == [4, 0]
    assert sample.num_sampled_nodes == [2, 0, 0]
    assert sample.num_sampled_edges == [0, 0]
    no_seeds = sample_neighbors(empty, [], [3])
    assert no_seeds.nodes.shape == (0,)
    hub = Csc(np.array([0, 10**6]), np.zeros(10**6, dtype=np.int64))
    assert sample_neighbors(hub, [0], [-1]).num_sampled_edges == [10**6]
    assert len(set(sample_neighbors(hub, [0], [5000]).edge_ids.tolist())) == 5000


def test_source_type_of_unknown_size() -> None:
    csc = Csc(np.array([0, 2]), np.array([2**40, 5]))
    sample = sample_heterogeneous({("far", "r", "near"): csc}, {"near": [0]}, [-1, -1])
    assert sample.nodes["far"].tolist() == [2**40, 5]


SOUND = Csc(np.array([0, 2, 3]), np.array([1, 0, 1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SOUND, [0, 2], [3]), r"\[0, 2\), received 2 at position 1"),
        ((SOUND, [-1], [3]), "received -1"),
        ((SOUND, [0.5], [3]), "integers that fit int64, received float64"),
        ((SOUND, ["nginx"], [3]), "graph.index"),
        ((SOUND, [[0]], [3]), r"1 dimension\(s\), received shape \(1, 1\)"),
        ((SOUND, [[0], [0, 1]], [3]), "seeds: expected an array of integers"),
        ((SOUND, np.array([2**63], dtype=np.uint64), [3]), "uint64"),
        ((SOUND, [0], []), "1 to 255 hops"),
        ((SOUND, [0], [1] * 256), "1 to 255 hops"),
        ((SOUND, [0], [-2]), "from -1"),
        ((SOUND, [0], [True]), "from -1"),
        ((SOUND, [0], ["x"]), "from -1"),
        ((SOUND, [0], [2**31]), "from -1"),
        ((object(), [0], [3]), "a CSC or CSR with indptr and indices, received object"),
        ((Csc(np.array([0.0, 1]), np.array([0])), [0], [3]), "indptr must be int64"),
        ((Csc(np.array([0, 1]), np.array([0.0])), [0], [3]), "indices must be int32 or int64"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sample_neighbors(*arguments)


@pytest.mark.parametrize("name", ["seed", "epoch", "batch", "num_threads"])
@pytest.mark.parametrize("value", [-1, 2**64, "x", 1.5, True])
def test_wrong_numbers(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        sample_neighbors(SOUND, [0], [1], **{name: value})


def test_wrong_types() -> None:
    cscs: dict[EdgeType, Csc] = {("a", "r", "b"): SOUND, ("b", "s", "b"): SOUND}
    with pytest.raises(UsageError, match=r"seeds\['c'\]: unknown node type; the graph has: a, b"):
        sample_heterogeneous(cscs, {"c": [0]}, [1])
    with pytest.raises(UsageError, match="unknown edge type; the graph has: a r b, b s b"):
        sample_heterogeneous(cscs, {"b": [0]}, {("a", "r", "c"): [1]})
    with pytest.raises(UsageError, match="same number of hops"):
        sample_heterogeneous(cscs, {"b": [0]}, {("a", "r", "b"): [1], ("b", "s", "b"): [1, 2]})
    with pytest.raises(UsageError, match="sample_heterogeneous"):
        sample_neighbors(TwoTypes(), [0], [1])


class TwoTypes:
    node_types = ("a", "b")
    edge_types = (("a", "r", "b"),)

    def num_nodes(self, _: str) -> int:
        return 2

    def csc(self, _: EdgeType) -> Csc:
        return SOUND

    csr = csc


@pytest.mark.parametrize(
    ("csc", "message"),
    [
        (Csc(np.array([0, 5, 3]), np.array([0, 0, 0])), "goes from 0 to 5 at node 0"),
        (Csc(np.array([-3, 2, 3]), np.array([0, 0, 0])), "goes from -3 to 2 at node 0"),
        (Csc(np.array([2, 0, 3]), np.array([0, 0, 0])), "goes from 2 to 0"),
        (Csc(np.array([0, 2, 3]), np.array([0, 7, 0])), "edge 1 leads to node 7"),
        (Csc(np.array([0, 2, 3]), np.array([0, -1, 0], dtype=np.int32)), "edge 1 leads to node -1"),
    ],
)
def test_damaged_adjacency(csc: Csc, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        sample_neighbors(csc, [0], [-1, -1])
    assert caught.value.hint


def test_targets_of_one_type_must_agree() -> None:
    longer = Csc(np.array([0, 0, 0, 0]), np.array([], dtype=np.int64))
    with pytest.raises(
        DataError, match="b s b: indptr must have one entry for each target node and one more: 3"
    ):
        sample_heterogeneous({("a", "r", "b"): SOUND, ("b", "s", "b"): longer}, {"b": [0]}, [1])


def test_empty_indptr() -> None:
    with pytest.raises(DataError, match="at least one entry"):
        sample_neighbors(Csc(np.array([], dtype=np.int64), np.array([], dtype=np.int64)), [], [1])
