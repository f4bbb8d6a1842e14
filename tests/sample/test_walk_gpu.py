"""Walks by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, random_walk
from tests.sample.device_sampling import one_type, random_csc
from tests.sample.device_walks import DeviceWalks

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceWalks):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    csr = random_csc(np.random.default_rng(3), 9, 9, [0, 3])
    for row in range(9):
        csr.indices[csr.indptr[row] : csr.indptr[row + 1]].sort()
    graph = DeviceGraph(one_type(csr), device)
    with compiling("graphbox.sample.walk_gpu", "graphbox.sample.node2vec_gpu"):
        for weighted, restart_probability in ((False, 0.0), (True, 0.5)):
            for p in (1.0, 0.5):
                random_walk(graph, [1, 2], 2, p, weighted=weighted, restart_probability=restart_probability)
