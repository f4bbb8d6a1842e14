"""Running a generator in a thread of its own, a bounded number of items ahead of who takes them."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_POLL_S = 0.1


def read_ahead(items: Iterator[Item], depth: int) -> Generator[Item]:
    """Yield what a generator yields, up to ``depth`` items of it made ahead in a background thread.

    An exception of the generator is raised here after the items before it. When the consumer stops early,
    the thread ends and the generator is closed.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def produce() -> None:
        try:
            for item in items:
                if not put(item):
                    break
            else:
                put(_End(None))
        except BaseException as error:  # noqa: BLE001 - raised again by the consumer
            put(_End(error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=produce, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stopped.set()
        thread.join()


class _End:
    """The last thing a producing thread says."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def map_in_order(function: Callable[[Item], Result], items: Iterator[Item], threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, computed on several threads.

    At most ``threads`` results are computed or waiting besides the one that is yielded.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        running: deque[Future[Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(function, item))
                del item
                if len(running) >= threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
            close = getattr(items, "close", None)
            if close is not None:
                close()
