"""Tables larger than memory: the same bits as in memory, the same table after the folder was opened again."""

from __future__ import annotations

import gc
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from graphbox.errors import (
    ConflictError,
    DoesNotFitError,
    FormatError,
    GraphboxError,
    NotFoundError,
    TimeLimitError,
    UsageError,
)
from graphbox.native import Int64Array
from graphbox.table import EmbeddingTable
from graphbox.table.tier import Prefetch

DIM = 256
KEYS = 25_000
BUDGET = 16 << 20
"""Of which rows get a third, and a quarter of the table has room there."""


class Pair:
    """A table with rows on SSD, and one in memory that lives the same life."""

    def __init__(self, path: Path, seed: int, **settings: object) -> None:
        self.path = path
        self.rng = np.random.default_rng(seed)
        self.tiered = EmbeddingTable(DIM, seed=1, threads=2, path=path, memory_bytes=BUDGET, **settings)  # type: ignore[arg-type]
        self.plain = EmbeddingTable(DIM, seed=1, threads=1, **settings)  # type: ignore[arg-type]

    def keys(self, count: int) -> Int64Array:
        """Some keys, half of them from a small part of all."""
        spread = self.rng.integers(0, KEYS, count)
        return np.where(self.rng.random(count) < 0.5, spread, spread // 20)

    def step(self) -> None:
        """Do one thing to both tables."""
        keys = self.keys(int(self.rng.integers(1, 1500)))
        gradients = self.rng.normal(size=(len(keys), DIM)).astype(np.float32)
        match self.rng.integers(7):
            case 0:
                create = bool(self.rng.integers(2))
                pulled = self.tiered.pull(keys, create=create)
                np.testing.assert_array_equal(pulled, self.plain.pull(keys, create=create))
            case 1 | 2 | 3:
                rows, slots = self.tiered.pull_slots(keys)
                expected, plain_slots = self.plain.pull_slots(keys)
                np.testing.assert_array_equal(rows, expected)
                if self.rng.integers(2):
                    others = self.keys(1000)
                    self.tiered.pull(others)
                    self.plain.pull(others)
                self.tiered.push_slots(slots, gradients)
                self.plain.push_slots(plain_slots, gradients)
            case 4:
                self.tiered.push(keys, gradients)
                self.plain.push(keys, gradients)
            case 5:
                assert self.tiered.erase(keys[:200]) == self.plain.erase(keys[:200])
            case _:
                np.testing.assert_array_equal(self.tiered.contains(keys), self.plain.contains(keys))
                self.tiered.prefetch(keys).wait(60)
        assert len(self.tiered) == len(self.plain)
        assert self.tiered.nbytes <= BUDGET

    def check(self) -> None:
        """Both hold the same rows, to the bit."""
        keys = np.sort(self.plain.keys())
        np.testing.assert_array_equal(np.sort(self.tiered.keys()), keys)
        np.testing.assert_array_equal(
            self.tiered.pull(keys, create=False), self.plain.pull(keys, create=False)
        )

    def reopen(self) -> None:
        """Flush, forget and open again."""
        self.tiered.close()
        self.tiered = EmbeddingTable.open(self.path, memory_bytes=BUDGET, threads=2)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rowwise_adagrad"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_are_those_of_a_table_in_memory(tmp_path: Path, optimizer: str, dtype: str) -> None:
    pair = Pair(tmp_path / "table", 7, optimizer=optimizer, dtype=dtype)
    for step in range(60):
        pair.step()
        if step % 25 == 24:
            pair.reopen()
    pair.check()
    statistics = pair.tiered.tier_statistics()
    assert statistics.hot_rows + statistics.cold_rows == len(pair.plain)
    assert statistics.cold_rows > 0
    assert 0.3 < statistics.live_share <= 1


def test_a_folder_holds_what_was_flushed(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "table", 3)
    for _ in range(20):
        pair.step()
    pair.tiered.flush()
    pair.tiered.push(np.arange(3000), np.ones((3000, DIM), np.float32))  # not flushed
    shutil.copytree(tmp_path / "table", tmp_path / "copy")  # as a killed process leaves it
    with EmbeddingTable.open(tmp_path / "copy", memory_bytes=2 * BUDGET) as pair.tiered:
        assert pair.tiered.recovery is not None
        assert pair.tiered.recovery.catalogue_damage is None
        pair.check()


def test_settings_are_those_of_the_table(tmp_path: Path) -> None:
    with EmbeddingTable(
        8, "adam", lr=0.5, betas=(0.5, 0.75), bounds=(-1, 1), seed=9, path=tmp_path / "table"
    ) as table:
        table.lr = 0.25
        table.push([1, 2], np.ones((2, 8), np.float32))
        plain = EmbeddingTable(8, "adam", lr=0.25, betas=(0.5, 0.75), bounds=(-1, 1), seed=9)
        plain.push([1, 2], np.ones((2, 8), np.float32))
    with EmbeddingTable.open(tmp_path / "table") as table:
        assert (table.dim, table.optimizer, table.lr, table.seed) == (8, "adam", 0.25, 9)
        for each in (table, plain):
            each.push([2, 3], np.ones((2, 8), np.float32))
        np.testing.assert_array_equal(table.pull([1, 2, 3]), plain.pull([1, 2, 3]))


def test_checkpoints_hold_rows_on_ssd_too(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "table", 5)
    for _ in range(25):
        pair.step()
    assert pair.tiered.tier_statistics().cold_rows > 0
    pair.tiered.save(tmp_path / "saved")
    pair.check()
    loaded = EmbeddingTable.load(tmp_path / "saved")
    assert sorted(loaded.keys()) == sorted(pair.plain.keys())
    keys = pair.plain.keys()
    gradients = np.ones((len(keys), DIM), np.float32)
    loaded.push(keys, gradients)
    pair.plain.push(keys, gradients)
    np.testing.assert_array_equal(loaded.pull(keys), pair.plain.pull(keys))


def test_checkpoints_are_loaded_into_a_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    plain = EmbeddingTable(DIM, "adam", seed=1)
    keys = rng.permutation(20_000)
    plain.push(keys, rng.normal(size=(len(keys), DIM)).astype(np.float32))
    plain.save_base(tmp_path / "base")
    plain.push(keys[:3000], rng.normal(size=(3000, DIM)).astype(np.float32))
    plain.erase(keys[2000:4000])
    plain.save_delta(tmp_path / "delta")
    with EmbeddingTable.load(
        tmp_path / "base", deltas=[tmp_path / "delta"], path=tmp_path / "table", memory_bytes=BUDGET
    ) as table:
        assert table.nbytes <= BUDGET
        assert table.tier_statistics().cold_rows > 10_000
        np.testing.assert_array_equal(np.sort(table.keys()), np.sort(plain.keys()))
        left = plain.keys()[:1000]
        for each in (table, plain):
            each.push(left, np.ones((len(left), DIM), np.float32))
        np.testing.assert_array_equal(
            table.pull(plain.keys(), create=False), plain.pull(plain.keys(), create=False)
        )
        table.save_delta(tmp_path / "next")
    half = EmbeddingTable.load(tmp_path / "base", shard=(1, 2), path=tmp_path / "half", memory_bytes=BUDGET)
    assert 9_000 < len(half) < 11_000
    half.close()


def test_items_of_all_tiers(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "table", 6)
    for _ in range(15):
        pair.step()
    chunks = list(pair.tiered.items(chunk_rows=1000))
    keys = np.concatenate([chunk for chunk, _ in chunks])
    rows = np.concatenate([rows for _, rows in chunks])
    assert sorted(keys) == sorted(pair.plain.keys())
    np.testing.assert_array_equal(rows, pair.plain.pull(keys, create=False))


def test_a_damaged_catalogue_is_made_anew(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "table", 8)
    for step in range(30):
        pair.step()
        if step % 10 == 9:
            pair.tiered.flush()
    pair.tiered.close()
    data = tmp_path / "table" / "catalogue" / "data.mdb"
    whole = data.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 8
    for damaged in (whole[: len(whole) // 2], b"", b"x" * 9000, bytes(flipped), None):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "table", tmp_path / "copy")
        copy = tmp_path / "copy" / "catalogue" / "data.mdb"
        copy.unlink() if damaged is None else copy.write_bytes(damaged)
        with EmbeddingTable.open(tmp_path / "copy", memory_bytes=2 * BUDGET) as pair.tiered:
            assert pair.tiered.recovery is not None
            if damaged != bytes(flipped):  # one that is not in use may be flipped
                assert pair.tiered.recovery.catalogue_damage
            pair.check()


def test_no_flip_in_the_catalogue_ends_the_process(tmp_path: Path) -> None:
    with EmbeddingTable(4, path=tmp_path / "table") as table:
        table.push(np.arange(100), np.ones((100, 4), np.float32))
        rows = table.pull(np.arange(100))
    data = tmp_path / "table" / "catalogue" / "data.mdb"
    whole = data.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 40):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        data.write_bytes(flipped)
        with EmbeddingTable.open(tmp_path / "table") as table:
            np.testing.assert_array_equal(table.pull(np.arange(100)), rows)


def test_damaged_segments_are_refused(tmp_path: Path) -> None:
    with EmbeddingTable(16, path=tmp_path / "table") as table:
        table.push(np.arange(1000), np.ones((1000, 16), np.float32))
    [segment] = (tmp_path / "table" / "segments").glob("*.segment")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="truncated"):
        EmbeddingTable.open(tmp_path / "table")
    damaged = bytearray(whole)
    damaged[-30] ^= 1  # in the last row
    segment.write_bytes(damaged)
    with EmbeddingTable.open(tmp_path / "table") as table:
        with pytest.raises(FormatError, match="key 999 is damaged") as error:
            table.pull(np.arange(1000))
        assert error.value.where == str(segment)
        assert len(table.pull(np.arange(900))) == 900  # the others can be used
        assert table.erase([999]) == 1
        assert len(table.pull(np.arange(1000))) == 1000
    segment.unlink(missing_ok=True)


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    with EmbeddingTable(16, path=tmp_path / "table") as table:
        table.push(np.arange(1000), np.ones((1000, 16), np.float32))
    [segment] = (tmp_path / "table" / "segments").glob("*.segment")
    segment.unlink()
    with pytest.raises(NotFoundError) as error:
        EmbeddingTable.open(tmp_path / "table")
    assert error.value.where == str(segment)


def test_a_foreign_lmdb_is_refused(tmp_path: Path) -> None:
    EmbeddingTable(16, path=tmp_path / "table").close()
    shutil.rmtree(tmp_path / "table" / "catalogue")
    environment = lmdb.open(str(tmp_path / "table" / "catalogue"))
    with environment.begin(write=True) as transaction:
        transaction.put(b"user", b"data")
    environment.close()
    with pytest.raises(FormatError, match="LMDB of something else"):
        EmbeddingTable.open(tmp_path / "table")
    environment = lmdb.open(str(tmp_path / "table" / "catalogue"))
    with environment.begin() as transaction:
        assert transaction.get(b"user") == b"data"
    environment.close()


def test_a_folder_belongs_to_one_table(tmp_path: Path) -> None:
    table = EmbeddingTable(16, path=tmp_path / "table")
    with pytest.raises(ConflictError, match="open elsewhere"):
        EmbeddingTable.open(tmp_path / "table")
    table.close()
    EmbeddingTable.open(tmp_path / "table").close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.jpeg").touch()
    with pytest.raises(UsageError, match=r"empty folder .* received one with photo\.jpeg"):
        EmbeddingTable(16, path=tmp_path / "other")
    with pytest.raises(NotFoundError, match="folder of a table"):
        EmbeddingTable.open(tmp_path / "nothing")
    with pytest.raises(UsageError, match="the table is closed"):
        table.pull([1])


def test_a_closed_folder_is_free_whoever_holds_the_table(tmp_path: Path) -> None:
    table = EmbeddingTable(DIM, path=tmp_path / "table", memory_bytes=BUDGET)
    keys = np.arange(KEYS)
    for part in np.array_split(keys, 8):
        table.pull(part)
    held = table._current
    table.close()
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as again:
        rows = again.pull(keys[:100])
        out = np.empty((100, DIM), np.float32)
        with suppress(GraphboxError):  # of no use, but it ends by no crash
            for part in np.array_split(keys, 8):
                held.pull_into(part, np.empty((len(part), DIM), np.float32), True, 1)
        np.testing.assert_array_equal(again.pull(keys[:100], out=out), rows)
    assert EmbeddingTable.open(tmp_path / "table").path is not None


def test_tables_in_memory_say_what_to_use_instead(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    for call in (table.flush, table.purge, table.tier_statistics, lambda: table.prefetch([1])):
        with pytest.raises(UsageError, match="no folder"):
            call()
    assert table.path is None
    assert table.recovery is None
    table.close()


def test_budgets_that_are_too_small(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFitError, match="needs"):
        EmbeddingTable(16, path=tmp_path / "table", memory_bytes=1 << 20)
    table = EmbeddingTable(DIM, path=tmp_path / "other", memory_bytes=BUDGET)
    with pytest.raises(DoesNotFitError, match="different keys"):
        table.pull(np.arange(KEYS))
    assert len(table) == 0
    table.pull(np.zeros(KEYS, np.int64))
    assert len(table) == 1


def test_prefetch_reads_what_there_is_room_for(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "table", 4)
    for _ in range(20):
        pair.step()
    pair.reopen()
    keys = np.sort(pair.plain.keys())[:2000]
    handle = pair.tiered.prefetch(np.concatenate([keys, keys, [-5]]))
    prefetched = handle.wait(60)
    assert handle.is_done
    assert prefetched.rows_read == 2000
    assert pair.tiered.tier_statistics().hot_rows == 2000
    pair.tiered.pull(keys)
    assert pair.tiered.tier_statistics().misses == 0
    cancelled = pair.tiered.prefetch(pair.plain.keys())
    cancelled.cancel()
    cancelled.wait(60)
    pair.check()
    running = pair.tiered.prefetch(pair.plain.keys())
    pair.reopen()  # ends it first
    assert running.is_done
    pair.check()


def test_a_prefetch_that_does_not_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    run = Prefetch._run

    def held_up(prefetch: Prefetch, *arguments: Any) -> None:
        go_on.wait()
        run(prefetch, *arguments)

    monkeypatch.setattr(Prefetch, "_run", held_up)
    with EmbeddingTable(DIM, path=tmp_path / "table", memory_bytes=BUDGET) as table:
        prefetch = table.prefetch([1, 2, 3])
        assert repr(prefetch) == "Prefetch(keys=3, reading)"
        with pytest.raises(TimeLimitError, match="waited"):
            prefetch.wait(0.01)
        go_on.set()
        assert prefetch.wait(60).in_memory == 0
        assert repr(prefetch) == "Prefetch(keys=3, Prefetched(in_memory=0, rows_read=0))"


def test_a_prefetch_that_failed_does_not_keep_the_folder(tmp_path: Path) -> None:
    table = EmbeddingTable(DIM, path=tmp_path / "table", memory_bytes=BUDGET)
    for keys in np.array_split(np.arange(KEYS), 25):
        table.pull(keys)
    table.flush()
    for segment in (tmp_path / "table" / "segments").iterdir():
        content = segment.read_bytes()
        segment.write_bytes(content[: len(content) // 3] + bytes(len(content) - len(content) // 3))
    gc.disable()  # the error and the prefetch hold each other
    try:
        with pytest.raises(FormatError):
            table.prefetch(np.arange(1000)).wait(60)
        table.close()
        EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET).close()
    finally:
        gc.enable()


def test_purge_leaves_nothing_of_erased_rows(tmp_path: Path) -> None:
    table = EmbeddingTable(16, path=tmp_path / "table")
    marks = np.arange(2000)
    table.push(marks, np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32))
    table.flush()
    erased = table.pull(marks[500:600]).copy()
    table.erase(marks[500:600])
    table.flush()

    def remnants() -> int:
        files = [file.read_bytes() for file in (tmp_path / "table" / "segments").iterdir()]
        return sum(row.tobytes() in content for row in erased for content in files)

    assert remnants() == 100
    assert table.purge() == 1
    assert remnants() == 0
    table.close()
    with EmbeddingTable.open(tmp_path / "table") as table:
        assert len(table) == 1900
        assert not table.contains(marks[500:600]).any()
        assert table.purge() == 0
