"""One import in each system: edge lists with original ids become CSC arrays on disk.

Run as a process of its own, so that its memory and its writes are its own:

python -m benchmarks.ingest_systems SYSTEM OUTPUT MEMORY_BYTES TABLE:SOURCE_TYPE:TARGET_TYPE ...
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq


@dataclass(frozen=True)
class EdgeList:
    """A table with the columns ``source`` and ``target``, and the node types of both."""

    path: Path
    source_type: str
    target_type: str


Import: TypeAlias = Callable[[Sequence[EdgeList], Path, int], None]


def import_graphbox(tables: Sequence[EdgeList], output: Path, memory_bytes: int) -> None:
    """Import by graphbox; node types have no tables, so ids are numbered as they are met."""
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.ingest import import_graph

    types = dict.fromkeys(each for table in tables for each in (table.source_type, table.target_type))
    edges = tuple(
        EdgeSource(type=(table.source_type, f"to{number}", table.target_type), data=table.path)
        for number, table in enumerate(tables)
    )
    source = GraphSource("benchmark", {each: NodeSource() for each in types}, edges)
    import_graph(source, output / "graph", memory_bytes=memory_bytes)


def import_polars(tables: Sequence[EdgeList], output: Path, memory_bytes: int) -> None:
    """Number ids by unique and join, sort by target and source, save with NumPy. Has no memory limit."""
    import polars as pl

    del memory_bytes
    for number, table in enumerate(tables):
        if table.path.suffix == ".parquet":
            edges = pl.read_parquet(table.path)
        else:
            edges = pl.read_csv(table.path, separator="\t")
        numbers = {}
        ends = [("source", table.source_type), ("target", table.target_type)]
        for node_type in dict.fromkeys(each for _, each in ends):
            columns = [edges[column] for column, each in ends if each == node_type]
            ids = pl.concat(columns).unique(maintain_order=True)
            np.save(
                output / f"{number}-{node_type}-ids.npy",
                ids.to_numpy().astype("S" if ids.dtype == pl.String else np.int64),
            )
            numbers[node_type] = pl.DataFrame({"id": ids}).with_row_index("index")
        for column, node_type in ends:
            edges = edges.join(
                numbers[node_type], left_on=column, right_on="id", maintain_order="left"
            ).rename({"index": f"{column}_index"})
        edges = edges.select("source_index", "target_index").unique().sort("target_index", "source_index")
        _save_csc(output, number, edges["source_index"].to_numpy(), edges["target_index"].to_numpy())


def import_duckdb(tables: Sequence[EdgeList], output: Path, memory_bytes: int) -> None:
    """Number ids by a window function, join, sort in SQL under a memory limit, save with NumPy."""
    import duckdb

    connection = duckdb.connect(str(output / "database.duckdb"))
    connection.execute(f"SET memory_limit = '{memory_bytes * 3 // 4} B'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"SET temp_directory = '{output / 'spill'}'")
    for number, table in enumerate(tables):
        read = (
            f"'{table.path}'" if table.path.suffix == ".parquet" else f"read_csv('{table.path}', delim='\t')"
        )
        ends = [("source", table.source_type), ("target", table.target_type)]
        for node_type in dict.fromkeys(each for _, each in ends):
            columns = " UNION ".join(
                f"SELECT DISTINCT {c} AS id FROM {read}" for c, each in ends if each == node_type
            )
            connection.execute(
                f"CREATE OR REPLACE TABLE ids_{node_type} AS "
                f"SELECT id, (row_number() OVER ()) - 1 AS index FROM ({columns})"
            )
        connection.execute(
            "CREATE OR REPLACE TABLE edges AS SELECT t.index::INT AS target, s.index::INT AS source "
            f"FROM {read} e JOIN ids_{table.source_type} s ON e.source = s.id "
            f"JOIN ids_{table.target_type} t ON e.target = t.id"
        )
        sorted_path = output / f"{number}-sorted.parquet"
        # Sorted first, repetitions dropped after: DISTINCT would hold all edges at once.
        connection.execute(
            "COPY (SELECT target, source FROM edges ORDER BY target, source) "
            f"TO '{sorted_path}' (COMPRESSION uncompressed)"
        )
        _stream_csc(output, number, sorted_path)
        sorted_path.unlink()


def import_pyg(tables: Sequence[EdgeList], output: Path, memory_bytes: int) -> None:
    """Number ids by Arrow's dictionary encoding, then coalesce and convert by PyTorch Geometric."""
    import torch
    from torch_geometric.utils import coalesce, to_torch_csc_tensor

    del memory_bytes
    for number, table in enumerate(tables):
        edges = read_arrow(table.path)
        columns = [edges.column(name).combine_chunks() for name in ("source", "target")]
        same = table.source_type == table.target_type
        groups = [pa.chunked_array(columns)] if same else columns
        encoded = [group.dictionary_encode() for group in groups]
        if same:
            codes = [np.asarray(chunk.indices) for chunk in encoded[0].chunks]
            sizes = [len(encoded[0].chunk(len(codes) - 1).dictionary)] * 2
        else:
            codes = [np.asarray(each.indices) for each in encoded]
            sizes = [len(each.dictionary) for each in encoded]
        edge_index = coalesce(torch.from_numpy(np.stack(codes).astype(np.int64)))
        csc = to_torch_csc_tensor(edge_index, size=(sizes[0], sizes[1]))
        np.save(output / f"{number}-indptr.npy", csc.ccol_indices().numpy())
        np.save(output / f"{number}-indices.npy", csc.row_indices().numpy())


