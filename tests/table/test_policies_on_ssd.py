"""Policies of tables whose rows are on SSD: those of a table in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import UsageError
from graphbox.table import (
    CountAdmission,
    EmbeddingTable,
    Expiry,
    ProbabilityAdmission,
    ShowClickScore,
    ShrinkReport,
)

DIM = 256
BUDGET = 16 << 20
"""Of which rows get a third: about 6,000."""

POLICIES: dict[str, Any] = {
    "admission": CountAdmission(2, sketch_bytes=1 << 16),
    "expiry": Expiry(passes=3, seconds=900),
    "score": ShowClickScore(drop_below=0.2),
}


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.seconds = 1e9

    def __call__(self) -> float:
        return self.seconds


def tables(path: Path, clock: Callable[[], float], **policies: Any) -> tuple[EmbeddingTable, EmbeddingTable]:
    """A table with rows on SSD, and one in memory with the same settings."""
    tiered = EmbeddingTable(DIM, seed=4, clock=clock, path=path, memory_bytes=BUDGET, **policies)
    return tiered, EmbeddingTable(DIM, seed=4, clock=clock, **policies)


def step(table: EmbeddingTable, seed: int) -> None:
    random = np.random.default_rng(seed)
    keys = random.integers(0, 20_000, 2_000)
    if seed % 2:
        keys //= 16
    shows = random.integers(0, 4, len(keys)).astype(np.float32)
    gradients = random.standard_normal((len(keys), DIM), dtype=np.float32)
    if seed % 3:
        table.pull(keys)
        table.push(keys, gradients, shows=shows, clicks=shows // 2)
    else:
        _, slots = table.pull_slots(keys)
        table.push_slots(slots, gradients, shows=shows)


def check_same(tiered: EmbeddingTable, plain: EmbeddingTable) -> None:
    assert len(tiered) == len(plain)
    keys = np.sort(plain.keys())
    np.testing.assert_array_equal(np.sort(tiered.keys()), keys)
    for part in np.array_split(np.append(keys, -1), 8):
        np.testing.assert_array_equal(tiered.pull(part, create=False), plain.pull(part, create=False))
        for name in ("has_row", "shows", "clicks", "score", "unseen_passes"):
            np.testing.assert_array_equal(
                getattr(tiered.counters(part), name), getattr(plain.counters(part), name), err_msg=name
            )


def counts(report: ShrinkReport) -> dict[str, int]:
    names = ("examined", "unseen_passes", "unseen_seconds", "low_score")
    return {name: getattr(report, name) for name in names}


@pytest.mark.parametrize("admission", ["sketch", "probability", "all"])
def test_policies_do_as_in_memory(tmp_path: Path, admission: str) -> None:
    clock = Clock()
    admit = {"sketch": POLICIES["admission"], "probability": ProbabilityAdmission(0.5), "all": None}
    policies = POLICIES | {"admission": admit[admission]}
    tiered, plain = tables(tmp_path / "table", clock, **policies)
    for number in range(36):
        step(tiered, number)
        step(plain, number)
        clock.seconds += 50
        if number % 6 == 5:
            tiered.end_pass()
            plain.end_pass()
        if number % 12 == 11:
            assert counts(tiered.shrink()) == counts(plain.shrink())
            check_same(tiered, plain)
        if number == 20:
            tiered.close()
            tiered = EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET)
            tiered.clock = clock
            assert tiered.policies == plain.policies
            assert tiered.passes == plain.passes
    statistics = tiered.tier_statistics()
    assert statistics.misses > 0
    assert statistics.cold_rows > 0
    tiered.close()


def test_rows_that_were_dropped_on_ssd_start_anew(tmp_path: Path) -> None:
    tiered, plain = tables(tmp_path / "table", Clock(), expiry=Expiry(passes=1))
    keys = np.arange(20_000)
    for part in np.array_split(keys, 10):
        tiered.pull(part)
        tiered.push(part, np.ones((len(part), DIM), np.float32))
    for _ in range(3):
        tiered.end_pass()
    tiered.push(keys[:10], np.ones((10, DIM), np.float32))
    report = tiered.shrink()
    assert (report.examined, report.dropped) == (20_000, 19_990)
    assert len(tiered) == 10
    np.testing.assert_array_equal(tiered.pull(keys[5000:5100]), plain.pull(keys[5000:5100]))
    tiered.close()
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as opened:
        assert len(opened) == 110
        assert opened.passes == 3


def test_checkpoints_carry_policies_to_ssd_and_back(tmp_path: Path) -> None:
    clock = Clock()
    tiered, plain = tables(tmp_path / "table", clock, **POLICIES)
    for number in range(12):
        step(tiered, number)
        step(plain, number)
    tiered.end_pass()
    plain.end_pass()
    tiered.save(tmp_path / "saved")
    tiered.close()
    in_memory = EmbeddingTable.load(tmp_path / "saved")
    on_ssd = EmbeddingTable.load(tmp_path / "saved", path=tmp_path / "other", memory_bytes=BUDGET)
    for loaded in (in_memory, on_ssd):
        loaded.clock = clock
        step(loaded, 100)
    step(plain, 100)
    check_same(on_ssd, plain)
    check_same(on_ssd, in_memory)
    on_ssd.close()


def test_policies_that_are_for_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected no eviction"):
        EmbeddingTable(4, path=tmp_path / "a", memory_bytes=BUDGET, eviction="clock")
    with pytest.raises(UsageError, match="expected sketch_bytes"):
        EmbeddingTable(4, path=tmp_path / "a", memory_bytes=BUDGET, admission=CountAdmission(2))
    assert not (tmp_path / "a").exists()
