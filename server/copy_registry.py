"""Copies that the workers of a server share: kept by the parent, granted over a socket of each worker.

A request is one message of JSON: its number, the key of a copy and the folder for a new one. The answer has
the number of the request and comes with a descriptor, or has the number of the system's error. The parent
reads and writes no copy, so a worker that hangs or is killed while it copies delays nobody else. It drops a
copy that no process has open any more, see `graphbox.copy_file`.
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
from dataclasses import dataclass
from pathlib import Path

from graphbox.copy_file import create_copy, grant, is_used
from graphbox.errors import GraphboxError, ProcessLostError, TimeLimitError

__all__ = ["CopyClient", "CopyRegistry", "allow_copies"]

logger = logging.getLogger("graphbox.server")

_MESSAGE_BYTES = 64 * 1024
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
        # It ends: there is no more to read. Or it has left many answers unread, and waits for none of them.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
            self._answer(requests, given["number"], given["key"], given["folder"])
        return True

    def _answer(self, requests: socket.socket, number: int, key: str, folder: str | None) -> None:
        try:
            descriptor = self.grant(key, None if folder is None else Path(folder))
        except OSError as error:
            requests.send(_Answer(number, error.errno or 0).message())
            return
        try:
            socket.send_fds(requests, [_Answer(number, None).message()], [descriptor])
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
        answer_timeout_s: longest time to wait for an answer.
    """

    def __init__(self, requests: socket.socket, answer_timeout_s: float = _ANSWER_TIMEOUT_S) -> None:
        self._requests = requests
        self._requests.settimeout(answer_timeout_s)
        self._answer_timeout_s = answer_timeout_s
        self._lock = threading.Lock()
        self._number = 0

    def grant(self, key: str, folder: Path | None) -> int:
        """Return a descriptor; see `graphbox.artifact.shared_copies.CopyOwner`.

        Raises:
            ProcessLostError: the parent has ended.
            TimeLimitError: the parent does not answer.
            GraphboxError: the system refuses it a copy.
        """
        try:
            with self._lock:
                self._number += 1
                request = {
                    "number": self._number,
                    "key": key,
                    "folder": None if folder is None else str(folder),
                }
                self._requests.send(json.dumps(request).encode())
                answer, descriptors = self._receive(self._number)
        except TimeoutError as error:
            raise TimeLimitError(
                f"expected the parent of the workers to answer within {self._answer_timeout_s:g} s, "
                "received nothing",
                hint="continue it where it is stopped, as by Ctrl-Z (`fg` or `bg`); then SIGHUP opens the "
                "models again",
            ) from error
        except OSError as error:
            raise _parent_ended() from error
        if not descriptors:
            reason = "no descriptor" if answer.error is None else os.strerror(answer.error)
            raise GraphboxError(
                f"expected a copy that the workers share, received: {reason}",
                hint="raise the limit on open files (ulimit -n), or free memory or disk space",
            )
        return descriptors[0]

    def _receive(self, number: int) -> tuple[_Answer, list[int]]:
        """Return the answer to a request, and its descriptor; late answers to earlier ones are dropped.

        Raises:
            ProcessLostError: the parent has ended.
            OSError: the parent has ended, or does not answer in time.
        """
        while True:
            message, descriptors, _, _ = socket.recv_fds(
                self._requests, _MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
            if not message:
                raise _parent_ended()
            answer = _Answer.of(message)
            if answer.number == number:
                return answer, descriptors
            for descriptor in descriptors:
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer of the parent.

    Attributes:
        number: of the request.
        error: number of the system's error; None: a descriptor comes with the answer.
    """

    number: int
    error: int | None

    def message(self) -> bytes:
        return json.dumps([self.number, self.error]).encode()

    @classmethod
    def of(cls, message: bytes) -> _Answer:
        return cls(*json.loads(message))


def allow_copies() -> None:
    """Raise the limit on open files of this process, which is to own copies, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _parent_ended() -> ProcessLostError:
    return ProcessLostError("expected the parent of the workers to answer, it has ended")