def read_arrow(path: Path) -> pa.Table:
    """Read a table wholly with pyarrow."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    return arrow_csv.read_csv(path, parse_options=arrow_csv.ParseOptions(delimiter="\t"))


def _save_csc(output: Path, number: int, source: Any, target: Any) -> None:
    degree = np.bincount(target)
    np.save(output / f"{number}-indptr.npy", np.concatenate([[0], np.cumsum(degree)]).astype(np.int64))
    np.save(output / f"{number}-indices.npy", source.astype(np.int32))


def _stream_csc(output: Path, number: int, sorted_path: Path) -> None:
    degree, last = np.zeros(0, np.int64), (-1, -1)
    with (output / f"{number}-indices.bin").open("wb") as file, pq.ParquetFile(sorted_path) as table:
        for batch in table.iter_batches(1 << 20):
            source, target = (batch.column(name).to_numpy() for name in ("source", "target"))
            keep = np.array([last != (source[0], target[0])])
            keep = np.concatenate([keep, (np.diff(source) != 0) | (np.diff(target) != 0)])
            last = (source[-1], target[-1])
            file.write(source[keep].astype(np.int32).data)
            added = np.bincount(target[keep])
            degree = np.pad(degree, (0, max(0, len(added) - len(degree))))
            degree[: len(added)] += added
    np.save(output / f"{number}-indptr.npy", np.concatenate([[0], np.cumsum(degree)]))


SYSTEMS: dict[str, tuple[Import, str]] = {
    "graphbox": (import_graphbox, "graphbox.graph.ingest"),
    "polars": (import_polars, "polars"),
    "duckdb": (import_duckdb, "duckdb"),
    "pyg": (import_pyg, "torch_geometric.utils"),
}
"""Import function of each system, and the module whose loading is not measured."""


def _peak_memory_bytes() -> int:
    """Return the most that was resident. A child inherits ru_maxrss from the process that started it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def _written_bytes() -> int:
    """Return the bytes this process has passed to write calls, temporary files included."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def main() -> None:
    """Import once and print what it took."""
    system, output, memory_bytes, *tables = sys.argv[1:]
    edge_lists = [
        EdgeList(Path(path), *types.split(":")) for path, _, types in (t.partition(":") for t in tables)
    ]
    work, module = SYSTEMS[system]
    importlib.import_module(module)
    started, cpu, written = time.perf_counter(), time.process_time(), _written_bytes()
    work(edge_lists, Path(output), int(memory_bytes))
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - started,
                "cpu_seconds": time.process_time() - cpu,
                "written_bytes": _written_bytes() - written,
                "peak_memory_bytes": _peak_memory_bytes(),
            }
        )
    )


if __name__ == "__main__":
    main()
