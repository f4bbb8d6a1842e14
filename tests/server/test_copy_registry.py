"""Copies that the parent of workers grants over a socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graphbox.copy_file import complete, is_complete, open_for_writing
from graphbox.errors import GraphboxError, ProcessLostError, TimeLimitError
from graphbox.server.copy_registry import CopyClient, CopyRegistry
from tests.server.server_process import wait_until


class Parent:
    """Answers the requests of a worker on a thread, as the supervisor does."""

    def __init__(self) -> None:
        self.registry = CopyRegistry()
        self.requests, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.child = child
        self.client = CopyClient(child)
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        while self.registry.answer(self.requests):
            pass

    def stop(self) -> None:
        self.child.close()
        self._thread.join(20)
        self.requests.close()
        self.registry.close()


@pytest.fixture
def parent() -> Iterator[Parent]:
    running = Parent()
    yield running
    running.stop()


def sweep(registry: CopyRegistry) -> None:
    registry.sweep_at = 0.0
    registry.sweep()


def wait_until_swept(registry: CopyRegistry, left: int) -> None:
    """Sweep until some copies are left: the parent may not have closed its end of a granted one yet."""

    def is_swept() -> bool:
        sweep(registry)
        return len(registry) == left

    wait_until(is_swept, what=f"{left} copies to be left")


def test_one_key_is_one_copy(parent: Parent, tmp_path: Path) -> None:
    first, again, other = (parent.client.grant(key, None) for key in ("a", "a", "b"))
    on_disk = parent.client.grant("c", tmp_path)
    assert os.fstat(first).st_ino == os.fstat(again).st_ino
    assert len({os.fstat(each).st_ino for each in (first, other, on_disk)}) == 3
    assert len(parent.registry) == 3
    assert list(tmp_path.iterdir()) == []
    writes = open_for_writing(again)
    assert writes is not None
    os.write(writes, b"content")
    complete(writes, in_memory=True)
    os.close(writes)
    assert is_complete(first)
    assert os.pread(first, 99, 0) == b"content"
    with pytest.raises(OSError, match="descriptor"):
        os.write(first, b"x")
    for each in (first, again, other, on_disk):
        os.close(each)


def test_copies_are_dropped_with_their_last_descriptor(parent: Parent) -> None:
    kept, other = parent.client.grant("a", None), parent.client.grant("b", None)
    sweep(parent.registry)
    assert len(parent.registry) == 2
    os.close(other)
    wait_until_swept(parent.registry, 1)
    os.close(kept)
    wait_until_swept(parent.registry, 0)
    due: float | None = parent.registry.sweep_at
    assert due is None, "nothing is left to look at"


def test_copies_that_were_granted_to_a_worker_that_ended_are_dropped() -> None:
    """The descriptor may still be on its way."""
    registry = CopyRegistry()
    requests, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(requests):
        child.send(b'{"number": 1, "key": "a", "folder": null}')
        assert registry.answer(requests)
        sweep(registry)
        assert len(registry) == 1
        child.send(b'{"number": 2, "key": "b", "folder": null}')
        child.close()
        while registry.answer(requests):
            pass
        sweep(registry)
    assert len(registry) == 0


def test_refusals_of_the_system_have_their_reason(parent: Parent, tmp_path: Path) -> None:
    with pytest.raises(GraphboxError, match="received: No such file or directory") as caught:
        parent.client.grant("a", tmp_path / "absent")
    assert caught.value.hint is not None
    os.close(parent.client.grant("a", None))


def test_late_answers_are_not_those_of_later_requests() -> None:
    """The parent was stopped for longer than a worker waits: the worker goes on with it afterwards."""
    registry = CopyRegistry()
    requests, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = CopyClient(child, answer_timeout_s=0.1)
    for key, folder in (("late", None), ("refused late", Path("/absent"))):
        with pytest.raises(TimeLimitError, match=r"within 0\.1 s, received nothing") as caught:
            client.grant(key, folder)
        assert "Ctrl-Z" in (caught.value.hint or "")
    for _ in range(2):
        assert registry.answer(requests)
    child.settimeout(20)
    answering = threading.Thread(target=registry.answer, args=(requests,))
    before = len(list(Path("/proc/self/fd").iterdir()))
    answering.start()
    granted = client.grant("asked", None)
    answering.join(20)
    known = registry.grant("asked", None)
    assert os.fstat(granted).st_ino == os.fstat(known).st_ino
    for each in (granted, known):
        os.close(each)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1, "the copy that the registry keeps"
    sweep(registry)
    assert len(registry) == 0
    for each_socket in (requests, child):
        each_socket.close()


def test_the_end_of_the_parent_is_an_error() -> None:
    requests, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.close()
    with closing(child), pytest.raises(ProcessLostError, match="the parent of the workers to answer"):
        CopyClient(child).grant("a", None)
