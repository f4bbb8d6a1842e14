"""The system shared memory extension: tensors in memory that a client on the same machine shares.

Memory is read and written by calls on a file descriptor, never mapped: a client that truncates it gets an
error instead of ending the server with SIGBUS, and what is checked is a private copy.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import ConflictError, DoesNotFitError, InvalidRequestError, NotFoundError
from graphbox.server.body import shorten
from graphbox.server.problem import RefusedError
from graphbox.server.shared_document import Document, SharedDocument

__all__ = ["REGION_PARAMETERS", "Region", "RegionPart", "SharedMemory", "names_region", "region_part"]

REGION_PARAMETERS = frozenset({"shared_memory_byte_size", "shared_memory_offset", "shared_memory_region"})
"""Parameters of an input or output that is in a region."""

_FOLDER = "/dev/shm"  # noqa: S108 - where POSIX shared memory is on Linux
_KEY = re.compile(r"/?([A-Za-z0-9_.-]{1,255})")
_MAX_REGIONS = 1024
_MAX_NAME_CHARACTERS = 256
_DOCUMENT_FIELD = "regions"


@dataclass(frozen=True, slots=True)
class Region:
    """A registered part of a shared memory object.

    Attributes:
        name: by which requests name it.
        key: of the object, as the client wrote it.
        offset: first byte within the object.
        byte_size: size in bytes.
        device: with ``inode`` identifies the object, which must not be replaced by another of the same key.
        inode: see ``device``.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    device: int
    inode: int

    def status(self) -> dict[str, Any]:
        """Return the region as the protocol describes it."""
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.byte_size}


@dataclass(frozen=True, slots=True)
class RegionPart:
    """The bytes of a region that hold one tensor.

    Attributes:
        region: the region.
        offset: first byte within the region.
        byte_size: size in bytes.
        copies: memory for copies.
    """

    region: Region
    offset: int
    byte_size: int
    copies: _Copies

    def read(self, where: str) -> memoryview:
        """Return a copy of the bytes.

        Raises:
            InvalidRequestError: the client has removed, replaced or truncated the memory.
            RefusedError: 503, the copies of running requests take too much memory.
        """
        view, done = self.copies.new(self.byte_size).data, 0
        with _opened(self.region, os.O_RDONLY, where) as descriptor:
            start = self.region.offset + self.offset
            while done < self.byte_size:
                count = os.preadv(descriptor, [view[done:]], start + done)
                if not count:
                    raise _truncated(self.region, where)
                done += count
        return view

    def write(self, content: bytes | memoryview, where: str) -> None:
        """Write bytes to the beginning of the part.

        Raises:
            InvalidRequestError: they are more than the part has, or the memory is gone; see `read`.
            DoesNotFitError: the machine has no memory left for them.
        """
        if len(content) > self.byte_size:
            raise InvalidRequestError(
                f"expected shared_memory_byte_size of at least the {len(content)} bytes of the output, "
                f"received {self.byte_size}",
                where=where,
            )
        view, done = memoryview(content), 0
        with _opened(self.region, os.O_RDWR, where) as descriptor:
            start = self.region.offset + self.offset
            try:
                while done < len(content):
                    done += os.pwritev(descriptor, [view[done:]], start + done)
            except OSError as error:
                raise DoesNotFitError(
                    f"writing to the shared memory region failed: {error.strerror}", where=where
                ) from error


