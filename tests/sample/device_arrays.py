"""Guarantees of arrays on a device: the rows of the arrays, wherever they are, and within the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox.bandwidth import Bandwidths
from graphbox.sample.device_arrays import DeviceArrays, RowBlocks

SLOW_PINNED = Bandwidths("any", 1e12, 1e9, (1e12,) * 3, (1e11,) * 3, 1e11, 1e11, 1e12)
ROWS = 211
KNOWN = 12 * ROWS


def some_arrays() -> dict[str, torch.Tensor]:
    """Arrays with rows of all kinds of sizes: of no bytes, of odd ones, of more than a tile of words."""
    generator = torch.Generator().manual_seed(0)
    return {
        "long": torch.randn(ROWS, 300, generator=generator, dtype=torch.float64),
        "flags": torch.randint(0, 2, (ROWS, 3), generator=generator).bool(),
        "half": torch.randn(ROWS, 5, generator=generator).bfloat16(),
        "codes": torch.randint(-9, 9, (ROWS, 2), generator=generator, dtype=torch.int32),
        "numbers": torch.randint(0, 99, (ROWS,), generator=generator),
        "cubes": torch.randn(ROWS, 3, 2, generator=generator),
        "nothing": torch.zeros(ROWS, 0),
        "no rows": torch.zeros(0, 4),
    }


class DeviceArrayReads:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("misses", ["read", "copy"])
    @pytest.mark.parametrize("budget", [None, 0, KNOWN, 6 * KNOWN, 30_000, 200_000, 400_000])
    def test_rows_are_the_same_whatever_the_budget(
        self, device: torch.device, budget: int | None, misses: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphbox.sample.device_arrays._BLOCK_BYTES", 1000)
        arrays = some_arrays()
        brought = {name: RowBlocks.of(each) for name, each in arrays.items()}
        held = DeviceArrays(brought, device, hbm_bytes=budget, misses=misses, bandwidths=SLOW_PINNED)
        hot = np.random.default_rng(0).integers(0, ROWS, 20)
        for index in (hot, hot, np.arange(ROWS)[::-1].copy(), np.zeros(0, np.int64), hot[:1], hot):
            nodes = torch.from_numpy(index)
            for name, each in arrays.items():
                chosen = nodes[: len(each)]
                found = held.rows(name, chosen.to(device))
                assert (found.dtype, found.shape[1:]) == (each.dtype, each.shape[1:])
                assert found.device.type == device.type
                assert torch.equal(found.cpu(), each[chosen]), name
            held.end_pass()
            assert budget is None or held.device_bytes <= budget
        total = sum(each.nbytes for each in arrays.values())
        if budget is None:
            assert (held.device_bytes, held.pinned_bytes) == (total, 0)
        elif budget == 0:
            assert (held.device_bytes, held.pinned_bytes) == (0, total)
        if budget in (30_000, 200_000):
            assert 0 < held.statistics.lists < ROWS
            assert held.pinned_bytes == arrays["long"].nbytes

    def test_types_share_the_room_by_use(self, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(1)
        arrays = {name: torch.randn(100, 64, generator=generator) for name in ("often", "seldom")}
        budget = 2 * 12 * 100 + 60 * (64 * 4 + 8)
        held = DeviceArrays(
            {name: RowBlocks.of(each) for name, each in arrays.items()},
            device,
            hbm_bytes=budget,
            bandwidths=SLOW_PINNED,
        )
        for _ in range(2):
            for _ in range(3):
                held.rows("often", torch.arange(50, device=device))
            held.rows("seldom", torch.arange(100, device=device))
            statistics = held.end_pass()
        assert 55 <= statistics.lists <= 60
        assert statistics.hit_rate is not None
        assert statistics.hit_rate > 0.6  # 150 of 250 reads
