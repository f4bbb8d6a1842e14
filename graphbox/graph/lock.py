"""The locks that let one process at a time change or compact a graph, and tell the others who that is."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import filelock

from graphbox.errors import TimeLimitError, UsageError

LOCK_TIMEOUT_S = 10.0
_POLL_S = 0.02


@contextlib.contextmanager
def graph_lock(path: Path, timeout_s: float = LOCK_TIMEOUT_S, *, activity: str = "writing") -> Iterator[None]:
    """Hold the lock that excludes other writers of the graph folder ``path``.

    The lock is a file beside the folder, so that it outlives the folder's removal; the kernel frees it when
    its holder ends, however that happens. In the file stands who holds it: process, since when, for what.
    Who waits for it holds a second lock meanwhile, without which nobody may take the first: so one who takes
    it again and again cannot keep others out.

    Args:
        path: the graph's folder.
        timeout_s: seconds to wait for another holder.
        activity: what the lock is taken for, in one word: told to those who wait.

    Raises:
        TimeLimitError: another process held it for ``timeout_s`` seconds.
        UsageError: the parent folder cannot be written.
    """
    turn = path.parent / f".{path.name}.turn.lock"
    with _held(path, path.parent / f".{path.name}.lock", timeout_s, activity, turn=turn):
        yield


@contextlib.contextmanager
def compaction_lock(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold the lock that excludes other compactions of the graph folder ``path``, but no change of it.

    Args:
        path: the graph's folder.
        timeout_s: seconds to wait for another holder.

    Raises:
        TimeLimitError: another process held it for ``timeout_s`` seconds.
        UsageError: the parent folder cannot be written.
    """
    with _held(path, path.parent / f".{path.name}.compaction.lock", timeout_s, "compacting"):
        yield


@contextlib.contextmanager
def _held(
    path: Path, file: Path, timeout_s: float, activity: str, *, turn: Path | None = None
) -> Iterator[None]:
    lock = filelock.FileLock(file, thread_local=False)
    deadline = time.monotonic() + timeout_s
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as waiting:
            if turn is not None:
                taken = filelock.FileLock(turn, thread_local=False)
                waiting.enter_context(taken.acquire(timeout=timeout_s, poll_interval=_POLL_S))
            lock.acquire(timeout=max(deadline - time.monotonic(), 0), poll_interval=_POLL_S)
    except filelock.Timeout as error:
        raise TimeLimitError(
            f"waited {timeout_s:g} s for {_holder(file)} (it holds {file})",
            where=str(path),
            hint="try again when it has finished",
        ) from error
    except OSError as error:
        raise UsageError(
            f"expected a folder that can be written, received: {error.strerror}",
            where=str(path.parent),
            hint="check its permissions, or choose another folder",
        ) from error
    try:
        _write_holder(file, activity)
        yield
        _write_holder(file, None)
    except BaseException:
        with contextlib.suppress(OSError):  # a full disk must not hide what went wrong
            _write_holder(file, None)
        raise
    finally:
        lock.release()


def _write_holder(file: Path, activity: str | None) -> None:
    """Say in the lock file who holds it; None: nobody."""
    since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    text = "" if activity is None else json.dumps({"pid": os.getpid(), "since": since, "activity": activity})
    with file.open("r+", encoding="utf-8") as opened:
        opened.write(text)
        opened.truncate()


def _holder(file: Path) -> str:
    """Return in words who holds the lock; what a holder is just writing counts as unknown."""
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        return (
            f"process {holder['pid']}, which has been {holder['activity']} this graph since {holder['since']}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return "another process that is writing this graph"
