"""Rows of tables and features that a GPU gathers and learns per second, beside what it copies.

python -m benchmarks.gpu_rows [--device cuda:1] [--rows 10000000] [--json]

A byte that is copied is read once and written once. A gather's limit copies each row once, from where it
is to the result. Pull and push is a gather of rows and a push of their gradients; its limit copies each
row once, read and written: the gathered rows that a pull writes, and the row and the gradient that a push
reads, do not count, so that 40 % is the most; nor do state, slots and their sort. Hits are rows that are
resident: their limit is PyTorch's index_select of the same rows. A lookup's limit reads a random sector,
of 32 bytes, for each key.
"""

from __future__ import annotations

import argparse
import math
from functools import partial

import torch

from benchmarks.gpu_measure import GpuBench, Limit, run
from graphbox.bandwidth_gpu import SECTOR_BYTES, run_seconds
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Optimizer
from graphbox.table.gather_gpu import gather_rows
from graphbox.table.hash_gpu import DeviceHash
from graphbox.table.optimizer_gpu import DeviceOptimizer, first_nonfinite
from graphbox.table.reduce_gpu import sum_equal_rows

DIM = 64
GATHERED_DIM = 128  # 512 bytes of float32
QUICK_ROWS = 48
PINNED_ROWS = 1 << 21
BATCH_ROWS = 1 << 21
OPTIMIZERS: tuple[Optimizer, ...] = ("rowwise_adagrad", "sgd", "adagrad", "adam")


