"""Edge lists that the import benchmarks read: a real one with its ids mixed, and R-MAT of any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

__all__ = ["mix", "write_kernel", "write_rmat"]

CHUNK_EDGES = 1 << 22
ROW_GROUP_ROWS = 1 << 20


def mix(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return distinct numbers scattered over all 64 bits (finalizer of SplitMix64, Steele et al. 2014)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((z ^ (z >> np.uint64(31))).view(np.int64))


def _as_ids(numbers: npt.NDArray[np.int64], kind: str) -> pa.Array:
    mixed = pa.array(mix(numbers))
    return mixed if kind == "int64" else mixed.cast(pa.string())


def write_kernel(source: Path, folder: Path, kind: str, suffix: str) -> dict[str, Path]:
    """Write the file-identifier and file-file edges of the kernel graph, in a seeded random order.

    Args:
        source: ``graph.npz`` of the kernel graph.
        folder: where the tables go; those that are there already stay.
        kind: ``int64`` or ``string`` ids.
        suffix: ``parquet`` or ``tsv``.

    Returns:
        The table of each relation, ``contains`` and ``includes``.
    """
    paths = {name: folder / f"kernel-{name}-{kind}.{suffix}" for name in ("contains", "includes")}
    if all(path.exists() for path in paths.values()):
        return paths
    with np.load(source, allow_pickle=False) as arrays:
        indptr = arrays["indptr"].astype(np.int64)
        delta = arrays["index_delta"].astype(np.int64)
        includes = arrays["includes"].astype(np.int64)
        num_files = int(arrays["num_nodes"][0])
    total = np.cumsum(delta)
    starts = indptr[:-1][np.diff(indptr) > 0]
    identifier = total - np.repeat((total - delta)[starts], np.diff(np.append(starts, len(delta))))
    file = np.repeat(np.arange(num_files), np.diff(indptr))
    order = np.random.default_rng(0).permutation(len(file))
    edges = {
        "contains": (file[order], identifier[order] + num_files),
        "includes": (includes[:, 0], includes[:, 1]),
    }
    for name, (sources, targets) in edges.items():
        table = pa.table({"source": _as_ids(sources, kind), "target": _as_ids(targets, kind)})
        _write(table, paths[name])
    return paths


def _write(table: pa.Table, path: Path) -> None:
    beside = path.with_name(path.name + ".part")
    if path.suffix == ".parquet":
        pq.write_table(table, beside, row_group_size=ROW_GROUP_ROWS, use_dictionary=False, compression="zstd")
    else:
        options = arrow_csv.WriteOptions(delimiter="\t", quoting_style="none")
        arrow_csv.write_csv(table, beside, options)
    beside.replace(path)


def _rmat_chunks(scale: int, edges: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield R-MAT edges (Chakrabarti, Zhan, Faloutsos, SDM 2004; quadrants of Graph500), relabelled."""
    label = np.random.default_rng([0, 0]).permutation(1 << scale)
    for number, start in enumerate(range(0, edges, CHUNK_EDGES)):
        rng = np.random.default_rng([0, 1 + number])
        size = min(CHUNK_EDGES, edges - start)
        source, target = np.zeros(size, np.int32), np.zeros(size, np.int32)
        for _ in range(scale):
            draw = rng.random(size, dtype=np.float32)
            lower = draw >= np.float32(0.76)
            right = ((draw >= np.float32(0.57)) & ~lower) | (draw >= np.float32(0.95))
            source = source * 2 + lower
            target = target * 2 + right
        keep = source != target
        yield label[source[keep]], label[target[keep]]


def write_rmat(folder: Path, scale: int, edge_factor: int = 8) -> Path:
    """Write R-MAT with both directions of every edge and scattered ids as Parquet, in bounded memory.

    Duplicates stay; the import drops them. Scale 24 has 268 M rows and about 263 M different edges.
    """
    path = folder / f"rmat{scale}.parquet"
    if path.exists():
        return path
    beside = path.with_name(path.name + ".part")
    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    with pq.ParquetWriter(beside, schema, use_dictionary=False, compression="none") as writer:
        for source, target in _rmat_chunks(scale, edge_factor << scale):
            sources, targets = mix(source), mix(target)
            both = [np.concatenate(pair) for pair in ((sources, targets), (targets, sources))]
            table = pa.Table.from_arrays([pa.array(each) for each in both], schema=schema)
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
    beside.replace(path)
    return path
