"""Work made ahead by threads: in order, bounded, errors where the result would be, no thread left behind."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from graphbox.errors import ConflictError, DataError, TimeLimitError
from graphbox.sample.loader.prefetch import OrderedPrefetch, Prefetching

PATIENCE_SECONDS = 60


def prefetch(
    work: Callable[[int], Any],
    count: int,
    *,
    threads: int = 2,
    ahead: int = 4,
    timeout: float = 0,
    thread_name: str = "prefetch-test",
) -> OrderedPrefetch[Any]:
    return OrderedPrefetch(
        work, range(count), "number {}".format, Prefetching(threads, ahead, timeout, thread_name)
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what happens soon on any machine; the limit only keeps a failing test from hanging."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < limit:
        time.sleep(0.001)
    assert condition()


def no_threads(prefix: str) -> Callable[[], bool]:
    return lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_order_whichever_is_first(threads: int) -> None:
    def work(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number * number

    assert list(prefetch(work, 30, threads=threads, ahead=2 * threads)) == [n * n for n in range(30)]
    assert list(prefetch(work, 0)) == []


def test_no_more_is_made_than_may_wait() -> None:
    begun: list[int] = []
    results = prefetch(begun.append, 100, threads=3, ahead=5)
    wait_until(lambda: len(begun) == 5)
    for taken in range(1, 20):
        next(results)
        wait_until(lambda taken=taken: len(begun) == 5 + taken)  # type: ignore[misc]  # bound now
    results.close()
    assert len(begun) == 5 + 19


def test_an_error_comes_at_its_turn_and_says_where() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise DataError("a wrong thing", where="a file")
        if number > 3:
            raise ValueError("not reached")
        return number

    results = prefetch(work, 10, thread_name="prefetch-error")
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match=r"^number 3: a file: a wrong thing"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    wait_until(no_threads("prefetch-error"))


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, TimeoutError])
def test_no_kind_of_error_ends_a_thread_silently(kind: type[BaseException]) -> None:
    def work(number: int) -> int:
        raise kind("from a thread")

    with pytest.raises(kind, match="from a thread") as raised:
        next(prefetch(work, 10))
    assert raised.value.__notes__ == ["raised in a thread of the loader while it made number 0"]


def test_the_end_of_something_else_does_not_end_the_loop() -> None:
    def work(_: int) -> int:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="number 0 raised StopIteration"):
        next(prefetch(work, 3))


def test_dropping_the_iterator_ends_the_threads() -> None:
    made: list[int] = []

    def work(number: int) -> int:
        made.append(number)
        return number

    results = prefetch(work, 10**9, thread_name="prefetch-dropped")
    assert next(results) == 0
    del results
    gc.collect()
    wait_until(no_threads("prefetch-dropped"))
    assert len(made) < 100


def test_closing_waits_for_the_threads_and_may_be_repeated() -> None:
    results = prefetch(lambda number: number, 1000, thread_name="prefetch-closed")
    next(results)
    results.close()
    assert no_threads("prefetch-closed")()
    results.close()
    with pytest.raises(StopIteration):
        next(results)


def test_a_wait_has_its_limit() -> None:
    release = threading.Event()

    def work(number: int) -> int:
        release.wait(PATIENCE_SECONDS)
        return number

    results = prefetch(work, 3, timeout=0.05, thread_name="prefetch-slow")
    with pytest.raises(TimeLimitError, match=r"number 0: waited 0\.05 seconds"):
        next(results)
    release.set()
    wait_until(no_threads("prefetch-slow"))


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_not_left_waiting() -> None:
    results = prefetch(lambda number: number, 10)
    next(results)
    child = os.fork()
    if child == 0:  # the threads are not here
        try:
            next(results)
        except ConflictError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert next(results) == 1
    results.close()
