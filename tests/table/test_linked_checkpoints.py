"""Checkpoints of tables on SSD have the tables' own segments, and are of one moment while all goes on."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import FormatError
from graphbox.native import Int64Array
from graphbox.table import EmbeddingTable, ServingTable
from graphbox.table.manifest import LIVE, read_manifest
from tests.table.test_checkpoint_tier import BUDGET, DIM, KEYS, assert_same, fill, train

BLOCK = 1500
BLOCKS = len(KEYS) // BLOCK


def counting_table(path: Path) -> EmbeddingTable:
    """Return a table on SSD whose rows count how often they were pushed."""
    return EmbeddingTable(DIM, "sgd", lr=1.0, init_scale=0.0, path=path, memory_bytes=BUDGET, threads=2)


def block(number: int) -> Int64Array:
    return KEYS[number % BLOCKS * BLOCK :][:BLOCK]


def push_block(table: EmbeddingTable, number: int) -> None:
    table.push(block(number), np.full((BLOCK, DIM), -1.0, np.float32))


def pushes_of(table: EmbeddingTable | ServingTable) -> int:
    """Return after how many pushes, block after block, the table was as it is; fail if it never was."""
    counts = []
    for number in range(BLOCKS):
        rows = table.pull(block(number))
        assert rows.min() == rows.max()
        counts.append(int(rows[0, 0]))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= 1
    return sum(counts)


@contextmanager
def going_on(work: list[threading.Thread], stop: threading.Event) -> Iterator[None]:
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in work:
            thread.join()


def test_segments_are_linked_and_load_anywhere(tmp_path: Path) -> None:
    reference = EmbeddingTable(DIM, seed=4)
    path = tmp_path / "table"
    with EmbeddingTable(DIM, seed=4, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        for one in (reference, table):
            fill(one)
        table.save(path)
        parts = [path / part.name for part in read_manifest(path).parts]
        assert parts
        assert all(part.stat().st_nlink == 2 for part in parts)
        written = table.tier_statistics().bytes_written
        table.save(path)
        assert table.tier_statistics().bytes_written == written  # nothing changed, nothing is written
        for one in (reference, table):
            for step in range(3):
                train(one, step)
        table.save(path)
        manifest = read_manifest(path)
        assert manifest.rows == len(reference)
        assert any(part.live_rows < part.rows for part in manifest.parts)
        train(table, 9, steps=40)  # rewrites segments that the checkpoint has
        table.flush()
        table.purge()
    shutil.rmtree(tmp_path / "rows")
    in_memory = EmbeddingTable.load(path)
    assert_same(in_memory, reference)
    for one in (reference, in_memory):  # state of the optimizer, too
        train(one, 5)
    assert_same(in_memory, reference)
    reference = EmbeddingTable.load(path)
    for budget in (13 << 20, 64 << 20):
        with EmbeddingTable.load(path, path=tmp_path / f"{budget}", memory_bytes=budget) as other:
            assert other.nbytes <= budget
            assert_same(other, reference)
    shards = [EmbeddingTable.load(path, shard=(i, 3)) for i in range(3)]
    assert sum(len(shard) for shard in shards) == len(reference)
    for keys in np.split(KEYS, 20):
        rows = np.zeros((len(keys), DIM), np.float32)
        for shard in shards:
            rows += shard.pull(keys, create=False) * shard.contains(keys)[:, None]
        there = reference.contains(keys)
        assert np.array_equal(rows[there], reference.pull(keys[there]))
    assert_same(ServingTable.open(path), reference)


def test_a_save_is_of_one_moment_while_all_goes_on(tmp_path: Path) -> None:
    stop = threading.Event()
    wrong: list[str] = []
    with counting_table(tmp_path / "rows") as table:
        for number in range(BLOCKS):
            push_block(table, number)
        done = [BLOCKS]

        def push() -> None:
            while not stop.is_set():
                push_block(table, done[0])
                done[0] += 1

        def pull(create: bool) -> None:
            random = np.random.default_rng(int(create))
            while not stop.is_set():
                number = int(random.integers(BLOCKS))
                least = (done[0] - 1 - number) // BLOCKS + 1
                rows = table.pull(block(number)[:200], create=create)
                most = (done[0] - number) // BLOCKS + 1
                counts = rows[:, 0]  # each row is of one push, all are of some while the pull went on
                if not ((rows == counts[:, None]).all() and least <= counts.min() and counts.max() <= most):
                    wrong.append(f"block {number}: {least} <= {rows.min()} to {rows.max()} <= {most}")

        work = [threading.Thread(target=push)]
        work += [threading.Thread(target=pull, args=(create,)) for create in (False, True)]
        with going_on(work, stop):
            saved: list[tuple[int, int, int]] = []
            for number in range(4):
                before = done[0]
                table.save(tmp_path / f"{number}")
                after = done[0]
                saved.append((before, pushes_of(EmbeddingTable.load(tmp_path / f"{number}")), after + 1))
            before = done[0]
            table.save_base(tmp_path / "base")
            while done[0] < before + BLOCKS // 2:
                threading.Event().wait(0.01)
            table.save_delta(tmp_path / "delta")
            chain = pushes_of(EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"]))
            saved.append((before + BLOCKS // 2, chain, done[0] + 1))
        assert not wrong
        assert all(least <= pushes <= most for least, pushes, most in saved)
        assert pushes_of(table) == done[0]


def test_erased_keys_are_not_in_what_is_saved_then(tmp_path: Path) -> None:
    with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        fill(table)
        table.save_base(tmp_path / "before")
        table.flush()
        table.erase(KEYS[:3])
        table.save(tmp_path / "after")
        assert EmbeddingTable.load(tmp_path / "before").contains(KEYS[:3]).all()
        assert not EmbeddingTable.load(tmp_path / "after").contains(KEYS[:3]).any()
        table.save_delta(tmp_path / "delta")
        assert [part.erased for part in read_manifest(tmp_path / "delta").parts] == [True]
        loaded = EmbeddingTable.load(tmp_path / "before", deltas=[tmp_path / "delta"])
        assert len(loaded) == len(KEYS) - 3


def test_where_links_are_impossible_segments_are_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = Path("/dev/shm")  # noqa: S108 - another file system, which tmp_path cannot be
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system")
    other = Path(tempfile.mkdtemp(dir=elsewhere))
    try:
        with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
            fill(table)
            with caplog.at_level("INFO"):
                table.save(other / "table")
            assert "cannot link" in caplog.text
            for part in read_manifest(other / "table").parts:
                assert (other / "table" / part.name).stat().st_nlink == 1
            assert_same(EmbeddingTable.load(other / "table"), table)
    finally:
        shutil.rmtree(other)


def test_damage_of_what_says_which_rows_count(tmp_path: Path) -> None:
    with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        fill(table)
        train(table, 1)
        table.push(KEYS[:500], np.ones((500, DIM), np.float32))
        table.save(tmp_path / "table")
        expected = len(table)
    bits = tmp_path / "table" / LIVE
    sound = bits.read_bytes()
    bits.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
    with pytest.raises(FormatError) as caught:
        EmbeddingTable.load(tmp_path / "table")
    assert caught.value.where == str(bits)
    bits.write_bytes(sound)
    assert len(EmbeddingTable.load(tmp_path / "table")) == expected


def test_deltas_of_rows_on_ssd_hold_what_changed(tmp_path: Path) -> None:
    with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        fill(table)
        table.save_base(tmp_path / "base")
        table.push(KEYS[::100], np.ones((len(KEYS) // 100, DIM), np.float32))
        for keys in np.split(KEYS, 20):  # others come and go
            table.pull(keys)
        table.save_delta(tmp_path / "delta")
        assert read_manifest(tmp_path / "delta").rows == len(KEYS) // 100

        def size(name: str) -> int:
            return sum(file.stat().st_size for file in (tmp_path / name).iterdir())

        assert size("delta") <= 0.02 * size("base")


def test_rows_that_are_moved_are_in_no_delta(tmp_path: Path) -> None:
    """Segments are rewritten all the time: rows that only moved did not change."""
    with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        fill(table)
        table.save_base(tmp_path / "base")
        few = KEYS[: len(KEYS) // 10]
        table.erase(KEYS[1::2])
        for _ in range(8):
            for keys in np.split(few[::2], 4):
                table.push(keys, np.ones((len(keys), DIM), np.float32))
            table.flush()
            table.purge()
        assert table.tier_statistics().compacted_rows > len(KEYS) // 4
        table.save_delta(tmp_path / "delta")
        assert read_manifest(tmp_path / "delta").rows == len(few) // 2
        assert_same(EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"]), table)


def test_going_through_the_rows(tmp_path: Path) -> None:
    with EmbeddingTable(DIM, path=tmp_path / "rows", memory_bytes=BUDGET) as table:
        fill(table)
        train(table, 2)
        given = np.concatenate([keys for keys, _ in table.items(chunk_rows=777)])
        assert np.array_equal(np.sort(given), np.sort(table.keys()))
        random = np.random.default_rng(0)
        stays = np.setdiff1d(KEYS[table.contains(KEYS)], KEYS[:2000])
        seen: list[Int64Array] = []
        for keys, rows in table.items(chunk_rows=1024):
            seen.append(keys)
            assert np.array_equal(rows, table.pull(keys, create=False))
            table.pull(random.choice(stays, 500))
            table.push(random.choice(stays, 200), np.ones((200, DIM), np.float32))
            table.erase(random.integers(0, 2000, 20))
        given = np.concatenate(seen)
        assert len(np.unique(given)) == len(given)
        assert np.isin(stays, given).all()


_SAVER = """
import os
import sys
from pathlib import Path
from tests.table.test_linked_checkpoints import BLOCKS, counting_table, push_block
folder = Path(sys.argv[1])
table = counting_table(folder / "rows")
for number in range(BLOCKS):
    push_block(table, number)
print("ready", flush=True)
while True:
    for _ in range(3):
        number += 1
        push_block(table, number)
    table.save(folder / "checkpoint")
    print(number + 1, flush=True)
"""

KILLS = [4, pytest.param(60, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]


@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_save_leaves_the_last_one(tmp_path: Path, kills: int) -> None:
    import subprocess
    import sys

    random = np.random.default_rng(kills)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for _ in range(kills):
        shutil.rmtree(tmp_path / "rows", ignore_errors=True)
        shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
        with subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "ready"
            said = [child.stdout.readline() for _ in range(int(random.integers(1, 4)))]
            threading.Event().wait(float(random.uniform(0, 0.2)))
            child.kill()
            said += child.stdout.readlines()
        acknowledged = int(said[-1])
        saved = pushes_of(EmbeddingTable.load(tmp_path / "checkpoint"))
        assert saved in (acknowledged, acknowledged + 3)
