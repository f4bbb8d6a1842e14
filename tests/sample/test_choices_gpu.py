"""Trees, times and excluded edges in samples by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch

from graphbox.sample import DeviceGraph, ExcludedEdges, sample_neighbors
from tests.sample.device_choices import LAST, NODES, SHARED, SLOW_PINNED, DeviceChoices, some_pairs, timed_csc
from tests.sample.device_sampling import ONE_TYPE, one_type

pytestmark = pytest.mark.gpu_kernel

TIMES = {"input_time": [5, 6, 6]}


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceChoices):
    pass


@pytest.mark.parametrize("tiered", [False, True])
@pytest.mark.parametrize(
    ("modules", "all_drawn"),
    [
        (["graphbox.sample.uniform_choice_gpu"], [{}, {"replace": True}]),
        (["graphbox.sample.weighted_choice_gpu"], SHARED),
        (
            ["graphbox.sample.hop_spans_gpu", "graphbox.sample.neighbor_gpu"],
            [TIMES, {**TIMES, **LAST}, {**TIMES, "replace": True}],
        ),
        (["graphbox.sample.excluded_gpu"], [{"node_time": np.arange(NODES) % 7}, {"disjoint": True}]),
        (["graphbox.sample.time_choice_gpu"], [{**TIMES, **each} for each in SHARED]),
    ],
)
def test_kernels_compile(
    device: torch.device,
    compiling: Callable[..., AbstractContextManager[None]],
    modules: list[str],
    all_drawn: list[dict[str, Any]],
    tiered: bool,
) -> None:
    rng = np.random.default_rng(0)
    csc = timed_csc(rng, dtype=np.int64 if tiered else np.int32)
    excluded = ExcludedEdges(some_pairs(rng, csc))
    seeds = excluded.edge_index[1][:3]
    budget = 80 * len(csc.indptr) if tiered else None
    graph = DeviceGraph(one_type(csc), device, hbm_bytes=budget, bandwidths=SLOW_PINNED)
    with compiling(*modules):
        for drawn in all_drawn:
            for excluded_edges in (None, excluded):
                sample_neighbors(graph, seeds, [3], excluded_edges=excluded_edges, **drawn)
    assert (graph.csc(ONE_TYPE).residents is not None) == tiered
