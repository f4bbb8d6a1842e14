"""Graphs read in tiers: opening, cold reads from disk, warm reads from memory, batches and passes between.

python benchmarks/store.py [--quick] [--json] [--folder FOLDER] [--gib SIZE] [--cases CASE ...]

Disks and machines are shared: what is compared runs in turns. The bounds (``limit``) are

- of cold reads, what fio reaches with 4 KiB at random places and as many in flight, for each read that a row
  or list needs (where fio is installed); and beside it, like for like, reads of the disk against reads of
  fio of the same size: there a read that serves several rows or lists counts once;
- of batches and passes under a budget, the shorter of reading each missing 4 KiB block by itself as fast as
  fio does, and reading the whole file as fast as fio does from front to back;
- of warm reads, the random reads of memory that a row or list needs, of a 64-byte line or of a whole row;
  of rows also reading and writing them (``limit, copying``), since the result is written to memory too.

The peer is numpy.memmap; cold means that the page cache holds nothing of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure import RANDOM_READ_MEMORY_BYTES, measure, rate_of, show, show_in_turns
from graphbox import _core
from graphbox.graph import Graph
from graphbox.graph.array_file import HEADER_BYTES, ArrayFile, array_header
from graphbox.graph.tier import ListFiles, Lists, Rows, TierOptions, open_lists
from graphbox.native import thread_count

DEPTH = 64
DIM = 128
ROW_BYTES = DIM * 4
BLOCK_BYTES = 4096
MEAN_DEGREE = 30
READS_PER_LIST = 2
"""A list needs an entry of the offsets and then itself."""
LARGE_READ_BYTES = 512 << 10
FIO_SECONDS = 1
CASES = ("open", "warm", "cold", "budget")
HAS_FIO = shutil.which("fio") is not None
PEER = f"numpy {np.__version__} memmap"

Array = npt.NDArray[Any]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data and of the reads."""

    data_bytes: int
    warm_bytes: int
    cold_requests: int
    peer_requests: int
    batch_requests: int
    pass_requests: int


# The disk


