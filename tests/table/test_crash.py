"""Tables whose writers are killed, or whose disk is full: what was acknowledged opens, and is whole."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import DoesNotFitError, GraphboxError
from graphbox.table import EmbeddingTable

DIM = 16
WIDE_DIM = 512
TIGHT_BYTES = 20 << 20
SECONDS = 120
"""After which a child hangs; a machine may be slow."""

KILLS = [6, pytest.param(100, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]


def new_table(dim: int = DIM, **options: Any) -> EmbeddingTable:
    return EmbeddingTable(dim, "adagrad", seed=1, threads=2, **options)


def train(table: EmbeddingTable, step: int) -> None:
    """Train rows of old and new keys, and forget some, each step in its own way."""
    rng = np.random.default_rng(step)
    keys = rng.integers(0, 2000 + 500 * min(step, 60), 4000 if table.dim == DIM else 1000)
    table.push(keys, rng.standard_normal((len(keys), table.dim), np.float32))
    table.erase(rng.integers(0, 30_000, 40))


def rows_of(table: EmbeddingTable) -> dict[int, bytes]:
    """Return all rows of a table, to the bit."""
    return {
        key: row.tobytes()
        for keys, rows in table.items()
        for key, row in zip(keys.tolist(), rows, strict=True)
    }


def save_forever(path: Path, first: int) -> None:
    """Train, save and say so, again and again; what was saved is where it begins."""
    table = EmbeddingTable.load(path, threads=2) if path.exists() else new_table()
    print("ready", flush=True)
    for step in itertools.count(first):
        train(table, step)
        table.save(path)
        print(step, flush=True)


def save_chain_forever(folder: Path, first: int) -> None:
    """The same with a base and deltas after it; a chain that has become long is begun anew."""
    folder.mkdir(exist_ok=True)
    chain = chain_in(folder)
    table = EmbeddingTable.load(chain[0], deltas=chain[1:], threads=2) if chain else new_table()
    print("ready", flush=True)
    for step in itertools.count(first):
        train(table, step)
        if not chain or len(chain) > 8:
            shutil.rmtree(folder / "new", ignore_errors=True)
            (folder / "new").mkdir()
            chain = [folder / "new" / "base"]
            table.save_base(chain[0])
            # The chain is what is in one folder: it appears, or is replaced, at once.
            current = folder / f"chain-{step:06}"
            (folder / "new").rename(current)
            chain = [current / "base"]
        else:
            chain.append(chain[0].parent / f"delta-{len(chain):03}")
            table.save_delta(chain[-1])
        print(step, flush=True)


def chain_in(folder: Path) -> list[Path]:
    """Return the base and the deltas of the newest chain."""
    chains = sorted(folder.glob("chain-*"))
    return [chains[-1] / "base", *sorted(chains[-1].glob("delta-???"))] if chains else []


def save_until_full(path: Path) -> None:
    """Save ever more, until there is no room; tell the error, and go on with the table in memory."""
    table = new_table()
    train(table, 0)
    table.save(path)
    print("ready", flush=True)
    try:
        for step in itertools.count(1):
            train(table, step)
            table.save(path)
            print(step, flush=True)
            assert step < 1000, "the disk has room for all of it"
    except DoesNotFitError as error:
        print(f"refused: {error.message}", flush=True)
    train(table, 1000)
    table.pull([1, 2, 3])


Child = subprocess.Popen[str]


def start(function: Callable[..., None], *arguments: object, prefix: tuple[str, ...] = ()) -> Child:
    """Run a function of this module in a process of its own."""
    program = f"""
