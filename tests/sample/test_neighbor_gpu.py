"""Neighbour sampling by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, sample_neighbors
from graphbox.sample.relabel_gpu import NodePositions
from tests.sample.device_sampling import DeviceSampling, one_type, random_csc

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceSampling):
    pass


@pytest.mark.parametrize("most_bytes", [None, 0])
def test_positions_outlive_their_stamps(device: torch.device, most_bytes: int | None) -> None:
    positions = NodePositions(10, device, most_bytes)
    positions.start(torch.tensor([0]))
    for _ in range(3):
        positions._samples = 2**31 - 2  # two samples before all stamps are used
        for seeds, nodes in (([4, 1, 4], [1, 7, 2, 7]), ([7], [4, 4, 7]), ([], [1, 4])):
            positions.start(torch.tensor(seeds, dtype=torch.int64))
            rows, new = positions.insert(torch.tensor(nodes))
            order = list(dict.fromkeys(node for node in nodes if node not in seeds))
            assert new.tolist() == order
            assert rows.tolist() == [(seeds + order).index(node) for node in nodes]


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    graph = DeviceGraph(one_type(random_csc(np.random.default_rng(0), 90, 90, [0, 70])), device)
    modules = (
        "graphbox.sample.neighbor_gpu",
        "graphbox.sample.relabel_gpu",
    )
    with compiling(*modules):
        for replace in (False, True):
            for weighted in (False, True):
                sample_neighbors(
                    graph, [1, 2], [3, -1], replace=replace, weight_attr="weight" if weighted else None
                )
        graph = DeviceGraph(graph.graph, device, relabel_bytes=0)
        sample_neighbors(graph, [1, 2], [3, -1])
