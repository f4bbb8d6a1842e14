"""Embedding tables larger than their memory, the rest of the rows on SSD.

python -m benchmarks.table_tier [--quick] [--json] [--rows N] [--folder FOLDER] [--cases CASE ...]

The table has five times the rows that its budget holds. Cases and their bounds (``limit``):

- ``evict``: rows in memory, all changed, leave for SSD and the folder is flushed; ``created``: new rows drive
  others out, their making included. The bound is the sequential writing of the same bytes. What the process
  wrote, by the system's count, over the bytes of the rows is the write amplification.
- ``cold``: pulls of rows on SSD; fio's reads of 4 KiB at random places, as many in flight.
- ``pass``: pulls and pushes of Zipf 1.05 keys, the next pass prefetched while one trains. A pass has a
  fifth as many keys as the table has rows, so that the rows of two have room. The bound is the disk's:
  the different rows of a pass that were not in memory, each read as fio reads at random, or all rows of the
  table once as fio reads from front to back, whichever is shorter. Reading only stretches that hold wanted
  rows may beat both: so there is a second, of the bytes that were read. Where the time went is told beside.
- ``update``: pushes of uniform keys, ten times as many as rows have room: segments are compacted
  all the while.
- ``step``: training steps with three layers on top, beside the same with all rows in memory.

The page cache is passed by. Disks are shared: what is compared runs in turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Measurement, Rate, show, show_in_turns
from benchmarks.store import BLOCK_BYTES, HAS_FIO, LARGE_READ_BYTES, fio
from benchmarks.table_checkpoint import sequential_writes
from benchmarks.table_peers import keys_of, scattered_ids, uniform_or_zipf
from graphbox.native import thread_count
from graphbox.table import EmbeddingTable, TableEmbedding

DIM = 64
ROW_BYTES = 4 * DIM + 4
ZIPF = 1.05
LARGER = 5
"""Times the budget that the table is."""
CASES = ("evict", "cold", "pass", "update", "step")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the tables and of the measurements."""

    rows: int
    batch_size: int = 65_536
    cold_reads: int = 40_000
    """Of one pull: different rows."""
    repeats: int = 5
    layers: tuple[int, ...] = (512, 256, 1)
    features: int = 16
    """Keys of an example: a step looks ``batch_size`` keys up, so it has fewer examples."""

    fixed_bytes: int = 0
    """Of the budget, for what does not depend on the number of rows; nothing beside large tables."""

    @property
    def pass_batches(self) -> int:
        """Batches of a pass: those of two passes have room for their different rows in the budget."""
        return max(1, round(self.rows / LARGER / self.batch_size))

    @property
    def memory_bytes(self) -> int:
        """The budget: a fifth of what the whole table takes in memory, with its keys."""
        return self.rows * (ROW_BYTES + INDEX_BYTES) // LARGER + self.fixed_bytes


INDEX_BYTES = 28
QUICK = Sizes(100_000, 2048, 500, 1, fixed_bytes=16 << 20)


