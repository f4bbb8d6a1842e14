"""Saving embedding tables, and loading them when nothing of the files is in memory.

python -m benchmarks.table_checkpoint [--quick] [--json] [--rows N] [--folder FOLDER] [--cases CASE ...]

- ``whole``: saving and loading all rows. Bytes are those of the checkpoint on disk. The bounds (``limit``)
  are what fio writes, and makes durable, to a new file of that size, and what it reads of the peer's file
  from front to back (where fio is installed). The peer is ``torch.save`` of the same rows, with fsync, and
  ``torch.load``.
- ``delta``: of one row in a hundred, beside saves of the whole table: how often, and how large.
- ``pulls``: how long lookups of 256 keys take alone, and while the table is saved again and again; of a table
  in memory, and of one of which most is on SSD.
- ``serving``: the memory that a table held for serving takes, for each of its rows.

Disks are shared: systems run in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from benchmarks.measure import Measurement, Rate, rate_of, show, show_in_turns
from benchmarks.store import HAS_FIO, LARGE_READ_BYTES, drop_cached, fio
from benchmarks.table import DIM, filled, first_writes, in_a_process, resident_bytes
from benchmarks.table_peers import keys_of, random_rows
from graphbox.native import release_buffers, thread_count
from graphbox.table import EmbeddingTable, ServingTable
from graphbox.table.manifest import ServingValues

CASES = ("whole", "delta", "pulls", "serving")
REPEATS = 5
PULL_SECONDS = 2.0


def files_of(path: Path) -> list[Path]:
    """Return the file, or all files of the folder."""
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files of a folder."""
    return sum(file.stat().st_size for file in files_of(path))


