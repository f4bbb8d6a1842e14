"""Lists of neighbours written to disk under a budget: an external sort of edges by row and neighbour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from graphbox.graph.array_file import ArrayFile
from graphbox.graph.schema import Int64Array
from graphbox.graph.tier import ListFiles

WEIGHT = "weight"
"""Name of the column, float32, that is added up where equal neighbours are written once."""

_ENTRY_BYTES = 64
"""Memory of an entry while its part is sorted: as it was read, its sort key, its place, a column twice."""

_MOST_PARTS = 256
_MOST_BINS = 1 << 16
_FEWEST_EDGES, _MOST_EDGES = 1 << 10, 1 << 22


class Entries(NamedTuple):
    """Some entries of lists, in any order.

    Attributes:
        rows: int64 [n], the list of each.
        neighbors: int64 [n], what the list holds.
        columns: numbers [n] of each by name, those that are to be written.
    """

    rows: Int64Array
    neighbors: Int64Array
    columns: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class WrittenLists:
    """Lists on disk, ascending; those of equal neighbours in the order in which they came.

    Attributes:
        files: ``indices`` int32, and the columns.
        lengths: int64 [rows].
        weight_sums: float64 [rows], the sum of the weights of each list: the difference of two sums over all
            lists up to its ends. None without weights.
    """

    files: ListFiles
    lengths: Int64Array
    weight_sums: npt.NDArray[np.float64] | None


def block_edges(memory_bytes: int) -> int:
    """Return how many edges to give :func:`write_lists` at a time."""
    return min(max(memory_bytes // (4 * _ENTRY_BYTES), _FEWEST_EDGES), _MOST_EDGES)


def write_lists(
    folder: Path,
    entries: Callable[[], Iterable[Entries]],
    num_rows: int,
    columns: Mapping[str, npt.DTypeLike],
    *,
    merge: bool,
    memory_bytes: int,
) -> WrittenLists:
    """Write lists of neighbours.

    Entries are read twice: to count them, and to write them into files of a part of the rows each, which are
    sorted one after the other. A single list is always sorted in memory.

    Args:
        folder: a folder, made here, for the files and those that are there meanwhile.
        entries: gives all of them, the same each time; rows and neighbours below 2^31.
        num_rows: number of lists.
        columns: type of the numbers of each column of the entries, by name.
        merge: write equal neighbours of a row once, with the sum of their weights; no other columns then.
        memory_bytes: memory for sorting, beside 16 bytes for each row.
    """
    folder.mkdir(parents=True)
    bounds = _part_bounds(entries(), num_rows, memory_bytes)
    dtype = np.dtype([("row", "<i4"), ("neighbor", "<i4"), *((name, of) for name, of in columns.items())])
    parts = [folder / f"part-{number}" for number in range(len(bounds) - 1)]
    _distribute(entries(), bounds, parts, dtype)
    lengths = np.zeros(num_rows, np.int64)
    sums = np.zeros(num_rows) if WEIGHT in columns else None
    total, weight_total = 0, 0.0
    with ExitStack() as held:
        files = {name: held.enter_context((folder / name).open("wb")) for name in ("indices", *columns)}
        for path, first, last in zip(parts, bounds[:-1], bounds[1:], strict=True):
            rows, values = _sorted(np.fromfile(path, dtype), merge=merge)
            path.unlink()
            part = slice(int(first), int(last))
            lengths[part] = np.bincount(rows - first, minlength=last - first)
            total += len(rows)
            for name, each in values.items():
                _write(files[name], each)
            if sums is not None:
                sums[part], weight_total = _sums(values[WEIGHT], lengths[part], weight_total)
    return WrittenLists(_files(folder, lengths, total, columns), lengths, sums)


def _part_bounds(entries: Iterable[Entries], num_rows: int, memory_bytes: int) -> Int64Array:
    """Return where the rows of each part begin, and the number of rows: int64 [parts + 1]."""
    shift = max(0, (max(num_rows, 1) - 1).bit_length() - (_MOST_BINS.bit_length() - 1))
    bins = (max(num_rows, 1) - 1 >> shift) + 1
    counts = np.zeros(bins, np.int64)
    for block in entries:
        counts += np.bincount(block.rows >> shift, minlength=bins)
    before = np.cumsum(counts) - counts
    part_entries = max(memory_bytes // _ENTRY_BYTES, int(counts.sum()) // _MOST_PARTS + 1)
    starts = np.flatnonzero(np.diff(before // part_entries)) + 1
    return np.concatenate([[0], starts << shift, [num_rows]])


def _distribute(
    entries: Iterable[Entries], bounds: Int64Array, parts: list[Path], dtype: np.dtype[np.void]
) -> None:
    """Append each entry to the file of the part that its row is in."""
    with ExitStack() as held:
        files = [held.enter_context(path.open("wb")) for path in parts]
        for block in entries:
            part_of = (np.searchsorted(bounds, block.rows, side="right") - 1).astype(np.uint16)
            order = np.argsort(part_of, kind="stable")
            records = np.empty(len(order), dtype)
            records["row"], records["neighbor"] = block.rows[order], block.neighbors[order]
            for name, column in block.columns.items():
                records[name] = column[order]
            ends = np.cumsum(np.bincount(part_of, minlength=len(files)))
            for number, (file, end) in enumerate(zip(files, ends.tolist(), strict=True)):
                begin = 0 if number == 0 else int(ends[number - 1])
                if end > begin:
                    _write(file, records[begin:end])


def _sorted(records: npt.NDArray[np.void], *, merge: bool) -> tuple[Int64Array, dict[str, npt.NDArray[Any]]]:
    """Return rows, and neighbours (``indices``) and columns, in their order."""
    key = records["row"].astype(np.int64) << 32 | records["neighbor"]
    columns = [name for name in records.dtype.names or () if name not in ("row", "neighbor")]
    values: dict[str, npt.NDArray[Any]] = {}
    if columns:
        order = np.argsort(key, kind="stable")
        key = key[order]
        values = {name: records[name][order] for name in columns}
    else:
        key.sort()
    if merge and len(key):
        is_first = np.ones(len(key), bool)
        is_first[1:] = key[1:] != key[:-1]
        if WEIGHT in values:
            firsts = np.flatnonzero(is_first)
            values[WEIGHT] = np.add.reduceat(values[WEIGHT].astype(np.float64), firsts).astype(np.float32)
        key = key[is_first]
    return key >> 32, {"indices": (key & 0xFFFFFFFF).astype(np.int32), **values}


def _sums(
    weight: npt.NDArray[Any], lengths: Int64Array, before: float
) -> tuple[npt.NDArray[np.float64], float]:
    """Return the sum of each list, and that of all up to here; ``before``: that of all before these."""
    sums = np.cumsum(np.concatenate([[before], weight]), dtype=np.float64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.diff(sums[ends]), float(sums[-1])


def _write(file: BinaryIO, array: npt.NDArray[np.generic]) -> None:
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _files(folder: Path, lengths: Int64Array, total: int, columns: Mapping[str, npt.DTypeLike]) -> ListFiles:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    offsets.tofile(folder / "indptr")
    items = {
        name: ArrayFile(folder / name, 0, np.dtype(of), (total,))
        for name, of in {"indices": np.int32, **columns}.items()
    }
    return ListFiles(ArrayFile(folder / "indptr", 0, np.dtype(np.int64), offsets.shape), items)
