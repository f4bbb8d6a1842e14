"""Who reads and who changes take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

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
