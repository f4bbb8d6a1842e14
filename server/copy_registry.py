"""Copies that the workers of a server share: kept by the parent, granted over a socket of each worker.

A request is one message, the key of a copy and the folder for a new one as JSON; the answer is a descriptor,
or the number of the system's error. The parent reads and writes no copy, so a worker that hangs or is killed
while it copies delays nobody else. It drops a copy that no process has open any more, see
`graphbox.copy_file`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import socket
import threading
import time
from pathlib import Path

from graphbox.copy_file import create_copy, grant, is_used
from graphbox.errors import GraphboxError, ProcessLostError, TimeLimitError

__all__ = ["CopyClient", "CopyRegistry", "allow_copies"]

logger = logging.getLogger("graphbox.server")

_MESSAGE_BYTES = 64 * 1024
_GRANTED = b"granted"
_ANSWER_TIMEOUT_S = 30.0
_SWEEP_S = 1.0
# Of the parent, which has one for each copy.
_MOST_FILES = 65_536


class CopyRegistry:
    """The copies of a server, by key.

    Attributes:
        sweep_at: when unused copies are to be dropped next, by `time.monotonic`; None: there are no copies.
    """

    def __init__(self) -> None:
        self._copies: dict[str, int] = {}
        self.sweep_at: float | None = None

    def __len__(self) -> int:
        return len(self._copies)

    def grant(self, key: str, folder: Path | None) -> int:
        """Return a descriptor of the copy with a key; see `graphbox.artifact.shared_copies.CopyOwner`.

        Raises:
            OSError: the system refuses.
        """
        copy = self._copies.get(key)
        if copy is None:
            copy = self._copies[key] = create_copy(folder)
            if self.sweep_at is None:
                self.sweep_at = time.monotonic() + _SWEEP_S
        return grant(copy)

    def answer(self, requests: socket.socket) -> bool:
        """Answer a request that has arrived; return whether the worker may send more."""
        try:
            message = requests.recv(_MESSAGE_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # the worker ended
            return False
        if not message:
            return False
        given = json.loads(message)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ends: there is no more to read
            self._answer(requests, given["key"], given["folder"])
        return True

    def _answer(self, requests: socket.socket, key: str, folder: str | None) -> None:
        try:
            descriptor = self.grant(key, None if folder is None else Path(folder))
        except OSError as error:
            requests.send(str(error.errno or 0).encode())
            return
        try:
            socket.send_fds(requests, [_GRANTED], [descriptor])
        finally:
            os.close(descriptor)

    def sweep(self) -> None:
        """Drop the copies that no worker has open, if that is due."""
        now = time.monotonic()
        if self.sweep_at is None or now < self.sweep_at:
            return
        for key, copy in list(self._copies.items()):
            if not is_used(copy):
                del self._copies[key]
                os.close(copy)
        self.sweep_at = now + _SWEEP_S if self._copies else None

    def close(self) -> None:
        """Drop all copies; those that are in use stay until they are closed."""
        for copy in self._copies.values():
            os.close(copy)
        self._copies.clear()
        self.sweep_at = None


class CopyClient:
    """Asks the parent for copies. Safe to use from several threads.

    Args:
        requests: socket of messages to the parent.
    """

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._requests.settimeout(_ANSWER_TIMEOUT_S)
        self._lock = threading.Lock()

    def grant(self, key: str, folder: Path | None) -> int:
        """Return a descriptor; see `graphbox.artifact.shared_copies.CopyOwner`.

        Raises:
            ProcessLostError: the parent has ended.
            TimeLimitError: the parent does not answer.
            GraphboxError: the system refuses it a copy.
        """
        request = json.dumps({"key": key, "folder": None if folder is None else str(folder)}).encode()
        try:
            with self._lock:
                self._requests.send(request)
                answer, descriptors, _, _ = socket.recv_fds(
                    self._requests, _MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
        except TimeoutError as error:
            self._requests.close()  # a late answer would be taken for that of another request
            raise TimeLimitError(
                f"expected the parent of the workers to answer within {_ANSWER_TIMEOUT_S:g} s, got nothing"
            ) from error
        except OSError as error:
            raise _parent_ended() from error
        if not answer:
            raise _parent_ended()
        if not descriptors:
            raise GraphboxError(
                f"expected a copy that the workers share, received: {_reason(answer)}",
                hint="raise the limit on open files (ulimit -n), or free memory or disk space",
            )
        return descriptors[0]


def allow_copies() -> None:
    """Raise the limit on open files of this process, which is to own copies, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _parent_ended() -> ProcessLostError:
    return ProcessLostError("expected the parent of the workers to answer, it has ended")


def _reason(answer: bytes) -> str:
    return os.strerror(int(answer)) if answer.isdigit() else "no descriptor"
