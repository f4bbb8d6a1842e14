"""Importing a graph: tables are read in one thread while another one numbers nodes and sorts edges."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from graphbox.durable import NO_ROOM
from graphbox.errors import DataError, DoesNotFitError, UsageError
from graphbox.graph.format import LOCK_TIMEOUT_S, FolderWriter
from graphbox.graph.ingest.budget import Budget, Shares, held_before_bytes
from graphbox.graph.ingest.checks import check_source
from graphbox.graph.ingest.demand import Demand, categorical_columns
from graphbox.graph.ingest.edges import EdgeTypeImport
from graphbox.graph.ingest.nodes import NodeTypeImport
from graphbox.graph.ingest.report import EdgeTypeReport, ImportReport, NodeTypeReport
from graphbox.graph.ingest.rows import IdKinds, IdsAreStringsError, open_source
from graphbox.graph.schema import EdgeSource, GraphSource, IdType, edge_type_text
from graphbox.graph.source import Table
from graphbox.memory import PeakMemory

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being imported, and how many of how many bytes of input are done."""

_INPUT_OUTPUT = Path("/proc/self/io")


def import_graph(
    source: GraphSource,
    destination: str | Path,
    progress: Progress | None = None,
    *,
    strict: bool = False,
    memory_bytes: int | None = None,
    threads: int | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> ImportReport:
    """Import a graph into a folder, in place of a graph that is there.

    Until the last step the old graph stays; whenever the process dies, a reader sees the old graph or the
    new one. Nodes are numbered in the order of their rows, those without a table as they are first met at the
    ends of edges. Edges are sorted by target, then source; of repeated ones the first is kept unless the
    source says otherwise. The same tables give the same bytes on disk, whatever the memory and the threads.

    Rows that cannot be used are left out and counted; the report has the first of each kind.

    Args:
        source: the tables.
        destination: the graph's folder.
        progress: called as the import goes on.
        strict: refuse rows that would be left out (malformed, dangling, duplicate) instead of counting them.
        memory_bytes: memory budget of the import. It includes 192 MiB for the program itself, but nothing
            else that the process held before, such as data frames. Default: half of what is available.
        threads: threads to work with; by default as many as there are cores.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        NotFoundError: a file is missing.
        UsageError: the source names an unknown node type, kind or format.
        DataError: a table is damaged, a column missing or of the wrong type, a node id there twice, no row of
            a table can be used, no edge is left, or ``strict`` refused a row.
        DoesNotFitError: the memory or the disk is too small.
        TimeLimitError: another process is writing the graph.
        ConflictError: the destination holds something else.
    """
    started = time.monotonic()
    destination = Path(destination)
    check_source(source)
    written = _written_bytes()
    held_before = held_before_bytes()
    with PeakMemory() as memory, _frugal_allocator():
        attempt = _import_once(source, destination, memory_bytes, progress, strict, threads, lock_timeout_s)
    after = _written_bytes()
    return ImportReport(
        name=source.name,
        path=destination,
        node_types=attempt.node_reports,
        edge_types=attempt.edge_reports,
        seconds=time.monotonic() - started,
        memory_bytes=attempt.budget.total_bytes,
        peak_memory_bytes=memory.bytes - held_before,
        written_bytes=None if written is None or after is None else after - written,
        size_bytes=attempt.size_bytes,
    )


def _import_once(
    source: GraphSource,
    destination: Path,
    memory_bytes: int | None,
    progress: Progress | None,
    strict: bool,
    threads: int | None,
    lock_timeout_s: float,
) -> _Import:
    """Import, from the start again whenever ids of text that looked like integers turn out to be none."""
    id_types: dict[str, IdType] = {}
    while True:
        attempt = _Import(source, memory_bytes, id_types, progress, strict=strict, threads=threads)
        try:
            with FolderWriter(destination, lock_timeout_s, activity="importing") as writer, _room(writer):
                attempt.run(writer)
        except IdsAreStringsError as found:
            attempt.check_again(found)
            id_types[found.node_type] = "string"
        else:
            return attempt


@contextlib.contextmanager
def _frugal_allocator() -> Iterator[None]:
    """Have Arrow allocate from the system: its own allocator keeps tens of MiB of what was given back."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


@contextlib.contextmanager
def _room(writer: FolderWriter) -> Iterator[None]:
    """Say what is needed when the disk is full, whichever file it was."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DoesNotFitError(
            f"expected room for more than the {writer.size_bytes:,} bytes written so far: {error.strerror}",
            where=str(error.filename or writer.path),
            hint="free some disk space or choose another folder; the graph that was here before is untouched",
        ) from error


