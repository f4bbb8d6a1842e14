"""The hash table of a device, by compiled kernels."""

from __future__ import annotations

import pytest
import torch

from graphbox.table.hash_gpu import DeviceHash
from tests.table.device_hash import DeviceHashes

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceHashes):
    pass


def test_threads_that_meet_lose_nothing(device: torch.device) -> None:
    """As many keys as fit are inserted, looked up and erased, a hundred times, in other orders each time."""
    generator = torch.Generator(device).manual_seed(0)
    capacity = 1 << 20
    table = DeviceHash(capacity, device)
    keys = torch.randint(-(2**62), 2**62, (2 * capacity,), device=device, generator=generator)
    keys = keys[torch.randperm(len(keys), device=device, generator=generator)]
    there, absent = keys[:capacity], keys[capacity:]
    slots = torch.arange(capacity, device=device)
    for turn in range(100):
        order = torch.randperm(capacity, device=device, generator=generator)
        part = order if turn == 0 else order[: capacity // 3]
        if turn > 0:
            table.erase(there[part])
            assert torch.all(table.find(there[part]) == -1)
            assert len(table) == capacity - len(part)
        table.insert(there[part], slots[part], checked=False)
        assert torch.equal(table.find(there), slots)
        assert torch.all(table.find(absent) == -1)
        assert len(table) == capacity
