"""Rows of a table on a GPU that are pulled and pushed per second, found there or brought from host memory.

python -m benchmarks.gpu_table [--device cuda:1] [--rows 10000000] [--json]

Hits are pulls of keys whose rows are on the GPU, beside PyTorch's index_select of as many rows of an array of
the same size: what the hash and the notes of use cost. Rows that come, and changed rows that leave, are
beside the copy of all that they hold, values and state.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial

import torch

from benchmarks.gpu_measure import GpuBench, Limit, run
from graphbox.bandwidth_gpu import run_seconds
from graphbox.table import DeviceTable, EmbeddingTable
from graphbox.table.device_budget import bytes_for, form_of
from graphbox.table.optimizer_gpu import DeviceOptimizer

DIM = 64
BATCH_ROWS = 1 << 20
QUICK_ROWS = 64


def main() -> None:
    """Run all cases."""
    run(__doc__, show_table, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser what tables need."""
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table")


def show_table(bench: GpuBench) -> None:
    """Measure hits, training steps, and rows that come and leave."""
    rows = QUICK_ROWS if bench.quick else bench.options.rows
    batch = min(BATCH_ROWS, rows // 4)
    torch.manual_seed(0)
    show_hits(bench, rows, batch)
    show_misses(bench, rows, batch)


def show_hits(bench: GpuBench, rows: int, batch: int) -> None:
    """Measure batches whose rows are all on the GPU."""
    table = table_on(bench, rows, rows)
    for keys in torch.arange(rows, device=bench.device).split(batch):  # type: ignore[no-untyped-call]
        table.pull(keys)
    keys = torch.randint(rows, (batch,), device=bench.device)
    values = torch.rand(rows, DIM, device=bench.device)
    selecting = run_seconds(partial(torch.index_select, values, 0, keys), bench.device)
    index_select = Limit("index_select", batch / sorted(selecting)[len(selecting) // 2])
    out = torch.empty(batch, DIM, device=bench.device)
    bench.show(
        f"pull of {rows:,} x {DIM}, all on the GPU",
        partial(table.pull, keys, out=out),
        units=batch,
        unit="rows/s",
        limit=index_select,
        goal=0.8,
    )
    gradients = torch.rand(batch, DIM, device=bench.device)

    def step() -> None:
        _, slots = table.pull_slots(keys, out)
        table.push_slots(slots, gradients)

    bench.show(
        f"pull and push of {rows:,} x {DIM}, all on the GPU",
        step,
        units=batch,
        unit="rows/s",
        limit=bench.copy_limit("device_to_device", 2 * 4 * DIM),
    )
    table.close()


def show_misses(bench: GpuBench, rows: int, batch: int) -> None:
    """Measure batches whose rows are all in host memory, in turns; changed ones leave for them."""
    table = table_on(bench, rows, batch)
    record_bytes = 4 * (DIM + 1)
    batches = torch.arange(rows // batch * batch, device=bench.device).reshape(-1, batch)
    for keys in batches:
        table.pull(keys)
    turns = itertools.cycle(batches)
    bench.show(
        "rows that come from host memory",
        lambda: table.pull(next(turns)),
        units=batch,
        unit="rows/s",
        limit=bench.copy_limit("host_to_device", record_bytes),
    )
    gradients = torch.rand(batch, DIM, device=bench.device)

    def step() -> None:
        table.push(next(turns), gradients)

    step()
    copies = [
        bench.copy_limit(direction, record_bytes).rate for direction in ("host_to_device", "device_to_host")
    ]
    bench.show(
        "changed rows that leave for others",
        step,
        units=batch,
        unit="rows/s",
        limit=Limit("copy there and back", 1 / sum(1 / rate for rate in copies)),
    )
    table.close()


def table_on(bench: GpuBench, rows: int, resident: int) -> DeviceTable:
    """Return a table with these rows, and room for some of them on the GPU."""
    below = EmbeddingTable(DIM)
    below.reserve(rows)
    for keys in torch.arange(rows).split(BATCH_ROWS):  # type: ignore[no-untyped-call]
        below.pull(keys)
    form = form_of(below, DeviceOptimizer(below._current.optimizer))
    return DeviceTable(below, bench.device, hbm_bytes=bytes_for(form, resident))


if __name__ == "__main__":
    main()
