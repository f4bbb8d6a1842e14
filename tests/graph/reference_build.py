"""Plain NumPy reference of the builder of graphs: the same faces as `graphbox.graph.build`, all in memory.

What it says is what the native builder must do on any input, with any memory and any number of threads:

* Nodes of a table are numbered in the order of its rows. Nodes without a table are numbered as their ids are
  first met at the ends of edges, row by row, the source before the target; a row with a null end is no edge,
  and neither of its ends is met. An end that is met counts even when the other end turns out to be dangling.
* An edge with a null end, or with an end that is no node, is dangling and left out.
* Edges are ordered by target, then source, then the order in which they were added. Of repeated
  (source, target) the first is kept, or all with ``keep_duplicates``; both ways the repetitions are counted.
* Payload columns follow the edges into that order. Nothing is known of their meaning, except that a column
  named in ``recode`` holds codes, which are replaced while they are written (-1 stays).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.graph.schema import IdType

EXAMPLES = 5

PayloadType: TypeAlias = "np.dtype[Any] | tuple[np.dtype[Any], tuple[int, ...]]"
Histogram: TypeAlias = "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]"
"""Distinct degrees, ascending, and how many nodes have each."""


class Writer(Protocol):
    """Part of `graphbox.graph.format.FolderWriter` that the reference needs."""

    def add(self, name: str, array: npt.NDArray[Any]) -> str: ...


class MemoryWriter:
    """Keeps the arrays by name instead of writing files."""

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def add(self, name: str, array: npt.NDArray[Any]) -> str:
        self.arrays[name] = np.array(array)
        return name


class NodeIds:
    """Ids of one node type: a dictionary from id to node index.

    Attributes:
        first_repeated: (row, row of the repetition, id) of the first row whose id was there already.
        num_repeated: rows whose id was there already.
    """

    def __init__(self, kind: IdType, *, scratch: Path, memory_bytes: int, threads: int | None = None) -> None:
        self.kind = kind
        self.index: dict[Any, int] = {}
        self.first_repeated: tuple[int, int, Any] | None = None
        self.num_repeated = 0
        self.used: set[int] = set()

    @property
    def num_nodes(self) -> int:
        return len(self.index)

    @property
    def held_bytes(self) -> int:
        """The reference does not count."""
        return 0

    @property
    def num_isolated(self) -> int:
        """Nodes at no end of an edge of any builder that has finished."""
        return self.num_nodes - len(self.used)

    def add(self, ids: pa.Array) -> None:
        for value in ids.to_pylist():
            assert value is not None
            row = self.num_nodes + self.num_repeated
            if value in self.index:
                self.num_repeated += 1
                # Until the first repetition, row and node index are the same number.
                self.first_repeated = self.first_repeated or (self.index[value], row, value)
            else:
                self.index[value] = len(self.index)

    def close(self) -> None:
        """Say that the node table has been read."""

    def find(self, ids: pa.Array) -> npt.NDArray[np.int64]:
        return np.array([self.index.get(value, -1) for value in ids.to_pylist()], np.int64)

    def take(self, index: npt.NDArray[np.int64]) -> pa.Array:
        """Return the ids of nodes."""
        ids = list(self.index)
        return pa.array([ids[i] for i in index.tolist()], arrow_type(self.kind))

    def write(self, writer: Writer, folder: str) -> dict[str, Any]:
        """Write the ids (not their index, whose layout has a reference of its own)."""
        ids = pa.array(list(self.index), arrow_type(self.kind))
        if self.kind == "int64":
            return {"kind": "int64", "values": writer.add(f"{folder}/ids", ids.to_numpy())}
        text = [value.encode() for value in self.index]
        offsets = np.cumsum([0, *map(len, text)], dtype=np.int64)
        return {
            "kind": "string",
            "offsets": writer.add(f"{folder}/ids-offsets", offsets),
            "text": writer.add(f"{folder}/ids-text", np.frombuffer(b"".join(text), np.uint8)),
        }


@dataclass(frozen=True)
class AddedEdges:
    """Result of adding one batch of edges.

    Attributes:
        dangling_rows: int64, positions within the batch of edges left out, ascending; None when the ids are
            looked up in :meth:`EdgeBuilder.finish`, whose result then has them.
    """

    dangling_rows: npt.NDArray[np.int64] | None


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
    """Edges of one edge type, kept as they come and sorted at the end."""

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
        self._discover = discover
        self._keep_duplicates = keep_duplicates
        self._ends: list[npt.NDArray[np.int64]] = [np.zeros((0, 2), np.int64)]
        self._payload: dict[str, list[npt.NDArray[Any]]] = {}
        for name, given in columns.items():
            dtype, shape = given if isinstance(given, tuple) else (given, ())
            self._payload[name] = [np.zeros((0, *shape), dtype)]

    def add(
        self, source_ids: pa.Array, target_ids: pa.Array, columns: Mapping[str, npt.NDArray[Any]]
    ) -> AddedEdges:
        assert set(columns) == set(self._payload)
        assert len(source_ids) == len(target_ids)
        for pair in zip(source_ids.to_pylist(), target_ids.to_pylist(), strict=True):
            if None not in pair:
                for nodes, value, discover in zip(
                    (self._sources, self._targets), pair, self._discover, strict=True
                ):
                    if discover:
                        nodes.index.setdefault(value, len(nodes.index))
        ends = np.stack([self._sources.find(source_ids), self._targets.find(target_ids)], axis=1)
        # A null beside a known id is a dangling edge as well: find() says -1 of it.
        self._ends.append(ends)
        for name, values in columns.items():
            first = self._payload[name][0]
            assert values.dtype == first.dtype
            assert values.shape == (len(ends), *first.shape[1:])
            self._payload[name].append(np.array(values))
        return AddedEdges(np.flatnonzero((ends < 0).any(axis=1)))

    def spill(self) -> None:
        """Nothing has to go to disk here."""

    def finish(
        self,
        writer: Writer,
        folder: str,
        csr: bool = False,
        recode: Mapping[str, npt.NDArray[np.int32]] | None = None,
    ) -> BuiltEdges:
        """Write the edges.

        Args:
            writer: where to.
            folder: name of the edge type's folder; the arrays are ``<folder>/indptr``, ``<folder>/indices``
                and ``<folder>/<name>`` for each payload column.
            csr: write the edges by source as well.
            recode: new codes by old code, for payload columns of int32 codes.
        """
        ends = np.concatenate(self._ends)
        dangling = np.flatnonzero((ends < 0).any(axis=1))
        rows = np.flatnonzero((ends >= 0).all(axis=1))
        rows = rows[np.lexsort((rows, ends[rows, 0], ends[rows, 1]))]
        source, target = ends[rows].T
        repeated = np.zeros(len(rows), bool)
        repeated[1:] = (np.diff(source) == 0) & (np.diff(target) == 0)
        duplicate_pairs = list(zip(source[repeated].tolist(), target[repeated].tolist(), strict=True))
        if not self._keep_duplicates:
            rows, source, target = rows[~repeated], source[~repeated], target[~repeated]
        in_degree = np.bincount(target, minlength=self._targets.num_nodes)
        out_degree = np.bincount(source, minlength=self._sources.num_nodes)
        self._sources.used |= set(source.tolist())
        self._targets.used |= set(target.tolist())
        loops = source[source == target] if self._sources is self._targets else source[:0]

        arrays = {
            "indptr": writer.add(f"{folder}/indptr", indptr(in_degree)),
            "indices": writer.add(f"{folder}/indices", source.astype(index_dtype(self._sources.num_nodes))),
        }
        for name, parts in self._payload.items():
            values = np.concatenate(parts)[rows]
            if recode is not None and name in recode:
                values = np.append(recode[name], np.int32(-1))[values]
            arrays[name] = writer.add(f"{folder}/{name}", values)
        if csr:
            order = np.lexsort((np.arange(len(rows)), source))
            by_source = {
                "csr-indptr": indptr(out_degree),
                "csr-indices": target[order].astype(index_dtype(self._targets.num_nodes)),
                "csr-edge-ids": order.astype(np.int64),
            }
            arrays |= {name: writer.add(f"{folder}/{name}", array) for name, array in by_source.items()}
        return BuiltEdges(
            num_edges=len(rows),
            rows=len(ends),
            duplicates=int(repeated.sum()),
            self_loops=len(loops),
            dangling=len(dangling),
            duplicate_examples=tuple(distinct(duplicate_pairs)),
            self_loop_examples=tuple(loops[:EXAMPLES].tolist()),
            dangling_examples=tuple(dangling[:EXAMPLES].tolist()),
            in_degrees=histogram(in_degree),
            out_degrees=histogram(out_degree),
            arrays=arrays,
        )


def arrow_type(kind: IdType) -> pa.DataType:
    return pa.int64() if kind == "int64" else pa.large_string()


def index_dtype(num_nodes: int) -> type[np.int32 | np.int64]:
    return np.int32 if num_nodes <= 2**31 else np.int64


def indptr(degree: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)


def histogram(degree: npt.NDArray[np.int64]) -> Histogram:
    degrees, nodes = np.unique(degree, return_counts=True)
    return degrees.astype(np.int64), nodes.astype(np.int64)


def distinct(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first pairs, each once; equal ones stand side by side."""
    firsts = [pair for before, pair in pairwise([None, *pairs]) if pair != before]
    return [pair for pair in firsts if pair is not None][:EXAMPLES]
