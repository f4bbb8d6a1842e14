"""Rows per second that an embedding table looks up, trains and grows by, and the memory it takes.

python -m benchmarks.table [--quick] [--json] [--rows N] [--cases CASE ...]

Everything is called from Python on torch tensors, rows come into tensors of the caller (``out=``). The bounds
(``limit``) are

- of lookups, random reads of memory: a line of the index and a row, nothing in a cache (skewed keys find
  frequent rows in caches, and may pass it);
- of training, those of the lookup and the row once more;
- of growth, the first writing of as much memory as values and state take, by as many threads.

Peers: torch's EmbeddingBag with sparse gradients, the same behind a Python dictionary, FBGEMM. All but the
dictionary have dense row numbers and look nothing up. Machines are shared: what is compared runs in turns.
Beside it: benchmarks/table_checkpoint.py, and benchmarks/table_tier.py of tables larger than memory.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from benchmarks.measure import RANDOM_READ_MEMORY_BYTES, Measurement, Rate, rate_of, show, show_in_turns
from benchmarks.table_peers import (
    HAS_FBGEMM,
    Fbgemm,
    Peer,
    TorchDense,
    TorchDictionary,
    Workload,
    keys_of,
    random_rows,
    scattered_ids,
)
from graphbox import _core
from graphbox.native import release_buffers
from graphbox.table import EmbeddingTable, TableEmbedding, TableEmbeddingBag
from graphbox.table.arguments import Optimizer

DIM = 64
ZIPFS = (0.0, 1.05)
BAG_KEYS = 8
THREADS = (1, 2)
OPTIMIZERS: tuple[Optimizer, ...] = ("rowwise_adagrad", "sgd")
STATE_BYTES = {"sgd": 0, "rowwise_adagrad": 4, "adam": 8 * DIM}
CASES = ("memory", "lookup", "train", "small", "large-batch", "autograd", "bags", "growth")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the tables and of the measurements."""

    rows: int
    small_rows: int = 1_000_000
    """Of the cases with peers that take many times the memory, or are many times slower."""
    batch_size: int = 65_536
    large_batch_size: int = 1 << 20
    batches: int = 32
    """Of a run of what is fast; each has other keys."""
    repeats: int = 5
    probe_bytes: int = RANDOM_READ_MEMORY_BYTES
    """Memory of which the limit reads, and how many bytes it reads in all."""


QUICK = Sizes(20_000, 10_000, 1024, 4096, batches=8, repeats=1, probe_bytes=1 << 22)


Systems = Mapping[str | tuple[str, int], Rate]
Result = TypeVar("Result")


def filled(rows: int, optimizer: Optimizer = "rowwise_adagrad", **options: Any) -> EmbeddingTable:
    """Return a table of the ids 0 to ``rows``, in scattered order."""
    table = EmbeddingTable(DIM, optimizer, threads=1, **options)
    step = 1 << 16
    out = torch.empty(step, DIM)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        table.pull(keys_of(scattered_ids(rows, first, last)), out=out[: last - first])
    return table


class Ours:
    """Our table as the peers' protocol has it."""

    def __init__(self, table: EmbeddingTable, batch_size: int) -> None:
        self.name, self.slowness = "graphbox", 1
        self._table = table
        self._out = torch.empty(batch_size, DIM)

    def lookup(self, workload: Workload, batch: int) -> None:
        """Look a batch up."""
        self._table.pull(workload.keys[batch], out=self._out)

    def train(self, workload: Workload, batch: int) -> None:
        """Look a batch up and apply its gradients, each key looked up once."""
        _, slots = self._table.pull_slots(workload.keys[batch], out=self._out)
        self._table.push_slots(slots, workload.gradients)

    def use_threads(self, threads: int) -> None:
        """Change how many threads it has."""
        self._table.threads = threads


class BagModule(Ours):
    """The same by our torch module."""

    def __init__(self, table: EmbeddingTable, batch_size: int) -> None:
        super().__init__(table, batch_size)
        self._module = TableEmbeddingBag(table, mode="sum")

    def train(self, workload: Workload, batch: int) -> None:
        """Sum the rows of bags, and give them the gradients of the sums."""
        self._module(workload.keys[batch], workload.offsets[:-1]).backward(workload.gradients)


# The machine


def random_reads(memory_bytes: int, read_bytes: int, threads: int) -> float:
    """Return how many reads of memory at random places so many threads do in a second, and nothing else."""
    reads = memory_bytes // read_bytes

    def read(_: int) -> float:
        return reads / _core.random_read_seconds(memory_bytes, reads, read_bytes)[0]

    with ThreadPoolExecutor(threads) as pool:
        return float(sum(pool.map(read, range(threads))))


def bound(sizes: Sizes, threads: int, reads_of_row: int) -> Rate:
    """Return the bound of a lookup (a line, a row), or of a step that comes back to the row."""

    def rate() -> float:
        line = random_reads(sizes.probe_bytes, 64, threads)
        return 1 / (1 / line + reads_of_row / random_reads(sizes.probe_bytes, 4 * DIM, threads))

    return rate


