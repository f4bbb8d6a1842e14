"""Neighbour sampling by compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, sample_neighbors
from tests.sample.device_choices import DeviceChoices
from tests.sample.device_sampling import DeviceSampling, assert_same, one_type, random_csc

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceSampling):
    pass


class TestCompiledChoices(DeviceChoices):
    pass


@pytest.mark.parametrize("weighted", [False, True])
def test_same_inputs_give_the_same_sample_a_hundred_times(device: torch.device, weighted: bool) -> None:
    csc = random_csc(np.random.default_rng(0), 20_000, 20_000, [0, 3, 20, 400])
    graph = DeviceGraph(one_type(csc), device)
    seeds = np.random.default_rng(1).integers(0, 20_000, 3_000)
    expected = sample_neighbors(csc, seeds, [15, 10], weight_attr="weight" if weighted else None, seed=1)
    for _ in range(100):
        assert_same(
            sample_neighbors(graph, seeds, [15, 10], weight_attr="weight" if weighted else None, seed=1),
            expected,
            device,
        )