def main() -> None:
    """Run all cases."""
    run(__doc__, show_rows, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser what tables need."""
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the tables, 1024 or more")


def show_rows(bench: GpuBench) -> None:
    """Measure gathers, pushes and lookups."""
    rows = QUICK_ROWS if bench.quick else bench.options.rows
    torch.manual_seed(0)
    show_gathers(bench, rows)
    show_hits(bench, rows)
    show_pushes(bench, rows)
    show_lookups(bench, rows)


def show_gathers(bench: GpuBench, rows: int) -> None:
    """Measure gathers in an order at random, each row once at the most."""
    source = torch.rand(rows, GATHERED_DIM, device=bench.device)
    index = torch.randperm(rows, device=bench.device)[:BATCH_ROWS]
    row_bytes = source[0].nbytes
    for dtype, name in ((torch.float32, ""), (torch.bfloat16, " as bfloat16")):
        bench.show(
            f"gather {row_bytes} bytes{name}, device",
            partial(gather_rows, source, index, dtype=dtype),
            units=len(index),
            unit="rows/s",
            limit=bench.copy_limit("device_to_device", (row_bytes + GATHERED_DIM * dtype.itemsize) / 2),
            goal=0.8 if dtype == torch.float32 else None,
        )
    pinned = source[:PINNED_ROWS].cpu()
    if bench.device.type == "cuda":
        pinned = pinned.pin_memory()
    index = torch.randperm(len(pinned), device=bench.device)
    bench.show(
        f"gather {row_bytes} bytes, pinned",
        partial(gather_rows, pinned, index),
        units=len(index),
        unit="rows/s",
        limit=bench.row_limit("pinned", row_bytes, size_bytes=pinned.nbytes),
        goal=0.8,
    )


def show_hits(bench: GpuBench, rows: int) -> None:
    """Measure gathers of rows that are resident, some or all of them, beside those of PyTorch."""
    resident = torch.rand(rows, GATHERED_DIM, device=bench.device)
    index = torch.randperm(rows, device=bench.device)[:BATCH_ROWS]
    seconds = run_seconds(partial(torch.index_select, resident, 0, index), bench.device)
    case = f"rows of {resident[0].nbytes} bytes that are resident"
    peer = bench.show_seconds(
        case, seconds, units=len(index), unit="rows/s", limit=None, system=f"torch {torch.__version__}"
    )
    limit = Limit("index_select", peer.rate)
    keys = torch.randint(-(2**62), 2**62, (rows,), device=bench.device)
    slots = DeviceHash(rows, bench.device)
    slots.insert(keys, torch.arange(rows, device=bench.device))
    wanted = keys[index]
    bench.show(
        f"{case}, by key",
        lambda: gather_rows(resident, slots.find(wanted)),
        units=len(index),
        unit="rows/s",
        limit=limit,
        goal=0.8,
    )
    pinned = torch.rand(min(rows, PINNED_ROWS), GATHERED_DIM)
    if bench.device.type == "cuda":
        pinned = pinned.pin_memory()
    index = torch.randperm(len(pinned), device=bench.device)
    bench.show(
        f"rows of {resident[0].nbytes} bytes in pinned memory",
        partial(gather_rows, pinned, index),
        units=len(index),
        unit="rows/s",
        limit=limit,
    )


def show_pushes(bench: GpuBench, rows: int) -> None:
    """Measure pulls and pushes of every row once, then of batches in which rows repeat, one very often."""
    values = torch.rand(rows, DIM, device=bench.device)
    every = torch.randperm(rows, device=bench.device)
    skewed = skewed_slots(rows, min(rows, BATCH_ROWS), bench.device)
    with_hub = skewed.clone()
    with_hub[::10] = 0
    for name in OPTIMIZERS:
        config = EmbeddingTable(DIM, optimizer=name)._current.optimizer
        optimizer = DeviceOptimizer(config)
        state = optimizer.initial_state(rows, DIM, bench.device)
        for slots, kind in (
            (every, "each once"),
            (skewed, "some often"),
            (with_hub, "one in ten of one row"),
        ):
            gradients = torch.rand(len(slots), DIM, device=bench.device)

            def pull_and_push(
                slots: torch.Tensor = slots,
                gradients: torch.Tensor = gradients,
                optimizer: DeviceOptimizer = optimizer,
                state: torch.Tensor = state,
            ) -> None:
                gather_rows(values, slots)
                optimizer.push(values, state, slots, gradients)

            bench.show(
                f"pull and push {DIM} floats, {name}, {kind}",
                pull_and_push,
                units=len(slots),
                unit="rows/s",
                limit=bench.copy_limit("device_to_device", values[0].nbytes),
                goal=0.5 if name == "rowwise_adagrad" and slots is every else None,
            )
    gradients = torch.rand(len(skewed), DIM, device=bench.device)
    for case, work, touched in (
        ("search gradients for NaN", partial(first_nonfinite, gradients), 0.5),
        ("sum gradients of equal rows", partial(sum_equal_rows, skewed, gradients), 1.0),
    ):
        bench.show(
            case,
            work,
            units=len(gradients),
            unit="rows/s",
            limit=bench.copy_limit("device_to_device", touched * gradients[0].nbytes),
        )


def show_lookups(bench: GpuBench, rows: int) -> None:
    """Measure a hash table as full as it gets: lookups, and changes of a part."""
    keys = torch.randint(-(2**62), 2**62, (2 * rows,), device=bench.device)
    there, absent = keys[:rows], keys[rows:]
    table = DeviceHash(rows, bench.device)
    table.insert(there, torch.arange(rows, device=bench.device))
    some = torch.randperm(rows, device=bench.device)[: min(rows // 2, BATCH_ROWS)]
    limit = bench.sector_limit("device", 1 + 16 / SECTOR_BYTES, table.nbytes)
    for case, wanted in (("keys that are there", there[some]), ("keys that are not there", absent[some])):
        bench.show(
            f"find {case}",
            partial(table.find, wanted),
            units=len(wanted),
            unit="keys/s",
            limit=limit,
        )

    def change() -> None:
        table.erase(there[some])
        table.insert(there[some], some, checked=False)

    bench.show("erase and insert keys", change, units=len(some), unit="keys/s", limit=None)


def skewed_slots(rows: int, count: int, device: torch.device) -> torch.Tensor:
    """Return slots int64 [count], slot k about in proportion to 1 / (k + 1), scattered over the table."""
    ranks = torch.exp(torch.rand(count, device=device, dtype=torch.float64) * math.log(rows))
    return torch.randperm(rows, device=device)[(ranks.long() - 1).clamp_(0, rows - 1)]


if __name__ == "__main__":
    main()
