"""Rows per second of reading tables of edges as streams of bounded batches.

python benchmarks/source.py [--quick] [--json]

Files of two columns of 64-bit ids, in the page cache: TSV plain and compressed, TSV of quoted names, and
Parquet. Equal cases give equal columns. The limit reads the bytes of the file and does nothing with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from benchmarks.measure import arguments, measure, show
from graphbox.graph.source import open_table

BATCH_BYTES = 32 << 20
COLUMNS = ["source", "target"]


def write_tables(folder: Path, num_rows: int) -> dict[str, Path]:
    """Write the same edges in every format; return the files by case."""
    random = np.random.default_rng(0)
    edges = pa.table({name: random.integers(10**18, 2**63 - 1, num_rows) for name in COLUMNS})
    names = pa.table({name: [f'"{i % 977}", \u00e9' for i in range(num_rows)] for name in COLUMNS})
    files = {
        "tsv": folder / "edges.tsv",
        "tsv-gzip": folder / "edges.tsv.gz",
        "tsv-zstd": folder / "edges.tsv.zst",
        "tsv-quoted": folder / "names.tsv",
        "parquet": folder / "edges.parquet",
    }
    for case, path in files.items():
        if case == "parquet":
            pq.write_table(edges, path, use_dictionary=False)
            continue
        options = arrow_csv.WriteOptions(delimiter="\t", quoting_style="needed")
        with pa.output_stream(str(path), compression="detect") as stream:
            arrow_csv.write_csv(names if case == "tsv-quoted" else edges, stream, options)
    return files


def read_with_graphbox(path: Path, threads: int) -> int:
    """Read both columns; return the number of rows."""
    batches = open_table(path, threads=threads).batches(COLUMNS, batch_bytes=BATCH_BYTES)
    return sum(batch.num_rows for batch in batches)


def read_with_pyarrow(path: Path, threads: int) -> int:
    """Read both columns with the streaming readers of PyArrow; return the number of rows."""
    return sum(batch.num_rows for batch in _pyarrow_batches(path, threads))


def _pyarrow_batches(path: Path, threads: int) -> Iterator[pa.RecordBatch]:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(columns=COLUMNS, use_threads=threads > 1)
        return
    with pa.input_stream(str(path)) as stream:
        yield from arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(use_threads=threads > 1, block_size=1 << 20),
            arrow_csv.ParseOptions(delimiter="\t", newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.large_string())),
        )


def read_bytes(path: Path) -> None:
    """Read a file and drop it."""
    buffer = bytearray(4 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def main() -> None:
    """Run all cases."""
    options = arguments("rows of tables read per second")
    num_rows = 100_000 if options.quick else 5_000_000
    readers: dict[str, Callable[[Path, int], int]] = {
        "graphbox": read_with_graphbox,
        f"pyarrow {pa.__version__}": read_with_pyarrow,
    }
    with tempfile.TemporaryDirectory() as folder:
        for case, path in write_tables(Path(folder), num_rows).items():
            for system, reader in readers.items():
                for threads in (1, 2):

                    def work(
                        _: int,
                        path: Path = path,
                        reader: Callable[[Path, int], int] = reader,
                        threads: int = threads,
                    ) -> int:
                        return reader(path, threads)

                    measured = measure(f"read-{case}", system, "rows/s", work, threads=threads, repeats=3)
                    show(measured, as_json=options.json)

            def limit(_: int, path: Path = path) -> int:
                read_bytes(path)
                return num_rows

            show(measure(f"read-{case}", "limit", "rows/s", limit, repeats=3), as_json=options.json)


if __name__ == "__main__":
    main()