def written_bytes() -> int:
    """Return the bytes this process made the system write."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, number = line.partition(": ")
        if name == "write_bytes":
            return int(number)
    return 0


class Cases:
    """Cases of one size on one disk, printed as they are measured."""

    def __init__(self, folder: Path, sizes: Sizes, *, as_json: bool) -> None:
        self._folder = folder
        self._sizes = sizes
        self._as_json = as_json
        self._table: EmbeddingTable | None = None
        self._name = f"{sizes.rows}x{DIM}-in-a-fifth"

    def _show(self, case: str, unit: str, systems: dict[str, Rate]) -> None:
        show_in_turns(
            f"{case}-{self._name}",
            unit,
            systems,
            as_json=self._as_json,
            threads=thread_count(None),
            repeats=self._sizes.repeats,
        )

    def _tell(self, case: str, unit: str, numbers: list[float]) -> None:
        median, name = float(np.median(numbers)), f"{case}-{self._name}"
        low, high, threads = min(numbers), max(numbers), thread_count(None)
        measured = Measurement(name, "graphbox", threads, median, unit, low, high, len(numbers), median)
        show(measured, as_json=self._as_json)

    def _new_table(self, name: str) -> EmbeddingTable:
        return EmbeddingTable(DIM, memory_bytes=self._sizes.memory_bytes, path=self._folder / name)

    def _fill(self, table: EmbeddingTable) -> None:
        rows, step = self._sizes.rows, self._sizes.batch_size
        out = torch.empty(step, DIM)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            table.pull(keys_of(scattered_ids(rows, first, last)), out=out[: last - first])

    # Cases

    def evict(self) -> None:
        """Fill a table in memory and let its rows leave; fill one five times as large as its budget."""
        amplification = []
        sizes = self._sizes

        def evictions() -> float:
            budget = 2 * sizes.rows * (ROW_BYTES + INDEX_BYTES) + sizes.fixed_bytes
            table = EmbeddingTable(DIM, memory_bytes=budget, path=self._folder / "evict")
            self._fill(table)
            started = time.perf_counter()
            table.memory_bytes = sizes.memory_bytes
            return end(table, started)

        def creations() -> float:
            table = self._new_table("evict")
            before, started = written_bytes(), time.perf_counter()
            self._fill(table)
            rate = end(table, started)
            amplification.append((written_bytes() - before) / (sizes.rows * ROW_BYTES))
            return rate

        def end(table: EmbeddingTable, started: float) -> float:
            table.flush()
            seconds = time.perf_counter() - started
            table.close()
            shutil.rmtree(self._folder / "evict")
            return sizes.rows / seconds

        def limit() -> float:
            size = sizes.rows * ROW_BYTES
            return sequential_writes(self._folder / "limit", size) / ROW_BYTES

        systems: dict[str, Rate] = {"graphbox": evictions, "graphbox, created": creations}
        if HAS_FIO:
            systems["limit"] = limit
        self._show("evict", "rows/s", systems)
        self._tell("write-amplification", "bytes/byte", amplification)

    def _filled(self) -> EmbeddingTable:
        """Return the table that the other cases share, all of it on disk."""
        if self._table is None:
            self._table = self._new_table("table")
            self._fill(self._table)
            self._table.flush()
        return self._table

    def close(self) -> None:
        """Close the table."""
        if self._table is not None:
            self._table.close()

    def _disk_file(self) -> Path:
        """Return a file as large as the table, for fio to read."""
        path = self._folder / "limit"
        if not path.exists():
            write_file(path, self._sizes.rows * ROW_BYTES)
        return path

    def _reads_per_s(self) -> float:
        """Return how many blocks fio reads at random places in a second."""
        return fio(self._disk_file(), "randread", BLOCK_BYTES)[0]

    def cold(self) -> None:
        """Pull rows that are on SSD; those that are in memory by chance do not count."""
        table, rng = self._filled(), np.random.default_rng(1)

        def reads() -> float:
            keys = keys_of(rng.choice(self._sizes.rows, self._sizes.cold_reads, replace=False))
            out = torch.empty(len(keys), DIM)
            misses, started = table.tier_statistics().misses, time.perf_counter()
            table.pull(keys, out=out, create=False)
            seconds = time.perf_counter() - started
            return (table.tier_statistics().misses - misses) / seconds

        systems: dict[str, Rate] = {"graphbox": reads}
        if HAS_FIO:
            systems["limit"] = self._reads_per_s
        self._show("cold", "rows/s", systems)

    def passes(self) -> None:
        """Raw pulls and pushes, a pass at a time."""
        table, sizes = self._filled(), self._sizes
        out, gradients = torch.empty(sizes.batch_size, DIM), torch.full((sizes.batch_size, DIM), 0.01)
        keys = PassKeys(sizes)
        cold_rows = read_bytes = 0
        seconds: dict[str, list[float]] = {"training": [], "waiting": []}

        def train(batch: torch.Tensor) -> None:
            _, slots = table.pull_slots(batch, out=out)
            table.push_slots(slots, gradients)

        def run() -> float:
            nonlocal cold_rows, read_bytes
            keys.advance()
            before, started = table.tier_statistics(), time.perf_counter()
            rows_read, training = keys.train_pass(table, train)
            whole = time.perf_counter() - started
            after = table.tier_statistics()
            cold_rows = rows_read + after.misses - before.misses
            read_bytes = after.bytes_read - before.bytes_read
            seconds["training"].append(training)
            seconds["waiting"].append(whole - training)
            return keys.pass_keys / whole

        def limit() -> float:
            scan = sizes.rows * ROW_BYTES / self._read_bytes_per_s()
            return keys.pass_keys / max(min(cold_rows / self._reads_per_s(), scan), 1e-9)

        def limit_of_bytes() -> float:
            return keys.pass_keys / max(read_bytes / self._read_bytes_per_s(), 1e-9)

        systems: dict[str, Rate] = {"graphbox": run}
        if HAS_FIO:
            systems |= {"limit": limit, "limit of the bytes read": limit_of_bytes}
        self._show("pass", "keys/s", systems)
        for name, measured in seconds.items():
            self._tell(f"pass-{name}", "s", measured[1:])

    def _read_bytes_per_s(self) -> float:
        """Return how fast fio reads from front to back."""
        return fio(self._disk_file(), "read", LARGE_READ_BYTES)[1]

    def updates(self) -> None:
        """Change rows all over the table, so that segments are compacted while others are written."""
        table, sizes = self._filled(), self._sizes
        size = min(sizes.batch_size, sizes.rows // (4 * LARGER))
        gradients = torch.full((size, DIM), 0.01)
        rng = np.random.default_rng(3)
        before, started = table.tier_statistics(), time.perf_counter()
        longest = 0.0
        count = 10 * sizes.rows // LARGER // size
        for _ in range(count):
            keys = keys_of(rng.integers(0, sizes.rows, size))
            batch_started = time.perf_counter()
            table.push(keys, gradients)
            longest = max(longest, time.perf_counter() - batch_started)
        seconds = time.perf_counter() - started
        after = table.tier_statistics()
        evicted_bytes = (after.evicted_rows - before.evicted_rows) * ROW_BYTES
        written = after.bytes_written - before.bytes_written
        self._tell("update", "keys/s", [count * size / seconds])
        self._tell("update-longest-push", "ms", [longest * 1e3])
        self._tell("update-write-amplification", "bytes/byte", [written / evicted_bytes])
        self._tell("update-live-share", "rows/row", [after.live_share])

    def steps(self) -> None:
        """Training steps with layers on top, the table in a fifth of its memory or in all of it."""
        sizes = self._sizes
        in_memory = EmbeddingTable(DIM)
        self._fill(in_memory)
        systems: dict[str, Rate] = {}
        for name, table in (("graphbox", self._filled()), ("graphbox, all in memory", in_memory)):
            torch.manual_seed(0)
            systems[name] = Model(table, sizes).rate_of_pass
        self._show("step", "examples/s", systems)


class PassKeys:
    """Passes of batches of keys, drawn ahead."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._drawn = 0
        self._current, self._next = self._draw(), self._draw()
        self.pass_keys = sizes.pass_batches * sizes.batch_size

    def _draw(self) -> list[torch.Tensor]:
        sizes = self._sizes
        first = self._drawn
        self._drawn += sizes.pass_batches
        ids = (
            uniform_or_zipf(sizes.rows, ZIPF, sizes.batch_size, seed) for seed in range(first, self._drawn)
        )
        return [keys_of(batch) for batch in ids]

    def advance(self) -> None:
        """Draw the pass after the next one, and make that the next."""
        self._current, self._next = self._next, self._draw()

    def train_pass(self, table: EmbeddingTable, train: Callable[[torch.Tensor], None]) -> tuple[int, float]:
        """Train a pass while the next one is read; return the rows that read, and the seconds of training."""
        started = time.perf_counter()
        prefetch = table.prefetch(torch.cat(self._next)) if table.path is not None else None
        for batch in self._current:
            train(batch)
        seconds = time.perf_counter() - started
        return prefetch.wait().rows_read if prefetch is not None else 0, seconds


