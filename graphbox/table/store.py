"""Several named tables in one folder, under one budget, saved together."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from graphbox.durable import flush_to_disk
from graphbox.errors import ConflictError, FormatError, NotFoundError, UsageError
from graphbox.native import thread_count
from graphbox.table.arguments import budget_bytes, nonnegative
from graphbox.table.atomic_folder import atomic_folder, system_errors, write_durably
from graphbox.table.checkpoint_files import CheckpointOf, write_checkpoints
from graphbox.table.document import RESTORE, document_text, read_document
from graphbox.table.linked_table import linked_table
from graphbox.table.manifest import read_manifest
from graphbox.table.table import EmbeddingTable

_CHECKPOINT: Final = "checkpoint"
_TABLES: Final = "open-tables"
_INDEX: Final = "store.json"
_LOCK: Final = "lock"
_FORMAT: Final = "graphbox-table-store"
_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(slots=True)
class _Member:
    table: EmbeddingTable
    share: float


class TableStore:
    """Named tables that share a budget and are saved together.

    ``save()`` writes one checkpoint of all tables as they are at one moment, which appears at once; opening
    the folder again gives the tables as they were then. One process at a time may have a store open.

    Tables may have rows on SSD (``create(..., on_ssd=True)``): each has a folder in the store for as long as
    that is open. Saving links their segments into the checkpoint, and opening links them back, so both take
    the time of what changed, not that of all rows.

    The budget is divided by the tables' shares, anew whenever a table comes or goes.

    Args:
        path: of the folder; made if it is not there.
        memory_bytes: the most memory all tables may take together; None: no limit.
        threads: of the tables, see :func:`graphbox.native.thread_count`.

    Raises:
        ConflictError: another process has it open.
        FormatError: its checkpoint is damaged, or of another version.
        DoesNotFitError: a table exceeds its share of ``memory_bytes``.
        UsageError: a wrong argument, or a folder of something else.
        GraphboxError: the system refuses.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        budget_bytes(memory_bytes)
        self._memory_bytes = memory_bytes
        self._threads = thread_count(threads)
        self._members: dict[str, _Member] = {}
        with system_errors(self._path):
            self._path.mkdir(exist_ok=True)
            _refuse_others(self._path)
            self._lock = _locked(self._path)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TableStore({str(self._path)!r}, tables={list(self._members)})"

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> EmbeddingTable:
        return self._member(name).table

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def memory_bytes(self) -> int | None:
        """The most memory all tables may take together, or None."""
        return self._memory_bytes

    @property
    def nbytes(self) -> int:
        """Memory of all tables in bytes."""
        return sum(member.table.nbytes for member in self._members.values())

    def create(
        self, name: str, dim: int, *, share: float = 1.0, on_ssd: bool = False, **settings: Any
    ) -> EmbeddingTable:
        """Add a table.

        Args:
            name: letters, digits, ``.``, ``_`` and ``-``, 100 at most, the first one a letter or digit.
            dim: values of a row.
            share: how much of the budget it gets, relative to the others' shares.
            on_ssd: rows that find no room in the table's part of ``memory_bytes`` go to the store's folder.
            settings: of :class:`graphbox.table.EmbeddingTable`, but ``memory_bytes``, ``threads`` and
                ``path``.

        Raises:
            ConflictError: there is one of this name.
            DoesNotFitError: some table already takes more than it would be left; nothing changed.
            UsageError: a wrong name, share or setting.
        """
        self._check_open()
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"expected a name of letters, digits, `.`, `_` and `-`, received {name!r}", where="name"
            )
        if name in self._members:
            raise ConflictError("expected a new name, there is such a table", where=name)
        for given in ("memory_bytes", "threads"):
            if given in settings:
                raise UsageError("expected no such setting: it is that of the whole store", where=given)
        if settings.get("path") is not None:
            raise UsageError(
                "expected no folder: a table of a store has its rows in that of the store",
                where="path",
                hint="leave it out, and give on_ssd=True for rows on SSD",
            )
        share = _share(share)
        shares = {**self._shares(), name: share}
        settings["path"] = self._path / _TABLES / name if on_ssd else None
        table = EmbeddingTable(
            dim, **settings, memory_bytes=self._budgets(shares)[name], threads=self._threads
        )
        try:
            self._divide(shares)
        except BaseException:
            self._abandon(name, table)
            raise
        self._members[name] = _Member(table, share)
        return table

    def remove(self, name: str) -> None:
        """Drop a table; it is gone for good with the next :meth:`save`.

        Raises:
            NotFoundError: there is none of this name.
        """
        member = self._member(name)
        del self._members[name]
        self._abandon(name, member.table)
        self._divide(self._shares())

    def save(self) -> None:
        """Write one checkpoint of all tables as of one moment, which replaces the last one at once.

        Pulls of known keys go on meanwhile. Pushes to tables in memory wait until these are written, those to
        tables on SSD for the moment alone: see :meth:`graphbox.table.EmbeddingTable.save`.

        Raises:
            DoesNotFitError: the disk is full.
            UsageError: the store, or a table of it, was closed.
            GraphboxError: the system refuses to write.
        """
        self._check_open()
        with ExitStack() as saving:
            for member in self._members.values():
                len(member.table)  # one that was closed says so
                saving.enter_context(member.table._saving)
            folder = saving.enter_context(
                atomic_folder(self._path / _CHECKPOINT, _is_store, "the checkpoint of a store")
            )
            places = [folder / name for name in self._members]
            for place in places:
                place.mkdir()
            written = write_checkpoints(
                [
                    CheckpointOf(member.table, place, "full")
                    for member, place in zip(self._members.values(), places, strict=True)
                ]
            )
            for place in places:
                flush_to_disk(place)
            tables = {
                name: {
                    "share": member.share,
                    "digest": manifest.digest,
                    "on_ssd": member.table.path is not None,
                }
                for (name, member), (manifest, _) in zip(self._members.items(), written, strict=True)
            }
            write_durably(folder / _INDEX, _index_text(tables).encode())

    def close(self) -> None:
        """Let others open the store; what was not saved is lost."""
        if self._lock is not None:
            for name, member in self._members.items():
                self._abandon(name, member.table)
            shutil.rmtree(self._path / _TABLES, ignore_errors=True)
            os.close(self._lock)
            self._lock = None
            self._members.clear()

    def _abandon(self, name: str, table: EmbeddingTable) -> None:
        """Leave nothing of the folder of a table that is none of this store any more."""
        table._abandon()
        shutil.rmtree(self._path / _TABLES / name, ignore_errors=True)  # also of one that was closed

    def _load(self) -> None:
        folder = self._path / _CHECKPOINT
        shutil.rmtree(self._path / _TABLES, ignore_errors=True)  # of a process that was killed
        if not folder.exists():
            return
        tables = _read_index(folder / _INDEX)
        budgets = self._budgets({name: entry["share"] for name, entry in tables.items()})
        for name, entry in tables.items():
            manifest = read_manifest(folder / name)
            if manifest.digest != entry["digest"]:
                raise FormatError(
                    "expected the table that the store was saved with, received another one",
                    where=str(folder / name),
                    hint=RESTORE,
                )
            if entry["on_ssd"]:
                table = linked_table(
                    folder / name,
                    manifest,
                    self._path / _TABLES / name,
                    memory_bytes=budgets[name],
                    threads=self._threads,
                )
            else:
                table = EmbeddingTable.load(folder / name, memory_bytes=budgets[name], threads=self._threads)
            self._members[name] = _Member(table, entry["share"])

    def _member(self, name: str) -> _Member:
        self._check_open()
        member = self._members.get(name)
        if member is None:
            known = ", ".join(sorted(self._members)) or "none"
            raise NotFoundError(
                f"expected the name of a table, received {name!r}", hint=f"the tables are: {known}"
            )
        return member

    def _check_open(self) -> None:
        if self._lock is None:
            raise UsageError("the store is closed", where=str(self._path), hint="open it again")

    def _shares(self) -> dict[str, float]:
        return {name: member.share for name, member in self._members.items()}

    def _budgets(self, shares: Mapping[str, float]) -> dict[str, int | None]:
        """Return each table's part of the budget."""
        if self._memory_bytes is None:
            return dict.fromkeys(shares)
        whole = sum(shares.values())
        return {name: int(self._memory_bytes * (share / whole)) for name, share in shares.items()}

    def _divide(self, shares: Mapping[str, float]) -> None:
        """Give the tables that are there their budgets; where one does not fit, all keep the old ones."""
        budgets = self._budgets(shares)
        before = {name: member.table.memory_bytes for name, member in self._members.items()}
        try:
            for name, member in self._members.items():
                member.table.memory_bytes = budgets[name]
        except BaseException:
            for name, member in self._members.items():
                member.table.memory_bytes = before[name]
            raise


