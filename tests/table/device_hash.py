"""Guarantees of the hash table of a device: to be a dictionary, whatever the keys, however they change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.errors import ConflictError, DoesNotFitError, UsageError
from graphbox.table.hash_gpu import DeviceHash

LIMITS = np.iinfo(np.int64)
SPECIAL = [0, -1, -2, -3, 1, LIMITS.min, LIMITS.max, LIMITS.min + 1, 2**32, -(2**32)]


def assert_is(table: DeviceHash, expected: dict[int, int], absent: np.ndarray) -> None:
    keys = np.array([*expected, *absent], np.int64)
    slots = table.find(torch.from_numpy(keys).to(table.device)).cpu().numpy()
    np.testing.assert_array_equal(slots, [expected.get(int(key), -1) for key in keys])
    assert len(table) == len(expected)


class DeviceHashes:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("spread", [40, 10**18])
    def test_is_a_dictionary(self, device: torch.device, spread: int) -> None:
        """Keys come and go until erased entries were reused, and made free, several times."""
        rng = np.random.default_rng(spread % 1000)
        table, expected = DeviceHash(300, device), dict[int, int]()
        pool = np.unique(np.concatenate([SPECIAL, rng.integers(-spread, spread, 900)]))
        for turn in range(14):
            absent = np.array([key for key in pool if int(key) not in expected], np.int64)
            assert_is(table, expected, absent)
            new = rng.permutation(absent)[: 300 - len(expected)][: rng.integers(1, 200)]
            slots = rng.permutation(300)[: len(new)]
            table.insert(
                torch.from_numpy(new).to(device), torch.from_numpy(slots).to(device), checked=turn % 2 == 0
            )
            expected.update(zip(new.tolist(), slots.tolist(), strict=True))
            gone = rng.permutation(pool)[: rng.integers(0, len(pool))]
            table.erase(torch.from_numpy(np.concatenate([gone, gone[:7]])).to(device))  # some twice
            for key in gone.tolist():
                expected.pop(key, None)
        table.clear()
        assert_is(table, {}, pool)

    def test_all_entries_are_of_use(self, device: torch.device) -> None:
        """A table as full as it may be, of keys whose places are next to each other and wrap around."""
        table = DeviceHash(128, device)
        keys = torch.arange(-64, 64, device=device)
        table.insert(keys, keys + 64)
        for _ in range(30):
            table.erase(keys[:100])
            table.insert(keys[:100].flip(0), keys[:100].flip(0) + 64)
            assert_is(table, {key: key + 64 for key in range(-64, 64)}, np.array([-65, 64, 10**15]))

    def test_keys_that_are_known_to_be_there_are_counted_without_waiting(
        self, device: torch.device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full table whose keys are all replaced, part by part, several times."""
        table = DeviceHash(96, device)
        keys = torch.arange(96, device=device) * 7919
        table.insert(keys, keys, checked=False)
        rebuilt = []
        with monkeypatch.context() as waiting:
            waiting.setattr(DeviceHash, "__len__", lambda _: pytest.fail("it waited"))
            waiting.setattr(
                DeviceHash, "_rebuild", lambda self, made=DeviceHash._rebuild: rebuilt.append(made(self))
            )
            for turn in range(1, 13):
                part = slice(32 * (turn % 3), 32 * (turn % 3) + 32)
                table.erase(keys[part], are_there=True)
                keys[part] += 10**12
                table.insert(keys[part], keys[part], checked=False)
        assert len(rebuilt) > 1
        assert_is(table, {key: key for key in keys.tolist()}, np.array([0, 7919, 10**12 - 1]))
        with pytest.raises(DoesNotFitError, match="at most 96 keys, received 1 besides 96"):
            table.insert(keys[:1] + 1, keys[:1], checked=False)

    def test_capacity(self, device: torch.device) -> None:
        table = DeviceHash(5, device)
        keys = torch.tensor([3, -1, 8, 2, 9, 4], device=device)
        slots = torch.arange(6, device=device)
        with pytest.raises(DoesNotFitError, match="at most 5 keys, received 6 besides 0"):
            table.insert(keys, slots)
        table.insert(keys[:5], slots[:5])
        with pytest.raises(DoesNotFitError, match="at most 5 keys, received 1 besides 5"):
            table.insert(keys[5:], slots[5:], checked=False)
        assert_is(table, {3: 0, -1: 1, 8: 2, 2: 3, 9: 4}, np.array([4]))
        table.erase(keys[1:2])
        table.insert(keys[5:], slots[5:], checked=False)  # the host did not know that there was room
        assert_is(table, {3: 0, 8: 2, 2: 3, 9: 4, 4: 5}, np.array([-1]))

    def test_no_keys(self, device: torch.device) -> None:
        table, none = DeviceHash(1, device), torch.empty(0, dtype=torch.int64, device=device)
        table.insert(none, none)
        table.erase(none)
        assert len(table.find(none)) == 0
        assert_is(table, {}, np.array(SPECIAL))
        table.erase(torch.tensor(SPECIAL, device=device))
        assert len(table) == 0

    def test_refusals(self, device: torch.device) -> None:
        table = DeviceHash(9, device)
        keys, slots = torch.tensor([5, 6], device=device), torch.tensor([0, 1], device=device)
        table.insert(keys, slots)
        with pytest.raises(ConflictError, match=r"key 6: expected distinct keys .* has a slot already"):
            table.insert(keys[1:], slots[1:])
        with pytest.raises(ConflictError, match=r"key 7: expected distinct keys .* this one repeats"):
            table.insert(torch.tensor([7, 8, 7], device=device), torch.tensor([2, 3, 4], device=device))
        with pytest.raises(UsageError, match="slots: expected slots from 0 on, received -1"):
            table.insert(keys + 10, slots - 1)
        with pytest.raises(UsageError, match="slots: expected one for each of 2 keys, received 1"):
            table.insert(keys + 10, slots[1:])
        with pytest.raises(UsageError, match=r"keys: expected int64 \[n\] on .*, received torch.int32"):
            table.find(keys.int())
        with pytest.raises(UsageError, match=r"received torch.int64 \(1, 2\)"):
            table.erase(keys[None])
        with pytest.raises(UsageError, match="on meta"):
            table.find(keys.to("meta"))
        for capacity in (0, -1, 2**30 + 1, 1.5, True, None):
            with pytest.raises(UsageError, match="capacity: expected an integer from 1 to"):
                DeviceHash(capacity, device)  # type: ignore[arg-type]
        assert_is(table, {5: 0, 6: 1}, np.array([7, 8, 15, 16]))
