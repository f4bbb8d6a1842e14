"""Tables larger than memory: their folder, what is kept there, and reading rows before they are asked for."""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import mmap
import os
import shutil
import threading
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from graphbox import _core
from graphbox.durable import flush_to_disk
from graphbox.errors import (
    ConflictError,
    FormatError,
    GraphboxError,
    NotFoundError,
    TimeLimitError,
    UsageError,
)
from graphbox.native import Int64Array
from graphbox.table.catalogue_contents import (
    CatalogueContents,
    CatalogueDamage,
    FolderContents,
    ListedSegment,
)
from graphbox.table.manifest import MANIFEST
from graphbox.table.rows import ClosedTable
from graphbox.table.state_records import StateDamage, StateRecords

if TYPE_CHECKING:
    from graphbox.table.catalogue import Catalogue
    from graphbox.table.table import EmbeddingTable

_logger = logging.getLogger(__name__)

_EMPTY_CATALOGUE_BYTES: Final = 2 * mmap.PAGESIZE
"""Size of an LMDB without any transaction: its two meta pages."""


@dataclass(frozen=True, slots=True)
class TierStatistics:
    """Where the rows of a table are, and what moved.

    Attributes:
        hot_rows: rows in memory.
        room_rows: rows that memory has room for, beside the index as it is.
        cold_rows: rows on SSD alone.
        hits: keys looked up whose rows were in memory, since the table was opened.
        misses: keys looked up whose rows were read from SSD.
        evicted_rows: rows that left memory.
        compacted_rows: rows that were written again to get rid of dead ones beside them.
        bytes_read: from segments.
        bytes_written: to segments.
        segments: files there are.
        segment_bytes: how large they are together.
        live_share: part of the rows in segments that count; the others were written again since, or erased.
    """

    hot_rows: int
    room_rows: int
    cold_rows: int
    hits: int
    misses: int
    evicted_rows: int
    compacted_rows: int
    bytes_read: int
    bytes_written: int
    segments: int
    segment_bytes: int
    live_share: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """Repairs made when a table's folder was opened.

    Attributes:
        catalogue_damage: why the catalogue was rebuilt from the segments, or None where it was intact. After
            a rebuild the table holds for each key the row that was written last, flushed or not.
        removed_files: number of segments of a process that ended before it flushed them.
        state_damage: why settings, passes and admission counts could not be read as last flushed, and their
            present values, or None.
    """

    catalogue_damage: str | None
    removed_files: int
    state_damage: str | None = None


@dataclass(frozen=True, slots=True)
class Prefetched:
    """Result of a prefetch.

    Attributes:
        in_memory: number of the keys that had rows in memory when it ended. Keys without a row do not count.
        rows_read: number of these that were read from SSD.
    """

    in_memory: int
    rows_read: int


class Prefetch:
    """Rows on their way from SSD to memory: what :meth:`EmbeddingTable.prefetch` returns."""

    def __init__(self, keys: Int64Array, threads: int) -> None:
        self._stop = _core.StopFlag()
        self._result: Prefetched | None = None
        self._error: BaseException | None = None
        # Not Thread.join(), which takes a thread for ended when a wait for it was interrupted.
        self._ended = threading.Event()
        self._fate: dict[None, Literal["runs", "never runs"]] = {}  # whoever is first to say it decides
        self._tables: list[_core.Table] = []  # the one, until the thread takes it
        self._keys = keys
        self._threads = threads

    def start(self, table: EmbeddingTable) -> None:
        """Begin. Where that is interrupted, :meth:`join` knows whether the thread will use the table."""
        thread = threading.Thread(target=self._run, name="graphbox-prefetch", daemon=True)
        self._tables.append(table._native)
        thread.start()

    def __repr__(self) -> str:
        if not self.is_done:
            state = "reading"
        else:
            state = f"failed: {self._error}" if self._error is not None else repr(self._result)
        return f"Prefetch(keys={len(self._keys)}, {state})"

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> Prefetched:
        """Wait for the end, and return what was achieved.

        Raises:
            TimeLimitError: it did not end within ``timeout_s`` seconds; it goes on.
            GraphboxError: what went wrong while rows were read.
        """
        if not self._ended.wait(timeout_s):
            raise TimeLimitError(
                f"waited {timeout_s} s for rows to be read from SSD",
                hint="wait longer; rows that are not there in time are read when they are pulled",
            )
        if self._result is None:
            raise self._error or GraphboxError("the prefetch ended without a result")
        return self._result

    def join(self) -> None:
        """Wait for the end, whatever it is."""
        if self._fate.setdefault(None, "never runs") == "never runs":  # its thread finds that, if it comes
            self._tables.clear()
            self._ended.set()
        self._ended.wait()

    def cancel(self) -> None:
        """Stop soon. Rows that were read stay."""
        self._stop.set()

    def _run(self) -> None:
        if self._fate.setdefault(None, "runs") == "never runs":
            return
        try:
            # In no variable, which the error's traceback would keep, and with it the folder's lock.
            achieved = _core.table_prefetch(self._tables.pop(), self._keys, self._threads, self._stop)
            self._result = Prefetched(*achieved)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self._error = error
        finally:
            self._ended.set()