def _locked(path: Path) -> int | None:
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConflictError(
            "expected a store that nobody has open, another process or object has this one",
            where=str(path),
            hint="close it there",
        ) from None
    return descriptor


def _refuse_others(path: Path) -> None:
    """Refuse a folder of something else: there a store would lie beside what is not its own."""
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(f".{_CHECKPOINT}.")}
    others = names - ({_CHECKPOINT, _LOCK, _TABLES} if _LOCK in names else {_CHECKPOINT})
    if others:
        raise UsageError(
            f"expected a store, or an empty folder for a new one, received one with {min(others)}",
            where=str(path),
            hint="choose another folder",
        )


def _share(share: object) -> float:
    number = nonnegative(share, "share")
    if number == 0:
        raise UsageError("expected a number above 0, received 0", where="share")
    return number


def _is_store(path: Path) -> bool:
    return path.is_dir() and (path / _INDEX).is_file()


def _index_text(tables: Mapping[str, Any]) -> str:
    return document_text({"format": _FORMAT, "version": _VERSION, "tables": dict(tables)})


def _read_index(path: Path) -> dict[str, Any]:
    try:
        tables = read_document(path, _FORMAT, _VERSION).get("tables")
    except OSError as error:
        raise FormatError(f"cannot read the store: {error}", where=str(path), hint=RESTORE) from None
    if not isinstance(tables, dict):
        raise FormatError("the store names no tables", where=str(path), hint=RESTORE)
    for name, entry in tables.items():
        if (
            not _NAME.fullmatch(name)
            or not isinstance(entry, dict)
            or entry.keys() != {"share", "digest", "on_ssd"}
        ):
            raise FormatError(f"{name!r} is no table of a store", where=str(path), hint=RESTORE)
        _share(entry["share"])
    return tables
