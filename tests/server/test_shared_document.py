"""A document that processes share: changes are whole, and seen at once."""

from __future__ import annotations

import os
import signal
import time

import pytest

from graphbox.errors import DoesNotFitError
from graphbox.server.shared_document import Document, SharedDocument, create_document_file
from tests.server.server_process import wait_until


def one_more(document: Document) -> Document:
    return {**document, "number": document.get("number", 0) + 1}


def test_processes_lose_no_change() -> None:
    descriptor = create_document_file()
    mine, other = SharedDocument(descriptor), SharedDocument(descriptor)
    assert mine.read() == {}
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            for _ in range(500):
                other.change(one_more)
            os._exit(0)
        children.append(child)
    for _ in range(500):
        mine.change(one_more)
        assert mine.read()["number"] <= mine.change_number
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert mine.read() == other.read() == {"number": 1500}
    os.close(descriptor)


def test_a_process_that_is_killed_amid_a_change_changes_nothing() -> None:
    descriptor = create_document_file()
    document = SharedDocument(descriptor)
    document.change(one_more)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:

        def never_ends(_document: Document) -> Document:
            os.write(writing, b"x")
            time.sleep(60)
            return {}

        SharedDocument(descriptor).change(never_ends)
        os._exit(0)
    assert os.read(reading, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: document.change(one_more)["number"] == 2, 10, "the lock of the killed process to end")
    for each in (descriptor, reading, writing):
        os.close(each)


def test_a_change_that_fails_or_is_too_large_changes_nothing() -> None:
    document = SharedDocument.of_one_process()
    document.change(one_more)
    with pytest.raises(KeyError):
        document.change(lambda known: {"value": known["absent"]})
    with pytest.raises(DoesNotFitError, match="at most"):
        document.change(lambda known: {**known, "text": "x" * 2_000_000})
    assert document.read() == {"number": 1}
    assert document.change(one_more) == {"number": 2}