def fio(path: Path, pattern: str, block_bytes: int) -> tuple[float, float]:
    """Return (reads per second, bytes per second) that fio reaches on a file with :data:`DEPTH` in flight."""
    command = [
        "fio",
        "--name=limit",
        f"--filename={path}",
        f"--size={path.stat().st_size // BLOCK_BYTES * BLOCK_BYTES}",
        f"--rw={pattern}",
        f"--bs={block_bytes}",
        f"--iodepth={DEPTH}",
        "--direct=1",
        "--ioengine=io_uring",
        f"--runtime={FIO_SECONDS}",
        "--time_based",
        "--randrepeat=0",
        "--norandommap=1",
        "--gtod_reduce=1",
        "--output-format=json",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = json.loads(output[output.index("{") :])["jobs"][0]["read"]
    return float(read["iops"]), float(read["bw_bytes"])


def drop_cached(path: Path) -> None:
    """Let the page cache forget a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def write_array(path: Path, shape: tuple[int, ...], dtype: str, blocks: Iterator[Array]) -> ArrayFile:
    """Write an array file block by block."""
    with path.open("wb") as file:
        file.write(array_header(np.dtype(dtype), shape))
        for block in blocks:
            file.write(block.tobytes())
        file.flush()
        os.fsync(file.fileno())
    return ArrayFile(path, HEADER_BYTES, np.dtype(dtype), shape)


def write_rows(path: Path, size_bytes: int) -> ArrayFile:
    """Write rows of random float32."""
    rng = np.random.default_rng(0)
    num_rows = size_bytes // ROW_BYTES
    step = 1 << 16
    blocks = (
        rng.random((min(step, num_rows - first), DIM), np.float32) for first in range(0, num_rows, step)
    )
    return write_array(path, (num_rows, DIM), "<f4", blocks)


def write_lists(folder: Path, size_bytes: int) -> tuple[ListFiles, Int64Array]:
    """Write neighbour lists of exponential lengths; return the files and the offsets."""
    rng = np.random.default_rng(1)
    lengths = rng.exponential(MEAN_DEGREE, size_bytes // (4 * MEAN_DEGREE)).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    total, step = int(offsets[-1]), 1 << 24
    folder.mkdir()
    blocks = (
        rng.integers(0, len(lengths), min(step, total - first), np.int32) for first in range(0, total, step)
    )
    indices = write_array(folder / "indices.npy", (total,), "<i4", blocks)
    indptr = write_array(folder / "indptr.npy", offsets.shape, "<i8", iter([offsets]))
    return ListFiles(indptr, {"indices": indices}), offsets


def memmap(file: ArrayFile) -> Array:
    """Map an array file anew, its pages not in memory."""
    drop_cached(file.path)
    return np.memmap(file.path, file.dtype, "r", file.offset, file.shape)


def gather_lists(indptr: Array, indices: Array, nodes: Int64Array) -> Array:
    """Return neighbour lists as NumPy can, without a loop."""
    starts, lengths = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
    ends = np.cumsum(lengths)
    gathered: Array = indices[np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)]
    return gathered


# Cases


def opening(folder: Path, sizes: Sizes, *, as_json: bool) -> None:
    """Opening a graph, and rows in a file of 1 TiB (a sparse one: nothing of it is read)."""
    rng = np.random.default_rng(2)
    for num_edges in (10_000, 100_000, sizes.cold_requests * 300):
        path = folder / f"graph-{num_edges}"
        num_nodes = num_edges // 10
        features = {"x": np.zeros((num_nodes, 16), np.float32)}
        source, target = rng.integers(0, num_nodes, (2, num_edges))
        Graph.from_coo(source, target, num_nodes=num_nodes, node_features=features).save(path)

        def open_graph(_: int, path: Path = path) -> int:
            for _ in range(10):
                Graph.open(path).tiered(topology_bytes=1 << 30, feature_bytes=1 << 30)
            return 10

        show(measure(f"open-graph-{num_edges}-edges", "graphbox", "opens/s", open_graph), as_json=as_json)
    num_rows = (1 << 40) // ROW_BYTES
    file = write_array(folder / "sparse.npy", (num_rows, DIM), "<f4", iter([]))
    os.truncate(file.path, file.offset + file.data_bytes)

    def open_rows(_: int) -> int:
        for _ in range(10):
            Rows(file, budget_bytes=1 << 30)
        return 10

    show(measure("open-rows-1TiB", "graphbox", "opens/s", open_rows), as_json=as_json)
    file.path.unlink()


def cold_rows(file: ArrayFile, sizes: Sizes, *, as_json: bool) -> None:
    """Random rows of 512 bytes, nothing in memory."""
    rng = np.random.default_rng(3)
    rows = Rows(file, options=TierOptions(depth=DEPTH))
    num_rows, count = rows.num_rows, sizes.cold_requests
    out = np.empty((count, DIM), np.float32)

    def read() -> float:
        return len(rows.read(rng.integers(0, num_rows, count), out=out))

    def read_mapped() -> float:
        index = rng.integers(0, num_rows, sizes.peer_requests)
        return len(memmap(file)[index])

    systems = {"graphbox": rate_of(read), PEER: rate_of(read_mapped)}
    if HAS_FIO:
        systems["limit"] = lambda: fio(file.path, "randread", BLOCK_BYTES)[0]
    case = f"cold-rows-{ROW_BYTES}B-{count}"
    show_in_turns(case, "rows/s", systems, as_json=as_json)
    like_for_like(case, rows, read, file.path, as_json=as_json)


def cold_lists(files: ListFiles, sizes: Sizes, *, as_json: bool) -> None:
    """Random neighbour lists, nothing in memory: an entry of the offsets, then the list."""
    rng = np.random.default_rng(4)
    lists = open_lists({0: files}, options=TierOptions(depth=DEPTH))[0]
    indices = files.items["indices"]
    num_lists, count = lists.num_lists, sizes.cold_requests

    def read() -> float:
        lists.lists(rng.integers(0, num_lists, count))
        return count

    def read_mapped() -> float:
        nodes = rng.integers(0, num_lists, sizes.peer_requests)
        gather_lists(memmap(files.offsets), memmap(indices), nodes)
        return sizes.peer_requests

    systems = {"graphbox": rate_of(read), PEER: rate_of(read_mapped)}
    if HAS_FIO:
        systems["limit"] = lambda: fio(indices.path, "randread", BLOCK_BYTES)[0] / READS_PER_LIST
    case = f"cold-lists-{count}"
    show_in_turns(case, "lists/s", systems, as_json=as_json)
    like_for_like(case, lists, read, indices.path, as_json=as_json)


def like_for_like(
    case: str, tier: Rows | Lists, read: Callable[[], float], path: Path, *, as_json: bool
) -> None:
    """Compare reads of the disk with reads of fio: as many in flight, each of the mean size of ours."""
    if not HAS_FIO:
        return

    def read_counted() -> float:
        before = tier.stats.read_requests
        read()
        return tier.stats.read_requests - before

    before = tier.stats
    read()
    after = tier.stats
    mean_bytes = (after.read_bytes - before.read_bytes) / max(after.read_requests - before.read_requests, 1)
    read_bytes = max(round(mean_bytes / BLOCK_BYTES), 1) * BLOCK_BYTES
    systems = {
        "graphbox": rate_of(read_counted),
        "limit": lambda: fio(path, "randread", read_bytes)[0],
    }
    show_in_turns(f"{case}-reads-of-{read_bytes}B", "reads/s", systems, as_json=as_json)


def budgeted(files: ListFiles, rows_file: ArrayFile, sizes: Sizes, *, as_json: bool) -> None:
    """Batches and passes of random rows and lists, a fifth of the bytes in memory."""
    rows = Rows(rows_file, budget_bytes=rows_file.data_bytes // 5, options=TierOptions(depth=DEPTH))
    list_bytes = files.offsets.data_bytes + files.items["indices"].data_bytes
    lists = open_lists({0: files}, budget_bytes=list_bytes // 5, options=TierOptions(depth=DEPTH))[0]
    out = np.empty((sizes.batch_requests, DIM), np.float32)

    def row_batch(index: Int64Array) -> None:
        rows.read(index, out=out)

    def row_pass(index: Int64Array) -> None:
        rows.read(index, whole_pass=True)

    def list_batch(index: Int64Array) -> None:
        lists.lists(index)

    def list_pass(index: Int64Array) -> None:
        lists.read(index, ("indices",), whole_pass=True)

    row_paths, list_paths = [rows_file.path], [files.offsets.path, files.items["indices"].path]
    batch, whole = sizes.batch_requests, sizes.pass_requests
    for case, unit, bounded in (
        ("rows-batch", "rows/s", Bounded(rows, rows.num_rows, row_batch, row_paths, batch)),
        ("rows-pass", "rows/s", Bounded(rows, rows.num_rows, row_pass, row_paths, whole)),
        ("lists-batch", "lists/s", Bounded(lists, lists.num_lists, list_batch, list_paths, batch)),
        ("lists-pass", "lists/s", Bounded(lists, lists.num_lists, list_pass, list_paths, whole)),
    ):
        systems = {"graphbox": bounded.run}
        if HAS_FIO:
            systems["limit"] = bounded.limit
        threads = thread_count(None)
        name = f"{case}-{bounded.requests}-budget-20%"
        show_in_turns(name, unit, systems, as_json=as_json, threads=threads)


class Bounded:
    """Reads under a budget, and the bound that the disk sets to the last of them."""

    def __init__(
        self,
        tier: Rows | Lists,
        limit: int,
        work: Callable[[Int64Array], None],
        paths: Sequence[Path],
        requests: int,
    ) -> None:
        self.requests = requests
        self._tier = tier
        self._limit = limit
        self._work = work
        self._path = max(paths, key=lambda path: path.stat().st_size)
        self._blocks = sum(path.stat().st_size for path in paths) / BLOCK_BYTES
        self._rng = np.random.default_rng(7)
        self._missing = 0.0

    def run(self) -> float:
        """Do the work and return its rate."""
        index = self._rng.integers(0, self._limit, self.requests)
        before = self._tier.stats.misses
        started = time.perf_counter()
        self._work(index)
        seconds = time.perf_counter() - started
        misses = self._tier.stats.misses - before
        # Of so many at random places, so many blocks are different.
        self._missing = self._blocks * -np.expm1(-misses / self._blocks)
        return self.requests / seconds

    def limit(self) -> float:
        """Return the rate at which the disk could have given what was missing."""
        reads_per_s = fio(self._path, "randread", BLOCK_BYTES)[0]
        bytes_per_s = fio(self._path, "read", LARGE_READ_BYTES)[1]
        seconds = min(self._missing / reads_per_s, self._blocks * BLOCK_BYTES / bytes_per_s)
        return self.requests / seconds


def warm(folder: Path, sizes: Sizes, *, as_json: bool) -> None:
    """Rows and lists that are wholly in memory, by one thread."""
    rng = np.random.default_rng(6)
    file = write_rows(folder / "warm-rows.npy", sizes.warm_bytes)
    files, offsets = write_lists(folder / "warm-lists", sizes.warm_bytes)
    options = TierOptions(depth=DEPTH, threads=1)
    rows = Rows(file, budget_bytes=2 * sizes.warm_bytes, options=options)
    lists = open_lists({0: files}, budget_bytes=2 * sizes.warm_bytes, options=options)[0]
    rows.read(np.arange(rows.num_rows))
    lists.lists(np.arange(lists.num_lists))
    array = np.fromfile(file.path, file.dtype, offset=file.offset).reshape(file.shape)
    indices = np.fromfile(files.items["indices"].path, np.int32, offset=HEADER_BYTES)
    count = sizes.batch_requests
    out = np.empty((count, DIM), np.float32)
    row_index = [rng.integers(0, rows.num_rows, count) for _ in range(20)]
    list_index = [rng.integers(0, lists.num_lists, count) for _ in range(20)]

    def warm_rows() -> float:
        for index in row_index:
            rows.read(index, out=out)
        return count * len(row_index)

    def taken_rows() -> float:
        for index in row_index:
            np.take(array, index, axis=0, out=out, mode="clip")
        return count * len(row_index)

    def warm_lists() -> float:
        for index in list_index:
            lists.lists(index)
        return count * len(list_index)

    def taken_lists() -> float:
        for index in list_index:
            gather_lists(offsets, indices, index)
        return count * len(list_index)

    taken = f"numpy {np.__version__} take"
    systems = {"graphbox": rate_of(warm_rows), taken: rate_of(taken_rows)}
    systems["limit"] = lambda: random_reads(ROW_BYTES)
    systems["limit, copying"] = lambda: random_copies(ROW_BYTES, count)
    show_in_turns(f"warm-rows-{ROW_BYTES}B-{count}", "rows/s", systems, as_json=as_json)
    lines = 1 + float(np.mean(_lines(offsets)))
    systems = {"graphbox": rate_of(warm_lists), taken: rate_of(taken_lists)}
    systems["limit"] = lambda: random_reads(64) / lines
    show_in_turns(f"warm-lists-{count}", "lists/s", systems, as_json=as_json)


def random_reads(read_bytes: int) -> float:
    """Return how many random reads of memory one thread does in a second when it does nothing else."""
    reads = int(2e7 * 64 / read_bytes)
    wall, _ = _core.random_read_seconds(RANDOM_READ_MEMORY_BYTES, reads, read_bytes)
    return reads / wall


def random_copies(copy_bytes: int, count: int) -> float:
    """Return how many random reads one thread does in a second that also writes each to memory."""
    copies = int(2e7 * 64 / copy_bytes)
    wall, _ = _core.random_copy_seconds(RANDOM_READ_MEMORY_BYTES, copies, copy_bytes, count * copy_bytes)
    return copies / wall


def _lines(offsets: Int64Array) -> Int64Array:
    """Return how many 64-byte lines each list of int32 lies in."""
    first, last = offsets[:-1] // 16, (offsets[1:] + 15) // 16
    return np.where(offsets[1:] > offsets[:-1], last - first, 0)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="graphs read in tiers")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write the files to read")
    parser.add_argument("--gib", type=float, default=1.5, help="size of the rows, and of the lists")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="which to run")
    options = parser.parse_args()
    size = 32 << 20 if options.quick else int(options.gib * (1 << 30))
    many = 100 if options.quick else 1
    sizes = Sizes(
        data_bytes=size,
        warm_bytes=min(size, 512 << 20),
        cold_requests=10_000 // many,
        peer_requests=1000 // many,
        batch_requests=100_000 // many,
        pass_requests=10_000_000 // many,
    )
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="benchmark-store-") as name:
        folder = Path(name)
        if "open" in options.cases:
            opening(folder, sizes, as_json=options.json)
        if "warm" in options.cases:
            warm(folder, sizes, as_json=options.json)
        if not {"cold", "budget"} & set(options.cases):
            return
        rows = write_rows(folder / "rows.npy", sizes.data_bytes)
        lists, _ = write_lists(folder / "lists", sizes.data_bytes)
        if "cold" in options.cases:
            cold_rows(rows, sizes, as_json=options.json)
            cold_lists(lists, sizes, as_json=options.json)
        if "budget" in options.cases:
            budgeted(lists, rows, sizes, as_json=options.json)


if __name__ == "__main__":
    main()
