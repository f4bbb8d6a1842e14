"""Building graphs out of core: ids are numbered, edges sorted and written, within a budget of memory.

The work is native and releases the interpreter; Arrow buffers and NumPy arrays are passed as they are. The
same input gives the same bytes on disk, whatever the memory, the number of threads and the size of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.graph.format import FolderWriter
from graphbox.graph.schema import IdType, Int64Array
from graphbox.id_index import id_buffers, valid_rows
from graphbox.native import thread_count

PayloadType: TypeAlias = "np.dtype[Any] | tuple[np.dtype[Any], tuple[int, ...]]"
"""Type of one row of a column: a number, or an array of numbers of this shape."""

Histogram: TypeAlias = tuple[Int64Array, Int64Array]
"""Distinct degrees, ascending, and how many nodes have each."""

_Written: TypeAlias = tuple[str, tuple[int, ...], int]


def _ids_of_kind(ids: pa.Array, kind: IdType) -> pa.Array:
    wanted = pa.int64() if kind == "int64" else pa.large_string()
    if ids.type == wanted:
        return ids
    if kind == "string" and pa.types.is_string(ids.type):
        return ids.cast(wanted)
    raise UsageError(f"expected ids of type {wanted}, received {ids.type}")


class NodeIds:
    """The original ids of one node type while a graph is built.

    With a node table, ids are numbered by :meth:`add` in the order of its rows; without one, by the edge
    builders as they are first met. :meth:`close` says that all are there; then edges can be finished and ids
    written.

    Args:
        kind: what the ids are.
        scratch: folder for temporary files.
        memory_bytes: what may be held at most.
        threads: worker threads; by default one for each processor of this process.

    Raises:
        DoesNotFitError: the memory is too little to work with; it says how much is needed.
    """

    def __init__(self, kind: IdType, *, scratch: Path, memory_bytes: int, threads: int | None = None) -> None:
        self.kind: IdType = kind
        self._native = _core.NodeIds(kind, str(scratch), memory_bytes, thread_count(threads))

    @property
    def native(self) -> _core.NodeIds:
        """Handle for the native edge builder."""
        return self._native

    @property
    def num_nodes(self) -> int:
        """Number of ids so far; known for certain once closed."""
        return self._native.num_nodes

    @property
    def num_isolated(self) -> int:
        """Nodes at no end of an edge of any builder that has finished."""
        return self._native.num_isolated

    @property
    def held_bytes(self) -> int:
        """Memory held now."""
        return self._native.held_bytes

    @property
    def num_repeated(self) -> int:
        """Rows of the node table whose id was there already; they are no nodes."""
        return self._native.num_repeated

    @property
    def first_repeated(self) -> tuple[int, int, Any] | None:
        """(row, row of the repetition, id) of the first row whose id was there already, or None."""
        repeated = self._native.first_repeated
        if repeated is None:
            return None
        row, again = repeated
        # Up to the first repetition every row was a new node, so its row is its number.
        return row, again, self.take(np.array([row], np.int64))[0].as_py()

    def add(self, ids: pa.Array) -> None:
        """Number the ids of the next rows of the node table.

        Args:
            ids: int64, or strings, as ``kind`` says; without nulls.

        Raises:
            UsageError: the ids are of another type, or some are null.
            DoesNotFitError: there is not enough memory or disk.
        """
        if ids.null_count:
            raise UsageError(f"expected an id in every row, received {ids.null_count:,} nulls")
        self._native.add(*id_buffers(_ids_of_kind(ids, self.kind)))

    def close(self) -> None:
        """Say that all ids are there: the node table was read, or all edges were added."""
        self._native.close()

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the number of each id: int64 [len(ids)], -1 for an unknown id or null."""
        return self._native.find(*id_buffers(_ids_of_kind(ids, self.kind)), valid_rows(ids))

    def take(self, index: Int64Array) -> pa.Array:
        """Return the ids at these numbers: int64 or large_string."""
        values, text = self._native.take(np.ascontiguousarray(index, np.int64))
        if self.kind == "int64":
            return pa.array(values)
        return pa.LargeStringArray.from_buffers(len(values) - 1, pa.py_buffer(values), pa.py_buffer(text))

    def write(self, writer: FolderWriter, folder: str) -> dict[str, Any]:
        """Write the ids and their hash index.

        Args:
            writer: the graph's.
            folder: name of the node type's folder within it.

        Returns:
            What the manifest says of ids: ``kind``, ``index``, and ``values`` or ``offsets`` and ``text``.
        """
        names = (
            {"values": f"{folder}/ids"}
            if self.kind == "int64"
            else {
                "offsets": f"{folder}/ids-offsets",
                "text": f"{folder}/ids-text",
            }
        )
        names["index"] = f"{folder}/ids-index"
        written = self._native.write([str(writer.path_of(name)) for name in names.values()])
        return {
            "kind": self.kind,
            **{key: _adopt(writer, name, written[key]) for key, name in names.items()},
        }


