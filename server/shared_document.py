"""A small JSON document that all workers of a server read and change, in a file without a name.

The file (``memfd_create``) is inherited by the workers::

    int64 0       number of the last change
    int64 1, 2    offset and size of the document in bytes
    from 4096     two halves; a change is written to the one that is not read, before the numbers

Changes and reads hold a lock between processes, which the end of a process releases. A process that was
killed while it wrote leaves the document as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

from graphbox.errors import DoesNotFitError

__all__ = ["SharedDocument", "create_document_file"]

_HEADER_BYTES = 4096
_HALF_BYTES = 1024 * 1024
_PLACE = struct.Struct("<qq")
_PLACE_AT = 8

Document = dict[str, Any]


def create_document_file() -> int:
    """Return the descriptor of a new file with an empty document; closed by the caller."""
    descriptor = os.memfd_create("graphbox-shared-document")
    os.ftruncate(descriptor, _HEADER_BYTES + 2 * _HALF_BYTES)
    return descriptor


class SharedDocument:
    """The document, as one process reads and changes it. Safe to use from any thread.

    Args:
        descriptor: of its file; must stay open as long as this is used.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._header: memoryview[int] = memoryview(mmap.mmap(descriptor, _HEADER_BYTES)).cast("q")
        self._known: tuple[int, Document] = (0, {})

    @classmethod
    def of_one_process(cls) -> SharedDocument:
        """Return the document of a server whose only worker is this process."""
        return cls(create_document_file())

    @property
    def change_number(self) -> int:
        """Number of the last change, of any process; 0 before the first. Takes no lock."""
        return self._header[0]

    def read(self) -> Document:
        """Return the document as of now; it must not be changed."""
        known = self._known
        if known[0] == self._header[0]:
            return known[1]
        with self._locked(fcntl.LOCK_SH):
            return self._take()

    def change(self, make: Callable[[Document], Document]) -> Document:
        """Replace the document by what ``make`` returns of it, and return that.

        An exception of ``make`` changes nothing and is passed on.

        Raises:
            DoesNotFitError: the new document is too large.
        """
        with self._locked(fcntl.LOCK_EX):
            document = make(self._take())
            content = json.dumps(document).encode()
            if len(content) > _HALF_BYTES:
                raise DoesNotFitError(
                    f"expected at most {_HALF_BYTES} bytes of settings and regions, received {len(content)}",
                    hint="unregister what is not used any more",
                )
            offset = _HEADER_BYTES + (_HALF_BYTES if self._header[1] == _HEADER_BYTES else 0)
            os.pwrite(self._descriptor, content, offset)
            os.pwrite(self._descriptor, _PLACE.pack(offset, len(content)), _PLACE_AT)
            self._header[0] += 1
            self._known = (self._header[0], document)
            return document

    def _take(self) -> Document:
        number, offset, size = self._header[0], self._header[1], self._header[2]
        if self._known[0] != number:
            self._known = (number, json.loads(os.pread(self._descriptor, size, offset)))
        return self._known[1]

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Keep other threads and, by a lock on the file, other processes from changing the document."""
        with self._lock:
            fcntl.lockf(self._descriptor, kind)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
