"""Tables on a device, with compiled kernels, real streams, and prefetches in threads of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.errors import DoesNotFitError
from graphbox.table import DeviceTable, EmbeddingTable
from graphbox.table.salt import salted_keys
from tests.table.device_table_contract import DeviceTableContract, assert_equal, assert_same_tables

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceTableContract):
    pass


@pytest.mark.parametrize("hbm_bytes", [4 << 20, 256 << 20])
def test_same_batches_give_the_same_rows_a_hundred_times(device: torch.device, hbm_bytes: int) -> None:
    plain, below = (EmbeddingTable(32, "adam") for _ in range(2))
    rng = np.random.default_rng(0)
    with DeviceTable(below, device, hbm_bytes=hbm_bytes) as table:
        ahead = None
        batches = [torch.from_numpy(rng.zipf(1.2, 20_000) % 60_000) for _ in range(100)]
        for number, keys in enumerate(batches):
            expected, plain_slots = plain.pull_slots(keys)
            rows, slots = table.pull_slots(keys.to(device))
            if ahead is not None:
                ahead.wait(60)
            ahead = table.prefetch(batches[min(number + 1, 99)].to(device))  # with the push in flight
            grads = torch.from_numpy(rng.normal(size=(len(keys), 32)).astype(np.float32))
            assert_equal(rows, expected)
            plain.push_slots(plain_slots, grads)
            table.push_slots(slots, grads.to(device))
    assert_same_tables(plain, below)


def test_operations_of_several_streams_follow_each_other(device: torch.device) -> None:
    plain, below = (EmbeddingTable(64) for _ in range(2))
    table = DeviceTable(below, device, hbm_bytes=8 << 20)
    keys = torch.arange(10_000)
    for step in range(20):
        grads = torch.full((10_000, 64), float(step))
        plain.push(keys, grads)
        with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            table.push(keys.to(device), grads.to(device))
    assert_equal(table.pull(keys), plain.pull(keys))


def test_more_than_the_device_has(device: torch.device) -> None:
    _, total = torch.cuda.mem_get_info(device)
    with pytest.raises(DoesNotFitError, match="out of memory"):
        DeviceTable(EmbeddingTable(64), device, hbm_bytes=2 * total)


def test_keys_are_salted_as_in_host_memory(device: torch.device) -> None:
    from graphbox.table.salt import salted_tensor

    keys = torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1000))
    assert_equal(salted_tensor(keys.to(device), "slot"), salted_keys(keys, "slot"))
