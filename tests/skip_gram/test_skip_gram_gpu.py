"""Skip-gram by kernels, run by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from graphbox.errors import UnsupportedError
from graphbox.skip_gram.tile_shapes import tile_shape
from tests.compiled_kernels import CompiledLaunch
from tests.skip_gram.device_skip_gram import DeviceLearning, Learning, ring

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceLearning):
    pass


def test_shapes_fit_the_shared_memory_of_a_device() -> None:
    assert tile_shape(1).values == 16
    for dim in (64, 65, 128, 200, 512):
        assert tile_shape(dim).values >= dim
    assert tile_shape(128, 232_448).centers == 2 * tile_shape(128, 101_376).centers
    assert tile_shape(256, 101_376).values == 256
    with pytest.raises(UnsupportedError, match="as 101,376 bytes of shared memory allow, received dim 300"):
        tile_shape(300, 101_376)


@pytest.mark.parametrize(
    "dim", [pytest.param(1, marks=pytest.mark.stress), 128, pytest.param(512, marks=pytest.mark.stress)]
)
def test_kernels_compile(
    device: torch.device, compiling: Callable[..., AbstractContextManager[list[CompiledLaunch]]], dim: int
) -> None:
    with compiling("graphbox.skip_gram.learn_gpu") as compiled:
        for one_table in (False, True) if dim == 128 else (False,):
            learning = Learning(ring(4, 0), dim, length=1, walkers=1, batch_size=1, one_table=one_table)
            for row_bytes in (None, learning.budget(2)):
                learning.train(learning.on_device(learning.tables(), device, row_bytes), range(1))
    in_one_memory = {
        (each.kernel, each.arguments.get("ONE_TABLE")): each.accesses
        for each in compiled
        if each.arguments.get("TIERED") is False
    }
    in_two = [each for each in compiled if each.arguments.get("TIERED")]
    assert {each.kernel for each in in_two} == {"_gradients", "_update"}
    for each in in_two:  # in pieces as wide
        assert each.accesses == in_one_memory[each.kernel, each.arguments.get("ONE_TABLE")]
