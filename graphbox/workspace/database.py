"""Opening the workspace's database: SQLite by default, PostgreSQL by URL, brought to the current schema."""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError
from sqlalchemy.pool import NullPool

from graphbox.errors import (
    BackendMissingError,
    DoesNotFitError,
    FormatError,
    GraphboxError,
    TimeLimitError,
    UsageError,
)
from graphbox.workspace.tables import metadata

SCHEMA_REVISION = "0008"
"""The newest migration."""

VERSION_TABLE = "graphbox_schema"
"""Table that names the migration a database is at."""

BUSY_TIMEOUT_S = 30.0
"""Default limit of the wait for a locked database."""

_STAMP_RESOLUTION_S = 2.0
_WAL_TIMEOUT_MS = 50
# Of the index of its write-ahead log, which each connection needs.
_FILES_OF_SQLITE_BYTES = 64 * 1024


class Database:
    """A database at the current schema.

    Args:
        url: an SQLAlchemy URL, ``sqlite:///...`` or ``postgresql+psycopg://...``.
        shown: how messages name it (a URL can hold a password).
        busy_timeout_s: longest wait of a statement for an SQLite database that another process has locked.
        only: tables of a database that has no others and no versions of its schema; they are created where
            they are not there. None: all tables, brought to the current schema.

    Raises:
        TimeLimitError: another process has locked it for longer; `read` and `write` raise this too.
        UsageError: `busy_timeout_s` is negative or not finite, or `url` is no database URL.
        FormatError: it is damaged, of another program, or of a newer graphbox; or the installed
            files are of two versions.
        BackendMissingError: the driver of the URL is not installed.
        DoesNotFitError: its disk is full; `read` and `write` raise this too.
    """

    def __init__(
        self,
        url: str,
        shown: str,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        only: Sequence[Table] | None = None,
    ) -> None:
        if not 0 <= busy_timeout_s < math.inf:
            raise UsageError(f"expected a `busy_timeout_s` of at least 0 seconds, received {busy_timeout_s}")
        self.shown = shown
        self._busy_timeout_s = busy_timeout_s
        self._statement = _Statement()
        self.engine = self._create_engine(url)
        with self._errors():
            if only is None:
                self._bring_to_current_schema()
            else:
                self._create(only)

    def stamp(self) -> tuple[int, ...] | None:
        """Return numbers that differ once the database has changed; None where only a query can tell.

        Looking at the files is cheap; a connection to an idle SQLite database creates and removes some.
        """
        database = self.engine.url.database
        if self.engine.dialect.name != "sqlite" or database is None:
            return None
        numbers: list[int] = []
        for path in (database, f"{database}-wal"):
            try:
                status = Path(path).stat()
            except FileNotFoundError:
                continue
            if abs(time.time() - status.st_mtime) < _STAMP_RESOLUTION_S:
                return None  # a change at the same time would have the same stamp
            numbers += [status.st_ino, status.st_size, status.st_mtime_ns]
        return tuple(numbers)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection whose statements see one state of the database.

        Raises:
            FormatError: the file of an SQLite database is gone.
        """
        self._require_file()
        with self._errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection that holds the write lock; commits at the end, rolls back on an error.

        Raises:
            FormatError: the file of an SQLite database is gone.
        """
        self._require_file()
        options = {"graphbox_write": True}
        with (
            self._errors(),
            self.engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection

    def compact(self) -> None:
        """Rewrite an SQLite database, so that its files hold nothing that was removed; leave others alone.

        Raises:
            TimeLimitError: another process has locked it for longer than the limit.
        """
        if self.engine.dialect.name != "sqlite":
            return
        with self._errors():
            connection = self.engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute("VACUUM")
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                cursor.close()
            finally:
                connection.close()

    def _create_engine(self, url: str) -> Engine:
        try:
            parsed = make_url(url)
            if parsed.get_backend_name() != "sqlite":
                return create_engine(parsed, poolclass=NullPool)
            # Connections are opened for each operation: nothing to close, and safe after a fork.
            engine = create_engine(parsed, poolclass=NullPool)
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
        event.listen(engine, "connect", self._configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        for statement in ("do_connect", "before_cursor_execute", "commit"):
            event.listen(engine, statement, self._statement.start)
        return engine

    def _configure_sqlite(self, connection: Any, _record: Any) -> None:
        # The driver's own transactions begin too late for a lock: `_begin_sqlite` begins them.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        _use_wal(cursor, self._busy_timeout_s)
        cursor.close()

    def _create(self, tables: Sequence[Table]) -> None:
        with self.engine.connect().execution_options(graphbox_write=True) as connection, connection.begin():
            metadata.create_all(connection, tables)

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

    def _require_file(self) -> None:
        """Reject a missing SQLite file, in place of which the driver would create an empty database."""
        file = self.engine.url.database or ":memory:"
        if self.engine.dialect.name != "sqlite" or file == ":memory:" or file.startswith("file:"):
            return
        if not Path(file).exists():
            raise FormatError(
                "the workspace's database file is gone",
                where=self.shown,
                hint="move it back, or restore it from a copy",
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
        if isinstance(error.orig, sqlite3.OperationalError) and "locked" in reason:
            return TimeLimitError(
                f"the database is locked by another process; waited {self._statement.seconds():.1f} s",
                where=self.shown,
                hint="end the process that holds it, or try again",
            )
        if "disk is full" in reason or ("disk I/O error" in reason and self._is_disk_full()):
            return DoesNotFitError(
                "the disk of the workspace's database is full",
                where=self.shown,
                hint="free space on it; the database takes some even to be read",
            )
        if "readonly" in reason or "unable to open" in reason:
            return UsageError(
                f"the workspace's database cannot be written: {reason}",
                where=self.shown,
                hint="check the folder's permissions, or name another workspace with -C",
            )
        return GraphboxError(f"the database answered: {reason}", where=self.shown)

    def _is_disk_full(self) -> bool:
        """Return whether there is no room for the files beside the database: SQLite reports an I/O error."""
        folder = Path(self.engine.url.database or "").parent
        try:
            return shutil.disk_usage(folder).free < _FILES_OF_SQLITE_BYTES
        except OSError:
            return False


class _Statement(threading.local):
    """Clock of the statement that this thread runs."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def start(self, *_event: Any) -> None:
        self._started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._started


def _use_wal(cursor: Any, timeout_s: float) -> None:
    """Let readers and a writer work side by side.

    Two connections that make the change at once wait for each other, both with a lock the other one needs.
    So each statement waits briefly, and one of them tries again when the other may be done. Reading the mode
    waits too: while the mode is not yet WAL, a writer locks readers out.
    """
    deadline = time.monotonic() + timeout_s
    cursor.execute(f"PRAGMA busy_timeout = {_WAL_TIMEOUT_MS}")
    while True:
        try:
            if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                cursor.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0, _WAL_TIMEOUT_MS / 1000))  # noqa: S311 (no secret)
    cursor.execute(f"PRAGMA busy_timeout = {timeout_s * 1000:.0f}")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("graphbox_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def sqlite_url(path: Path) -> str:
    """Return the URL of the SQLite database at ``path``."""
    return f"sqlite:///{path.absolute()}"
