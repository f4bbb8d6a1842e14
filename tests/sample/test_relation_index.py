"""The index over relations with one target type: the same samples with it, and what it takes."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import numpy as np
import pytest

from graphbox import _core
from graphbox.errors import DataError, DoesNotFitError, UsageError
from graphbox.sample import derived_table_bytes, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType, as_arrays
from graphbox.sample.derived import RelationLists, relation_lists_of
from graphbox.sample.excluded import ExcludedEdges
from graphbox.sample.sampled import HeteroSample

PAPERS, AUTHORS = 3000, 400


@dataclass(eq=False)
class Csc:
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    timestamp: np.ndarray


def random_csc(rng: np.random.Generator, targets: int, sources: int, share: float, degrees: list[int]) -> Csc:
    """Return lists of which about ``share`` have edges."""
    degree = np.where(rng.random(targets) < share, rng.choice(degrees, targets), 0)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    edges = int(indptr[-1])
    return Csc(
        indptr,
        rng.integers(0, sources, edges).astype(np.int32),
        rng.random(edges).astype(np.float32) + np.float32(0.1),
        rng.integers(0, 100, edges),
    )


def typed_graph(relations: int = 6) -> dict[EdgeType, Csc]:
    """Return several relations to papers, most of a paper's lists empty, and one to authors."""
    rng = np.random.default_rng(relations)
    shares, degrees = [0.1, 0.7, 0.02, 0.3], [[1, 2, 3], [2, 40], [9], [1, 70]]
    graph = {
        ("paper", f"cites_{number}", "paper"): random_csc(
            rng, PAPERS, PAPERS, shares[number % 4], degrees[number % 4]
        )
        for number in range(relations)
    }
    graph["author", "writes", "paper"] = random_csc(rng, PAPERS, AUTHORS, 0.5, [1, 3])
    graph["paper", "of", "author"] = random_csc(rng, AUTHORS, PAPERS, 0.9, [5, 8])
    return graph


def lists_to_papers(graph: dict[EdgeType, Csc]) -> RelationLists:
    chosen = [edge_type for edge_type in graph if edge_type[2] == "paper"]
    return relation_lists_of(
        [graph[edge_type] for edge_type in chosen],
        [as_arrays(graph[edge_type], "paper") for edge_type in chosen],
        [" ".join(edge_type) for edge_type in chosen],
    )


def check_equal(one: HeteroSample[np.ndarray], other: HeteroSample[np.ndarray]) -> None:
    for name in ("nodes", "row", "col", "edge_ids", "weight", "timestamp", "trees"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.keys() == right.keys()
        for key in left:
            np.testing.assert_array_equal(left[key], right[key], err_msg=f"{name} {key}")
    assert one.num_sampled_nodes == other.num_sampled_nodes
    assert one.num_sampled_edges == other.num_sampled_edges


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"replace": True},
        {"weight_attr": "weight", "edge_attributes": ["weight", "timestamp"]},
        {"disjoint": True},
        {"input_time": {"paper": np.arange(2500) % 120, "author": np.arange(50)}},
        {
            "input_time": {"paper": np.arange(2500) % 120, "author": np.arange(50)},
            "temporal_strategy": "last",
        },
        {"excluded_edges": {("paper", "cites_1", "paper"): ExcludedEdges(np.arange(40).reshape(2, 20))}},
    ],
)
def test_same_samples(arguments: dict[str, object], threads: int) -> None:
    graph = typed_graph()
    rng = np.random.default_rng(1)
    seeds = {"paper": rng.integers(0, PAPERS, 2500), "author": rng.integers(0, AUTHORS, 50)}
    first = sample_heterogeneous(graph, seeds, [4, 3, 0, -1], seed=3, num_threads=threads, **arguments)  # type: ignore[call-overload]
    assert lists_to_papers(graph).index is not None, "so many nodes were expanded that it was made"
    second = sample_heterogeneous(graph, seeds, [4, 3, 0, -1], seed=3, num_threads=threads, **arguments)  # type: ignore[call-overload]
    check_equal(first, second)


def test_each_type_as_alone() -> None:
    graph = typed_graph(30)
    everything = {"paper": np.arange(PAPERS)}
    sample_heterogeneous(graph, everything, [1])
    assert lists_to_papers(graph).index is not None
    sample = sample_heterogeneous(graph, {"paper": np.arange(0, PAPERS, 2)}, [-1])
    for edge_type, csc in graph.items():
        if edge_type[2] == "paper" and edge_type[0] == "paper":
            alone = sample_neighbors(csc, np.arange(0, PAPERS, 2), [-1])
            np.testing.assert_array_equal(alone.edge_ids, sample.edge_ids[edge_type])


def test_is_made_when_it_pays_and_goes_with_the_lists() -> None:
    gc.collect()
    before = derived_table_bytes()
    graph = typed_graph()
    for number in range(4):  # nodes as many as there are, in four batches
        assert lists_to_papers(graph).index is None
        sample_heterogeneous(graph, {"paper": np.arange(PAPERS // 4)}, [1], batch=number)
    lists = lists_to_papers(graph)
    assert lists.index is not None
    kept = derived_table_bytes() - before
    assert kept == lists.bytes
    assert 8 * PAPERS < kept <= 8 * (PAPERS + 1) * 7 + 1024
    del graph["paper", "cites_3", "paper"]
    gc.collect()
    assert derived_table_bytes() == before, "any of the lists takes it along"


def test_not_where_it_takes_more_than_it_saves() -> None:
    rng = np.random.default_rng(0)
    graph = {("a", name, "a"): random_csc(rng, 200, 200, 1.0, [1, 2]) for name in "pqr"}
    for batch in range(3):
        sample_heterogeneous(graph, {"a": np.arange(200)}, [2], batch=batch)
    arrays = [csc.indptr for csc in graph.values()]
    with pytest.raises(DoesNotFitError, match=r"an index over 3 relations would take \d+ bytes"):
        _core.RelationIndex(arrays, [len(csc.indices) for csc in graph.values()], ["p", "q", "r"], 1)


def test_damaged_lists() -> None:
    graph = typed_graph()
    damaged = graph["paper", "cites_2", "paper"]
    damaged.indptr[-5] = 10**9
    with pytest.raises(DataError, match=r"it goes from \d+ to 1000000000 at node 2995") as caught:
        sample_heterogeneous(graph, {"paper": np.arange(PAPERS)}, [1])
    assert caught.value.where == "paper cites_2 paper"


def test_indexes_of_other_relations_are_refused() -> None:
    graph = typed_graph()
    one, two = (graph["paper", f"cites_{number}", "paper"] for number in (0, 2))
    index = _core.RelationIndex([one.indptr, two.indptr], [len(one.indices), len(two.indices)], ["p", "q"], 1)
    relations = [_core.Relation(csc.indptr, csc.indices, 0, 0, [1], "edges") for csc in (one, two)]

    def sample(numbers: list[int], twice: bool = False) -> None:
        _core.sample_neighbors(
            relations,
            [PAPERS],
            [np.arange(5)],
            1,
            False,
            0,
            0,
            0,
            1,
            indexed=[(index, numbers)] * (2 if twice else 1),
        )

    sample([0, 1])
    for numbers in ([1, 0], [0], [0, 2], [0, 0]):
        with pytest.raises(UsageError, match="expected an index of the adjacencies"):
            sample(numbers)
    with pytest.raises(UsageError, match="expected an index of the adjacencies"):
        sample([0, 1], twice=True)
