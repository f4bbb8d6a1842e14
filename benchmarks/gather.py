"""Feature rows gathered from memory into memory that is used again: ours, torch's and NumPy's ways.

python benchmarks/gather.py [--quick] [--json]

All run in turns on one thread. There are two bounds: ``limit`` only reads random rows; ``limit, copying``
also writes each to memory, in order and past the caches, which a gather cannot do without.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.measure import RANDOM_READ_MEMORY_BYTES, Rate, arguments, show_in_turns
from graphbox import _core
from graphbox.sample import gather_rows

DIM = 128
ROW_BYTES = DIM * 4
ROWS_PER_RUN = 1_000_000
"""Gathered in one run, so many that what one system read is in no cache when the next one's turn comes."""


def main() -> None:
    """Run all cases."""
    options = arguments("gathering feature rows from memory")
    rows = 20_000 if options.quick else RANDOM_READ_MEMORY_BYTES // ROW_BYTES
    table = np.empty((rows, DIM), np.float32)
    table[...] = np.arange(rows, dtype=np.float32)[:, None]
    torch.set_num_threads(1)
    for count in (2000,) if options.quick else (2_000, 50_000, 200_000):
        calls = 1 if options.quick else ROWS_PER_RUN // count
        systems = gathers(table, calls, count) | limits(rows * ROW_BYTES, calls * count, count)
        show_in_turns(f"gather-{ROW_BYTES}B-{count}", "rows/s", systems, as_json=options.json)


def gathers(table: npt.NDArray[np.float32], calls: int, count: int) -> dict[str, Rate]:
    """Return what gathers ``count`` random rows ``calls`` times, by system."""
    rng = np.random.default_rng(count)
    out = gather_rows(table, np.zeros(count, np.int64))
    tensor, tensor_out = torch.from_numpy(table), torch.empty((count, DIM))

    def timed(gather: Callable[[npt.NDArray[np.int64]], object]) -> Rate:
        def run() -> float:
            index = rng.integers(0, len(table), (calls, count))
            started = time.perf_counter()
            for each in index:
                gather(each)
            return calls * count / (time.perf_counter() - started)

        return run

    torch_name, numpy_name = f"torch {torch.__version__}", f"numpy {np.__version__}"
    return {
        "graphbox out=": timed(lambda index: gather_rows(table, index, out, num_threads=1)),
        "graphbox": timed(lambda index: gather_rows(table, index, num_threads=1)),
        f"{torch_name} index_select(out=)": timed(
            lambda index: torch.index_select(tensor, 0, torch.from_numpy(index), out=tensor_out)
        ),
        f"{torch_name} index_select": timed(
            lambda index: torch.index_select(tensor, 0, torch.from_numpy(index))
        ),
        f"{torch_name} x[index]": timed(lambda index: tensor[torch.from_numpy(index)]),
        f"{numpy_name} take(out=)": timed(lambda index: np.take(table, index, axis=0, out=out, mode="clip")),
    }


def limits(memory_bytes: int, rows: int, count: int) -> dict[str, Rate]:
    """Return the bounds that this machine's memory sets to gathering ``count`` rows at a time."""

    def read() -> float:
        wall, _ = _core.random_read_seconds(memory_bytes, rows, ROW_BYTES)
        return rows / wall

    def copied() -> float:
        wall, _ = _core.random_copy_seconds(memory_bytes, rows, ROW_BYTES, count * ROW_BYTES)
        return rows / wall

    return {"limit": read, "limit, copying": copied}


if __name__ == "__main__":
    main()
