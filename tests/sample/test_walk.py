"""Walks against a plain implementation, and against what they promise."""

from dataclasses import dataclass
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
from graphbox.sample import random_walk
from tests.sample.device_sampling import Lists

WALK_STREAM = 2


@dataclass
class Csr:
    indptr: np.ndarray
    indices: np.ndarray


def random_csr(rng: np.random.Generator, rows: int, columns: int, most: int, dtype: Any = np.int64) -> Csr:
    degree = rng.integers(0, most + 1, rows)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    return Csr(indptr, rng.integers(0, columns, indptr[-1]).astype(dtype))


def bounded(key: int, position: int, draw: int, range_: int) -> int:
    """Draw ``draw`` of a position: Lemire's method on Philox words."""
    for attempt in range(256):
        counter = [draw // 4, attempt << 24, position & 0xFFFFFFFF, position >> 32]
        word = int(_core.philox(np.array([counter], dtype=np.uint32), key)[0, draw % 4])
        if word * range_ % 2**32 >= 2**32 % range_:
            return word * range_ >> 32
    raise AssertionError("256 rejections")


def plain_walk(csrs: list[Csr], start: list[int], length: int, key: int) -> list[list[int]]:
    walks = []
    for walker, node in enumerate(start):
        walk = [node]
        for step in range(length):
            csr = csrs[step % len(csrs)]
            degree = int(csr.indptr[walk[-1] + 1] - csr.indptr[walk[-1]]) if walk[-1] >= 0 else 0
            if degree == 0:
                walk.append(-1)
                continue
            edge = csr.indptr[walk[-1]] + bounded(key, walker, step, degree)
            walk.append(int(csr.indices[edge]))
        walks.append(walk)
    return walks


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    counts = rng.integers(1, 30, data.draw(st.integers(1, 3))).tolist()
    csrs = [
        random_csr(
            rng,
            count,
            counts[(step + 1) % len(counts)],
            data.draw(st.sampled_from([1, 5, 100])),
            data.draw(st.sampled_from([np.int32, np.int64])),
        )
        for step, count in enumerate(counts)
    ]
    start = rng.integers(0, counts[0], data.draw(st.integers(0, 80))).tolist()
    length = data.draw(st.integers(0, 9))
    seed, epoch, batch = (data.draw(st.integers(0, 2**bits - 1)) for bits in (64, 32, 64))
    names = [str(number) for number in range(len(counts))]
    metapath = [(name, "to", names[(number + 1) % len(names)]) for number, name in enumerate(names)]
    lists: Any = dict(zip(metapath, csrs, strict=True))
    graph: Any = Lists(dict(zip(names, counts, strict=True)), lists)  # its lists serve as out-neighbours
    walks = random_walk(graph, start, length, metapath=metapath, seed=seed, epoch=epoch, batch=batch)
    assert walks.shape == (len(start), length + 1)
    assert walks.dtype == np.int64
    key = _core.philox_key(WALK_STREAM, seed, epoch, batch)
    assert walks.tolist() == plain_walk(csrs, start, length, key)
    if len(csrs) == 1:
        np.testing.assert_array_equal(
            random_walk(csrs[0], start, length, seed=seed, epoch=epoch, batch=batch), walks
        )


def test_same_for_any_number_of_threads() -> None:
    csr = random_csr(np.random.default_rng(1), 5000, 5000, 8, np.int32)
    start = np.arange(5000).repeat(3)
    one = random_walk(csr, start, 20, num_threads=1)
    for threads in (2, 4):
        np.testing.assert_array_equal(one, random_walk(csr, start, 20, num_threads=threads))


def test_walkers_that_meet_part_again() -> None:
    csr = random_csr(np.random.default_rng(2), 1000, 1000, 30)
    csr.indptr[:] = np.arange(1001) * 15
    csr.indices = np.random.default_rng(2).integers(0, 1000, 15_000)
    walks = random_walk(csr, np.zeros(200, dtype=np.int64), 6)
    assert len({tuple(walk) for walk in walks.tolist()}) == 200


def test_every_edge_is_equally_likely() -> None:
    for degree in (7, 65, 1000, 40_000):
        csr = Csr(np.array([0, degree]), np.zeros(degree, dtype=np.int32))
        csr = Csr(np.concatenate([[0], np.full(degree, degree)]), np.arange(degree, dtype=np.int32))
        walks = random_walk(csr, np.zeros(20 * degree, dtype=np.int64), 1)
        counts = np.bincount(walks[:, 1], minlength=degree)
        assert 1e-4 < stats.chisquare(counts).pvalue < 1 - 1e-4


def test_pairs_of_steps_are_independent() -> None:
    csr = Csr(np.array([0, 4, 8, 12, 16]), np.tile(np.arange(4), 4))
    walks = random_walk(csr, np.zeros(20_000, dtype=np.int64), 6)
    for step in range(1, 6):
        codes = walks[:, step] * 4 + walks[:, step + 1]
        assert stats.chisquare(np.bincount(codes, minlength=16)).pvalue > 1e-4


def test_graphs_and_metapaths() -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 3], num_nodes=4)
    assert random_walk(graph, [0, 3], 4).tolist() == [[0, 1, 2, 3, -1], [3, -1, -1, -1, -1]]
    edge_type = graph.edge_types[0]
    assert random_walk(graph, [0], 2, metapath=[edge_type]).tolist() == [[0, 1, 2]]
    back = (edge_type[2], f"rev_{edge_type[1]}", edge_type[0])
    assert random_walk(graph, [1], 3, metapath=[edge_type, back]).tolist() == [[1, 2, 1, 2]]


