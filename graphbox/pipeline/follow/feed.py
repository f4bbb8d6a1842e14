"""Chunks from a folder: each is waited for, checked, and appended to the graph together with its record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from graphbox.config import RunConfig, StreamConfig
from graphbox.errors import ConflictError, DataError, InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.graph.chunks import (
    ChunkLabel,
    ChunkRecord,
    StreamRecord,
    begin_stream,
    expire_chunks,
    require_stream,
    stream_of,
)
from graphbox.graph.delta import AppendReport, append
from graphbox.graph.format import MANIFEST
from graphbox.graph.schema import edge_type_text
from graphbox.pipeline.follow.arrivals import Arrival, Arrivals, date_of, order_of
from graphbox.pipeline.follow.tables import ChunkFiles, ChunkTables, node_types_without_edges
from graphbox.pipeline.stages.import_graph import import_config
from graphbox.train.stream.chunk import Chunk, chunk_of
from graphbox.train.stream.feed import WaitCallback
from graphbox.words import counted
from graphbox.workspace import Workspace

_STOP_LOOK_S = 0.1
_REMEMBERED_WITH_DAYS = 100_000
_LOOKED_AT_AGAIN = 10
"""Of so many of the last learnt chunks the files are looked at again and again, of others once."""


@dataclass(frozen=True)
class _Next:
    """Next chunk of a stream if one is whole, or a description of the missing one."""

    arrival: Arrival | None
    waiting_for: str = ""


class FolderFeed:
    """Gives the chunks that come into a folder; see :class:`graphbox.train.stream.feed.ChunkFeed`.

    Args:
        config: the run file, with ``stream.folder``.
        workspace: where the graph is.
        source: tells the stream from others: its run.
        stop: asked whether to stop.
        note: told what a person should know.

    Raises:
        NotFoundError: the folder is not there.
    """

    def __init__(
        self,
        config: RunConfig,
        workspace: Workspace,
        source: str,
        *,
        stop: Callable[[], bool],
        note: Callable[[str], None],
    ) -> None:
        self._config = config
        self._stream: StreamConfig = config.stream
        self._workspace = workspace
        self._source = source
        self._stop = stop
        self._note = note
        self._arrivals = Arrivals(config.stream.folder or ".", config.stream)
        self._tables = ChunkTables(config.graph, config.stream)
        self._path = workspace.graph_path(config.graph.name)
        self._seen: set[str] = set()
        self._unchanged: dict[str, str] = {}
        self._has_looked = False
        self._arrival: Arrival | None = None

    def begin(self) -> None:
        """Make the graph with what is there before the stream, unless the stream has begun already.

        Raises:
            ConflictError: the graph of this name holds another stream.
        """
        name = self._config.graph.name
        before = stream_of(self._path) if (self._path / MANIFEST).exists() else None
        if before is not None:
            if before.source != self._source:
                raise ConflictError(
                    f"expected a graph without a stream, or with that of {self._source}, received one with "
                    f"that of {before.source}",
                    where=f"graph `{name}`",
                    hint=f"go on with `graphbox runs resume {before.source}`; or give `graph.name` another "
                    f"name; or `graphbox graphs rm {name}` to begin anew",
                )
            return
        start = self._tables.start()
        if start is not None:
            imported = import_config(start, self._workspace, threads=self._config.threads)
            self._note(f"begins with {imported.summary}")
        remembered = (self._stream.keep_chunks or 0) + 2
        if self._stream.keep_days is not None:
            remembered = _REMEMBERED_WITH_DAYS
        with self._workspace.writing_graph(name, "imported" if start is None else "appended to"):
            begin_stream(self._path, name, self._source, remembered=max(remembered, 1000))

    def graph(self) -> Graph:
        """Return the graph after the chunk that was committed last."""
        return Graph.open(self._path)

    def wait(self, number: int, waiting: WaitCallback) -> bool:
        """Wait until a chunk is there, see :meth:`graphbox.train.stream.feed.ChunkFeed.wait`."""
        stream = self._held()
        last = -1 if stream.last is None else stream.last.number
        if number not in (last, last + 1):
            raise ConflictError(
                f"expected a graph with {counted(number, 'chunk')} of the stream, or one more, received one "
                f"with {last + 1}",
                where=f"graph `{self._config.graph.name}`",
                hint="graph and checkpoints are not of one moment: restore both from one copy, or begin "
                f"anew: `graphbox graphs rm {self._config.graph.name}`, then the same command with --fresh",
            )
        self._arrival = self._wait(stream, waiting) if number > last else None
        return number == last or self._arrival is not None

    def chunk(self, number: int) -> Chunk:
        """Return a chunk that was waited for, committed to the graph."""
        if self._arrival is not None:
            self._commit(self._arrival, number, self._held())
            self._arrival = None
        return chunk_of(self.graph(), self._held(), number)

    def _held(self) -> StreamRecord:
        stream = require_stream(self._path)
        if stream.source != self._source:
            raise ConflictError(
                f"expected the graph with the stream of {self._source}, received one with that of "
                f"{stream.source}: another process has made it anew",
                where=f"graph `{self._config.graph.name}`",
                hint="give each run a `graph.name` of its own",
            )
        return stream

    # Waiting

    def _wait(self, stream: StreamRecord, waiting: WaitCallback) -> Arrival | None:
        """Return the next chunk when it is whole; None when it is not waited for any longer."""
        idle_since = time.monotonic()
        while True:
            found = self._next(stream)
            if found.arrival is not None:
                return found.arrival
            limit = self._stream.until_idle_seconds
            if limit is not None and time.monotonic() - idle_since >= limit:
                self._note(f"no more chunks: ends instead of waiting for {found.waiting_for}")
                return None
            waiting(found.waiting_for)
            again = time.monotonic() + self._stream.poll_seconds
            while time.monotonic() < again:
                if self._stop():
                    raise InterruptedRunError(
                        f"stopped on request while waiting for {found.waiting_for}",
                        hint="the same command resumes from there",
                    )
                time.sleep(min(_STOP_LOOK_S, self._stream.poll_seconds))

    def _next(self, stream: StreamRecord) -> _Next:
        records = {record.name: record for record in stream.chunks}
        consumed = [record for record in stream.chunks if record.number or record.name != "start"]
        last = order_of(consumed[-1].name) if consumed else None
        # Of a long stream the first chunks are forgotten: of what is older than the rest nobody can tell.
        oldest = order_of(consumed[0].name) if consumed and stream.chunks[0].number else None
        looked_at = consumed[-1].number - _LOOKED_AT_AGAIN if consumed and self._has_looked else 0
        self._has_looked = True
        ahead = []
        for arrival in self._arrivals.scan():
            order = order_of(arrival.name)
            if last is None or order > last:
                ahead.append(arrival)
            elif arrival.name in records:
                if records[arrival.name].number >= looked_at:
                    self._check_unchanged(arrival, records[arrival.name])
            elif arrival.missing is None and (oldest is None or order > oldest):
                self._irregular(
                    arrival,
                    f"expected no chunk before `{consumed[-1].name}`, which is learnt already, received "
                    f"`{arrival.name}`",
                )
        if not ahead:
            after = f" after {consumed[-1].name}" if consumed else ""
            return _Next(None, f"a chunk{after} in {self._arrivals.folder}")
        if ahead[0].missing is None:
            return _Next(ahead[0])
        whole = next((each for each in ahead if each.missing is None), None)
        later = "" if whole is None else f" ({whole.name}, which comes after it, is there)"
        return _Next(None, f"{ahead[0].missing}: chunk {ahead[0].name}{later}")

    def _check_unchanged(self, arrival: Arrival, record: ChunkRecord) -> None:
        """See whether the files of a learnt chunk are as they were; what looks new is read."""
        try:
            files = self._tables.of(arrival)
            stamp = files.stamp()
            if stamp in (record.stamp, self._unchanged.get(arrival.name)):
                return
            is_same = files.digest() == record.digest
        except (DataError, OSError):
            return  # being written, or removed: what is learnt stays
        if is_same:
            self._unchanged[arrival.name] = stamp
        else:
            self._irregular(
                arrival, f"expected the chunk `{arrival.name}` as it was learnt, its files have changed since"
            )

    def _irregular(self, arrival: Arrival, message: str) -> None:
        if self._stream.irregular == "refuse":
            raise DataError(
                message,
                where=str(arrival.path),
                hint="what is learnt is not learnt again: put rows that were missing into a chunk of their "
                "own after the last one, and move this one away; or pass over such chunks with "
                "stream.irregular=skip",
            )
        if arrival.name not in self._seen:
            self._seen.add(arrival.name)
            self._note(f"{message}: passed over")

    # Committing

    def _commit(self, arrival: Arrival, number: int, stream: StreamRecord) -> None:
        files = self._tables.of(arrival)
        label = self._label(files, arrival, number)
        self._check_new_types(files, arrival)
        expire = self._stream.expire
        with self._workspace.writing_graph(self._config.graph.name, "appended to"):
            first_kept = self._first_kept(arrival, number, stream)
            if first_kept is not None:
                known = set(self.graph().node_types)
                loose = node_types_without_edges(self._config.graph) if expire is None else expire
                expire_chunks(self._path, first_kept, [name for name in loose if name in known])
            report = append(self._path, files.source, strict=self._config.graph.strict, chunk=label)
        self._tell_skipped(arrival, report)

    def _label(self, files: ChunkFiles, arrival: Arrival, number: int) -> ChunkLabel:
        stamp = files.stamp()
        label = ChunkLabel(number, arrival.name, files.digest(), stamp)
        if files.stamp() != stamp:
            raise DataError(
                f"expected the chunk `{arrival.name}` to be whole, as its marker says, its files are still "
                "changing",
                where=str(arrival.path),
                hint="write the marker last",
            )
        return label

    def _check_new_types(self, files: ChunkFiles, arrival: Arrival) -> None:
        """Refuse edges whose ends have a table that nobody has seen yet."""
        known = set(self.graph().node_types)
        for edges in files.source.edges:
            for end in (edges.type[0], edges.type[2]):
                section = self._config.graph.nodes.get(end)
                if end in known or section is None or section.path is None:
                    continue
                if files.source.nodes[end].data is None:
                    raise DataError(
                        f"expected the table of the node type `{end}` with or before its first edges, "
                        f"received edges of {edge_type_text(edges.type)} alone",
                        where=str(arrival.path),
                        hint=f"put {section.path} into this chunk, or under `graph.root` before the stream "
                        "begins; without `path` the nodes are those met at the ends of edges",
                    )

    def _first_kept(self, arrival: Arrival, number: int, stream: StreamRecord) -> int | None:
        """Return the number of the oldest chunk that stays when one comes; None: all do."""
        if self._stream.keep_chunks is not None:
            return max(number - self._stream.keep_chunks + 1, 0)
        if self._stream.keep_days is None:
            return None
        day = date_of(arrival.name)
        if day is None:
            raise UsageError(
                f"expected dates in the names of chunks, such as 20261101/04, received `{arrival.name}`",
                where="stream.keep_days",
                hint="say how many chunks stay: `keep_chunks`",
            )
        oldest = day - timedelta(days=self._stream.keep_days - 1)
        kept = [
            record.number
            for record in stream.chunks
            if (date := date_of(record.name)) is not None and date >= oldest
        ]
        return min(kept, default=number)

    def _tell_skipped(self, arrival: Arrival, report: AppendReport) -> None:
        for node_type, nodes in report.nodes.items():
            lost = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in nodes.skipped.items()]
            lost += [f"{count:,} empty values of `{name}`" for name, count in nodes.empty_values.items()]
            if lost:
                self._note(f"chunk {arrival.name}, {node_type}: skipped {', '.join(lost)}")
        keeps = {edges.type: edges.keep_duplicates for edges in self._config.graph.edges}
        for each in report.edges:
            kinds = {
                "duplicate edges": 0 if keeps.get(each.type) else each.duplicate_edges,
                "dangling edges": each.dangling_edges,
                **{kind.replace("_", " "): count for kind, count in each.skipped.items()},
            }
            told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
            if told:
                self._note(f"chunk {arrival.name}, {edge_type_text(each.type)}: skipped {told}")
