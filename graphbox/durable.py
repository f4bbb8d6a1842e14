"""Files that survive a crash: a reader finds the old content or the new one, never a part."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Numbers of the errors of a full disk."""


@contextmanager
def write_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary stream whose content becomes ``path`` when the block ends without an error.

    Folders above it are made. What was there before is replaced in one step. What a killed process left
    beside is removed.

    Raises:
        OSError: the system refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with beside.open("xb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        replace_durably(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def is_running(partial: Path) -> bool:
    """Return whether the process lives that made a partial file or folder, so far as its name tells."""
    process = partial.name.removesuffix(".partial").rpartition(".")[2].partition("-")[0]
    return process.isdecimal() and Path(f"/proc/{process}").exists()


def _remove_leftovers(path: Path) -> None:
    """Remove files of processes that were killed: those that live hold a lock."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with suppress(OSError):  # no file, its owner has just removed it, or it is being written
            if is_running(leftover) or not leftover.is_file():
                continue
            with leftover.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()


def replace_durably(beside: Path, path: Path) -> None:
    """Move a finished file or folder, which is on disk, into place, and make the move durable."""
    beside.replace(path)
    flush_to_disk(path.absolute().parent)


def flush_to_disk(path: Path) -> None:
    """Flush the content of a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