def _adopt(writer: FolderWriter, name: str, written: _Written) -> str:
    dtype, shape, crc32c = written
    return writer.adopt(name, dtype, shape, crc32c)


@dataclass(frozen=True)
class AddedEdges:
    """Result of adding one batch of edges.

    Attributes:
        dangling_rows: int64, positions within the batch of edges left out, ascending; None when the ids are
            looked up in :meth:`EdgeBuilder.finish`, whose result then has them.
    """

    dangling_rows: Int64Array | None


@dataclass(frozen=True)
class BuiltEdges:
    """Result of building all edges.

    Attributes:
        num_edges: edges written.
        rows: rows added.
        duplicates: rows whose (source, target) was there already, kept or not.
        self_loops: edges written whose ends are the same node; 0 when the ends are of two node types.
        dangling: rows left out.
        duplicate_examples: (source index, target index) of the first repeated edges in the order written.
        self_loop_examples: node index of the first edges that are self-loops in the order written.
        dangling_examples: the first dangling rows, counted over all that was added, from 0.
        in_degrees: distinct in-degrees of all target nodes, 0 too, and the number of nodes of each.
        out_degrees: the same of all source nodes.
        arrays: name in the manifest of each array written: ``indptr``, ``indices``, the payload columns, and
            with ``csr`` also ``csr-indptr``, ``csr-indices``, ``csr-edge-ids``.
    """

    num_edges: int
    rows: int
    duplicates: int
    self_loops: int
    dangling: int
    duplicate_examples: tuple[tuple[int, int], ...]
    self_loop_examples: tuple[int, ...]
    dangling_examples: tuple[int, ...]
    in_degrees: Histogram
    out_degrees: Histogram
    arrays: Mapping[str, str] = field(default_factory=dict)


