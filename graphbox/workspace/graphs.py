"""The graphs of a workspace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from graphbox.errors import ConflictError
from graphbox.workspace import tables
from graphbox.workspace.folders import folder_size, is_name, require_folder, valid_name
from graphbox.workspace.graph_manifest import (
    GraphContent,
    changed_fingerprint,
    found_fingerprint,
    new_fingerprint,
    read_checksum,
    read_content,
)
from graphbox.workspace.locks import is_held, writer_lock
from graphbox.workspace.records import EdgeTypeCount, GraphRecord
from graphbox.workspace.rows import graph_record
from graphbox.workspace.store import Store, now

IMPORTED = "imported"
"""The event of a graph that is written anew."""


class Graphs(Store):
    """Registry of graphs and their sizes."""

    def graphs(self) -> list[GraphRecord]:
        """Return all graphs, by name.

        A record that a killed process left behind its files is brought up; graphs that a program wrote into
        the folder ``graphs``, as `Graph.save` does, are among them.
        """
        self._catch_up()
        self._find_written()
        with self._database.read() as connection:
            rows = connection.execute(select(tables.graphs).order_by(tables.graphs.c.name)).all()
        return [graph_record(row, self.graph_path(row.name)) for row in rows]

    def graph(self, name: str) -> GraphRecord:
        """Return the graph ``name``.

        Raises:
            NotFoundError: there is none; the hint names a close one.
            FormatError: its folder is gone.
        """
        graphs = {record.name: record for record in self.graphs()}
        if name not in graphs:
            raise self._not_found("graph", name, graphs)
        record = graphs[name]
        require_folder(record.path, f"graph `{name}`", f"`graphbox graphs rm {name}`, then import it again")
        return record

    def graph_path(self, name: str) -> Path:
        """Return the folder of the graph ``name``, whether it exists or not."""
        return self.root / "graphs" / valid_name(name, "graph")

    @contextmanager
    def graph_lock(self, name: str, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold the right to write the graph ``name`` while the block runs.

        Raises:
            ConflictError: another process holds it.
        """
        with writer_lock(self._graph_lock_path(name), f"graph `{name}`", timeout_s):
            yield

    def _graph_lock_path(self, name: str) -> Path:
        return self._lock_path(f"graph-{valid_name(name, 'graph')}")

    @contextmanager
    def writing_graph(
        self,
        name: str,
        event: str,
        *,
        fingerprint: str | None = None,
        timeout_s: float = 10.0,
    ) -> Iterator[None]:
        """Hold the right to write the graph ``name`` while the block does, then note what it holds.

        Also when the process is killed in the block, the record follows what is in the folder then.

        Args:
            name: the graph.
            event: what happens: ``imported``, ``appended to``, ``removed from``.
            fingerprint: tells what is imported; None: that of before, marked as changed.
            timeout_s: seconds to wait for another process that writes the graph.

        Raises:
            ConflictError: another process holds it.
        """
        with self.graph_lock(name, timeout_s):
            self._catch_up_one(name)
            self._note_found(name)
            before = read_content(self.graph_path(name))
            begun = {
                "name": name,
                "event": event,
                "checksum": None if before is None else before.checksum,
                "fingerprint": fingerprint,
            }
            with self._database.write() as connection:
                connection.execute(insert(tables.graph_changes).values(begun))
            try:
                yield
            finally:
                self._catch_up_one(name)

    def note_graph(self, name: str, event: str, timeout_s: float = 10.0) -> GraphRecord:
        """Note that the graph ``name`` was written in another form, with the same content.

        Args:
            name: the graph.
            event: what happened: ``compacted``.
            timeout_s: seconds to wait for another process that writes the graph.

        Raises:
            NotFoundError: there is no such graph.
            ConflictError: another process holds it.
        """
        with self.graph_lock(name, timeout_s):
            before = self.graph(name)
            content = read_content(before.path)
            if content is not None:
                with self._database.write() as connection:
                    self._note_content(connection, name, event, before.fingerprint, content)
        return self.graph(name)

    def _catch_up(self) -> None:
        """Bring the records up of graphs that a process was killed while writing."""
        with self._database.read() as connection:
            begun = connection.execute(select(tables.graph_changes.c.name)).scalars().all()
        for name in begun:
            if is_held(self._graph_lock_path(name)):
                continue  # a living process is writing it
            with suppress(ConflictError), self.graph_lock(name, timeout_s=0):
                self._catch_up_one(name)

    def _find_written(self) -> None:
        """Note graphs that a program wrote or changed in the folder ``graphs`` without the workspace."""
        with self._database.read() as connection:
            graphs = connection.execute(select(tables.graphs.c.name, tables.graphs.c.state)).all()
            begun = set(connection.execute(select(tables.graph_changes.c.name)).scalars())
            leaving = set(connection.execute(select(tables.removals.c.path)).scalars())
        known = {row.name: (row.state or "").rpartition(" ")[2] for row in graphs}
        for path in sorted((self.root / "graphs").glob("*")):
            if path.name in begun or str(path.relative_to(self.root)) in leaving or not is_name(path.name):
                continue
            checksum = read_checksum(path)
            if (
                checksum is None
                or checksum == known.get(path.name)
                or is_held(self._graph_lock_path(path.name))
            ):
                continue
            with suppress(ConflictError), self.graph_lock(path.name, timeout_s=0):
                self._note_found(path.name)

    def _note_found(self, name: str) -> None:
        """Note what the folder of a graph holds if the record says something else; its lock is held."""
        content = read_content(self.graph_path(name))
        of_name = tables.graphs.c.name == name
        with self._database.write() as connection:
            known = connection.execute(select(tables.graphs).where(of_name)).one_or_none()
            if content is None or (known is not None and known.state == content.state):
                return
            if known is None:
                self._note_content(connection, name, IMPORTED, new_fingerprint(content), content)
            elif known.state is None:  # written by a release that did not note it
                connection.execute(update(tables.graphs).where(of_name).values(state=content.state))
            else:
                counts = [[e.source, e.relation, e.target, e.edges] for e in content.edge_types]
                is_same = known.node_types == dict(content.node_types) and known.edge_types == counts
                fingerprint = found_fingerprint(
                    known.fingerprint, known.state, content, has_same_counts=is_same
                )
                event = "changed" if "+" in fingerprint else IMPORTED
                if fingerprint == known.fingerprint:  # compacted, which whoever did it notes
                    connection.execute(update(tables.graphs).where(of_name).values(state=content.state))
                else:
                    self._note_content(connection, name, event, fingerprint, content)

    def _catch_up_one(self, name: str) -> None:
        """Note what a graph holds if that has changed since writing it began; its lock is held."""
        changes = tables.graph_changes
        with self._database.read() as connection:
            begun = connection.execute(select(changes).where(changes.c.name == name)).one_or_none()
        if begun is None:
            return
        content = read_content(self.graph_path(name))
        with self._database.write() as connection:
            if content is not None and content.checksum != begun.checksum:
                self._note_content(connection, name, begun.event, begun.fingerprint, content)
            connection.execute(delete(changes).where(changes.c.name == name))

    def _note_content(
        self, connection: Connection, name: str, event: str, fingerprint: str | None, content: GraphContent
    ) -> None:
        of_name = tables.graphs.c.name == name
        known = connection.execute(select(tables.graphs).where(of_name)).one_or_none()
        if fingerprint is None:
            fingerprint = changed_fingerprint("" if known is None else known.fingerprint, content.checksum)
        values = {
            "size_bytes": folder_size(self.graph_path(name)),
            "node_types": dict(content.node_types),
            "edge_types": [[e.source, e.relation, e.target, e.edges] for e in content.edge_types],
            "fingerprint": fingerprint,
            "state": content.state,
        }
        if event == IMPORTED or known is None:
            self._replace_record(connection, {**values, "name": name, "run_id": None})
            return
        connection.execute(update(tables.graphs).where(of_name).values(values))
        details = {"nodes": sum(content.node_types.values()), "size_bytes": values["size_bytes"]}
        self._add_event(connection, "graph", name, event, details)

    def add_graph(
        self,
        name: str,
        *,
        node_types: Mapping[str, int],
        edge_types: Iterable[EdgeTypeCount],
        fingerprint: str,
        run_id: str | None = None,
    ) -> GraphRecord:
        """Register the graph in `graph_path`, in place of an older one of that name."""
        path = self.graph_path(name)
        require_folder(path, f"graph `{name}`", "import it first")
        content = read_content(path)
        values = {
            "name": name,
            "size_bytes": folder_size(path),
            "node_types": dict(node_types),
            "edge_types": [[e.source, e.relation, e.target, e.edges] for e in edge_types],
            "fingerprint": fingerprint,
            "run_id": run_id,
            "state": None if content is None else content.state,
        }
        with self._database.write() as connection:
            self._replace_record(connection, values)
        return self.graph(name)

    def _replace_record(self, connection: Connection, values: Mapping[str, Any]) -> None:
        of_name = tables.graphs.c.name == values["name"]
        replaced = connection.execute(delete(tables.graphs).where(of_name)).rowcount
        connection.execute(insert(tables.graphs).values(**values, created_at=now()))
        event = "replaced" if replaced else IMPORTED
        self._add_event(connection, "graph", values["name"], event, {"run": values["run_id"]})

    def remove_graph(self, name: str) -> int:
        """Remove the graph ``name`` and its files; return the bytes freed."""
        known = {record.name: record for record in self.graphs()}
        if name not in known:
            raise self._not_found("graph", name, known)
        with self.graph_lock(name):
            freed = folder_size(known[name].path)
            with self._database.write() as connection:
                connection.execute(delete(tables.graphs).where(tables.graphs.c.name == name))
                self._plan_removal(connection, known[name].path)
                self._add_event(connection, "graph", name, "removed", {})
            self._finish_removals_locked()
        return freed
