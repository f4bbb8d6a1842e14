"""Tables on SSD whose process is killed, or whose disk is full: nothing that was flushed is lost."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import DoesNotFitError, GraphboxError
from graphbox.table import EmbeddingTable

DIM = 256
BUDGET = 16 << 20
SECONDS = 120
"""After which a child hangs; a machine may be slow."""

CHILD = """
import sys
from pathlib import Path
from tests.table.test_tier_crash import flush_forever
flush_forever(Path(sys.argv[1]), int(sys.argv[2]))
"""

KILLS = [5, pytest.param(100, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]


def train(table: EmbeddingTable, step: int) -> None:
    """Train rows of old and new keys, and forget some, each step in its own way."""
    rng = np.random.default_rng(step)
    for _ in range(3):
        keys = rng.integers(0, 4000 + 1000 * min(step, 12), 2000)
        table.push(keys, rng.normal(size=(len(keys), DIM)).astype(np.float32))
    table.erase(rng.integers(0, 16_000, 300))


def rows_of(table: EmbeddingTable) -> dict[int, bytes]:
    """Return all rows of a table, to the bit."""
    keys = np.sort(table.keys())
    rows = table.pull(keys, create=False)
    return {key: row.tobytes() for key, row in zip(keys.tolist(), rows, strict=True)}


def flush_forever(path: Path, first: int) -> None:
    """Train, flush and say so, again and again; what was flushed is where it begins."""
    if path.exists():
        table = EmbeddingTable.open(path, memory_bytes=BUDGET, threads=2)
    else:
        table = EmbeddingTable(DIM, seed=1, path=path, memory_bytes=BUDGET, threads=2)
    print("ready", flush=True)
    for step in count(first):
        train(table, step)
        table.flush()
        print(step, flush=True)


def lines_until_killed(path: Path, step: int, draws: random.Random) -> list[str]:
    """Let another process flush some steps and a part of one more; return what it said."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(step)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        said = [child.stdout.readline() for _ in range(draws.randint(0, 3))]
        time.sleep(draws.random() * 0.15)
        child.kill()
        said += child.stdout.readlines()
        child.wait(SECONDS)
    return said


@pytest.mark.parametrize("kills", KILLS)
def test_killed_tables_are_as_they_were_flushed(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "table"
    draws = random.Random(kills)
    plain = EmbeddingTable(DIM, seed=1, threads=1)
    next_step = 0
    for _ in range(kills):
        said = lines_until_killed(path, next_step, draws)
        with EmbeddingTable.open(path, memory_bytes=2 * BUDGET) as table:
            assert table.recovery is not None
            assert table.recovery.catalogue_damage is None
            found = rows_of(table)
        acknowledged = int(said[-1]) if said else None
        while rows_of(plain) != found:  # behind, by flushes that were said or at most the one that was not
            assert acknowledged is None or next_step <= acknowledged + 1
            assert next_step < 4 * kills + 40
            train(plain, next_step)
            next_step += 1
        assert acknowledged is None or next_step > acknowledged
        files = {file.name for file in (path / "segments").iterdir()}
        assert not any(".tmp-" in name for name in files)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file become larger: what a full disk does to large ones."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_table_usable(tmp_path: Path) -> None:
    table = EmbeddingTable(DIM, seed=1, path=tmp_path / "table", memory_bytes=BUDGET, threads=1)
    plain = EmbeddingTable(DIM, seed=1, threads=1)
    for step in range(6):
        train(table, step)
        train(plain, step)
    table.flush()
    before = rows_of(plain)
    with files_of_at_most(20_000):
        refusals: list[str] = []
        for step in range(30):
            keys = np.arange(step * 500, (step + 1) * 500) + 100_000
            try:
                table.pull(keys)
            except DoesNotFitError as error:
                refusals.append(str(error))
                assert not table.contains(keys).any()
            else:
                plain.pull(keys)
            assert table.nbytes <= BUDGET
        assert len(refusals) > 5
        assert all(".segment" in refusal for refusal in refusals)
        assert rows_of(table) == rows_of(plain)
        with pytest.raises(GraphboxError):
            table.flush()
        keys = np.fromiter(before, np.int64)[:100]
        assert {
            int(key): row.tobytes() for key, row in zip(keys, table.pull(keys, create=False), strict=True)
        } == {int(key): before[int(key)] for key in keys}
    for step in range(6, 12):  # there is room again
        train(table, step)
        train(plain, step)
    table.close()
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as table:
        assert rows_of(table) == rows_of(plain)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(GraphboxError, match="folder"):
        EmbeddingTable(16, path=tmp_path / "locked" / "table")