class Model:
    """Three layers over the rows of each example's keys."""

    def __init__(self, table: EmbeddingTable, sizes: Sizes) -> None:
        self._sizes = sizes
        self._table = table
        self._embedding = TableEmbedding(table)
        widths = (sizes.features * DIM, *sizes.layers)
        layers: list[torch.nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        self._layers = torch.nn.Sequential(*layers[:-1])
        self._optimizer = torch.optim.SGD(self._layers.parameters(), 0.01)
        self._keys = PassKeys(sizes)

    def _step(self, batch: torch.Tensor) -> None:
        rows = self._embedding(batch.view(-1, self._sizes.features))
        labels = (batch[:: self._sizes.features] % 2).abs().float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            self._layers(rows.flatten(1)).squeeze(1), labels
        )
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()

    def rate_of_pass(self) -> float:
        """Train a pass and return examples per second."""
        torch.set_num_threads(thread_count(None))
        self._keys.advance()
        started = time.perf_counter()
        self._keys.train_pass(self._table, self._step)
        return self._keys.pass_keys / self._sizes.features / (time.perf_counter() - started)


def write_file(path: Path, size_bytes: int) -> None:
    """Write a file of random bytes."""
    block = np.random.default_rng(0).bytes(1 << 24)
    with path.open("wb") as file:
        for first in range(0, size_bytes, len(block)):
            file.write(block[: size_bytes - first])
        file.flush()
        os.fsync(file.fileno())


def run(folder: Path, sizes: Sizes, chosen: set[str], *, as_json: bool) -> None:
    """Run cases in a folder of their own."""
    own = Path(tempfile.mkdtemp(dir=folder, prefix="benchmark-tier-"))
    cases = Cases(own, sizes, as_json=as_json)
    try:
        if "evict" in chosen:
            cases.evict()
        if "cold" in chosen:
            cases.cold()
        if "pass" in chosen:
            cases.passes()
        if "update" in chosen:
            cases.updates()
        if "step" in chosen:
            cases.steps()
    finally:
        cases.close()
        shutil.rmtree(own)


def main() -> None:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description="embedding tables larger than memory")
    parser.add_argument("--quick", action="store_true", help="a small table: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write, on the disk to measure")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="which to run")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes(options.rows)
    run(options.folder, sizes, set(options.cases), as_json=options.json)


if __name__ == "__main__":
    main()
