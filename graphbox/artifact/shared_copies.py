"""Copies of the files of model versions that the processes of a server have in common.

A copy is known by the digest of its content. The process that first wants one makes it and verifies it
meanwhile; others wait until it is complete. If the process that makes it ends, another one starts over. All
of them map the same pages, and give them up with their last array; the owner of the copies, which grants
descriptors of them, then drops the copy (`graphbox.copy_file`).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from graphbox.artifact.array_bundle import Arrays, read_bundle, write_bundle
from graphbox.artifact.arrays import LARGEST_IN_MEMORY_BYTES, copy_folder, mapped_array, reserve
from graphbox.artifact.copies import PrivateCopies, wrong_digest
from graphbox.artifact.manifest import FileRecord
from graphbox.copy_file import complete, is_complete, open_for_writing
from graphbox.errors import TimeLimitError

__all__ = ["CopyOwner", "SharedCopies"]

# A copy costs two descriptors, which small files are not worth.
_SMALLEST_SHARED_BYTES = 64 * 1024
_BLOCK_BYTES = 1 << 20
_POLL_S = 0.01
_STALL_TIMEOUT_S = 300.0


class CopyOwner(Protocol):
    """Owner of copies, usually in another process."""

    def grant(self, key: str, folder: Path | None) -> int:
        """Return a read-only descriptor of the copy with a key; a new copy is empty. The caller closes it.

        Args:
            key: of the content.
            folder: where a new copy lies on disk; None: in memory.

        Raises:
            GraphboxError: the owner cannot make the copy, or has ended.
        """


class SharedCopies:
    """Shares copies of files and of arrays derived from them; see `Copies`.

    Args:
        owner: grants descriptors.
        smallest_bytes: size of the smallest file that is shared; smaller ones are copied by each process.
        largest_in_memory_bytes: size of the largest copy of a file that is in memory; larger ones lie in an
            unnamed file, beside the model's or in the temporary folder.
        stall_timeout_s: time to wait for another process that makes a copy and does not proceed.
    """

    def __init__(
        self,
        owner: CopyOwner,
        *,
        smallest_bytes: int = _SMALLEST_SHARED_BYTES,
        largest_in_memory_bytes: int = LARGEST_IN_MEMORY_BYTES,
        stall_timeout_s: float = _STALL_TIMEOUT_S,
    ) -> None:
        self._owner = owner
        self._smallest_bytes = smallest_bytes
        self._largest_in_memory_bytes = largest_in_memory_bytes
        self._stall_timeout_s = stall_timeout_s
        self._private = PrivateCopies()
        self._lock = threading.Lock()
        self._mapped: WeakValueDictionary[str, mmap.mmap] = WeakValueDictionary()

    def verify(self, file: Path, record: FileRecord) -> object:
        """Compare the digest of a file; an array's by copying it. See `Copies.verify`."""
        if file.suffix == ".npy" and self._is_shared(record):
            return self._copied(file, record)
        return self._private.verify(file, record)

    def array(self, file: Path, record: FileRecord) -> npt.NDArray[Any]:
        """Return an array in a copy. See `Copies.array`."""
        if not self._is_shared(record):
            return self._private.array(file, record)
        return mapped_array(self._copied(file, record), file)

    def content(self, file: Path, record: FileRecord) -> bytes | None:
        """Return the content of a file, verified now: others use what is derived from it, too."""
        if not self._is_shared(record):
            return self._private.content(file, record)
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != record.sha256:
            raise wrong_digest(file, record, digest)
        return content

    def derived(self, file: Path, record: FileRecord, kind: str, build: Callable[[], Arrays]) -> Arrays:
        """Return arrays in a copy. See `Copies.derived`."""
        if not self._is_shared(record):
            return self._private.derived(file, record, kind, build)

        def fill(copy: int) -> None:
            with open(copy, "wb", closefd=False) as stream:
                write_bundle(stream, build())

        return read_bundle(memoryview(self._mapping(f"{record.sha256}:{kind}", file, None, fill)))

    def _is_shared(self, record: FileRecord) -> bool:
        return record.bytes >= self._smallest_bytes

    def _copied(self, file: Path, record: FileRecord) -> mmap.mmap:
        """Return the content of a file, verified."""
        in_memory = record.bytes <= self._largest_in_memory_bytes
        folder = None if in_memory else copy_folder(file)

        def fill(copy: int) -> None:
            if folder is not None:
                reserve(copy, record.bytes, folder, file)
            _copy_verified(file, record, copy)

        return self._mapping(record.sha256, file, folder, fill)

    def _mapping(self, key: str, file: Path, folder: Path | None, fill: Callable[[int], None]) -> mmap.mmap:
        """Return the content of the copy with a key; fill it if no other process does or has."""
        with self._lock:
            found = self._mapped.get(key)
        if found is not None:
            return found
        copy = self._owner.grant(key, folder)
        try:
            self._complete(copy, file, in_memory=folder is None, fill=fill)
            mapped = mmap.mmap(copy, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        finally:
            os.close(copy)
        if folder is None:
            _touch(mapped)  # requests would wait for each page once
        with self._lock:
            return self._mapped.setdefault(key, mapped)

    def _complete(self, copy: int, file: Path, *, in_memory: bool, fill: Callable[[int], None]) -> None:
        """Wait until a copy is complete; make it if no other process does.

        Raises:
            TimeLimitError: another process has written nothing for too long.
        """
        seen, deadline = 0, time.monotonic() + self._stall_timeout_s
        while not is_complete(copy):
            writable = open_for_writing(copy)
            if writable is not None:
                try:
                    os.ftruncate(writable, 0)  # of a process that ended
                    fill(writable)
                    complete(writable, in_memory=in_memory)
                finally:
                    os.close(writable)
                return
            written = os.fstat(copy).st_mtime_ns
            if written != seen:
                seen, deadline = written, time.monotonic() + self._stall_timeout_s
            elif time.monotonic() > deadline:
                raise TimeLimitError(
                    f"expected another worker to complete its copy of {file.name}, received nothing for "
                    f"{self._stall_timeout_s:g} s",
                    where=str(file),
                    hint="the disk may not answer, or that worker hangs: end it, and this one copies",
                )
            time.sleep(_POLL_S)


def _copy_verified(file: Path, record: FileRecord, copy: int) -> None:
    """Write the content of a file to a descriptor.

    Raises:
        FormatError: the file has another digest.
    """
    digest = hashlib.sha256()
    with file.open("rb") as source, open(copy, "wb", closefd=False) as target:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            target.write(block)
    if digest.hexdigest() != record.sha256:
        raise wrong_digest(file, record, digest.hexdigest())


def _touch(content: mmap.mmap) -> None:
    """Read a byte of every page, without holding the interpreter's lock."""
    np.frombuffer(content, np.uint8)[:: mmap.PAGESIZE].max()
