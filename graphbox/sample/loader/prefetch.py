"""Results of numbered work, made ahead by threads, handed out in order, never more than may wait."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from graphbox.errors import ConflictError, GraphboxError, TimeLimitError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Prefetching:
    """Settings of work made ahead.

    Attributes:
        threads: that work at the same time, on different results.
        ahead: results that are finished or being made and not yet handed out, at most.
        timeout_seconds: the longest wait for a result; 0: no limit.
        thread_name: prefix of the threads' names.
    """

    threads: int
    ahead: int
    timeout_seconds: float
    thread_name: str


class OrderedPrefetch(Iterator[Result], Generic[Result]):
    """Hands out ``work(first)``, ``work(first + 1)`` ... in order; the threads end with the iterator.

    An exception in ``work`` is raised where its result would have come, whatever its kind (results travel as
    futures, which keep every exception): errors of graphbox say in ``where`` what was being made, others in a
    note. After it the iterator is closed. Dropping the iterator, or :meth:`close`, ends the threads as soon
    as they finish what they are at; nothing that waits is begun.

    Args:
        work: makes one result; runs in the threads, several at a time, each number once.
        numbers: what to make.
        name: says in messages what a number stands for.
        prefetching: how far ahead, and by how many threads.
    """

    def __init__(
        self,
        work: Callable[[int], Result],
        numbers: range,
        name: Callable[[int], str],
        prefetching: Prefetching,
    ) -> None:
        self._work = work
        self._left = iter(numbers)
        self._name = name
        self._prefetching = prefetching
        self._waiting: deque[tuple[int, Future[Result]]] = deque()
        self._executor = ThreadPoolExecutor(prefetching.threads, prefetching.thread_name)
        self._process = os.getpid()
        # Not a bound method of this object: that would keep it alive.
        self._end = weakref.finalize(self, self._executor.shutdown, wait=False, cancel_futures=True)
        self._begin_more()

    def __iter__(self) -> OrderedPrefetch[Result]:
        return self

    def __next__(self) -> Result:
        if not self._waiting:
            self._stop(wait_for_threads=False)
            raise StopIteration
        number, future = self._waiting.popleft()
        try:
            self._wait_for(number, future)
            result = future.result()
        except BaseException as error:
            self._stop(wait_for_threads=False)  # which may be what never ends
            if future.done() and not future.cancelled() and error is future.exception():
                self._say_where(number, error)
            if isinstance(error, StopIteration):  # which would end the loop as if nothing were left
                raise RuntimeError(f"{self._name(number)} raised StopIteration") from error
            raise
        self._begin_more()
        return result

    @property
    def is_own_process(self) -> bool:
        """True in the process whose threads make the results, False in a fork of it."""
        return os.getpid() == self._process

    def close(self) -> None:
        """End the threads, and wait until they have finished what they are at."""
        self._stop(wait_for_threads=self.is_own_process)

    def _stop(self, *, wait_for_threads: bool) -> None:
        self._waiting.clear()
        self._left = iter(())
        self._end.detach()
        self._executor.shutdown(wait=wait_for_threads, cancel_futures=True)

    def _begin_more(self) -> None:
        while len(self._waiting) < self._prefetching.ahead:
            number = next(self._left, None)
            if number is None:
                return
            self._waiting.append((number, self._executor.submit(self._work, number)))

    def _wait_for(self, number: int, future: Future[Result]) -> None:
        if not self.is_own_process:
            raise ConflictError(
                f"expected to go on in process {self._process}, whose threads make the batches, received a "
                f"fork of it, process {os.getpid()}, where they do not run",
                where=self._name(number),
                hint="begin a new loop over the loader after the fork",
            )
        limit = self._prefetching.timeout_seconds
        wait([future], timeout=limit or None)
        if not future.done():
            raise TimeLimitError(
                f"waited {limit:g} seconds, the `timeout` of the loader, for a batch that did not come",
                where=self._name(number),
                hint="give it more time, or 0 for no limit; a `transform` may be slow or blocked",
            )

    def _say_where(self, number: int, error: BaseException) -> None:
        if isinstance(error, GraphboxError):
            error.where = f"{self._name(number)}: {error.where}" if error.where else self._name(number)
        else:
            error.add_note(f"raised in a thread of the loader while it made {self._name(number)}")