class _Copies:
    """Memory for copies of parts of regions, with a limit on all that are in use."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._lock = threading.RLock()  # an array may be freed while the same thread holds it

    def new(self, size: int) -> npt.NDArray[np.uint8]:
        """Return a new array of bytes, which counts until nothing refers to it.

        Raises:
            RefusedError: 503, there is no room.
        """
        with self._lock:
            if self._used_bytes + size > self._max_bytes:
                raise RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "overloaded",
                    f"tensors of running requests take {self._used_bytes} of {self._max_bytes} bytes",
                    headers={"retry-after": "1"},
                )
            self._used_bytes += size
        content = np.empty(size, np.uint8)
        weakref.finalize(content, self._free, size).atexit = False
        return content

    def _free(self, size: int) -> None:
        with self._lock:
            self._used_bytes -= size


class SharedMemory:
    """The registered regions of a server, the same in all of its workers.

    Args:
        document: keeps them.
        prefix: beginning of the keys that may be registered.
        max_part_bytes: largest tensor in a region.
        max_copied_bytes: most bytes of inputs in regions, of all running requests of this process.
    """

    def __init__(
        self, document: SharedDocument, prefix: str, max_part_bytes: int, max_copied_bytes: int
    ) -> None:
        self._copies = _Copies(max_copied_bytes)
        self._document = document
        self._prefix = prefix
        self._max_part_bytes = max_part_bytes

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a part of a shared memory object.

        Raises:
            InvalidRequestError: the name or the key is malformed, there is no such object, or it is smaller.
            ConflictError: the name is taken, or there are too many regions.
        """
        self._check(name, key, offset, byte_size)
        descriptor = _open(key, os.O_RDONLY, "key")
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(found.st_mode) or offset + byte_size > found.st_size:
            raise InvalidRequestError(
                f"expected offset and byte_size within the object, which ends at byte {found.st_size}; "
                f"received {byte_size} bytes from {offset} on",
                where="byte_size",
            )
        region = Region(name, key, offset, byte_size, found.st_dev, found.st_ino)

        def add(document: Document) -> Document:
            regions = document.get(_DOCUMENT_FIELD, {})
            if name in regions:
                raise ConflictError(
                    f"the shared memory region `{shorten(name)}` is registered already",
                    hint="unregister it first",
                )
            if len(regions) >= _MAX_REGIONS:
                raise ConflictError(
                    f"expected at most {_MAX_REGIONS} shared memory regions", hint="unregister unused ones"
                )
            return {**document, _DOCUMENT_FIELD: {**regions, name: asdict(region)}}

        self._document.change(add)

    def unregister(self, name: str) -> None:
        """Forget a region, or all of them where the name is empty; requests that use it complete."""

        def remove(document: Document) -> Document:
            regions = document.get(_DOCUMENT_FIELD, {})
            kept = {each: value for each, value in regions.items() if name and each != name}
            return {**document, _DOCUMENT_FIELD: kept}

        if name in self._regions() or not name:
            self._document.change(remove)

    def status(self, name: str) -> list[dict[str, Any]]:
        """Return a region, or all of them where the name is empty.

        Raises:
            NotFoundError: there is no such region.
        """
        if name:
            return [self._region(name, "region").status()]
        return [Region(**value).status() for value in self._regions().values()]

    def part(self, name: str, offset: int, byte_size: int, where: str) -> RegionPart:
        """Return a part of a region.

        Raises:
            NotFoundError: there is no such region.
            InvalidRequestError: the part is not within it, or too large for a request.
        """
        region = self._region(name, where)
        if offset + byte_size > region.byte_size:
            raise InvalidRequestError(
                f"expected a part of the {region.byte_size} bytes of the region, "
                f"received {byte_size} bytes from {offset} on",
                where=where,
            )
        if byte_size > self._max_part_bytes:
            raise InvalidRequestError(
                f"expected at most {self._max_part_bytes} bytes in one tensor, received {byte_size}",
                where=where,
            )
        return RegionPart(region, offset, byte_size, self._copies)

    def _check(self, name: str, key: str, offset: int, byte_size: int) -> None:
        if not 0 < len(name) <= _MAX_NAME_CHARACTERS:
            raise InvalidRequestError(
                f"expected a name of 1 to {_MAX_NAME_CHARACTERS} characters, received {len(name)}",
                where="name",
            )
        match = _KEY.fullmatch(key)
        if match is None or not match[1].startswith(self._prefix):
            raise InvalidRequestError(
                f"expected a key of letters, digits, `_`, `.` or `-` that begins with `{self._prefix}`, "
                f"received {shorten(key)!r}",
                where="key",
                hint="the server's option --shared-memory-prefix chooses the beginning",
            )
        if offset < 0 or byte_size < 1:
            raise InvalidRequestError(
                f"expected an offset from 0 and a size from 1, received {offset} and {byte_size}",
                where="byte_size",
            )

    def _regions(self) -> dict[str, Any]:
        found: dict[str, Any] = self._document.read().get(_DOCUMENT_FIELD, {})
        return found

    def _region(self, name: str, where: str) -> Region:
        value = self._regions().get(name)
        if value is None:
            raise NotFoundError(
                f"no shared memory region `{shorten(name)}` is registered",
                where=where,
                hint="register it first",
            )
        return Region(**value)


def names_region(message: bytes | bytearray) -> bool:
    """Return whether an encoded request may have a tensor in shared memory, which is read on a thread."""
    return b"shared_memory_region" in message


def region_part(parameters: dict[str, Any], regions: SharedMemory | None, where: str) -> RegionPart | None:
    """Return the part of a region that the parameters of an input or output name; None: they name none.

    Args:
        parameters: of the tensor.
        regions: of the server; None: it offers no shared memory.
        where: the tensor, for messages.

    Raises:
        NotFoundError: there is no such region.
        InvalidRequestError: a parameter is missing or of another type, or the part is not in the region.
    """
    where = f"{where}.parameters"
    name = parameters.get("shared_memory_region")
    if name is None:
        if REGION_PARAMETERS & parameters.keys():
            raise InvalidRequestError("expected shared_memory_region beside its size and offset", where=where)
        return None
    if regions is None:
        raise NotFoundError(
            "no shared memory region is registered: this server does not offer shared memory",
            where=where,
            hint="send the tensor in the body",
        )
    offset = parameters.get("shared_memory_offset", 0)
    size = parameters.get("shared_memory_byte_size")
    if not isinstance(name, str):
        raise InvalidRequestError("expected a string", where=f"{where}.shared_memory_region")
    if type(size) is not int or type(offset) is not int or size < 0 or offset < 0:
        raise InvalidRequestError(
            "expected shared_memory_byte_size, and shared_memory_offset where it is not 0, integers from 0",
            where=where,
        )
    return regions.part(name, offset, size, where)


def _open(key: str, flags: int, where: str) -> int:
    """Open a shared memory object, whose key was checked.

    Raises:
        InvalidRequestError: there is none, or this process may not open it.
    """
    # A key has no slash but the first one: it names a file of the folder itself.
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(f"{_FOLDER}/{key.removeprefix('/')}", flags)
    except OSError as error:
        raise InvalidRequestError(
            f"expected shared memory that the server can open, received an error: {error.strerror}",
            where=where,
        ) from error


@contextmanager
def _opened(region: Region, flags: int, where: str) -> Iterator[int]:
    """Open the object of a region, of the same identity and still large enough."""
    descriptor = _open(region.key, flags, where)
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (region.device, region.inode):
            raise InvalidRequestError(
                "expected the shared memory that was registered, received another of the same key",
                where=where,
                hint="register the region again",
            )
        if found.st_size < region.offset + region.byte_size:
            raise _truncated(region, where)
        yield descriptor
    finally:
        os.close(descriptor)


def _truncated(region: Region, where: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"expected the {region.byte_size} bytes that were registered, received memory that was truncated",
        where=where,
    )
