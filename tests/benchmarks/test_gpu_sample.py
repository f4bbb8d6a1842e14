"""The benchmark of sampling on a GPU runs, and counts the sectors that a sample needs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import gpu_sample
from benchmarks.gpu_graphs import ListsGraph, WeightedLists
from graphbox.sample import DeviceGraph
from graphbox.sample.neighbor_gpu import sample_hop
from tests.gpu_benchmarks import printed_figures

pytestmark = pytest.mark.gpu_kernel


def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_figures(gpu_sample.main, monkeypatch, capsys)
    hops = [case for case in figures if " hop of " in case]
    assert len(hops) == 2 * 4 + 1
    assert len(figures) == len(hops) + 2 * 2
    assert {figures[case]["goal"] for case in hops if case.endswith("device")} == {0.5}
    assert {figures[case]["goal"] for case in hops if case.endswith("pinned")} == {0.8}
    assert all(figure["goal"] is None for case, figure in figures.items() if case.endswith("relabelled"))
    assert all(figure["limit"] for figure in figures.values())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_sectors_of_a_hop(weighted: bool, replace: bool) -> None:
    rng = np.random.default_rng(0)
    degree = rng.integers(0, 40, 200)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    indices = rng.integers(0, 200, indptr[-1]).astype(np.int32)
    lists = WeightedLists(indptr, indices, rng.random(len(indices), np.float32) + np.float32(0.1))
    name = ("node", "to", "node")
    graph = DeviceGraph(ListsGraph("random", {"node": 200}, {name: lists}, {name: name}, "node"), "cpu")
    relation = gpu_sample.relation_of(graph, name, weighted=weighted)
    frontier = torch.arange(0, 200, 3)
    sampled = sample_hop(relation, frontier, replace=replace, key=(1, 0, 0))
    edges = sampled.edge_ids.tolist()
    drawn = [
        edge
        for edge, col in zip(edges, sampled.cols.tolist(), strict=True)
        if replace or degree[frontier[col]] > gpu_sample.NUM_NEIGHBORS
    ]
    read_there = len({edge * 4 // 32 for edge in edges})
    if weighted:
        read_there += len({edge * 8 // 32 for edge in drawn})
    read_of_indptr = len({place * 8 // 32 for node in frontier.tolist() for place in (node, node + 1)})
    written = -(-len(edges) * (4 + 8 + 8) // 32)
    counted = [
        gpu_sample.sectors_of_hop(relation, frontier, sampled, replace, at) for at in gpu_sample.PLACES
    ]
    assert counted == [read_there + read_of_indptr + written, read_there]
