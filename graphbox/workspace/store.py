"""The database of a workspace with what all its parts have in common: opening, history, removing."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.sql import Select

from graphbox.errors import NotFoundError, did_you_mean
from graphbox.workspace import tables
from graphbox.workspace.database import BUSY_TIMEOUT_S, Database, sqlite_url
from graphbox.workspace.folders import check_folder, make_folders
from graphbox.workspace.locks import writer_lock
from graphbox.workspace.records import EventRecord

Kind: TypeAlias = Literal["graph", "run", "model"]


class Store:
    """Opens the workspace at ``root``; see `graphbox.workspace.Workspace`."""

    def __init__(
        self,
        root: str | Path = "workspace",
        database_url: str | None = None,
        *,
        create: bool = True,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.root = Path(root).absolute()
        check_folder(self.root, create=create, own_database=database_url is None)
        if create:
            make_folders(self.root)
        if database_url is None:
            path = self.root / "graphbox.db"
            url, shown = sqlite_url(path), str(path)
        else:
            url, shown = database_url, "the database given by URL"
        with writer_lock(self._lock_path("workspace"), "workspace"):
            self._database = Database(url, shown, busy_timeout_s)
            self._finish_removals()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.root.name

    def close(self) -> None:
        """Let go of the database; the workspace can be used again and then opens it again."""
        self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def history(self, kind: Kind | None = None, name: str | None = None) -> list[EventRecord]:
        """Return what happened (to graphs, runs or models; to ``name``), oldest first."""
        query: Select[Any] = select(tables.events).order_by(tables.events.c.id)
        if kind is not None:
            query = query.where(tables.events.c.kind == kind)
        if name is not None:
            query = query.where(tables.events.c.name == name)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [EventRecord(row.time, row.kind, row.name, row.event, row.detail) for row in rows]

    def _lock_path(self, name: str) -> Path:
        return self.root / ".locks" / f"{name}.lock"

    def _next_number(self, connection: Connection, name: str) -> int:
        table = tables.counters
        row = connection.execute(select(table).where(table.c.name == name).with_for_update()).one_or_none()
        if row is None:
            connection.execute(insert(table).values(name=name, value=1))
            return 1
        connection.execute(update(table).where(table.c.name == name).values(value=row.value + 1))
        return int(row.value) + 1

    def _add_event(
        self, connection: Connection, kind: Kind, name: str, event: str, detail: Mapping[str, Any]
    ) -> None:
        values = {"time": now(), "kind": kind, "name": name, "event": event, "detail": dict(detail)}
        connection.execute(insert(tables.events).values(values))

    def _plan_removal(self, connection: Connection, path: Path) -> None:
        relative = path.relative_to(self.root)
        trash = relative.parent / f".removed-{uuid.uuid4().hex}"
        connection.execute(insert(tables.removals).values(path=str(relative), trash=str(trash)))

    def _finish_removals_locked(self) -> None:
        with writer_lock(self._lock_path("workspace"), "workspace"):
            self._finish_removals()

    def _finish_removals(self) -> None:
        """Delete the folders whose rows are gone, those of a killed process too."""
        with self._database.read() as connection:
            planned = connection.execute(select(tables.removals)).all()
        for row in planned:
            path, trash = self.root / row.path, self.root / row.trash
            # Once moved, the path may already be someone's new folder.
            if path.exists() and not trash.exists():
                path.rename(trash)
            if trash.exists():
                shutil.rmtree(trash)
            with self._database.write() as connection:
                connection.execute(delete(tables.removals).where(tables.removals.c.path == row.path))

    def _not_found(self, kind: Kind, name: str, known: Iterable[str]) -> NotFoundError:
        names = sorted(known)
        there = f"there are: {', '.join(names[:10])}" if names else f"this workspace has no {kind}s yet"
        return NotFoundError(
            f"there is no {kind} `{name}`", where=str(self.root), hint=did_you_mean(name, names) or there
        )


def now() -> datetime:
    """Return this moment."""
    return datetime.now(UTC)