def sequential_writes(path: Path, size_bytes: int) -> float:
    """Return the bytes per second that fio writes to a new file, which is on disk at the end."""
    command = [
        "fio",
        "--name=limit",
        f"--filename={path}",
        f"--size={size_bytes}",
        "--rw=write",
        f"--bs={LARGE_READ_BYTES}",
        "--iodepth=16",
        "--direct=1",
        "--ioengine=io_uring",
        "--end_fsync=1",
        "--output-format=json",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    path.unlink()
    return float(json.loads(output[output.index("{") :])["jobs"][0]["write"]["bw_bytes"])


class Checkpoints:
    """Checkpoints of one table in one folder."""

    def __init__(self, folder: Path, rows: int, repeats: int, *, as_json: bool) -> None:
        self._folder = folder
        self._table = filled(rows)
        self._table.threads = thread_count(None)
        self._rows = rows
        self._repeats = repeats
        self._as_json = as_json

    def _show(self, case: str, systems: dict[str, Rate], unit: str = "bytes/s") -> None:
        show_in_turns(
            f"{case}-{self._rows}x{DIM}",
            unit,
            systems,
            as_json=self._as_json,
            threads=thread_count(None),
            repeats=self._repeats,
        )

    def save_and_load(self) -> None:
        """The whole table."""
        path, peer_path = self._folder / "table", self._folder / "rows.pt"
        weights = {"rows": random_rows(self._rows, DIM)}

        def save() -> float:
            self._table.save(path)
            return bytes_of(path)

        def save_peer() -> float:
            with peer_path.open("wb") as file:
                torch.save(weights, file)
                file.flush()
                os.fsync(file.fileno())
            return bytes_of(peer_path)

        def load() -> float:
            EmbeddingTable.load(path)
            return bytes_of(path)

        def load_peer() -> float:
            torch.load(peer_path, weights_only=True)
            return bytes_of(peer_path)

        size = int(save())
        systems = {
            "graphbox": anew(path, save),
            f"torch {torch.__version__}": anew(peer_path, save_peer),
            "graphbox, replacing the last one": rate_of(save),
        }
        if HAS_FIO:
            systems["limit"] = lambda: sequential_writes(self._folder / "limit", size)
        self._show("save", systems)
        weights.clear()
        systems = {
            "graphbox": cold(path, load),
            f"torch {torch.__version__}": cold(peer_path, load_peer),
        }
        if HAS_FIO:
            systems["limit"] = lambda: fio(peer_path, "read", LARGE_READ_BYTES)[1]
        self._show("load-cold", systems)
        shutil.rmtree(path)
        peer_path.unlink()

    def delta(self) -> None:
        """Deltas of one row in a hundred beside saves of the whole table: how often, and how large."""
        count = max(self._rows // 100, 1)
        folders = itertools.count()
        rng = np.random.default_rng(0)
        sizes: dict[str, int] = {}
        whole = "graphbox, whole table"

        def saves(name: str, save: Callable[[Path], None]) -> Rate:
            def rate() -> float:
                if name != whole:  # else there are two in a hundred until the next delta
                    touched = keys_of(rng.choice(self._rows, count, replace=False))
                    self._table.push(touched, torch.full((count, DIM), 0.01))
                path = self._folder / f"{next(folders)}"
                started = time.perf_counter()
                save(path)
                seconds = time.perf_counter() - started
                sizes[name] = bytes_of(path)
                remove(path)
                return 1 / seconds

            return rate

        save_serving = partial(self._table.save_delta, serving="int8")
        self._table.save_base(self._folder / "base")
        systems = {whole: saves(whole, self._table.save)}
        systems["graphbox"] = saves("graphbox", self._table.save_delta)
        self._show("delta-of-1%", systems, "saves/s")
        self._table.save_base(self._folder / "serving", serving="int8")
        serving = "graphbox, int8 for serving"
        self._show("delta-of-1%-for-serving", {serving: saves(serving, save_serving)}, "saves/s")
        for name, size in sizes.items():
            case = f"bytes-of-delta-of-1%-{self._rows}x{DIM}"
            threads = thread_count(None)
            measured = Measurement(case, name, threads, size, "bytes", size, size, self._repeats, size)
            show(measured, as_json=self._as_json)
        for name in ("base", "serving"):
            shutil.rmtree(self._folder / name)


def pulls(folder: Path, rows: int, *, as_json: bool) -> None:
    """Lookups alone and beside saves: the time of the one in the middle, and of the slowest."""
    rng = np.random.default_rng(0)  # other keys each time: those pulled before are in memory
    on_ssd: dict[str, Any] = {"path": folder / "table", "memory_bytes": rows * 130 + (16 << 20)}
    for where, options in (("memory", {}), ("ssd", on_ssd)):
        with filled(rows, **options) as table:
            seconds = {
                "graphbox": pull_seconds(table, rng, rows, lambda: time.sleep(PULL_SECONDS)),
                "graphbox, beside saves": pull_seconds(
                    table, rng, rows, partial(save_again_and_again, table, folder)
                ),
            }
        for system, times in seconds.items():
            for what, part in (("median", 0.5), ("slowest", 1.0)):
                time_ms = 1000 * float(np.quantile(times, part))
                case = f"pull-of-256-{what}-{where}-{rows}x{DIM}"
                measured = Measurement(case, system, 1, time_ms, "ms", time_ms, time_ms, len(times), time_ms)
                show(measured, as_json=as_json)
        for path in folder.iterdir():
            remove(path)


def save_again_and_again(table: EmbeddingTable, folder: Path) -> None:
    """Save a table as long as lookups are timed, once at least."""
    end = time.perf_counter() + PULL_SECONDS
    while True:
        table.save(folder / "saved")
        if time.perf_counter() > end:
            return


def pull_seconds(
    table: EmbeddingTable, rng: np.random.Generator, rows: int, meanwhile: Callable[[], None]
) -> list[float]:
    """Return how long lookups of random keys took, one every few milliseconds, until something ends."""
    seconds: list[float] = []
    out = torch.empty(256, DIM)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(meanwhile)
        while not running.done():
            keys = keys_of(rng.choice(rows, 256))
            started = time.perf_counter()
            table.pull(keys, out=out)
            seconds.append(time.perf_counter() - started)
            time.sleep(0.002)
        running.result()
    return seconds


def serving(folder: Path, rows: int, *, as_json: bool) -> None:
    """Bytes that a process gains by a row held for serving, each in a process of its own."""
    with filled(rows) as table:
        table.save(folder / "table")
    for dtype in get_args(ServingValues):
        gained = in_a_process(serving_bytes, folder / "table", dtype) / rows
        case = f"memory-for-serving-{rows}x{DIM}-{dtype}"
        show(
            Measurement(case, "graphbox", 1, gained, "bytes/row", gained, gained, 1, gained), as_json=as_json
        )
    remove(folder / "table")


def serving_bytes(path: Path, dtype: ServingValues) -> float:
    """Return what a process gains by a table for serving."""
    ServingTable.open(path, dtype=dtype)  # what the first one leaves is no row's
    release_buffers()
    before = resident_bytes()
    table = ServingTable.open(path, dtype=dtype)
    release_buffers()
    gained = resident_bytes() - before
    del table
    return gained


def anew(path: Path, work: Callable[[], float]) -> Rate:
    """Return what times ``work`` when nothing is at the path."""
    timed = rate_of(work)

    def rate() -> float:
        remove(path)
        return timed()

    return rate


def remove(path: Path) -> None:
    """Remove a file or folder, so that nothing of that is left to be done by the disk."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    os.sync()


def cold(path: Path, work: Callable[[], float]) -> Rate:
    """Return what times ``work`` when the page cache holds nothing of the files.

    A virtual machine gives memory back while it reads files for a limit, and takes long to get it again; so
    there is free memory before each run.
    """
    timed = rate_of(work)

    def rate() -> float:
        first_writes(2 * bytes_of(path), 1)
        for file in files_of(path):
            drop_cached(file)
        return timed()

    return rate


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="checkpoints of an embedding table")
    parser.add_argument("--quick", action="store_true", help="a small table: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write, on the disk to measure")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="which to run")
    options = parser.parse_args()
    run(
        options.folder,
        20_000 if options.quick else options.rows,
        1 if options.quick else REPEATS,
        set(options.cases),
        as_json=options.json,
    )


def run(folder: Path, rows: int, repeats: int, cases: set[str], *, as_json: bool) -> None:
    """Run cases in a folder of their own."""
    own = Path(tempfile.mkdtemp(dir=folder, prefix="benchmark-checkpoint-"))
    try:
        if {"whole", "delta"} & cases:
            checkpoints = Checkpoints(own, rows, repeats, as_json=as_json)
            if "whole" in cases:
                checkpoints.save_and_load()
            if "delta" in cases:
                checkpoints.delta()
            del checkpoints
        if "pulls" in cases:
            pulls(own, rows, as_json=as_json)
        if "serving" in cases:
            serving(own, rows, as_json=as_json)
    finally:
        shutil.rmtree(own)


if __name__ == "__main__":
    main()
