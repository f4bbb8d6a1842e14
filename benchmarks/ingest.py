"""Imported edges per second, peak memory and bytes written, beside what people do otherwise.

python benchmarks/ingest.py [--quick] [--json] [--data FOLDER] [--scratch FOLDER] [--repeats N] [--only TEXT]

Each import is a process of its own that reads the same tables and writes CSC arrays and ids. The bound
``limit`` is the time to read the input and to write graphbox's output one after the other at the rates
measured here (the input not in the page cache, the output to disk), plus pyarrow's parsing of the input.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.edge_lists import write_kernel, write_rmat
from benchmarks.ingest_systems import EdgeList, read_arrow

DEFAULT_DATA = Path(__file__).parents[2] / "shared" / "data"
MEMORY_BYTES = 2 << 30
BLOCK_BYTES = 8 << 20
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Case:
    """Tables to import, and who takes part."""

    name: str
    tables: tuple[EdgeList, ...]
    edges: int
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Measurement:
    """Edges per second of one system at one case; equal ``case`` means the same work."""

    case: str
    system: str
    threads: int
    rate: float
    unit: str
    min: float
    max: float
    repeats: int
    per_cpu_s: float | None = None
    peak_memory_bytes: int | None = None
    written_bytes_per_edge: float | None = None
    note: str = ""


def measure(case: Case, system: str, scratch: Path, repeats: int) -> tuple[Measurement, int]:
    """Import ``repeats`` times; returns the medians and the bytes of the output."""
    results, output_bytes = [], 0
    for _ in range(repeats):
        output = scratch / "output"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        tables = [f"{table.path}:{table.source_type}:{table.target_type}" for table in case.tables]
        command = [sys.executable, "-m", "benchmarks.ingest_systems", system, str(output), str(MEMORY_BYTES)]
        done = subprocess.run(
            [*command, *tables],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            failed = Measurement(case.name, system, os.cpu_count() or 1, 0, "edges/s", 0, 0, 0, note=last[0])
            return failed, 0
        results.append(json.loads(done.stdout))
        output_bytes = sum(each.stat().st_size for each in output.rglob("*") if each.is_file())
        shutil.rmtree(output)
    rates = [case.edges / each["seconds"] for each in results]
    measured = Measurement(
        case.name,
        system,
        os.cpu_count() or 1,
        statistics.median(rates),
        "edges/s",
        min(rates),
        max(rates),
        repeats,
        statistics.median(case.edges / each["cpu_seconds"] for each in results),
        max(each["peak_memory_bytes"] for each in results),
        statistics.median(each["written_bytes"] for each in results) / case.edges,
        f"output {output_bytes / case.edges:.1f} bytes per edge",
    )
    return measured, output_bytes


def limit(case: Case, scratch: Path, output_bytes: int, repeats: int) -> Measurement:
    """Measure the time of reading the input, parsing it, and writing the output."""
    rates = []
    for _ in range(repeats):
        seconds = sum(_seconds(_read_uncached, table.path) for table in case.tables)
        seconds += sum(_seconds(_parse, table.path) for table in case.tables)
        seconds += _seconds(_write_synced, scratch / "sequential", output_bytes)
        rates.append(case.edges / seconds)
    return Measurement(
        case.name, "limit", 1, statistics.median(rates), "edges/s", min(rates), max(rates), repeats
    )


def _seconds(work: Callable[..., None], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def _read_uncached(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        block = bytearray(BLOCK_BYTES)
        while file.readinto(block):
            pass


def _parse(path: Path) -> None:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as table:
            for _ in table.iter_batches(1 << 20):
                pass
    else:
        read_arrow(path)


def _write_synced(path: Path, size: int) -> None:
    block = os.urandom(BLOCK_BYTES)
    with path.open("wb", buffering=0) as file:
        for start in range(0, size, BLOCK_BYTES):
            file.write(block[: min(BLOCK_BYTES, size - start)])
        os.fsync(file.fileno())
    path.unlink()


def cases(data: Path, scratch: Path, *, quick: bool) -> list[Callable[[], Case]]:
    """Return what makes each case; tables that are not there yet are written first."""
    peers = ("graphbox", "polars", "duckdb", "pyg")

    def kernel(kind: str, suffix: str) -> Case:
        paths = write_kernel(data / "kernel" / "graph.npz", scratch, kind, suffix)
        tables = (
            EdgeList(paths["contains"], "file", "identifier"),
            EdgeList(paths["includes"], "file", "file"),
        )
        return Case(f"kernel-{suffix}-{kind}-ids", tables, 17_001_140 + 325_135, peers)

    def rmat(scale: int, systems: tuple[str, ...]) -> Case:
        path = write_rmat(scratch, scale)
        rows = pq.ParquetFile(path).metadata.num_rows
        return Case(f"rmat{scale}-parquet-int64-ids", (EdgeList(path, "node", "node"),), rows, systems)

    if quick:
        return [lambda: rmat(16, peers)]
    found: list[Callable[[], Case]] = [lambda: rmat(20, peers)]
    if (data / "kernel").is_dir():
        found += [
            partial(kernel, kind, suffix) for suffix in ("parquet", "tsv") for kind in ("int64", "string")
        ]
    # Polars and PyTorch Geometric have no memory limit, and hold all of this several times.
    return [*found, lambda: rmat(24, ("graphbox", "duckdb"))]


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="imported edges per second")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the real data sets")
    parser.add_argument("--scratch", type=Path, default=Path("benchmark-data"), help="inputs and outputs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--systems", nargs="*", help="only these")
    options = parser.parse_args()
    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    for make in cases(options.data, scratch, quick=options.quick):
        case = make()
        if options.only not in case.name:
            continue
        output_bytes = 0
        for system in case.systems:
            if options.systems and system not in options.systems:
                continue
            measured, size = measure(case, system, scratch, options.repeats)
            output_bytes = size if system == "graphbox" else output_bytes
            _show(measured, as_json=options.json)
        if output_bytes:
            _show(limit(case, scratch, output_bytes, options.repeats), as_json=options.json)


def _show(measured: Measurement, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(measured)), flush=True)
        return
    line = (
        f"{measured.case:28} {measured.system:10} {measured.rate / 1e6:7.2f} M {measured.unit} "
        f"[{measured.min / 1e6:.2f}-{measured.max / 1e6:.2f}]"
    )
    if measured.per_cpu_s:
        line += f", {measured.per_cpu_s / 1e6:.2f} M per CPU second"
    if measured.peak_memory_bytes:
        line += f", peak {measured.peak_memory_bytes / 2**20:,.0f} MiB"
    if measured.written_bytes_per_edge:
        line += f", {measured.written_bytes_per_edge:.1f} bytes written per edge"
    print(line + (f"; {measured.note}" if measured.note else ""), flush=True)


if __name__ == "__main__":
    main()
