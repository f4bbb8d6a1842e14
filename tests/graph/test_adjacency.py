"""Compressed adjacency agrees with plain lists of edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.graph import adjacency
from graphbox.graph.adjacency import build_csc, csr_of, sort_edges, stable_order, without_edges
from graphbox.graph.tables import EdgeTable, ReverseEdgeTable

Edge = tuple[int, int]


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[list[Edge], int, int]:
    num_sources, num_targets = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    edge = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
    return draw(st.lists(edge, max_size=60)), num_sources, num_targets


def arrays(edges: list[Edge]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@settings(deadline=None)
@given(case=edge_lists())
def test_csc_is_the_sorted_list_of_edges(case: tuple[list[Edge], int, int]) -> None:
    edges, num_sources, num_targets = case
    csc, order = build_csc(*arrays(edges), num_sources, num_targets)
    by_target = sorted(range(len(edges)), key=lambda i: (edges[i][1], edges[i][0]))
    assert order.tolist() == by_target
    assert csc.indptr[0] == 0
    assert csc.indptr.dtype == np.int64
    assert csc.indices.dtype == np.int32
    for target in range(num_targets):
        expected = sorted(source for source, into in edges if into == target)
        assert csc.indices[csc.indptr[target] : csc.indptr[target + 1]].tolist() == expected
    assert (csc.num_edges, csc.num_sources, csc.num_targets) == (len(edges), num_sources, num_targets)
    sources, targets = csc.coo()
    assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == [edges[i] for i in by_target]


@settings(deadline=None)
@given(case=edge_lists())
def test_csr_and_reverse_hold_the_same_edges(case: tuple[list[Edge], int, int]) -> None:
    edges, num_sources, num_targets = case
    csc, order = build_csc(*arrays(edges), num_sources, num_targets)
    csc = replace(csc, weight=order.astype(np.float32), timestamp=order * 10)
    csr = csr_of(csc)
    _, targets = csc.coo()
    for source in range(num_sources):
        run = slice(csr.indptr[source], csr.indptr[source + 1])
        assert csr.indices[run].tolist() == sorted(target for out_of, target in edges if out_of == source)
        assert (csc.indices[csr.edge_ids[run]] == source).all()
        assert (targets[csr.edge_ids[run]] == csr.indices[run]).all()
    assert csr.weight is not None
    assert csr.timestamp is not None
    assert csc.weight is not None
    assert (csr.weight == csc.weight[csr.edge_ids]).all()
    assert (csr.timestamp == csr.weight * 10).all()

    reverse = ReverseEdgeTable(EdgeTable(csc), ("a", "to", "b"))
    reverse_csc, reverse_csr = reverse.csc, reverse.csr
    derived = csr_of(reverse_csc)
    for name in ("indptr", "indices", "edge_ids", "weight", "timestamp"):
        assert getattr(reverse_csr, name).tolist() == getattr(derived, name).tolist(), name
    assert (reverse_csr.num_sources, reverse_csr.num_targets) == (num_targets, num_sources)


@settings(deadline=None)
@given(case=edge_lists(), data=st.data())
def test_removed_edges_are_gone_and_others_stay(
    case: tuple[list[Edge], int, int], data: st.DataObject
) -> None:
    edges, num_sources, num_targets = case
    csc, order = build_csc(*arrays(edges), num_sources, num_targets)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges))), bool)
    rest = without_edges(replace(csc, weight=order.astype(np.float32)), keep)
    expected, its_order = build_csc(*arrays([edges[i] for i in order[keep]]), num_sources, num_targets)
    assert rest.indptr.tolist() == expected.indptr.tolist()
    assert rest.indices.tolist() == expected.indices.tolist()
    assert rest.weight is not None
    assert rest.weight.tolist() == order[keep].tolist()
    assert its_order.tolist() == list(range(int(keep.sum())))


def test_huge_node_types_sort_without_overflow() -> None:
    source = np.array([2**32, 0, 2**32, 5], np.int64)
    target = np.array([2**40, 2**40, 7, 2**40], np.int64)
    assert sort_edges(source, target, 2**33, 2**41).tolist() == [2, 1, 3, 0]


@pytest.mark.parametrize("num_keys", [5, 2**62])
def test_equal_keys_stay_in_order(num_keys: int) -> None:
    keys = np.array([3, 0, 3, 4, 0, 3], np.int64)
    assert stable_order(keys, num_keys).tolist() == [1, 4, 0, 2, 5, 3]
    assert stable_order(keys[:0], num_keys).tolist() == []
    assert stable_order(keys[:1].astype(np.int32), num_keys).tolist() == [0]


@pytest.mark.parametrize(("num_nodes", "dtype"), [(1, np.int32), (2**31, np.int32), (2**31 + 1, np.int64)])
def test_indices_are_as_small_as_they_may_be(num_nodes: int, dtype: type) -> None:
    assert adjacency.index_dtype(num_nodes) is dtype
    assert np.array(num_nodes - 1).astype(dtype) == num_nodes - 1
