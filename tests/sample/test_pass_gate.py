"""Turns of readers and writers at the pass gate."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

import pytest

from graphbox.sample.pass_gate import PassGate


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_readers_that_waited_go_before_the_next_change() -> None:
    gate = PassGate()
    order: list[str] = []

    def read() -> None:
        with gate.reading():
            order.append("read")

    def change() -> None:
        with gate.changing():
            order.append("change")

    threads = [threading.Thread(target=work, daemon=True) for work in (change, read, read)]
    with gate.changing():
        threads[0].start()
        wait_until(lambda: gate._changers == 2)
        for each in threads[1:]:
            each.start()
        wait_until(lambda: gate._waiting == 2)
    for each in threads:
        each.join(60)
    assert order == ["read", "read", "change"]


def test_a_change_goes_before_readers_that_come_later() -> None:
    gate = PassGate()
    order: list[str] = []

    def read() -> None:
        with gate.reading():
            order.append("read")

    def change() -> None:
        with gate.changing():
            order.append("change")

    changer, reader = (threading.Thread(target=work, daemon=True) for work in (change, read))
    with gate.reading():
        changer.start()
        wait_until(lambda: gate._changers == 1)
        reader.start()
        wait_until(lambda: gate._waiting == 1)
        assert order == []
    for each in (changer, reader):
        each.join(60)
    assert order == ["change", "read"]


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Have this thread interrupted, as Ctrl-C does it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("waits_for", ["readers", "change"])
def test_a_change_that_is_interrupted_keeps_nobody_out(waits_for: Literal["readers", "change"]) -> None:
    gate = PassGate()
    is_done, is_in = threading.Event(), threading.Event()

    def hold() -> None:
        with gate.reading() if waits_for == "readers" else gate.changing():
            is_in.set()
            assert is_done.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert is_in.wait(60)
    with interrupted_after(0.1), pytest.raises(KeyboardInterrupt), gate.changing():
        raise AssertionError("it did not wait")
    is_done.set()
    holder.join(60)
    goes_on(gate)


def test_a_reader_that_is_interrupted_keeps_nobody_out() -> None:
    gate = PassGate()
    is_done, is_in = threading.Event(), threading.Event()

    def change() -> None:
        with gate.changing():
            is_in.set()
            assert is_done.wait(60)

    changer = threading.Thread(target=change, daemon=True)
    changer.start()
    assert is_in.wait(60)
    with interrupted_after(0.1), pytest.raises(KeyboardInterrupt), gate.reading():
        raise AssertionError("it did not wait")
    is_done.set()
    changer.join(60)
    goes_on(gate)


def goes_on(gate: PassGate) -> None:
    """Check that others read and change, and nothing is counted any more."""
    passed: list[str] = []

    def use() -> None:
        with gate.reading():
            passed.append("read")
        with gate.changing():
            passed.append("change")

    user = threading.Thread(target=use, daemon=True)
    user.start()
    user.join(60)
    assert passed == ["read", "change"]
    assert (gate._readers, gate._waiting, gate._admitted, gate._changers) == (0, 0, 0, 0)