class _Import:
    """One attempt to import a graph."""

    def __init__(
        self,
        source: GraphSource,
        memory_bytes: int | None,
        id_types: dict[str, IdType],
        progress: Progress | None,
        *,
        strict: bool,
        threads: int | None,
    ) -> None:
        self._source = source
        self._progress = progress
        self._strict = strict
        self._threads = threads
        given = {name: each.id_type for name, each in source.nodes.items() if each.id_type is not None}
        self._kinds = IdKinds({**given, **id_types})
        self._node_tables = {
            name: None if each.data is None else open_source(each, f"nodes `{name}`", threads, node_type=name)
            for name, each in source.nodes.items()
        }
        self._edge_tables = [
            open_source(each, f"edges {edge_type_text(each.type)}", threads) for each in source.edges
        ]
        tables = [table for table in (*self._node_tables.values(), *self._edge_tables) if table is not None]
        self._once = [table.name for table in tables if not table.reiterable]
        for table in tables:
            table.column_names()  # loads what reads its format, which belongs to what the process has anyway
        self.budget = Budget.divide(memory_bytes, Demand.of(source, self._edge_tables))
        self._total_bytes = sum(table.size_bytes or 0 for table in tables)
        self._shares = Shares(self.budget, {name: self._id_bytes(name) for name in source.nodes})
        self._done_bytes = 0
        self.node_reports: tuple[NodeTypeReport, ...] = ()
        self.edge_reports: tuple[EdgeTypeReport, ...] = ()
        self.size_bytes = 0

    def check_again(self, found: IdsAreStringsError) -> None:
        """Check that all tables can be read from the start again.

        Raises:
            UsageError: one cannot.
        """
        if self._once:
            raise UsageError(
                f"expected plain decimal integers, as before, received another id; {self._once[0]}, which "
                "can be read once only, has been read in the meantime",
                where=found.place,
                hint=f"say that the ids of `{found.node_type}` are strings (`id_type: string`)",
            )

    def run(self, writer: FolderWriter) -> None:
        """Read all tables and put the graph in place."""
        nodes = self._nodes(writer)
        for name, node_type in nodes.items():
            node_type.read(
                writer,
                _node_folder(name),
                batch_bytes=self.budget.batch_bytes,
                categories_bytes=self.budget.categories_bytes,
                on_read=self._stage(f"nodes {name}", self._node_tables[name]),
            )
        edge_entries = []
        for entry, edge_report in self._edge_types(writer, nodes):
            edge_entries.append(entry)
            self.edge_reports += (edge_report,)
        if self._source.edges and not any(report.edges for report in self.edge_reports):
            raise DataError(
                "expected at least one edge, received none",
                where=f"graph `{self._source.name}`",
                hint="check that the tables named under `graph.edges` have rows",
            )
        self._tell("finishing")
        node_entries = []
        for name, node_type in nodes.items():
            entry, node_report = node_type.finish(writer, _node_folder(name))
            node_entries.append(entry)
            self.node_reports += (node_report,)
        self.size_bytes = writer.size_bytes
        writer.commit({"name": self._source.name, "node_types": node_entries, "edge_types": edge_entries})

    def _nodes(self, writer: FolderWriter) -> dict[str, NodeTypeImport]:
        return {
            name: NodeTypeImport(
                name,
                source,
                self._node_tables[name],
                self._kinds,
                scratch=writer.scratch,
                shares=self._shares,
                strict=self._strict,
                threads=self._threads,
            )
            for name, source in self._source.nodes.items()
        }

    def _id_bytes(self, node_type: str) -> int | None:
        """Return the bytes of input that the ids of a node type come from, None when that is not known."""
        table = self._node_tables[node_type]
        if table is not None:
            return table.size_bytes
        sizes = [
            table.size_bytes
            for edges, table in zip(self._source.edges, self._edge_tables, strict=True)
            if node_type in (edges.type[0], edges.type[2])
        ]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _categories_bytes(self, edges: EdgeSource) -> int:
        """Return what the categories of an edge type may hold: those of all types are held at one time."""
        counts = [categorical_columns(each.features) for each in self._source.edges]
        return self.budget.categories_bytes * categorical_columns(edges.features) // max(sum(counts), 1)

    def _edge_types(
        self, writer: FolderWriter, nodes: Mapping[str, NodeTypeImport]
    ) -> list[tuple[dict[str, Any], EdgeTypeReport]]:
        """Read and write the edges.

        Edges of nodes that are found at ends of edges are written when all nodes have been found.
        """
        done: dict[int, tuple[dict[str, Any], EdgeTypeReport]] = {}
        held: dict[int, EdgeTypeImport] = {}  # in the order in which they are finished: those in memory first
        for number, (source, table) in enumerate(zip(self._source.edges, self._edge_tables, strict=True)):
            name = edge_type_text(source.type)
            edges = EdgeTypeImport(
                source,
                table,
                nodes[source.type[0]],
                nodes[source.type[2]],
                self._kinds,
                scratch=writer.scratch,
                shares=self._shares,
                categories_bytes=self._categories_bytes(source),
                batch_bytes=self.budget.batch_bytes,
                strict=self._strict,
                threads=self._threads,
            )
            edges.read(writer, self._stage(f"edges {name}", table))
            if edges.finds_nodes:
                is_last = number + 1 == len(self._source.edges)
                held = {number: edges, **held} if is_last or edges.keep() else {**held, number: edges}
            else:
                self._tell(f"sorting {name}")
                done[number] = edges.finish(writer, _edge_folder(source))
        for node_type in nodes.values():
            if node_type.is_found:
                node_type.close()
        for number, edges in held.items():
            source = self._source.edges[number]
            self._tell(f"sorting {edge_type_text(source.type)}")
            done[number] = edges.finish(writer, _edge_folder(source))
        return [done[number] for number in range(len(done))]

    # Progress

    def _stage(self, stage: str, table: Table | None) -> Callable[[int], None]:
        """Begin to read a table, and return what is told how many bytes of it have been read."""
        before = self._done_bytes
        if table is not None:
            self._tell(stage)

        def on_read(read_bytes: int) -> None:
            self._done_bytes = before + read_bytes
            self._tell(stage)

        return on_read

    def _tell(self, stage: str) -> None:
        if self._progress is not None:
            self._progress(stage, min(self._done_bytes, self._total_bytes), self._total_bytes)


def _node_folder(node_type: str) -> str:
    return f"nodes/{node_type}"


def _edge_folder(source: EdgeSource) -> str:
    return f"edges/{edge_type_text(source.type)}"


def _written_bytes() -> int | None:
    """Return the bytes that this process has written to files so far, None where the system does not say."""
    try:
        lines = _INPUT_OUTPUT.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), None)