import sys
from pathlib import Path
from tests.table import test_crash
kinds = [Path, int]
test_crash.{function.__name__}(*(kind(text) for kind, text in zip(kinds, sys.argv[1:])))
"""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def read_line(child: Child) -> str:
    assert child.stdout is not None
    assert child.stderr is not None
    line = child.stdout.readline()
    assert line, child.stderr.read()
    return line.strip()


def killed(function: Callable[..., None], path: Path, done: int, delays: random.Random) -> int:
    """Run a child that begins at step ``done``, kill it, and return the step it acknowledged last, plus 1."""
    with start(function, path, done) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert read_line(child) == "ready"
        steps = [read_line(child) for _ in range(delays.randrange(4))]
        time.sleep(delays.uniform(0, 0.03))
        assert child.poll() is None, child.stderr.read()
        child.send_signal(signal.SIGKILL)
        steps += child.stdout.read().split()
        child.wait(SECONDS)
    return int(steps[-1]) + 1 if steps else done


class Reference:
    """A table to which nothing but the steps happens."""

    def __init__(self, dim: int = DIM) -> None:
        self._table = new_table(dim)
        self.steps = 0

    def rows_after(self, steps: int) -> dict[int, bytes]:
        for step in range(self.steps, steps):
            train(self._table, step)
        self.steps = max(steps, self.steps)
        return rows_of(self._table)


@pytest.mark.parametrize("kills", KILLS)
def test_killed_saves_leave_a_checkpoint(kills: int, tmp_path: Path) -> None:
    delays = random.Random(kills)
    path = tmp_path / "table"
    reference = Reference()
    done = unfinished = 0
    for _ in range(kills):
        done = killed(save_forever, path, done, delays)
        unfinished += len(list(tmp_path.iterdir())) > 1
        if not path.exists():
            assert done == 0
            continue
        rows = rows_of(EmbeddingTable.load(path))
        if rows != reference.rows_after(done):
            done += 1  # it was saved, and the kill came before it was said
            assert rows == reference.rows_after(done)
    assert done > kills
    if kills > 50:
        assert unfinished
    EmbeddingTable.load(path).save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["table"]  # what killed saves left is gone


@pytest.mark.parametrize("kills", KILLS)
def test_killed_deltas_leave_a_chain(kills: int, tmp_path: Path) -> None:
    delays = random.Random(kills)
    folder = tmp_path / "chains"
    reference = Reference()
    done = 0
    for _ in range(kills):
        done = killed(save_chain_forever, folder, done, delays)
        chain = chain_in(folder)
        if not chain:
            assert done == 0
            continue
        rows = rows_of(EmbeddingTable.load(chain[0], deltas=chain[1:]))
        if rows != reference.rows_after(done):
            done += 1
            assert rows == reference.rows_after(done)
    assert done > kills


def test_damaged_folders_are_refused_or_right(tmp_path: Path) -> None:
    """Bytes of any file change, or are lost: what is still read is what was written."""
    folder = tmp_path / "table"
    reference = Reference(WIDE_DIM)
    with new_table(WIDE_DIM, path=folder, memory_bytes=TIGHT_BYTES) as table:
        for step in range(8):
            train(table, step)
    rows = reference.rows_after(8)
    files = [file for file in folder.rglob("*") if file.is_file() and file.stat().st_size]
    rng = random.Random(0)
    refused = 0
    for _ in range(40):
        damaged = tmp_path / "damaged"
        shutil.copytree(folder, damaged)
        file = damaged / rng.choice(files).relative_to(folder)
        content = bytearray(file.read_bytes())
        if rng.random() < 0.5:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        else:
            content = content[: rng.randrange(len(content))]
        file.write_bytes(content)
        try:
            with EmbeddingTable.open(damaged, memory_bytes=TIGHT_BYTES, threads=2) as table:
                assert rows_of(table) == rows
        except GraphboxError as error:
            if str(damaged) not in str(error):
                raise
            refused += 1
        shutil.rmtree(damaged)
    assert refused


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    """A disk of its own, in memory, that fills up."""
    mount = shutil.which("mount")
    unshare = shutil.which("unshare")
    if mount is None or unshare is None:
        pytest.skip("needs mount and unshare (util-linux)")
    disk = tmp_path / "disk"
    disk.mkdir()
    # Others do not see the disk: what is left of it is copied to where they do.
    command = 'mount -t tmpfs -o size=3m tmpfs "$0" && "$@" && cp -r "$0"/. "$0"-copy'
    prefix = (unshare, "-rm", "sh", "-c", command, str(disk))
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a disk may not be mounted here")
    with start(save_until_full, disk / "table", prefix=prefix) as child:
        output, errors = child.communicate(timeout=SECONDS)
    assert errors == ""
    *lines, refusal = output.splitlines()
    assert refusal.startswith("refused: ")
    table = EmbeddingTable.load(tmp_path / "disk-copy" / "table")
    assert rows_of(table) == Reference().rows_after(len(lines))  # step 0 printed "ready"
    assert [entry.name for entry in (tmp_path / "disk-copy").iterdir()] == ["table"]


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    table = new_table()
    train(table, 0)
    before = rows_of(table)
    with pytest.raises(GraphboxError, match="/proc/graphbox-table"):
        table.save("/proc/graphbox-table")
    assert rows_of(table) == before
