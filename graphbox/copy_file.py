"""Files without a name that hold immutable copies, shared by the processes of a server.

One process owns a copy and grants descriptors of it to others. Byte-range locks on open file descriptions
(``F_OFD_SETLK``) say who uses a copy and who writes it: they end with the last descriptor or mapping, so a
process that is killed leaves none. A complete copy is read-only: in memory by seals, which also prevent
truncation, and on disk by its mode, as no other program can open a file without a name.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
from pathlib import Path

__all__ = [
    "complete",
    "create_copy",
    "grant",
    "is_complete",
    "is_used",
    "open_for_writing",
]

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_READ_ONLY = 0o400
# Bytes that are locked, whatever the file holds there.
_WRITER, _USERS = 0, 1
# struct flock: type, whence, start, length, process; `0q` pads it as the C compiler does.
_FLOCK = "hhqqi0q"


def create_copy(folder: Path | None) -> int:
    """Return the descriptor of a new, empty copy.

    Args:
        folder: where its content lies on disk; None: in memory.

    Raises:
        OSError: the system refuses, such as a folder that cannot be written to.
    """
    if folder is None:
        return os.memfd_create("graphbox-copy", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(dir=folder) as file:
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)


def grant(copy: int) -> int:
    """Return a new read-only descriptor of a copy, which counts as used while it or a mapping of it is open.

    Raises:
        OSError: there are too many open files.
    """
    descriptor = os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, _USERS))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_used(copy: int) -> bool:
    """Return whether a granted descriptor, or a mapping of one, is open in any process."""
    found = fcntl.fcntl(copy, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, _USERS))
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def is_complete(copy: int) -> bool:
    """Return whether a copy has its whole content, which never changes again."""
    return not os.fstat(copy).st_mode & stat.S_IWUSR


def open_for_writing(copy: int) -> int | None:
    """Return a descriptor that writes a copy; None: another one does, or the copy is complete.

    Closing the descriptor lets others write; a copy that is not complete then has undefined content.

    Raises:
        OSError: there are too many open files.
    """
    try:
        descriptor = os.open(f"/proc/self/fd/{copy}", os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        return None
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, _WRITER))
        if not is_complete(descriptor):
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def complete(copy: int, *, in_memory: bool) -> None:
    """Make a copy that is written read-only, for good."""
    if in_memory:
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _SEALS)
    os.fchmod(copy, _READ_ONLY)


def _lock(kind: int, byte: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0)
