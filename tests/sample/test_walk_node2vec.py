"""node2vec's walks: bit for bit as a plain implementation, and by what p and q stand for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.sample import random_walk

WALK_STREAM = 2
HOP = 1
MOST_DARTS = 32
PARAMETERS = (0.25, 0.5, 1.0, 2.0, 4.0)


class Csr:
    weight: np.ndarray | None = None

    def __init__(self, lists: list[list[int]], dtype: Any = np.int32) -> None:
        self.indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])]).astype(np.int64)
        self.indices = np.array(list(itertools.chain(*lists)), dtype)

    def row(self, node: int) -> list[int]:
        row: list[int] = self.indices[self.indptr[node] : self.indptr[node + 1]].tolist()
        return row

    def row_weight(self, node: int) -> list[float]:
        begin, end = self.indptr[node], self.indptr[node + 1]
        return [1.0] * int(end - begin) if self.weight is None else self.weight[begin:end].tolist()


def undirected(num_nodes: int, edges: list[tuple[int, int]]) -> Csr:
    lists: list[list[int]] = [[] for _ in range(num_nodes)]
    for a, b in edges:
        lists[a].append(b)
        if a != b:
            lists[b].append(a)
    return Csr([sorted(row) for row in lists])


def hub(num_nodes: int) -> Csr:
    rng = np.random.default_rng(0)
    ring = [(node, node % (num_nodes - 1) + 1) for node in range(1, num_nodes)]
    chords = {
        (min(a, b), max(a, b)) for a, b in rng.integers(1, num_nodes, (num_nodes, 2)).tolist() if a != b
    }
    edges = {(min(a, b), max(a, b)) for a, b in ring} | chords
    return undirected(num_nodes, [(0, node) for node in range(1, num_nodes)] + sorted(edges))


GRAPHS = {
    "triangle with a tail and leaves": undirected(6, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (3, 5)]),
    "self-loops": undirected(5, [(0, 0), (0, 1), (1, 2), (2, 2), (2, 3), (3, 0), (3, 4), (4, 4)]),
    "parallel edges": undirected(5, [(0, 1), (0, 1), (0, 1), (1, 2), (2, 0), (2, 0), (2, 3), (3, 4), (3, 4)]),
    "directed": Csr([[1, 2, 3], [2, 4], [0, 1, 3], [0, 0, 4], [1, 2, 3]]),
    "hub": hub(40),
}


def weights(csr: Csr, previous: int, node: int, p: float, q: float) -> list[float]:
    """Return the weight of each edge out of ``node`` for a walker that came from ``previous``."""
    known = set(csr.row(previous))
    bias = [1 / p if x == previous else 1.0 if x in known else 1 / q for x in csr.row(node)]
    return [weight * factor for weight, factor in zip(csr.row_weight(node), bias, strict=True)]


def chi_square(csr: Csr, walks: np.ndarray, p: float, q: float) -> float:
    """Return the p-value of all second and later steps, each (previous, node) a table of its own."""
    statistic, freedom = 0.0, 0
    triples = np.concatenate([walks[:, i : i + 3] for i in range(walks.shape[1] - 2)])
    n = len(csr.indptr) - 1
    counts = np.bincount((triples[:, 0] * n + triples[:, 1]) * n + triples[:, 2], minlength=n**3)
    for (previous, node), observed in zip(np.ndindex(n, n), counts.reshape(-1, n), strict=True):
        if not observed.sum():
            continue
        weight = np.bincount(csr.row(node), weights(csr, previous, node, p, q), minlength=n)
        assert not observed[weight == 0].any()
        expected = observed.sum() * weight / weight.sum()
        if expected[weight > 0].min() < 5:
            continue
        statistic += float(((observed - expected)[weight > 0] ** 2 / expected[weight > 0]).sum())
        freedom += int((weight > 0).sum()) - 1
    assert freedom > 0
    return float(stats.chi2.sf(statistic, freedom))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("q", PARAMETERS)
def test_steps_have_the_exact_probabilities(name: str, q: float) -> None:
    csr = GRAPHS[name]
    start = np.arange(len(csr.indptr) - 1).repeat(24_000 // (len(csr.indptr) - 1))
    for p in PARAMETERS:
        assert chi_square(csr, random_walk(csr, start, 8, p, q, seed=11), p, q) > 1e-6


def test_the_table_that_ignoring_p_and_q_fails() -> None:
    # From 1, reached from 0: back to 0 with 1 / p, to 2 (a neighbour of 0) with 1, to 3 with 1 / q.
    csr = undirected(4, [(0, 1), (1, 2), (0, 2), (1, 3)])
    walks = random_walk(csr, np.zeros(400_000, np.int64), 2, 4.0, 0.25)
    share = np.bincount(walks[walks[:, 1] == 1, 2], minlength=4) / (walks[:, 1] == 1).sum()
    np.testing.assert_allclose(share, [0.25 / 5.25, 0, 1 / 5.25, 4 / 5.25], atol=0.005)


def test_p_and_q_near_one_walk_as_the_uniform_walker() -> None:
    csr = GRAPHS["parallel edges"]
    start = np.arange(5).repeat(5000)
    for p, q in ((1.0, 1.0), (1.0, 1 + 1e-12), (1 - 1e-12, 1.0)):
        assert chi_square(csr, random_walk(csr, start, 8, p, q, seed=5), 1, 1) > 1e-6
    np.testing.assert_array_equal(random_walk(csr, start, 8, 1, 1), random_walk(csr, start, 8))


def test_p_values_are_uniform_over_seeds() -> None:
    start = np.arange(6).repeat(500)
    for name, p, q in (("triangle with a tail and leaves", 0.5, 2.0), ("directed", 0.25, 0.5)):
        csr = GRAPHS[name]
        nodes = start % (len(csr.indptr) - 1)
        p_values = [chi_square(csr, random_walk(csr, nodes, 8, p, q, seed=s), p, q) for s in range(50)]
        assert stats.kstest(p_values, "uniform").pvalue > 1e-3


# ------------------------------------------------------------------ bit for bit


def block(key: int, step: int, hop: int, dart: int, walker: int, attempt: int = 0) -> list[int]:
    counter = np.array([[step, hop | dart << 8 | attempt << 24, walker, 0]], np.uint32)
    return [int(word) for word in _core.philox(counter, key)[0]]


def bounded(key: int, step: int, dart: int, walker: int, range_: int) -> int:
    for attempt in range(256):
        word = block(key, step, HOP, dart, walker, attempt)[0]
        if word * range_ % 2**32 >= 2**32 % range_:
            return word * range_ >> 32
    raise AssertionError("256 rejections")


def plain_step(
    csr: Csr, previous: int | None, node: int, p: float, q: float, draw: tuple[int, int, int], parallel: int
) -> int:
    """Choose the next node as the native walker does."""
    key, step, walker = draw
    row = csr.row(node)
    if previous is None:
        return row[bounded(key, step, 0, walker, len(row))]
    height = max(1.0, 1 / q)
    excess = max(0.0, 1 / p - height)
    weight = weights(csr, previous, node, p, q)
    for dart in range(MOST_DARTS):
        words = block(key, step, HOP, dart, walker)
        columns = len(row) * height
        unit = ((words[2] << 32 | words[1]) >> 11) * 2.0**-53
        place = unit * (columns + min(len(row), parallel) * excess)
        if place >= columns and excess > 0:
            if int((place - columns) / excess) < row.count(previous):
                return previous
            continue
        edge = bounded(key, step, dart, walker, len(row))
        if place / len(row) < weight[edge]:
            return row[edge]
    words = block(key, step, HOP, MOST_DARTS, walker)
    near = set(csr.row(previous))
    kinds = [0 if x == previous else 1 if x in near else 2 for x in row]
    sums = [kinds.count(kind) * w for kind, w in enumerate((1 / p, 1.0, 1 / q))]
    left, chosen = ((words[2] << 32 | words[1]) >> 11) * 2.0**-53 * sum(sums), 0
    for kind in {0: [], 1: [], 2: []}:
        if kinds.count(kind):
            chosen = kind
            left -= sums[kind]
            if left < 0:
                break
    of_kind = [x for x, kind in zip(row, kinds, strict=True) if kind == chosen]
    return of_kind[bounded(key, step, MOST_DARTS, walker, len(of_kind))]


def plain_walks(
    csr: Csr, start: list[int], length: int, p: float, q: float, restart: float, key: int
) -> list[list[int]]:
    parallel = max(
        (csr.row(node).count(x) for node in range(len(csr.indptr) - 1) for x in csr.row(node)), default=1
    )
    threshold = int(restart * 2**32 + 0.5)
    walks = []
    for walker, first in enumerate(start):
        walk, previous = [first], None
        for step in range(length):
            node = walk[-1]
            coin = node >= 0 and restart and block(key, step, HOP, 0, walker)[3] < threshold
            if node < 0 or not (csr.row(node) or restart):
                walk.append(-1)
            elif coin or not csr.row(node):
                walk.append(first)
                previous = None
            else:
                walk.append(plain_step(csr, previous, node, p, q, (key, step, walker), parallel))
                previous = node
        walks.append(walk)
    return walks


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = data.draw(st.integers(1, 40))
    most = data.draw(st.sampled_from([2, 8, 80]))
    lists = [sorted(rng.integers(0, n, rng.integers(0, most + 1)).tolist()) for _ in range(n)]
    csr = Csr(lists, data.draw(st.sampled_from([np.int32, np.int64])))
    start = rng.integers(0, n, data.draw(st.integers(0, 30))).tolist()
    p, q = (data.draw(st.sampled_from([1e-30, 1e-3, 0.3, 0.5, 2.0, 7.0, 1e6, 1e30])) for _ in range(2))
    restart = data.draw(st.sampled_from([0.0, 1e-12, 0.2]))
    seed, epoch, batch = (data.draw(st.integers(0, 2**bits - 1)) for bits in (64, 32, 64))
    walks = random_walk(
        csr, start, 5, p, q, restart_probability=restart, seed=seed, epoch=epoch, batch=batch, num_threads=2
    )
    key = _core.philox_key(WALK_STREAM, seed, epoch, batch)
    assert walks.tolist() == plain_walks(csr, start, 5, p, q, restart, key)


def random_graph(seed: int, num_nodes: int, num_edges: int) -> Csr:
    """Return a directed graph with hubs."""
    rng = np.random.default_rng(seed)
    ends = (num_nodes * rng.random((2, num_edges)) ** 4).astype(np.int64)
    matrix = sparse.csr_array((np.ones(num_edges), (ends[0], ends[1])), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    csr = Csr([])
    csr.indptr, csr.indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    return csr


def test_same_for_any_number_of_threads() -> None:
    csr = random_graph(1, 20_000, 300_000)
    start = np.arange(20_000)
    for restart in (0.0, 0.1):
        one = random_walk(csr, start, 20, 0.5, 2.0, restart_probability=restart, num_threads=1)
        for threads in (2, 4):
            more = random_walk(csr, start, 20, 0.5, 2.0, restart_probability=restart, num_threads=threads)
            np.testing.assert_array_equal(one, more)


def test_long_lists_are_searched_right() -> None:
    # With q so high a walker that can stays among the neighbours of the node before: any miss would show.
    csr = random_graph(2, 3000, 200_000)
    walks = random_walk(csr, np.arange(3000), 6, 1e30, 1e30)
    for i in range(4):
        for previous, node, following in walks[:300, i : i + 3].tolist():
            if following >= 0:
                near = np.intersect1d(csr.row(previous), csr.row(node))
                assert following in near or not len(near[near != previous])


# ------------------------------------------------------------------ graphs, metapaths, errors


def test_changed_graphs() -> None:
    rng = np.random.default_rng(3)
    base = edge_table(rng.integers(0, 60, 500), rng.integers(0, 60, 500), 60, 60)
    source, target = rng.integers(0, 64, 80), rng.integers(0, 64, 80)
    order = np.lexsort((source, target))
    change = EdgeChange(500, source[order], target[order], removed=np.arange(0, 500, 7))
    table = LiveEdgeTable(base, [change], 64, 64)
    graph = Graph("live", {"node": numbered_nodes(64)}, {("node", "to", "node"): table})
    start = np.arange(64).repeat(5)
    for restart in (0.0, 0.15):
        live = random_walk(graph, start, 9, 0.3, 3.0, restart_probability=restart)
        assert "csc" not in vars(table)
        merged = Csr([])
        merged.indptr, merged.indices = graph.csr().indptr, graph.csr().indices
        np.testing.assert_array_equal(
            live, random_walk(merged, start, 9, 0.3, 3.0, restart_probability=restart)
        )
        del vars(table)["csc"]
        vars(table).pop("csr", None)
    assert (live[:, 2:] >= 0).any()


def test_one_edge_type_of_several() -> None:
    edges = GRAPHS["directed"]
    source = np.arange(5).repeat(np.diff(edges.indptr))
    graph = Graph.from_coo(source, edges.indices, num_nodes=5)
    path = [graph.edge_types[0]]
    along = random_walk(graph, [0, 1, 2], 6, 0.5, 2.0, path)
    np.testing.assert_array_equal(along, random_walk(graph, [0, 1, 2], 6, 0.5, 2.0))


class Hetero:
    node_types = ("a", "b")
    edge_types = (("a", "r", "b"), ("b", "s", "a"))

    def num_nodes(self, _: str) -> int:
        return 1

    def csc(self, _: Any) -> Csr:
        return Csr([[0]])

    csr = csc


def test_errors() -> None:
    csr = GRAPHS["directed"]
    for wrong in (0, -1.0, float("nan"), float("inf"), "1", True, 1e-31):
        with pytest.raises(UsageError, match="p: expected a number from 1e-30 to 1e30"):
            random_walk(csr, [0], 3, wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="q: expected a number from 1e-30 to 1e30"):
            random_walk(csr, [0], 3, 1, wrong)  # type: ignore[arg-type]
    both = [("a", "r", "b"), ("b", "s", "a")]
    for path in (both, both[:1]):
        wrongs: list[dict[str, Any]] = [{"p": 2.0}, {"q": 0.5}, {"restart_probability": 0.1}]
        for arguments in wrongs:
            with pytest.raises(UsageError, match="metapath: p, q and restart_probability need one edge type"):
                random_walk(Hetero(), [0], 1, metapath=path, **arguments)
    unsorted = Csr([[1, 2], [2, 0], []])
    with pytest.raises(UsageError, match=r"csr: .*lists that ascend; that of node 1 goes from 2 to 0"):
        random_walk(unsorted, [0], 3, 2.0)
    assert random_walk(unsorted, [0], 3).shape == (1, 4)
    with pytest.raises(UsageError, match=r"\[0, 5\), received 5 at position 1"):
        random_walk(csr, [0, 5], 3, 2.0)
    with pytest.raises(DataError, match="leads to node 9"):
        random_walk(Csr([[9]]), [0], 3, 2.0)


def test_few_steps() -> None:
    csr = GRAPHS["directed"]
    assert random_walk(csr, [3, 1], 0, 2.0, 2.0).tolist() == [[3], [1]]
    assert random_walk(csr, [], 4, 2.0, 2.0).shape == (0, 5)
    assert random_walk(Csr([[], [0]]), [1, 0], 3, 2.0).tolist() == [[1, 0, -1, -1], [0, -1, -1, -1]]
