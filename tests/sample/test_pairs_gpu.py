"""Pairs and negatives by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch

from graphbox.sample import NegativeSampler
from graphbox.sample.pairs_gpu import (
    WINDOW_STREAM,
    DeviceWindows,
    count_pairs,
    keep_thresholds,
    places_of_walks,
)
from tests.sample.device_pairs import DevicePairs, draws_of_batches

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DevicePairs):
    pass


def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    walks = torch.arange(6).reshape(2, 3)
    offsets = torch.zeros(1, 3, dtype=torch.int64)
    with compiling("graphbox.philox_gpu", "graphbox.sample.pairs_gpu", "graphbox.sample.negative_gpu"):
        for windows in (
            DeviceWindows(2),
            DeviceWindows(2, offsets, True, keep_thresholds(np.full(9, 0.5))),
        ):
            draws = draws_of_batches(device, WINDOW_STREAM, [2])
            path_of = None if windows.column_offsets is None else torch.zeros(2, dtype=torch.int64)
            places = places_of_walks(walks, windows, draws, path_of)
            count_pairs(places, 2, skip_equal=True)
        NegativeSampler([1, 2]).on_device(device).sample(3)
        NegativeSampler.uniform(2**32 - 1).on_device(device).sample(3)
