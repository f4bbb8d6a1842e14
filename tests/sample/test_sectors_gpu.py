"""Sectors that a hop touches, counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph
from graphbox.sample.neighbor_gpu import DeviceRelation, sample_hop
from graphbox.sample.sectors import hop_sectors, step_sectors
from tests.sample.device_sampling import ONE_TYPE, one_type, random_csc

pytestmark = pytest.mark.gpu_kernel


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_sectors_of_a_hop(weighted: bool, replace: bool) -> None:
    csc = random_csc(np.random.default_rng(0), 100, 100, [0, 3, 9, 40])
    graph = DeviceGraph(one_type(csc), "cpu")
    weights = graph.weights(ONE_TYPE, "in") if weighted else None
    relation = DeviceRelation(graph.csc(ONE_TYPE), weights, 0, 0, [10])
    frontier = torch.arange(0, 100, 3)
    sampled = sample_hop(relation, frontier, replace=replace, key=(1, 0, 0))
    edges, degree = sampled.edge_ids.tolist(), np.diff(csc.indptr)
    drawn = [
        edge
        for edge, col in zip(edges, sampled.cols.tolist(), strict=True)
        if replace or degree[frontier[col]] > 10
    ]
    read_there = len({edge * 4 // 32 for edge in edges})
    if weighted:
        read_there += len({edge * 8 // 32 for edge in drawn})
    of_indptr = len({place * 8 // 32 for node in frontier.tolist() for place in (node, node + 1)})
    written = -(-len(edges) * (4 + 8 + 8) // 32)
    assert hop_sectors(relation, frontier, sampled, replace=replace, where="pinned") == read_there
    everywhere = read_there + of_indptr + written
    assert hop_sectors(relation, frontier, sampled, replace=replace, where="device") == everywhere


def test_sectors_of_a_step() -> None:
    assert step_sectors() == 2.25
    assert step_sectors(weighted=True) == 3.25
    assert step_sectors(where="pinned") == 1
    assert step_sectors(weighted=True, where="pinned") == 2