class EdgeBuilder:
    """The edges of one edge type while a graph is built.

    Edges are written by target, then source, then the order in which they were added.

    Args:
        sources: ids of the source node type; the same object as ``targets`` when both ends are of one type.
        targets: ids of the target node type.
        discover: whether ids of either end that are new become nodes.
        columns: what goes along with each edge, by name.
        keep_duplicates: keep every edge of a repeated (source, target) instead of the first.
        scratch: folder for temporary files.
        memory_bytes: what may be held at most, beside what the ids hold.
        threads: worker threads; by default one for each processor of this process.
    """

    def __init__(
        self,
        sources: NodeIds,
        targets: NodeIds,
        *,
        discover: tuple[bool, bool],
        columns: Mapping[str, PayloadType],
        keep_duplicates: bool,
        scratch: Path,
        memory_bytes: int,
        threads: int | None = None,
    ) -> None:
        self._sources, self._targets = sources, targets
        self._columns = {
            name: (np.dtype(given[0]), tuple(given[1])) if isinstance(given, tuple) else (np.dtype(given), ())
            for name, given in columns.items()
        }
        self._native = _core.EdgeBuilder(
            sources.native,
            targets.native,
            *discover,
            [(dtype.str, list(shape)) for dtype, shape in self._columns.values()],
            keep_duplicates,
            str(scratch),
            memory_bytes,
            thread_count(threads),
        )

    def add(
        self, source_ids: pa.Array, target_ids: pa.Array, columns: Mapping[str, npt.NDArray[Any]]
    ) -> AddedEdges:
        """Add edges.

        An edge with a null end, or with an end that is no node, is left out. Where ids are discovered, an end
        that is met becomes a node even when the other end turns out to be none; a row with a null end meets
        none.

        Args:
            source_ids: original id of each edge's source: int64, or strings.
            target_ids: the same of the target.
            columns: a row for each edge, by name, of the types given to the builder.

        Raises:
            UsageError: lengths, names or types differ from what was announced.
            DoesNotFitError: there is not enough memory or disk.
        """
        if columns.keys() != self._columns.keys():
            raise UsageError(f"expected the columns {list(self._columns)}, received {list(columns)}")
        arrays = []
        for name, (dtype, shape) in self._columns.items():
            array = columns[name]
            expected = (len(source_ids), *shape)
            if array.dtype != dtype or array.shape != expected:
                raise UsageError(
                    f"expected {dtype} {list(expected)}, received {array.dtype} {list(array.shape)}",
                    where=f"column `{name}`",
                )
            arrays.append(np.ascontiguousarray(array))
        dangling = self._native.add(
            *id_buffers(_ids_of_kind(source_ids, self._sources.kind)),
            *id_buffers(_ids_of_kind(target_ids, self._targets.kind)),
            valid_rows(source_ids, target_ids),
            arrays,
        )
        return AddedEdges(dangling)

    def keep(self, most_bytes: int) -> int:
        """Say that all edges were added, and that others come before :meth:`finish`.

        Args:
            most_bytes: memory that the edges may keep until then; if they need more, they go to the disk.

        Returns:
            The bytes that they keep: 0 when they are on the disk.
        """
        return self._native.keep(most_bytes)

    def finish(
        self,
        writer: FolderWriter,
        folder: str,
        csr: bool = False,
        recode: Mapping[str, npt.NDArray[np.int32]] | None = None,
    ) -> BuiltEdges:
        """Write the edges. The ids of both ends must be closed.

        Args:
            writer: where to.
            folder: name of the edge type's folder; the arrays are ``<folder>/indptr``, ``<folder>/indices``
                and ``<folder>/<name>`` for each payload column.
            csr: write the edges by source as well.
            recode: new codes by old code, for payload columns of int32 codes; -1 stays.

        Raises:
            UsageError: the ids are not closed, or the edges are finished already.
            DoesNotFitError: there is not enough memory or disk.
        """
        by_source = ("csr-indptr", "csr-indices", "csr-edge-ids") if csr else ()
        numbers = {name: number for number, name in enumerate(self._columns)}
        names = {name: f"{folder}/{name}" for name in ("indptr", "indices", *self._columns, *by_source)}
        paths = {name: str(writer.path_of(path)) for name, path in names.items()}
        built = self._native.finish(
            paths["indptr"],
            paths["indices"],
            [paths[name] for name in self._columns],
            [paths[name] for name in by_source],
            [
                (numbers[name], np.ascontiguousarray(codes, np.int32))
                for name, codes in (recode or {}).items()
            ],
        )
        written = {
            "indptr": built.pop("indptr"),
            "indices": built.pop("indices"),
            **dict(zip(self._columns, built.pop("columns"), strict=True)),
            **dict(zip(by_source, built.pop("by_source"), strict=True)),
        }
        arrays = {name: _adopt(writer, names[name], file) for name, file in written.items()}
        return BuiltEdges(**built, arrays=arrays)


_MEBIBYTE = 1 << 20
_HUGE_PAGE_BYTES = 2 * _MEBIBYTE
_IDS_WORKING_BYTES = 4 * _MEBIBYTE
_BUCKET_BYTES, _BUCKET_IDS = 64, 4
_FEWEST_IDS = 1 << 12


def ids_bytes(num_ids: int, text_bytes: int, *, tight: bool = False) -> int:
    """Return what so many ids hold in memory while a graph is built.

    Args:
        num_ids: distinct ids.
        text_bytes: bytes of all ids that are strings, 0 for integers.
        tight: with the fewest buckets that do, as where there is no memory for more.
    """
    capacity = max(num_ids, _FEWEST_IDS)
    if not tight:  # a power of two, or three quarters of one: see csrc/graph/id_table.cpp
        power = 1 << (capacity - 1).bit_length()
        capacity = power // 4 * 3 if power // 4 * 3 >= capacity else power
    buckets_bytes = _BUCKET_BYTES * -(-capacity // _BUCKET_IDS)
    buckets_bytes = -(-buckets_bytes // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    return _IDS_WORKING_BYTES + buckets_bytes + 8 * (num_ids + 1) + text_bytes
