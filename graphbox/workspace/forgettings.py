"""Workspace operations for forgetting nodes: a journal, redacted records, exchanged folders."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select, update

from graphbox.durable import flush_to_disk
from graphbox.errors import ConflictError, FormatError
from graphbox.workspace import tables
from graphbox.workspace.folders import folder_size
from graphbox.workspace.locks import cannot_lock, is_held, writer_lock
from graphbox.workspace.records import ModelRecord
from graphbox.workspace.redaction import Redactor
from graphbox.workspace.row_sequences import forget_row_sequence
from graphbox.workspace.run_writer import write_text
from graphbox.workspace.serving import next_change
from graphbox.workspace.store import Store

_FOLDER = ".forgetting"
_POLL_S = 0.05
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Forgetting:
    """Nodes that are being forgotten.

    Attributes:
        graph: name of their graph.
        ids: original ids as text, by node type.
        indices: node indices by run and node type, where the run's version of the graph told them.
        name: of its journal.
    """

    graph: str
    ids: Mapping[str, Sequence[str]]
    indices: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    name: str = ""


class Forgettings(Store):
    """Journals of forgetting, and rewrites that only the workspace can do."""

    @contextmanager
    def forgetting_lock(self, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold the right to forget nodes while the block runs.

        Journals that a killed process did not finish writing are removed: they name the nodes, and nothing
        was begun by them.

        Raises:
            ConflictError: another process holds it.
        """
        with writer_lock(self._lock_path("forgetting"), "forgetting of nodes", timeout_s):
            for unfinished in (self.root / _FOLDER).glob(".*.partial"):
                unfinished.unlink()
            yield

    @contextmanager
    def without_forgetting(self, timeout_s: float = 10.0) -> Iterator[None]:
        """Let nobody forget nodes while the block makes something of a model version. Many may do so at once.

        Raises:
            ConflictError: nodes are being forgotten for longer than ``timeout_s``.
            DoesNotFitError: the disk is full.
            UsageError: the folder cannot be written.
        """
        path = self._lock_path("forgetting")
        deadline = time.monotonic() + timeout_s
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise cannot_lock(path, "forgetting of nodes", error) from None
        with file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise ConflictError(
                            f"nodes are being forgotten here; waited {timeout_s:g} s for the end",
                            where=str(path),
                            hint="try again when `graphbox forget` has ended",
                        ) from None
                    time.sleep(_POLL_S)
            yield

    def has_unfinished_forgettings(self) -> bool:
        """Return whether a process was killed while it was forgetting nodes."""
        has_journal = any((self.root / _FOLDER).glob("*.json"))
        return has_journal and not is_held(self._lock_path("forgetting"))

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        """Write the journal of a forgetting, so that it is resumed when the process is killed."""
        folder = self.root / _FOLDER
        folder.mkdir(exist_ok=True)
        begun = Forgetting(forgetting.graph, forgetting.ids, forgetting.indices, uuid.uuid4().hex)
        write_text(folder / f"{begun.name}.json", json.dumps(asdict(begun)))
        return begun

    def unfinished_forgettings(self) -> list[Forgetting]:
        """Return what processes that were killed had begun to forget.

        Raises:
            FormatError: a journal is damaged.
        """
        found = []
        for path in sorted((self.root / _FOLDER).glob("*.json")):
            try:
                found.append(Forgetting(**json.loads(path.read_text())))
            except (ValueError, TypeError) as error:
                raise FormatError(
                    f"expected the journal of a forgetting, received another file ({error})",
                    where=str(path),
                    hint="remove it and forget the nodes again",
                ) from error
        return found

    def end_forgetting(self, forgetting: Forgetting) -> None:
        """Remove the journal of a forgetting that is complete; it names the ids."""
        (self.root / _FOLDER / f"{forgetting.name}.json").unlink(missing_ok=True)
        for path in (self.root / _FOLDER).glob("*.tmp"):  # of a killed process
            path.unlink(missing_ok=True)
        if not any((self.root / _FOLDER).iterdir()):
            (self.root / _FOLDER).rmdir()

    def redact_records(self, redactor: Redactor) -> int:
        """Redact reports, errors, history and audit log in the database; return how many ids were replaced.

        What was removed from a database of SQLite is gone from its file afterwards.
        """
        replaced = 0
        with self._database.write() as connection:
            for table, keys, columns in (
                (tables.runs, ("id",), ("error", "report")),
                (tables.stages, ("run_id", "name"), ("outputs",)),
                (tables.events, ("id",), ("detail",)),
                (tables.audit, ("id",), ("detail", "message")),
            ):
                for row in connection.execute(select(table)).mappings().all():
                    changed: dict[str, Any] = {}
                    for column in columns:
                        text, count = redactor.redact(json.dumps(row[column]))
                        if count:
                            changed[column] = json.loads(text)
                            replaced += count
                    if changed:
                        chosen = update(table)
                        for key in keys:
                            chosen = chosen.where(table.c[key] == row[key])
                        connection.execute(chosen.values(**changed))
        self._database.compact()
        return replaced

    def replace_version(self, record: ModelRecord, rewritten: Path) -> None:
        """Put a rewritten model version into the place of the one it was written from, and remove that.

        Running servers of this workspace open the new one. Its row updates are removed with the old one: none
        is active any more before their files are gone. A process that is killed in between leaves the old
        version, whose updates still tell that it has to be replaced.
        """
        key = (tables.models.c.name == record.name) & (tables.models.c.version == record.version)
        with self._database.write() as connection:
            size = {"size_bytes": folder_size(rewritten)}
            connection.execute(update(tables.models).where(key).values(**size))
            if forget_row_sequence(connection, record.name, record.version):
                next_change(connection)
            self._add_event(connection, "model", record.name, "rewritten", {"version": record.version})
        exchange_folders(record.path, rewritten)
        shutil.rmtree(rewritten)


def exchange_folders(first: Path, second: Path) -> None:
    """Exchange two folders of one file system in one step, so that no reader finds either missing.

    Where the file system cannot do that, in two steps.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if libc.renameat2(*arguments) != 0:
        aside = first.with_name(f"{first.name}.replaced")
        first.rename(aside)
        second.rename(first)
        aside.rename(second)
    flush_to_disk(first.parent)
