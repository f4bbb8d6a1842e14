"""Opening the workspace's database: SQLite by default, PostgreSQL by URL, brought to the current schema."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError
from sqlalchemy.pool import NullPool

from graphbox.errors import (
    BackendMissingError,
    ConflictError,
    FormatError,
    GraphboxError,
    UsageError,
)

__all__ = ["SCHEMA_REVISION", "VERSION_TABLE", "Database"]

SCHEMA_REVISION = "0002"
"""The newest migration."""

VERSION_TABLE = "graphbox_schema"
"""Table that names the migration a database is at."""

_BUSY_TIMEOUT_S = 30.0
_WAL_TIMEOUT_MS = 50


class Database:
    """A database at the current schema.

    Args:
        url: an SQLAlchemy URL, ``sqlite:///...`` or ``postgresql+psycopg://...``.
        shown: how messages name it (a URL can hold a password).

    Raises:
        FormatError: it is damaged, of another program, or of a newer graphbox; or the installed
            files are of two versions.
        BackendMissingError: the driver of the URL is not installed.
    """

    def __init__(self, url: str, shown: str) -> None:
        self.shown = shown
        self.engine = self._create_engine(url)
        with self._errors():
            self._bring_to_current_schema()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection whose statements see one state of the database."""
        with self._errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection that holds the write lock; commits at the end, rolls back on an error."""
        options = {"graphbox_write": True}
        with (
            self._errors(),
            self.engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection

    def _create_engine(self, url: str) -> Engine:
        try:
            parsed = make_url(url)
            if parsed.get_backend_name() != "sqlite":
                return create_engine(parsed, poolclass=NullPool)
            # Connections are opened for each operation: nothing to close, and safe after a fork.
            engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": _BUSY_TIMEOUT_S})
        except (ArgumentError, NoSuchModuleError):
            raise UsageError(
                "expected a database URL like `postgresql+psycopg://user@host/name`, received another text",
                where=self.shown,
            ) from None
        except ModuleNotFoundError as error:
            raise BackendMissingError(
                f"the database URL needs the package `{error.name}`, which is not installed",
                where=self.shown,
                hint=f"pip install {error.name}",
            ) from None
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _bring_to_current_schema(self) -> None:
        with self.engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            revision = None
            if VERSION_TABLE in tables:
                revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
        if revision == SCHEMA_REVISION:
            return
        if revision is None and tables - {VERSION_TABLE}:
            raise FormatError(
                "expected a graphbox database, received one with other tables: "
                f"{', '.join(sorted(tables)[:5])}",
                where=self.shown,
                hint="name another workspace with -C, or another database",
            )
        from graphbox.migrations.upgrade import known_revisions, upgrade

        if revision is not None and revision not in known_revisions():
            raise FormatError(
                f"expected a database of schema {SCHEMA_REVISION} or older, received schema {revision}: "
                "a newer graphbox wrote it",
                where=self.shown,
                hint="pip install --upgrade graphbox",
            )
        with self.engine.connect().execution_options(graphbox_write=True) as connection, connection.begin():
            upgrade(connection)
            reached = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
            if reached != SCHEMA_REVISION:
                raise FormatError(
                    f"expected migrations up to schema {SCHEMA_REVISION}, received them up to {reached}: "
                    "the installed files are of two versions of graphbox",
                    where=self.shown,
                    hint="pip install --force-reinstall graphbox",
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except OperationalError as error:
            raise self._operational(error) from None
        except DatabaseError as error:
            if isinstance(error.orig, sqlite3.DatabaseError) and "not a database" in str(error.orig):
                raise FormatError(
                    "expected a graphbox database, received a file that is no SQLite database",
                    where=self.shown,
                    hint="restore the file, or move it away to start with an empty workspace",
                ) from None
            if "malformed" in str(error.orig):
                raise FormatError(
                    f"the database is damaged: {error.orig}",
                    where=self.shown,
                    hint="restore it from a copy; `sqlite3 graphbox.db .recover` may save most of it",
                ) from None
            raise

    def _operational(self, error: OperationalError) -> GraphboxError:
        reason = str(error.orig).strip().splitlines()[0]
        if "locked" in reason:
            return ConflictError(
                f"the database is locked by another process; waited {_BUSY_TIMEOUT_S:.0f} s",
                where=self.shown,
                hint="end the process that holds it, or try again",
            )
        if "readonly" in reason or "unable to open" in reason:
            return UsageError(
                f"the workspace's database cannot be written: {reason}",
                where=self.shown,
                hint="check the folder's permissions, or name another workspace with -C",
            )
        return GraphboxError(f"the database answered: {reason}", where=self.shown)


def _configure_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own transactions begin too late for a lock: graphbox begins them itself (below).
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    _use_wal(cursor)
    cursor.close()


def _use_wal(cursor: Any) -> None:
    """Let readers and a writer work side by side.

    Two connections that make the change at once wait for each other, both with a lock the other one needs.
    So the wait is short, and one of them tries again when the other may be done.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    cursor.execute(f"PRAGMA busy_timeout = {_WAL_TIMEOUT_MS}")
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0, _WAL_TIMEOUT_MS / 1000))  # noqa: S311 (no secret)
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_S * 1000:.0f}")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("graphbox_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def sqlite_url(path: Path) -> str:
    """Return the URL of the SQLite database at ``path``."""
    return f"sqlite:///{path.absolute()}"
