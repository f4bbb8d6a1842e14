"""Rows per second that an embedding table looks up, trains and grows by.

python benchmarks/table.py [--quick] [--json]

The bound of a lookup counts one random line (the index) and one random row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.measure import Measurement, arguments, measure, random_read_limit, show
from graphbox.table import EmbeddingTable

DIM = 64
BATCH_SIZE = 65_536
BATCHES = 4


def batches(rows: int, zipf: float) -> list[npt.NDArray[np.int64]]:
    """Return batches of keys, hashed, uniform (``zipf`` 0) or with a power law of that exponent."""
    rng = np.random.default_rng(0)
    if zipf == 0:
        chosen = rng.integers(0, rows, (BATCHES * 8, BATCH_SIZE))
    else:
        share = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -zipf)
        chosen = np.searchsorted(share, rng.random((BATCHES * 8, BATCH_SIZE)) * share[-1])
    return list(hashed(chosen))


def hashed(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Spread numbers over all of int64, one to one."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.int64) * np.int64(-7046029254386353131)


def lookup_limit(case: str) -> Measurement:
    """Measure the bound of a lookup: a line of the index and the lines of a row."""
    line = random_read_limit(case, "rows/s", 1)
    row = random_read_limit(case, "rows/s", 1, DIM * 4)
    rate = 1 / (1 / line.rate + 1 / row.rate)
    per_cpu = 1 / (1 / line.per_cpu_s + 1 / row.per_cpu_s)
    return Measurement(case, "limit", 1, rate, "rows/s", rate, rate, line.repeats, per_cpu)


def main() -> None:
    """Run all cases."""
    options = arguments("rows per second of an embedding table")
    rows = 100_000 if options.quick else 4_000_000
    table = EmbeddingTable(DIM, threads=1)
    added = 0

    def grow(_: int) -> int:
        nonlocal added
        count = rows // 8
        table.pull(hashed(np.arange(added, added + count)))
        added += count
        return count

    show(measure(f"grow-{rows}x{DIM}", "graphbox", "rows/s", grow, repeats=7), as_json=options.json)
    offsets = torch.arange(BATCH_SIZE)
    dense = torch.nn.EmbeddingBag(rows, DIM, mode="sum") if not options.quick else None
    for name, zipf in (("uniform", 0.0), ("zipf-1.05", 1.05)):
        keys = batches(rows, zipf)
        out = np.empty((BATCH_SIZE, DIM), dtype=np.float32)
        gradients = np.full((BATCH_SIZE, DIM), 0.01, dtype=np.float32)

        def lookup(
            repeat: int, keys: list[npt.NDArray[np.int64]] = keys, out: npt.NDArray[np.float32] = out
        ) -> int:
            for batch in range(BATCHES):
                table.pull(keys[(repeat * BATCHES + batch) % len(keys)], out=out)
            return BATCHES * BATCH_SIZE

        def train(
            repeat: int,
            keys: list[npt.NDArray[np.int64]] = keys,
            out: npt.NDArray[np.float32] = out,
            gradients: npt.NDArray[np.float32] = gradients,
        ) -> int:
            for batch in range(BATCHES):
                table.pull(keys[(repeat * BATCHES + batch) % len(keys)], out=out)
                table.push(keys[(repeat * BATCHES + batch) % len(keys)], gradients)
            return BATCHES * BATCH_SIZE

        for threads in (1, 2):
            table.threads = threads
            for work, verb in ((lookup, "lookup"), (train, "train-rowwise-adagrad")):
                case = f"{verb}-{rows}x{DIM}-{name}"
                show(measure(case, "graphbox", "rows/s", work, threads=threads), as_json=options.json)
        if dense is not None:
            torch.set_num_threads(1)
            positions = [torch.from_numpy(np.abs(batch) % rows) for batch in keys]

            def dense_lookup(repeat: int, positions: list[torch.Tensor] = positions) -> int:
                with torch.no_grad():
                    for batch in range(BATCHES):
                        dense(positions[(repeat * BATCHES + batch) % len(positions)], offsets)
                return BATCHES * BATCH_SIZE

            case = f"lookup-{rows}x{DIM}-{name}"
            show(
                measure(case, f"torch {torch.__version__} dense", "rows/s", dense_lookup),
                as_json=options.json,
            )
        show(lookup_limit(f"lookup-{rows}x{DIM}-{name}"), as_json=options.json)


if __name__ == "__main__":
    main()
