"""A page of shared memory that says where each of several processes is, also after its death."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

_SLOT_BYTES = 512
_HEADER = struct.Struct("<qqqH")  # process id, number of the operation, state, bytes of the text
_TEXT_BYTES = _SLOT_BYTES - _HEADER.size
_ABSENT, _INSIDE, _OUTSIDE, _FAILED, _ENDED = range(5)


@dataclass(frozen=True)
class Place:
    """Where a process is.

    Attributes:
        rank: its rank.
        number: of the last operation that it came to, from 1.
        operation: what that is for, or why it failed; the letters that there is room for.
        doing: what it is or was doing, as the end of a sentence about it.
    """

    rank: int
    number: int
    operation: str
    doing: str


class ProcessBoard:
    """Where each process of a group is.

    Each writes into a slot of its own, a few microseconds for each operation, and reads the others' when it
    waits in vain. What a slot says while it is written may be torn: it is for messages.

    Args:
        path: of the file that :meth:`create` made; it may be removed when all have opened it.
        rank: of this process.

    Raises:
        OSError: there is no such file.
    """

    def __init__(self, path: Path, rank: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._page = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self._rank = rank
        self._size = len(self._page) // _SLOT_BYTES
        self._name = b""
        self._write(0, _OUTSIDE, "")

    @staticmethod
    def create(path: Path, size: int) -> None:
        """Make the file for so many processes."""
        path.write_bytes(bytes(size * _SLOT_BYTES))

    def enter(self, number: int, name: str) -> None:
        """Note that this process has come to an operation."""
        self._write(number, _INSIDE, name)

    def leave(self, number: int) -> None:
        """Note that it has done it."""
        self._write(number, _OUTSIDE, None)

    def fail(self, reason: str) -> None:
        """Note that it comes to no further one."""
        self._write(-1, _FAILED, reason)

    def end(self) -> None:
        """Note that it needs no further one; what it failed with stays."""
        if self._read(self._rank)[2] != _FAILED:
            self._write(-1, _ENDED, None)

    def places(self) -> list[Place]:
        """Return where all processes are."""
        return [self._place(rank) for rank in range(self._size)]

    def gone(self) -> list[Place]:
        """Return the other processes that will come to no further operation: ended and failed ones."""
        others = [rank for rank in range(self._size) if rank != self._rank]
        return [self._place(rank) for rank in others if self._is_gone(rank)]

    def _is_gone(self, rank: int) -> bool:
        process, _, state, _ = self._read(rank)
        return state in {_FAILED, _ENDED} or (state != _ABSENT and not _is_alive(process))

    def _place(self, rank: int) -> Place:
        process, number, state, text = self._read(rank)
        if state == _FAILED:
            doing = f"failed: {text}"
        elif state == _ENDED:
            doing = "has left the group"
        else:
            at = f"in operation {number}, {text}" if state == _INSIDE else f"after operation {number}, {text}"
            if state != _INSIDE and number == 0:
                at = "before its first operation"
            alive = state == _ABSENT or _is_alive(process)
            doing = f"(process {process}) is {at}" if alive else f"(process {process}) ended {at}"
        return Place(rank, number, text, doing)

    def _write(self, number: int, state: int, text: str | None) -> None:
        if text is not None:
            self._name = text.encode()[:_TEXT_BYTES]
        begin = self._rank * _SLOT_BYTES
        slot = _HEADER.pack(os.getpid(), number, state, len(self._name)) + self._name
        self._page[begin : begin + len(slot)] = slot

    def _read(self, rank: int) -> tuple[int, int, int, str]:
        slot = self._page[rank * _SLOT_BYTES : (rank + 1) * _SLOT_BYTES]
        process, number, state, length = _HEADER.unpack_from(slot)
        return process, number, state, slot[_HEADER.size : _HEADER.size + length].decode(errors="replace")


def _is_alive(process: int) -> bool:
    """Return whether a process runs; one that ended, and that its parent has not asked about, does not."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except FileNotFoundError:
        return False
    except OSError:  # no /proc here, or one that hides other users' processes
        return True
    return status.rpartition(b") ")[2][:1] not in {b"Z", b"X"}
