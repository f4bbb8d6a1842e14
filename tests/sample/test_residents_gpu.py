"""Lists resident on a device, with kernels run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, ExcludedEdges, random_walk, resident_lists, sample_neighbors
from tests.sample.device_residents import SLOW_PINNED, DeviceResidents, check_arena
from tests.sample.device_sampling import one_type, random_csc

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceResidents):
    pass


def test_arena(device: torch.device) -> None:
    check_arena(device)


def test_arena_in_small_steps(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_lists, "_ROWS_OF_STEP", 11)
    monkeypatch.setattr(resident_lists, "_UNITS_OF_STEP", 7)
    check_arena(device)


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    csc = random_csc(np.random.default_rng(0), 90, 90, [0, 1, 70])
    for row in range(90):
        csc.indices[csc.indptr[row] : csc.indptr[row + 1]].sort()
    graph = DeviceGraph(one_type(csc), device, hbm_bytes=36 * 91 + 6_000, bandwidths=SLOW_PINNED)
    excluded = ExcludedEdges(np.stack([csc.indices[:4], [0, 0, 0, 0]]))
    with compiling("graphbox.sample.edge_reads_gpu"):
        sample_neighbors(graph, [1, 2], [3, -1], weight_attr="weight")
        graph.end_pass()
        sample_neighbors(graph, [1, 2], [3, -1], excluded_edges=excluded)
        sample_neighbors(graph, [1, 2], [3], weight_attr="weight", replace=True)
        random_walk(graph, [1, 2], 2)
        random_walk(graph, [1, 2], 2, 0.5, weighted=True)
