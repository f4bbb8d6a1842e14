"""Writer locks between processes: they end with their holder's process, and name it to those who wait."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from graphbox.durable import NO_ROOM
from graphbox.errors import ConflictError, DoesNotFitError, GraphboxError, UsageError

Holder = dict[str, str | int]

_WAIT = "wait until it has finished, or end it, then try again"


class WriterLock:
    """A lock file that one process at a time can hold; the kernel frees it when the process ends.

    Args:
        path: the lock file; who holds it is written beside it.
        what: what is locked, for messages: "run debian-1".
        hint: what to do while another process holds it.
        note: what else to write of the holder, for `living_holder`.
    """

    def __init__(
        self, path: Path, what: str, hint: str = _WAIT, note: Mapping[str, str | int] | None = None
    ) -> None:
        self._path = path
        self._what = what
        self._hint = hint
        self._note = dict(note or {})
        self._lock = FileLock(path, thread_local=False)

    def acquire(self, timeout_s: float) -> None:
        """Take the lock, waiting at most ``timeout_s`` seconds.

        Raises:
            ConflictError: another process holds it.
            DoesNotFitError: the disk is full.
            UsageError: the folder cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=timeout_s, poll_interval=0.02)
        except Timeout:
            raise ConflictError(
                f"the {self._what} is in use by {_describe(_read_holder(self._path))}; "
                f"waited {timeout_s:g} s for it",
                where=str(self._path),
                hint=self._hint,
            ) from None
        except OSError as error:
            raise cannot_lock(self._path, self._what, error) from None
        try:
            _write_holder(self._path, self._note)
        except OSError as error:
            self._lock.release()
            raise cannot_lock(self._path, self._what, error) from None

    def release(self) -> None:
        """Free the lock."""
        if self._lock.is_locked:
            _holder_path(self._path).unlink(missing_ok=True)
            self._lock.release()


def cannot_lock(path: Path, what: str, error: OSError) -> GraphboxError:
    """Return the error of a lock file that cannot be made or written.

    Args:
        path: the lock file.
        what: see `WriterLock`.
        error: of the system.
    """
    message = f"the {what} cannot be locked: {error.strerror}"
    if error.errno in NO_ROOM:
        return DoesNotFitError(message, where=str(path), hint="free space on that disk")
    hint = "check the folder's permissions, or name another workspace with -C"
    return UsageError(message, where=str(path), hint=hint)


@contextmanager
def writer_lock(path: Path, what: str, timeout_s: float = 10.0, hint: str = _WAIT) -> Iterator[None]:
    """Hold the lock at ``path`` while the block runs; see `WriterLock`."""
    lock = WriterLock(path, what, hint)
    lock.acquire(timeout_s)
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock at ``path``; does not take it.

    A child that outlives its killed parent can keep the kernel's lock: the holder's process id and
    start time decide then.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        holder = _read_holder(path)
        if not holder or holder.get("host") != socket.gethostname():
            return True
        return process_start(int(holder["pid"])) == holder.get("process_start")
    return False


def living_holder(path: Path) -> Holder | None:
    """Return the process that holds the lock at ``path``, as it was noted beside it; None when it is free."""
    return _read_holder(path) if is_held(path) else None


def signal_holder(holder: Holder, where: str) -> None:
    """Send SIGTERM to the process that holds a lock; to none when it has just ended.

    Args:
        holder: see :func:`living_holder`.
        where: what it holds, for messages.

    Raises:
        ConflictError: it runs on another host, it is not known, or the system refuses.
    """
    if holder.get("host") != socket.gethostname():
        raise ConflictError(
            f"expected a process on {socket.gethostname()}, received {_describe(holder)}",
            where=where,
            hint="stop it on its own host",
        )
    pid = int(holder["pid"])
    if process_start(pid) != holder.get("process_start"):
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise ConflictError(
            f"the system refuses to stop {_describe(holder)}", where=where, hint="stop it as its own user"
        ) from None


def process_start(pid: int) -> str | None:
    """Return when process ``pid`` started, in clock ticks since boot; None when there is no such process.

    With the process id it names a process uniquely: ids are used again, start times are not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field, the command in brackets, may hold blanks; the start time is field 22.
    return stat.rpartition(")")[2].split()[19]


def _holder_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _write_holder(path: Path, note: Holder) -> None:
    holder: Holder = {
        **note,
        "pid": os.getpid(),
        "process_start": process_start(os.getpid()) or "",
        "host": socket.gethostname(),
        # Only the verb: other arguments may hold a token.
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])[:100],
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    beside = _holder_path(path).with_suffix(f".{os.getpid()}.tmp")
    try:
        beside.write_text(json.dumps(holder))
        beside.replace(_holder_path(path))
    finally:
        beside.unlink(missing_ok=True)


def _read_holder(path: Path) -> Holder:
    try:
        holder = json.loads(_holder_path(path).read_text())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) and isinstance(holder.get("pid"), int) else {}


def _describe(holder: Holder) -> str:
    if not holder:
        return "another process"
    detail = f"`{holder.get('command')}`, since {holder.get('since')}"
    return f"process {holder['pid']} on {holder.get('host')} ({detail})"
