"""Checkpoints of tables whose rows are on SSD: into any tier, and deltas of what changed wherever it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import DoesNotFitError, FormatError, UsageError
from graphbox.table import EmbeddingTable, ServingTable
from graphbox.table.manifest import read_manifest

Float32 = np.float32
DIM = 256
KEYS = np.arange(24_000)
BUDGET = 16 << 20  # of which rows get a third


def train(table: EmbeddingTable, seed: int, steps: int = 8) -> None:
    """Push and erase keys that follow from the seed, a few hundred at a time."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        keys = random.integers(0, len(KEYS), 300)
        table.push(keys, random.normal(size=(300, DIM)).astype(Float32))
        table.erase(random.integers(0, len(KEYS), 10))


def fill(table: EmbeddingTable) -> None:
    for keys in np.split(KEYS, 40):
        table.push(keys, np.full((len(keys), DIM), 0.5, Float32))


def assert_same(one: EmbeddingTable | ServingTable, other: EmbeddingTable) -> None:
    assert np.array_equal(np.sort(one.keys()), np.sort(other.keys()))
    for keys in np.split(KEYS, 20):
        ours = one.pull(keys, create=False) if isinstance(one, EmbeddingTable) else one.pull(keys)
        assert np.array_equal(ours, other.pull(keys, create=False))


def test_chains_of_a_table_on_ssd(tmp_path: Path) -> None:
    reference = EmbeddingTable(DIM, seed=4)
    with EmbeddingTable(DIM, seed=4, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        fill(reference)
        fill(table)
        assert table.tier_statistics().cold_rows > len(KEYS) // 2
        table.save_base(tmp_path / "base")
        table.save_base(tmp_path / "serving", serving="float32")
        served = ServingTable.open(tmp_path / "serving")
        deltas = []
        for step in range(3):
            for one in (reference, table):
                train(one, step)
            for keys in np.split(KEYS, 20):  # rows that did not change come and go
                table.pull(keys[::3], create=False)
                table.pull(keys[:50][table.contains(keys[:50])])
            deltas.append(tmp_path / f"delta-{step}")
            table.save_delta(deltas[-1])
            table.save_delta(tmp_path / "change", serving="float32")
            served.apply(tmp_path / "change")
            assert_same(served, reference)
            assert read_manifest(deltas[-1]).rows < len(KEYS) // 2
        assert table.nbytes <= BUDGET
    in_memory = EmbeddingTable.load(tmp_path / "base", deltas=deltas)
    assert_same(in_memory, reference)
    budget = 13 << 20
    with EmbeddingTable.load(
        tmp_path / "base", deltas=deltas, path=tmp_path / "other", memory_bytes=budget
    ) as loaded:
        assert loaded.nbytes <= budget
        assert_same(loaded, reference)
        for one in (reference, in_memory, loaded):
            train(one, 9)
        deltas.append(tmp_path / "delta-3")
        loaded.save_delta(deltas[-1])
        assert_same(loaded, reference)
        assert loaded.nbytes <= budget
    assert_same(EmbeddingTable.load(tmp_path / "base", deltas=deltas), reference)
    assert_same(in_memory, reference)
    with EmbeddingTable.open(tmp_path / "other", memory_bytes=2 * BUDGET) as opened:
        assert_same(opened, reference)


def test_a_lost_delta_is_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = EmbeddingTable(DIM)
    with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        for one in (reference, table):
            fill(one)
        table.save_base(tmp_path / "base")
        for one in (reference, table):
            train(one, 1)

        def full_disk(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as context:
            context.setattr("graphbox.table.checkpoint_files.write_durably", full_disk)
            with pytest.raises(DoesNotFitError):
                table.save_delta(tmp_path / "delta")
        for keys in np.split(KEYS, 40):  # all that changed leaves memory
            table.pull(keys[table.contains(keys)])
        table.save_delta(tmp_path / "delta")
    assert_same(EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"]), reference)


def test_a_load_that_fails_leaves_an_empty_folder(tmp_path: Path) -> None:
    table = EmbeddingTable(DIM)
    fill(table)
    table.save(tmp_path / "table")
    path = next((tmp_path / "table").glob("rows-*"))
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError):
        EmbeddingTable.load(tmp_path / "table", path=tmp_path / "rows", memory_bytes=BUDGET)
    assert list((tmp_path / "rows").iterdir()) == []
    (tmp_path / "rows" / "mine").write_text("x")
    with pytest.raises(UsageError, match="expected an empty folder"):
        EmbeddingTable.load(tmp_path / "table", path=tmp_path / "rows", memory_bytes=BUDGET)


def test_saves_beside_prefetches(tmp_path: Path) -> None:
    """Rows come and go all the while, and each checkpoint is the table as it was at one moment."""
    reference = EmbeddingTable(DIM, seed=4)
    with EmbeddingTable(DIM, seed=4, path=tmp_path / "rows", memory_bytes=BUDGET, threads=2) as table:
        fill(reference)
        fill(table)
        table.save_base(tmp_path / "base")
        deltas = []
        for step in range(4):
            for one in (reference, table):
                train(one, step)
            prefetches = [table.prefetch(keys) for keys in np.split(np.roll(KEYS, 5000 * step), 4)]
            table.save(tmp_path / "full")
            deltas.append(tmp_path / f"delta-{step}")
            table.save_delta(deltas[-1])
            for prefetch in prefetches:
                assert prefetch.wait(60).in_memory >= 0
            assert_same(EmbeddingTable.load(tmp_path / "full"), reference)
            assert table.nbytes <= BUDGET
        assert_same(table, reference)
    assert_same(EmbeddingTable.load(tmp_path / "base", deltas=deltas), reference)
