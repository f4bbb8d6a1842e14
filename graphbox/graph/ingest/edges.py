"""Importing the edges of one type: their ends are looked up, they are sorted and go to disk."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.errors import DataError
from graphbox.graph.build import BuiltEdges, EdgeBuilder
from graphbox.graph.convert import CategoricalReader
from graphbox.graph.format import FolderWriter
from graphbox.graph.ingest.budget import Shares
from graphbox.graph.ingest.nodes import AHEAD, NodeTypeImport, OnRead
from graphbox.graph.ingest.report import DegreeReport, EdgeTypeReport
from graphbox.graph.ingest.rows import EdgeReader, EdgeRows, IdKinds
from graphbox.graph.ingest.skipped import DANGLING, DUPLICATE, EXAMPLES, Problem, SkippedRows
from graphbox.graph.layout import add_strings
from graphbox.graph.schema import EdgeSource
from graphbox.graph.source import Table
from graphbox.graph.source.read_ahead import read_ahead

_RESERVE_AFTER = 8
"""Once an eighth of a table has been read, it is told how much room its edges take on the disk."""
_INDEX_BYTES = 4
_READ_AGAIN_BYTES = 32 << 20
"""Tables up to this size are read once more to name the places of repeated edges: that takes a moment."""

_DANGLING_HINT = (
    "add the node, or check that the columns hold ids of these node types and that source and target are the "
    "right way round; without strict such edges are skipped and counted"
)
_DUPLICATE_HINT = (
    "remove it, keep repeated edges with keep_duplicates, or import without strict to drop and count them"
)


class EdgeTypeImport:
    """The edges of one type while they are imported.

    Args:
        source: says which columns are what.
        table: their table.
        sources: the nodes they start from.
        targets: the nodes they lead to.
        kinds: what the ids of node types are.
        scratch: folder for temporary files.
        shares: tells what the edges may take until they are written.
        categories_bytes: what the categories of features may take.
        batch_bytes: size of a batch.
        strict: refuse rows that cannot be used.
        threads: threads to work with.
    """

    def __init__(
        self,
        source: EdgeSource,
        table: Table,
        sources: NodeTypeImport,
        targets: NodeTypeImport,
        kinds: IdKinds,
        *,
        scratch: Path,
        shares: Shares,
        categories_bytes: int,
        batch_bytes: int,
        strict: bool,
        threads: int | None,
    ) -> None:
        self._source = source
        self._table = table
        self._sources, self._targets = sources, targets
        self._kinds = kinds
        self._scratch = scratch
        self._shares = shares
        self._categories_bytes = categories_bytes
        self._batch_bytes = batch_bytes
        self._strict = strict
        self._threads = threads
        self._skipped = SkippedRows(strict=strict)
        self._reader = self._open(self._skipped)
        self._builder: EdgeBuilder | None = None

    @property
    def finds_nodes(self) -> bool:
        """Whether ends of these edges are nodes of their own accord."""
        return self._sources.is_found or self._targets.is_found

    def _open(self, skipped: SkippedRows) -> EdgeReader:
        return EdgeReader(
            self._source, self._table, self._kinds, skipped, memory_bytes=self._categories_bytes
        )

    def _opened_builder(self) -> EdgeBuilder:
        # What the ids are and how long vectors are is known once rows have been read.
        if self._builder is None:
            ids = self._sources.ids, self._targets.ids  # which take their share first
            self._builder = EdgeBuilder(
                *ids,
                discover=(self._sources.is_found, self._targets.is_found),
                columns=self._reader.columns,
                keep_duplicates=self._source.keep_duplicates,
                scratch=self._scratch,
                memory_bytes=self._shares.of_edges(),
                threads=self._threads,
            )
        return self._builder

    def read(self, writer: FolderWriter, on_read: OnRead) -> None:
        """Read the table.

        Raises:
            DoesNotFitError: the disk has no room for as many edges as the beginning of the table lets expect.
            DataError: the table is malformed, no row can be used, or strict mode refuses one.
            IdsAreStringsError: ids that were taken for integers are none.
        """
        reserved = False
        batches = self._reader.batches(batch_bytes=self._batch_bytes)
        with contextlib.closing(read_ahead(batches, AHEAD)) as all_rows:
            for rows in all_rows:
                if len(rows):
                    added = self._opened_builder().add(rows.sources, rows.targets, rows.columns)
                    if added.dangling_rows is not None and len(added.dangling_rows):
                        self._skipped.add(DANGLING, added.dangling_rows, self._dangling(rows))
                on_read(rows.read_bytes)
                reserved = reserved or self._reserve(writer, rows.read_bytes)
        if self._builder is None:
            self._skipped.refuse_all(self._reader.rows, "edges")

    def _reserve(self, writer: FolderWriter, read_bytes: int) -> bool:
        """Check the room on the disk, once enough has been read to tell; return whether that was so."""
        size = self._table.size_bytes
        if size is None or read_bytes * _RESERVE_AFTER < size:
            return False
        rows = self._reader.rows * size // max(read_bytes, 1)
        columns = self._reader.columns.values()
        writer.reserve(
            rows * (_INDEX_BYTES + sum(dtype.itemsize * math.prod(shape) for dtype, shape in columns))
        )
        return True

    def keep(self) -> bool:
        """Keep the edges in memory until :meth:`finish`, or move them to the disk; return whether they stay.

        Other edges are read before that.
        """
        kept_bytes = 0 if self._builder is None else self._builder.keep(self._shares.most_kept_edges())
        self._shares.keep_edges(kept_bytes)
        return kept_bytes > 0

    def _dangling(self, rows: EdgeRows) -> Callable[[int], Problem]:
        def problem(row: int) -> Problem:
            ends = rows.sources.slice(row, 1), rows.targets.slice(row, 1)
            return self._dangling_problem(*ends, rows.table_row(row))

        return problem

    def _dangling_problem(self, source: pa.Array, target: pa.Array, table_row: int) -> Problem:
        edges = self._source
        end = 0 if int(self._sources.ids.find(source)[0]) < 0 else 1
        column, node_type = (edges.source, edges.type[0]) if end == 0 else (edges.target, edges.type[2])
        return Problem(
            place=self._table.where(table_row, column),
            expected=f"the id of a node of type `{node_type}`",
            received=f"`{(source, target)[end][0].as_py()}`",
            hint=_DANGLING_HINT,
        )

    def finish(self, writer: FolderWriter, folder: str) -> tuple[dict[str, Any], EdgeTypeReport]:
        """Write the edges, and return their entry in the manifest, and the report.

        Raises:
            DataError: no row can be used, or strict mode refuses one.
            DoesNotFitError: the disk has not enough room.
        """
        built = self._opened_builder().finish(
            writer, folder, csr=self._source.csr, recode=self._reader.recode()
        )
        self._builder = None
        late = built.dangling - self._skipped.counts.get(DANGLING, 0)
        if late:
            self._skipped.add_counted(DANGLING, late, self._late_dangling(built))
        if not built.num_edges:
            self._skipped.refuse_all(self._reader.rows, "edges")
        examples = self._skipped.examples
        if built.duplicates:
            if self._strict and not self._source.keep_duplicates:
                raise self._repeated(built)
            examples[DUPLICATE] = tuple(self._repetitions(built.duplicate_examples))
        report = EdgeTypeReport(
            type=self._source.type,
            rows=self._reader.rows,
            edges=built.num_edges,
            duplicate_edges=built.duplicates,
            dangling_edges=built.dangling,
            self_loops=built.self_loops,
            in_degree=DegreeReport.of(*built.in_degrees),
            out_degree=DegreeReport.of(*built.out_degrees),
            skipped={kind: count for kind, count in self._skipped.counts.items() if kind != DANGLING},
            examples=examples,
        )
        return self._entry(writer, folder, built, report), report

    def _entry(
        self, writer: FolderWriter, folder: str, built: BuiltEdges, report: EdgeTypeReport
    ) -> dict[str, Any]:
        features = []
        for number, (name, reader) in enumerate(self._reader.features.items()):
            entry: dict[str, Any] = {
                "name": name,
                "kind": reader.kind,
                "values": built.arrays[f"feature-{number}"],
            }
            if isinstance(reader, CategoricalReader):
                categories, _ = reader.final()
                entry["categories"] = add_strings(writer, f"{folder}/feature-{number}-categories", categories)
            features.append(entry)
        arrays = {name: path for name, path in built.arrays.items() if not name.startswith("feature-")}
        return {
            "type": list(self._source.type),
            "reverse": self._source.reverse,
            "num_edges": built.num_edges,
            "imported": report.imported(),
            "features": features,
            "weight": None,
            "timestamp": None,
            **arrays,
        }

    # Places of rows that are known late

    def _again(self) -> EdgeReader | None:
        """Return a reader of the same rows from the start, None when they can be read once only."""
        return self._open(SkippedRows(strict=False)) if self._table.reiterable else None

    def _late_dangling(self, built: BuiltEdges) -> Sequence[Problem]:
        reader = self._again()
        if reader is None:
            place = self._table.name
            return [Problem(place, "ids of nodes at both ends", "an edge with another one", _DANGLING_HINT)]
        wanted = list(built.dangling_examples[:EXAMPLES])
        problems: list[Problem] = []
        before = 0
        for rows in reader.batches(batch_bytes=self._batch_bytes):
            while len(problems) < len(wanted) and wanted[len(problems)] < before + len(rows):
                problems.append(self._dangling(rows)(wanted[len(problems)] - before))
            if len(problems) == len(wanted):
                break
            before += len(rows)
        return problems

    def _repetitions(self, pairs: Sequence[tuple[int, int]]) -> list[str]:
        """Return the first repeated edges in words, of a table that is soon read again with their places."""
        ids = self._ids_of(pairs)
        size = self._table.size_bytes
        reader = self._again() if size is not None and size <= _READ_AGAIN_BYTES else None
        rows: Sequence[int | None] = [None] * len(ids)
        if reader is not None:
            rows = _second_rows(reader, ids, batch_bytes=self._batch_bytes)
        found = []
        for (source, target), row in zip(ids, rows, strict=True):
            place = "" if row is None else self._table.where(row, self._source.source)
            file = place.partition(", column ")[0].rpartition("/")[2]
            text = f"`{source.as_py()}` {self._source.type[1]} `{target.as_py()}`"
            found.append(f"{file}: {text}" if file else text)
        return found

    def _ids_of(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[pa.Scalar, pa.Scalar]]:
        sources = self._sources.ids.take(np.array([source for source, _ in pairs], np.int64))
        targets = self._targets.ids.take(np.array([target for _, target in pairs], np.int64))
        return list(zip(sources, targets, strict=True))

    def _repeated(self, built: BuiltEdges) -> DataError:
        """Return the error about an edge that stands there twice; its place is found by reading again."""
        ids = self._ids_of(built.duplicate_examples[:1])
        reader, place = self._again(), self._table.name
        if reader is not None:
            (row,) = _second_rows(reader, ids, batch_bytes=self._batch_bytes)
            place = place if row is None else self._table.where(row, self._source.source)
        ((source, target),) = ids
        return DataError(
            f"expected each edge once, received `{source.as_py()}` to `{target.as_py()}` again "
            f"({built.duplicates:,} of {built.rows:,} edges are repetitions)",
            where=place,
            hint=_DUPLICATE_HINT,
        )


def _second_rows(
    reader: EdgeReader, pairs: Sequence[tuple[pa.Scalar, pa.Scalar]], *, batch_bytes: int
) -> list[int | None]:
    """Return the position in the table of the second edge between each pair of ids."""
    seen = [0] * len(pairs)
    found: list[int | None] = [None] * len(pairs)
    for rows in reader.batches(batch_bytes=batch_bytes):
        for number, (source, target) in enumerate(pairs):
            if found[number] is not None or not len(rows):
                continue
            same = pc.and_(pc.equal(rows.sources, source), pc.equal(rows.targets, target))
            positions = np.flatnonzero(same.to_numpy(zero_copy_only=False))
            if seen[number] + len(positions) >= 2:
                found[number] = rows.table_row(int(positions[1 - seen[number]]))
            seen[number] += len(positions)
        if None not in found:
            break
    return found