class TableFolder:
    """The folder of a table with rows on SSD: a lock, the catalogue, and segments.

    Made by :meth:`created` or :meth:`opened`; :meth:`attach` gives it the table.
    """

    def __init__(self, path: Path, lock: _FolderLock, catalogue: Catalogue) -> None:
        self.path = path
        self.recovery = Recovery(None, 0)
        self._catalogue = catalogue
        self._records = StateRecords(path / "state")
        self._lock = lock
        self.closing = threading.RLock()  # held by the thread that closes the table
        self._flushing = threading.Lock()
        self._prefetching = threading.Lock()
        self._prefetches: weakref.WeakSet[Prefetch] = weakref.WeakSet()
        self._is_closed = False
        self.leaving: _core.Table | None = None  # what close() takes the folder from
        self._release = weakref.finalize(self, _released, catalogue, lock)

    @staticmethod
    def holds_table(path: Path) -> bool:
        """Return whether a folder holds a table. One whose making was cut short holds none yet."""
        if not (path / "segments").is_dir():
            return False
        catalogue = path / "catalogue" / "data.mdb"
        was_written = catalogue.is_file() and catalogue.stat().st_size > _EMPTY_CATALOGUE_BYTES
        return was_written or any((path / "segments").glob("*.segment"))

    @classmethod
    def refuse_table(cls, path: Path) -> None:
        """Check that a folder holds no table.

        Raises:
            UsageError: it does.
        """
        if cls.holds_table(path):
            raise _occupied(path, "segments")

    @classmethod
    def created(cls, path: Path) -> TableFolder:
        """Make a folder for a new table, also where the making of one was cut short.

        Raises:
            UsageError: there is something already.
            ConflictError: another process has it open.
        """
        from graphbox.table.catalogue import Catalogue  # LMDB is needed with a folder only

        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _FolderLock(path)
        except OSError as error:
            raise UsageError(
                f"expected a folder that can be written, received: {error.strerror}",
                where=str(path),
                hint="check its permissions, or choose another folder",
            ) from error
        catalogue: Catalogue | None = None
        try:
            others = sorted(entry.name for entry in path.iterdir() if entry.name != "lock")
            if others in (["segments"], ["catalogue", "segments"]) and not cls.holds_table(path):
                for name in others:
                    shutil.rmtree(path / name)
            elif others:
                raise _occupied(path, others[0])
            (path / "segments").mkdir()
            catalogue = Catalogue(path / "catalogue")
            folder = cls(path, lock, catalogue)
            for each in (path / "catalogue", path / "state", path, path.absolute().parent):
                flush_to_disk(each)
            return folder
        except BaseException:
            if catalogue is not None:
                catalogue.close()
            lock.release()
            raise

    @classmethod
    def opened(cls, path: Path) -> tuple[TableFolder, FolderContents]:
        """Open the folder of a table, and return what is in it. A damaged catalogue is made anew.

        Raises:
            NotFoundError: there is no table.
            ConflictError: another process has it open.
            FormatError: the catalogue is of something else, or damaged and there are no segments either.
        """
        from graphbox.table.catalogue import Catalogue

        if not (path / "segments").is_dir():
            raise NotFoundError(
                "expected the folder of a table, which has segments in it",
                where=str(path),
                hint="load it with EmbeddingTable.load, it is a checkpoint"
                if (path / MANIFEST).is_file()
                else "check the path",
            )
        lock = _FolderLock(path)
        catalogue: Catalogue | None = None
        damage = None
        try:
            try:
                catalogue = Catalogue(path / "catalogue")
                contents = catalogue.read()
            except CatalogueDamage as error:
                damage = str(error)
                contents = _contents_of_segments(path)
                if catalogue is not None:
                    catalogue.close()
                _set_aside(path / "catalogue")
                catalogue = Catalogue(path / "catalogue")
                _logger.warning(
                    "%s: the catalogue is made anew from segments, with rows that were written after the "
                    "last flush: %s",
                    path,
                    damage,
                )
            folder = cls(path, lock, catalogue)
            folder.recovery = Recovery(damage, 0)
            return folder, folder._with_state(contents)
        except BaseException:
            if catalogue is not None:
                catalogue.close()  # an LMDB that is open already would be taken for a damaged one
            lock.release()
            raise

    def _with_state(self, contents: CatalogueContents) -> FolderContents:
        """Return what the folder holds; where the records that count are damaged, what others say."""
        try:
            if self.recovery.catalogue_damage is None:
                state = self._records.read(contents.state_records)
            else:
                state = self._records.read_newest()
            return FolderContents(state.settings, contents.segments, state.policy_states)
        except StateDamage as damage:
            reason = str(damage)
        try:
            state = self._records.read_newest()
            settings, policy_states = state.settings, state.policy_states
            kept = "settings, passes and counts of admission are those of an earlier flush"
        except StateDamage:
            settings, policy_states = _settings_of_segments(self.path, reason), ()
            kept = "the settings are those of the newest segment, passes and counts of admission start at 0"
        self.recovery = replace(self.recovery, state_damage=f"{reason}; {kept}")
        _logger.warning("%s: %s", self.path, self.recovery.state_damage)
        return FolderContents(settings, contents.segments, policy_states)

    def attach(self, table: EmbeddingTable, contents: FolderContents) -> None:
        """Let the table keep rows here, and give it those that are here. Where that fails, :meth:`let_go`."""
        settings = json.dumps(contents.settings, default=float)
        _core.table_attach_tier(table._current, str(self.path / "segments"), settings, self._lock.descriptor)
        # At once: an index that grows is there twice.
        rows = sum(int.from_bytes(each.live or b"", "little").bit_count() for each in contents.segments)
        table._current.reserve(rows)
        for state in contents.policy_states:
            if state:  # of a record of settings alone there is none
                table._current.add_policy_state(state, (0, 1))
        for segment in contents.segments:
            _core.table_restore_segment(table._current, segment.sequence, segment.live)
        removed = _core.table_opened(table._current)
        self.recovery = replace(self.recovery, removed_files=removed)
        if removed:
            _logger.info("%s: removed %d files that were never flushed", self.path, removed)
        self.flush(table, contents.settings)

    def flush(self, table: EmbeddingTable, settings: dict[str, Any]) -> None:
        """Make the folder hold the table as it is now."""
        with self._flushing:
            self._refuse_if_closed()
            segments = [ListedSegment(*segment) for segment in _core.table_flush(table._current)]
            try:
                numbers = self._records.write(table, settings)
                self._catalogue.write(CatalogueContents(segments, numbers))
                _core.table_flushed(table._current)
                self._records.confirm(table)
            except BaseException:
                self._records.restore(table)
                raise

    def start(self, prefetch: Prefetch, table: EmbeddingTable) -> None:
        """Start a prefetch, which ends when the folder is closed."""
        with self._prefetching:
            self._refuse_if_closed()
            self._prefetches.add(prefetch)  # first: starting may be interrupted when the thread runs already
            prefetch.start(table)

    def stop_prefetches(self) -> None:
        """Let no thread move rows any more."""
        with self._prefetching:
            running = list(self._prefetches)
        for prefetch in running:
            prefetch.cancel()
            prefetch.join()

    def close(self) -> None:
        """Let another process open the folder, whoever holds the native table still."""
        with self._flushing, self._prefetching:
            self._is_closed = True
        self.stop_prefetches()
        if self.leaving is not None:
            _core.table_detach_tier(self.leaving)
            self.leaving = None
        _released(self._catalogue, self._lock)  # not by the finalizer, which does nothing when called again
        self._release.detach()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:  # by another thread, just now
            raise ClosedTable(self.path).error()

    def let_go(self, table: EmbeddingTable) -> None:
        """Close the folder of a table that could not be opened, and is of no use.

        Now, not when the last traceback with the table in it is gone.
        """
        self.leaving = table._current
        self.close()

    def discard(self, table: _core.Table) -> None:
        """Leave the folder as empty as it was before the table, which others may be using still."""
        self.stop_prefetches()
        _core.table_detach_tier(table)  # ends what writes there
        for name in ("segments", "catalogue", "state"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self.close()
        (self.path / "lock").unlink(missing_ok=True)


class _OwnedTables:
    """Tables with a folder, which a forked process must leave to its parent: both would write there."""

    def __init__(self) -> None:
        self._tables: weakref.WeakSet[Any] = weakref.WeakSet()
        os.register_at_fork(after_in_child=self._leave)

    def add(self, table: Any) -> None:
        self._tables.add(table)

    def _leave(self) -> None:
        for table in list(self._tables):
            table._leave_to_parent()
        self._tables.clear()


OWNED_TABLES = _OwnedTables()


def left_to_parent(native: Any, folder: TableFolder) -> ClosedTable:
    """Return what stands in for a table in a process that was forked while the table was open."""
    folder._release.detach()
    # Never destroyed in this process: their files are the parent's, and their threads are not here.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object((native, folder)))
    return ClosedTable(
        folder.path,
        "the table was opened by the process that this one was forked from, and is left to it",
        "use it there; or flush it and close it before forking, or start processes by `spawn`",
    )


def _occupied(path: Path, name: str) -> UsageError:
    return UsageError(
        f"expected an empty folder for a new table, received one with {name}",
        where=str(path),
        hint="open the table that is there with EmbeddingTable.open, or choose another folder",
    )


def _released(catalogue: Catalogue, lock: _FolderLock) -> None:
    catalogue.close()
    lock.release()


class _FolderLock:
    """A lock of a folder; the kernel gives it back when the process ends, however that happens.

    Raises:
        ConflictError: another process or table has it.
    """

    descriptor = -1

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise ConflictError(
                "the table is open elsewhere, in this process or another",
                where=str(path),
                hint="close it there first: one process at a time changes a table",
            ) from error
        except BaseException:
            self.release()
            raise

    def __del__(self) -> None:
        self.release()  # one that an interruption kept from whoever wanted it

    def release(self) -> None:
        """Give it back. Once: the number of the descriptor is another file's then."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _contents_of_segments(path: Path) -> CatalogueContents:
    """Return all segments of a folder, as a catalogue that knows which rows count would not."""
    segments = []
    for file in (path / "segments").glob("*.segment"):
        sequence, is_erased, rows, _, _ = _core.segment_header(str(file))
        segments.append(ListedSegment(sequence, is_erased, rows, None))
    return CatalogueContents(sorted(segments, key=lambda segment: segment.sequence))


def _settings_of_segments(path: Path, damage: str) -> dict[str, Any]:
    """Return the settings that the newest segment of a folder has."""
    headers = [_core.segment_header(str(file)) for file in (path / "segments").glob("*.segment")]
    if not headers:
        raise FormatError(
            f"the settings of the table cannot be read ({damage}), and no segments are there that have them",
            where=str(path),
            hint="load a checkpoint of the table into a new folder",
        )
    settings: dict[str, Any] = json.loads(max(headers)[3])
    return settings


def _set_aside(catalogue: Path) -> None:
    """Rename a damaged catalogue, so that it can be looked into."""
    if not catalogue.exists():
        return
    number = 1
    while (target := catalogue.with_name(f"catalogue.damaged-{number}")).exists():
        number += 1
    try:
        catalogue.rename(target)
    except OSError as error:
        raise GraphboxError(
            f"cannot set the damaged catalogue aside: {error.strerror}", where=str(catalogue)
        ) from error


def statistics_of(table: EmbeddingTable) -> TierStatistics:
    """Return the figures of a table's tier."""
    figures = _core.table_tier_figures(table._native)
    live, rows = figures.pop("live_segment_rows"), figures.pop("segment_rows")
    return TierStatistics(**figures, live_share=live / rows if rows else 1.0)