def test_torch_in_torch_out() -> None:
    graph = Graph.from_coo([0, 1], [1, 0], num_nodes=2)
    walks = random_walk(graph, torch.tensor([0]), 3)
    assert isinstance(walks, torch.Tensor)
    assert walks.tolist() == [[0, 1, 0, 1]]


class Hetero:
    node_types = ("a", "b")
    edge_types = (("a", "r", "b"), ("b", "s", "b"))

    def num_nodes(self, _: str) -> int:
        return 1

    def csc(self, _: Any) -> Csr:
        return Csr(np.array([0, 1]), np.array([0]))

    csr = csc


@pytest.mark.parametrize(
    ("metapath", "length", "message"),
    [
        (None, 1, "expected a metapath, since the graph has 2 edge types: a r b, b s b"),
        ([], 1, "at least one edge type"),
        ([("a", "q", "b")], 1, "no edge type `a q b`.*did you mean `a r b`"),
        (
            [("a", "r", "b"), ("a", "r", "b")],
            1,
            r"metapath\[1\]: .*`a r b` ends at `b`, `a r b` starts at `a`",
        ),
        ([("a", "r", "b")], 2, r"metapath\[0\]: .*starts at `a`"),
        ([("b", "rev_s", "a")], 1, "no edge type `b rev_s a`"),
    ],
)
def test_wrong_metapaths(metapath: Any, length: int, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        random_walk(Hetero(), [0], length, metapath=metapath)


def test_wrong_arguments() -> None:
    csr = Csr(np.array([0, 1, 2]), np.array([1, 0]))
    with pytest.raises(UsageError, match=r"\[0, 2\), received 2 at position 1"):
        random_walk(csr, [0, 2], 1)
    for length in (-1, 1.5, True, 2**31):
        with pytest.raises(UsageError, match="length: expected a number of steps"):
            random_walk(csr, [0], length)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a metapath needs a graph"):
        random_walk(csr, [0], 1, metapath=[("a", "r", "b")])


def test_damaged_adjacency() -> None:
    with pytest.raises(DataError, match="goes from 0 to 3 at node 0"):
        random_walk(Csr(np.array([0, 3]), np.array([0])), [0], 1)
    with pytest.raises(DataError, match="edge 0 leads to node 9"):
        random_walk(Csr(np.array([0, 1]), np.array([9])), [0], 2)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_draws_at_hubs_are_repeated_where_they_must_be(dtype: Any) -> None:
    leaves = 1_000_003  # one draw in about 4,000 may have to be repeated
    indptr = np.concatenate([[0], leaves + np.arange(leaves + 1)])
    star = Csr(indptr, np.concatenate([np.arange(1, leaves + 1), np.zeros(leaves)]).astype(dtype))
    start = np.arange(20_000) + 1
    walks = random_walk(star, start, 6, seed=1)
    assert (walks[:, 1::2] == 0).all()
    # A probability that rounds to none: walkers that may start again choose one by one.
    alone = random_walk(star, start, 6, seed=1, restart_probability=1e-12)
    np.testing.assert_array_equal(walks, alone)
    key = _core.philox_key(WALK_STREAM, 1, 0, 0)
    drawn = [[bounded(key, walker, step, leaves) + 1 for step in (1, 3, 5)] for walker in range(500)]
    assert walks[:500, 2::2].tolist() == drawn