def first_writes(size_bytes: int, threads: int) -> None:
    """Write new memory, which the system clears first."""
    memory = np.empty(size_bytes, np.uint8)

    def write(part: int) -> None:
        np.copyto(memory[part * size_bytes // threads : (part + 1) * size_bytes // threads], 1)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(threads)))


# Cases


def batches(
    work: Callable[[Workload, int], None], workload: Workload, threads: int, ours: Ours, count: int
) -> Rate:
    """Return what times ``count`` batches, others in each run until they come round."""
    turn = itertools.cycle(range(len(workload.keys)))

    def run() -> float:
        torch.set_num_threads(threads)
        ours.use_threads(threads)
        for _ in range(count):
            work(workload, next(turn))
        return count * workload.batch_size

    return rate_of(run)


class Cases:
    """Cases of one size, printed as they are measured."""

    def __init__(self, sizes: Sizes, *, as_json: bool) -> None:
        self._sizes = sizes
        self._as_json = as_json

    def _show(self, case: str, systems: Systems, threads: int = 1) -> None:
        show_in_turns(
            case, "rows/s", systems, as_json=self._as_json, threads=threads, repeats=self._sizes.repeats
        )

    def _workloads(self, rows: int) -> list[Workload]:
        sizes = self._sizes
        return [Workload.draw(rows, DIM, zipf, sizes.batch_size, sizes.batches) for zipf in ZIPFS]

    def _compare(
        self, verb: str, workload: Workload, ours: Ours, peers: Iterable[Peer], batches_of_run: int
    ) -> None:
        """Run us, peers and the bound in turns, on one thread and on two."""
        for threads in THREADS:
            systems: dict[str | tuple[str, int], Rate] = {}
            for system in (ours, *peers):
                work = system.lookup if verb == "lookup" else system.train
                count = max(batches_of_run // system.slowness, 1)
                systems[system.name] = batches(work, workload, threads, ours, count)
            systems["limit"] = bound(self._sizes, threads, 1 if verb == "lookup" else 2)
            self._show(f"{verb}-{workload.name}", systems, threads)

    def all_rows(self, cases: set[str]) -> None:
        """Lookup, training and the autograd path, all of the rows in one table."""
        rows, count = self._sizes.rows, self._sizes.batches
        workloads = self._workloads(rows)
        ours = Ours(table := filled(rows), self._sizes.batch_size)
        if "autograd" in cases:
            for workload in workloads:
                self._autograd(table, ours, workload)
        if not {"lookup", "train"} & cases:
            return
        fbgemm: list[Peer] = [Fbgemm(rows, DIM)] if HAS_FBGEMM else []
        dense = TorchDense(rows, DIM)
        for workload in workloads:
            if "lookup" in cases:
                self._compare("lookup", workload, ours, [dense, *fbgemm], count)
            if "train" in cases:
                self._compare("train-rowwise-adagrad", workload, ours, fbgemm, count // 2)
        del table, ours, fbgemm
        gc.collect()
        if "train" in cases:
            ours = Ours(filled(rows, "sgd"), self._sizes.batch_size)
            for workload in workloads:
                self._compare("train-sgd", workload, ours, [dense], count // 2)

    def small(self) -> None:
        """Lookup beside a dictionary, and Adam beside SparseAdam."""
        rows, count = self._sizes.small_rows, self._sizes.batches
        workloads = self._workloads(rows)
        ours, dictionary = Ours(filled(rows), self._sizes.batch_size), TorchDictionary(rows, DIM)
        for workload in workloads:
            self._compare("lookup", workload, ours, [dictionary], count)
        del dictionary
        ours, adam = Ours(filled(rows, "adam"), self._sizes.batch_size), TorchDense(rows, DIM, "adam")
        for workload in workloads:
            self._compare("train-adam", workload, ours, [adam], count // 2)

    def large_batch(self) -> None:
        """Batches of a million keys, by one thread and by two, in turns."""
        rows, size = self._sizes.rows, self._sizes.large_batch_size
        ours = Ours(filled(rows), size)
        for zipf in ZIPFS:
            workload = Workload.draw(rows, DIM, zipf, size, 4)
            for verb, work in (("lookup", ours.lookup), ("train-rowwise-adagrad", ours.train)):
                reads = 1 if verb == "lookup" else 2
                systems: dict[str | tuple[str, int], Rate] = {
                    ("graphbox", threads): batches(work, workload, threads, ours, 2) for threads in THREADS
                }
                systems |= {("limit", threads): bound(self._sizes, threads, reads) for threads in THREADS}
                self._show(f"{verb}-{workload.name}", systems)

    def _autograd(self, table: EmbeddingTable, ours: Ours, workload: Workload) -> None:
        """A module's forward and backward beside the same calls of the table."""
        module = TableEmbedding(table)

        def step(workload: Workload, batch: int) -> None:
            module(workload.keys[batch]).backward(workload.gradients)

        count = max(self._sizes.batches // 2, 1)
        for threads in THREADS:
            systems: Systems = {
                "graphbox": batches(step, workload, threads, ours, count),
                "graphbox, raw calls": batches(ours.train, workload, threads, ours, count),
            }
            self._show(f"autograd-{workload.name}", systems, threads)

    def bags(self) -> None:
        """Sums of :data:`BAG_KEYS` rows each, by modules, forwards and backwards."""
        rows, sizes = self._sizes.small_rows, self._sizes
        ours = BagModule(filled(rows), sizes.batch_size)
        fbgemm: list[Peer] = [Fbgemm(rows, DIM)] if HAS_FBGEMM else []
        for zipf in ZIPFS:
            workload = Workload.draw(rows, DIM, zipf, sizes.batch_size, sizes.batches, BAG_KEYS)
            verb = f"train-bags-of-{BAG_KEYS}"
            self._compare(verb, workload, ours, [TorchDense(rows, DIM), *fbgemm], sizes.batches // 2)

    def growth(self) -> None:
        """New keys into a table that begins empty, with their initial values."""
        rows, step = self._sizes.rows, self._sizes.batch_size
        keys = [
            keys_of(scattered_ids(rows, first, min(first + step, rows))) for first in range(0, rows, step)
        ]
        out = torch.empty(step, DIM)

        def grow(threads: int) -> float:
            release_buffers()
            table = EmbeddingTable(DIM, threads=threads)
            for batch in keys:
                table.pull(batch, out=out[: len(batch)])
            return len(table)

        def write(threads: int) -> float:
            first_writes(rows * (4 * DIM + STATE_BYTES["rowwise_adagrad"]), threads)
            return rows

        def settled(work: Callable[[], float]) -> Rate:
            timed = rate_of(work)

            def rate() -> float:
                first_writes(rows * 6 * DIM, 1)  # a virtual machine may have given free memory back
                return timed()

            return rate

        systems: dict[str | tuple[str, int], Rate] = {
            (name, threads): settled(partial(work, threads))
            for name, work in (("graphbox", grow), ("limit", write))
            for threads in THREADS
        }
        self._show(f"growth-{rows}x{DIM}", systems)

    def memory(self) -> None:
        """Bytes of a row beyond its values and state, each in a process of its own."""
        rows = self._sizes.rows
        for optimizer in OPTIMIZERS:
            counted, gained = in_a_process(table_bytes, rows, optimizer)
            case = f"memory-beyond-payload-{rows}x{DIM}-{optimizer.replace('_', '-')}"
            self._tell_bytes(case, "graphbox", gained)
            self._tell_bytes(case, "graphbox, nbytes", counted)
        rows = self._sizes.small_rows
        case = f"memory-beyond-payload-{rows}x{DIM}"
        self._tell_bytes(case, "Python dictionary", in_a_process(dictionary_bytes, rows))
        self._tell_bytes(case, f"torch {torch.__version__}", in_a_process(dense_bytes, rows))

    def _tell_bytes(self, case: str, system: str, number: float) -> None:
        measured = Measurement(case, system, 1, number, "bytes/row", number, number, 1, number)
        show(measured, as_json=self._as_json)


# Memory


def resident_bytes() -> int:
    """Return the memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def in_a_process(work: Callable[..., Result], *arguments: object) -> Result:
    """Return what a function returns in a process of its own, whose memory holds nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def table_bytes(rows: int, optimizer: Optimizer) -> tuple[float, float]:
    """Return what a row takes beyond values and state: as its table counts, and as the process grows."""
    for _ in range(2):  # what first tables leave is no row's: threads, memory that malloc keeps
        filled(min(rows, 200_000), optimizer)
    release_buffers()
    before = resident_bytes()
    table = filled(rows, optimizer)
    release_buffers()
    gained = resident_bytes() - before
    payload = 4 * DIM + STATE_BYTES[optimizer]
    return table.nbytes / rows - payload, gained / rows - payload


def dictionary_bytes(rows: int) -> float:
    """Return what a process gains by a dictionary from keys to rows, for each of them."""
    before = resident_bytes()
    numbers = {key: row for row, key in enumerate(map(int, keys_of(np.arange(rows)).numpy()))}
    return (resident_bytes() - before) / len(numbers)


def dense_bytes(rows: int) -> float:
    """Return what a process gains by torch's rows, beyond their values."""
    before = resident_bytes()
    table = random_rows(rows, DIM)
    return (resident_bytes() - before) / len(table) - 4 * DIM


def main() -> None:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description="rows per second of an embedding table")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="which to run")
    options = parser.parse_args()
    cases = Cases(QUICK if options.quick else Sizes(options.rows), as_json=options.json)
    chosen = set(options.cases)
    if "memory" in chosen:
        cases.memory()
    if {"lookup", "train", "autograd"} & chosen:
        cases.all_rows(chosen)
    if "small" in chosen:
        cases.small()
    if "large-batch" in chosen:
        cases.large_batch()
    if "bags" in chosen:
        cases.bags()
    if "growth" in chosen:
        cases.growth()


if __name__ == "__main__":
    main()
