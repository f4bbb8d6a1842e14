"""Walks by compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, random_walk
from tests.sample.device_sampling import one_type, random_csc
from tests.sample.device_walks import DeviceWalks

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceWalks):
    pass


@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"p": 0.5, "q": 2.0}])
def test_same_inputs_give_the_same_walks_a_hundred_times(
    device: torch.device, options: dict[str, Any]
) -> None:
    csr = random_csc(np.random.default_rng(0), 20_000, 20_000, [0, 3, 20, 400])
    for row in range(20_000):
        csr.indices[csr.indptr[row] : csr.indptr[row + 1]].sort()
    graph = DeviceGraph(one_type(csr), device)
    start = np.random.default_rng(1).integers(0, 20_000, 30_000)
    expected = random_walk(csr, start, 20, seed=1, **options)
    for _ in range(100):
        walks: Any = random_walk(graph, start, 20, seed=1, **options)
        np.testing.assert_array_equal(walks.cpu().numpy(), expected)
