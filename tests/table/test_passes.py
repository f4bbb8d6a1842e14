"""Passes over tables on SSD, and what goes on beside them: prefetches, compaction, pulls ahead."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from graphbox import _core
from graphbox.native import Int64Array
from graphbox.table import EmbeddingTable

DIM = 256
BUDGET = 16 << 20
KEYS = 25_000
"""Of whose rows a third has room in memory."""
SECONDS = 240
"""After which something hangs; a machine may be slow."""


def ones(keys: Int64Array) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.ones((len(keys), DIM), np.float32)


def filled(path: Path, *plain: EmbeddingTable) -> EmbeddingTable:
    """Return a table whose rows are all on SSD, and do the same to tables in memory."""
    table = EmbeddingTable(DIM, seed=1, path=path, memory_bytes=BUDGET, threads=2)
    rng = np.random.default_rng(0)
    for keys in np.array_split(rng.permutation(KEYS), 20):
        for each in (table, *plain):
            each.push(keys, ones(keys))
    table.close()
    return EmbeddingTable.open(path, memory_bytes=BUDGET, threads=2)


@pytest.mark.parametrize("wanted", [1, 40, 700, 4000])
def test_passes_are_read_the_same_at_random_or_from_front_to_back(tmp_path: Path, wanted: int) -> None:
    plain = EmbeddingTable(DIM, seed=1)
    table = filled(tmp_path / "table", plain)
    keys = np.random.default_rng(wanted).choice(KEYS, wanted, replace=False)
    prefetched = table.prefetch(np.concatenate([keys, keys[:5], [KEYS + 1]])).wait(SECONDS)
    assert (prefetched.rows_read, prefetched.in_memory) == (wanted, wanted)
    again = table.prefetch(np.concatenate([keys, keys])).wait(SECONDS)
    assert (again.rows_read, again.in_memory) == (0, wanted)
    np.testing.assert_array_equal(table.pull(keys), plain.pull(keys))
    assert table.tier_statistics().misses == 0
    for each in (table, plain):
        each.push(keys, ones(keys))
    np.testing.assert_array_equal(
        table.pull(np.arange(KEYS), create=False), plain.pull(np.arange(KEYS), create=False)
    )
    table.close()


def test_passes_train_as_in_memory(tmp_path: Path) -> None:
    plain = EmbeddingTable(DIM, seed=1)
    table = filled(tmp_path / "table", plain)
    rng = np.random.default_rng(3)
    passes = [rng.integers(0, KEYS, 3000) for _ in range(8)]
    reading = table.prefetch(passes[0])
    for number, keys in enumerate(passes):
        reading.wait(SECONDS)
        if number + 1 < len(passes):
            reading = table.prefetch(passes[number + 1])
        for batch in np.array_split(keys, 4):
            for each in (table, plain):
                each.push(batch, each.pull(batch))
            assert table.nbytes <= BUDGET
    assert table.tier_statistics().misses == 0  # two passes have room
    everything = np.arange(KEYS)
    np.testing.assert_array_equal(table.pull(everything, create=False), plain.pull(everything, create=False))
    table.close()


def test_pulls_and_pushes_go_on_during_compaction(tmp_path: Path) -> None:
    plain = EmbeddingTable(DIM, seed=1)
    table = filled(tmp_path / "table", plain)
    trained, read = np.arange(0, KEYS, 2), np.arange(1, KEYS, 2)  # rows of both are in the same segments
    expected = plain.pull(read)
    stop, failures = threading.Event(), []

    def look() -> None:
        rng = np.random.default_rng(1)
        while not stop.is_set():
            chosen = rng.choice(len(read), 200)
            if not np.array_equal(table.pull(read[chosen], create=False), expected[chosen]):
                failures.append(chosen)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(2)
    for step in range(40):
        keys = rng.choice(trained, 2000, replace=False)
        for each in (table, plain):
            each.push(keys, ones(keys))
            each.erase(keys[:5])
        if step % 10 == 5:
            table.flush()
            table.save(tmp_path / f"saved-{step}")
        if step == 25:
            table.purge()
        assert table.nbytes <= BUDGET
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    _core.table_await_compaction(table._current)
    statistics = table.tier_statistics()
    assert statistics.compacted_rows > 0
    assert statistics.live_share > 0.3
    keys = np.sort(plain.keys())
    np.testing.assert_array_equal(np.sort(table.keys()), keys)
    np.testing.assert_array_equal(table.pull(keys, create=False), plain.pull(keys, create=False))
    table.close()
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as table:
        np.testing.assert_array_equal(table.pull(keys, create=False), plain.pull(keys, create=False))


def test_a_damaged_segment_is_left_alone_by_compaction(tmp_path: Path) -> None:
    table = filled(tmp_path / "table")
    segments = sorted((tmp_path / "table" / "segments").glob("*.segment"))
    content = bytearray(segments[0].read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    segments[0].write_bytes(content)
    rng = np.random.default_rng(2)
    keys = _core.segment_keys(str(segments[1]))
    others = np.setdiff1d(np.arange(KEYS), np.concatenate([_core.segment_keys(str(segments[0])), keys[:50]]))
    for _ in range(40):
        chosen = rng.choice(others, 2000, replace=False)
        table.push(chosen, ones(chosen))
    _core.table_await_compaction(table._current)
    assert table.tier_statistics().compacted_rows > 0
    table.pull(keys)
    table.close()
    assert segments[0].exists()


CHILD = """
import sys
from pathlib import Path
from tests.table.test_passes import compact_forever
compact_forever(Path(sys.argv[1]), int(sys.argv[2]))
"""


def rewrite(table: EmbeddingTable, step: int) -> None:
    """Change rows all over the segments, so that these have to be compacted."""
    rng = np.random.default_rng(step)
    for _ in range(6):
        keys = rng.choice(KEYS // 2, 1500, replace=False)
        table.push(keys, ones(keys))


def compact_forever(path: Path, first: int) -> None:
    """Change rows, flush, and say so and how many were compacted."""
    table = EmbeddingTable.open(path, memory_bytes=BUDGET, threads=2)
    for step in count(first):
        rewrite(table, step)
        table.flush()
        print(step, table.tier_statistics().compacted_rows, flush=True)


@pytest.mark.parametrize(
    "kills", [2, pytest.param(60, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]
)
def test_a_process_is_killed_while_it_compacts(tmp_path: Path, kills: int) -> None:
    plain = EmbeddingTable(DIM, seed=1)
    path = tmp_path / "table"
    filled(path, plain).close()
    draws = random.Random(kills)
    done = compacted = 0  # steps in `plain`, rows
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(done)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        ) as child:
            assert child.stdout is not None
            said = [child.stdout.readline()]
            while int(said[-1].split()[1]) == 0:
                said.append(child.stdout.readline())
            time.sleep(draws.random() * 0.1)
            child.kill()
            said += child.stdout.readlines()
            child.wait(SECONDS)
        step, rows = map(int, said[-1].split())
        compacted += rows
        with EmbeddingTable.open(path, memory_bytes=2 * BUDGET) as table:
            keys = np.arange(KEYS)
            found = table.pull(keys, create=False)
        while done <= step:
            rewrite(plain, done)
            done += 1
        if not np.array_equal(plain.pull(keys, create=False), found):  # a flush that it had no time to say
            rewrite(plain, done)
            done += 1
            np.testing.assert_array_equal(plain.pull(keys, create=False), found)
    assert compacted > 0
