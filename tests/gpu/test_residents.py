"""Lists resident on a GPU, with compiled kernels."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, sample_neighbors
from tests.sample.device_residents import DeviceResidents, check_arena
from tests.sample.device_sampling import assert_same, one_type, random_csc

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceResidents):
    pass


def test_arena(device: torch.device) -> None:
    check_arena(device)


def test_passes_end_while_other_streams_sample(device: torch.device) -> None:
    """Lists come and go while two threads sample; every sample is that of the host."""
    csc = random_csc(np.random.default_rng(0), 50_000, 50_000, [0, 3, 20, 400])
    graph = DeviceGraph(one_type(csc), device, hbm_bytes=20 * 50_001 + (4 << 20))
    seeds = np.random.default_rng(1).integers(0, 50_000, (8, 500))
    expected = [sample_neighbors(csc, each, [15, 10], seed=1) for each in seeds]
    failures: list[BaseException] = []

    def sample(offset: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
                for number in range(60):
                    chosen = (number + offset) % len(seeds)
                    found = sample_neighbors(graph, seeds[chosen], [15, 10], seed=1)
                    assert_same(found, expected[chosen], device)
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=sample, args=(offset,)) for offset in (0, 3)]
    for each in threads:
        each.start()
    while any(each.is_alive() for each in threads):
        graph.end_pass()
    for each in threads:
        each.join()
    assert not failures
    assert graph.statistics.lists > 0
