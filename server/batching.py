"""Runs the calls of a signature, joined: short ones on the event loop, long ones on threads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from graphbox.deploy.cancellation import Cancellation, ExecutionCancelledError
from graphbox.deploy.joining import answer_joined, batch_key
from graphbox.deploy.signature import Outputs, Signature
from graphbox.errors import InvalidRequestError, NotFoundError, TimeLimitError
from graphbox.server.executor import CostEstimate, Executor
from graphbox.server.problem import RefusedError

__all__ = ["Batcher", "Call", "Outcome", "overloaded"]

logger = logging.getLogger("graphbox.server")

_DEFAULT_PRIORITY = 1 << 15
# Larger outputs cost more in memory that is new to the caches than joining saves.
_MOST_JOINED_BYTES = 256 * 1024


@dataclass(slots=True)
class Outcome:
    """Outcome of a call.

    Attributes:
        outputs: by name; None where there is an error.
        error: why there are none.
        begun_ns: when the execution began, by `time.perf_counter_ns`.
        ended_ns: when it ended.
        executions: 1 for one of the calls that were joined, 0 for the others.
        rows_sequence: number of the last row update that the outputs have; 0: none.
    """

    outputs: Outputs | None
    error: Exception | None
    begun_ns: int
    ended_ns: int
    executions: int = 1
    rows_sequence: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """One call of a signature, decoded and checked by its transport.

    Attributes:
        inputs: by name, of the dtypes and shapes of the signature.
        parameters: those that the signature reads.
        timeout_s: time limit from ``started_ns``; None: no limit.
        priority: calls of a lower one go first, 0: that of no wish.
        started_ns: when the request began, by `time.perf_counter_ns`.
        received_ns: when all of it was there.
        decoded_ns: when its inputs were decoded.
        is_cancelled: nobody waits for the outcome.
    """

    inputs: Outputs
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    priority: int = 0
    started_ns: int = 0
    received_ns: int = 0
    decoded_ns: int = 0
    is_cancelled: bool = False
    _done: Callable[[Outcome], None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _execution: _Execution | None = None

    def cancel(self) -> None:
        """Give up the call: its outcome is not delivered; an execution of it alone ends soon."""
        self.is_cancelled = True
        self._done = None
        if self._timer is not None:
            self._timer.cancel()
        if self._execution is not None:
            self._execution.call_left()

    def deliver(self, outcome: Outcome) -> None:
        """Pass on the outcome, once."""
        done, self._done = self._done, None
        self._execution = None  # which refers to its calls: they would wait for the collector
        if self._timer is not None:
            self._timer.cancel()
        if done is not None:
            done(outcome)


class _Execution:
    """Joined calls on a thread; cancelled when the last of them is."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.cancellation = Cancellation()
        for call in calls:
            call._execution = self

    def call_left(self) -> None:
        if all(call.is_cancelled for call in self.calls):
            self.cancellation.cancel()


class Batcher:
    """The calls of one signature that wait or run. Belongs to the thread of an event loop.

    Calls that arrive while the event loop reads its sockets are joined. Where an execution runs on a thread,
    later calls wait for its end to be joined, the first of them for ``max_wait_s`` at most; where nothing
    runs, nothing waits.

    Args:
        signature: what is called.
        executor: threads of long executions.
        max_wait_s: longest time for which a call waits to be joined.
        max_rows: most rows of one joined execution.
        max_queue_s: most work that waits, by its estimated time; further calls are refused.
    """

    def __init__(
        self,
        signature: Signature,
        executor: Executor,
        *,
        max_wait_s: float,
        max_rows: int,
        max_queue_s: float,
    ) -> None:
        self.cost = CostEstimate()
        self._signature = signature
        self._executor = executor
        self._max_wait_s = max_wait_s
        self._max_rows = max_rows
        self._max_queue_ns = max_queue_s * 1e9
        self._queue: list[tuple[Call, int]] = []
        self._queued_ns = 0.0
        self._is_scheduled = False
        self._running = 0
        self._running_ns = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # Of the first call; to ask for it takes a call to the system each time.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._row_bytes = signature.output_row_bytes

    def use(self, signature: Signature) -> None:
        """Answer the executions that begin from now on by another state of the same signature; on any thread.

        An execution reads the signature once, so its calls have one state.
        """
        self._signature = signature

    @property
    def waiting_ns(self) -> float:
        """Work that waits or runs on threads, by its estimated time."""
        return self._queued_ns + self._running_ns

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return len(self._queue)

    def submit(self, call: Call, done: Callable[[Outcome], None]) -> None:
        """Take a call; ``done`` is called once with its outcome, after this method has returned.

        Raises:
            RefusedError: 503, too much waits.
            TimeLimitError: the time limit has passed.
        """
        work = self._signature.work(call.inputs)
        estimate_ns = self.cost.at_least_ns(work)
        waits = self._queue or self._running
        if waits and self._queued_ns + self._running_ns + estimate_ns > self._max_queue_ns:
            raise overloaded(len(self._queue))
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        if call.timeout_s is not None:
            left_s = call.timeout_s - (time.perf_counter_ns() - call.started_ns) / 1e9
            if left_s <= 0:
                raise _too_late(call)
            call._timer = loop.call_later(left_s, self._time_out, call)
        call._done = done
        self._queue.append((call, work))
        self._queued_ns += estimate_ns
        if not self._is_scheduled:
            self._is_scheduled = True
            # After the other sockets of this turn of the loop were read.
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        queue, self._queue, self._queued_ns = self._queue, [], 0.0
        try:
            self._run_queue(queue)
        except Exception as error:
            logger.exception("calls could not be run")
            self._finish([call for call, _ in queue], [_refused(error)] * len(queue))

    def _run_queue(self, queue: list[tuple[Call, int]]) -> None:
        if len(queue) == 1:
            self._run([queue[0][0]], queue[0][1])
            return
        if any(call.priority for call, _ in queue):
            queue.sort(key=lambda each: each[0].priority or _DEFAULT_PRIORITY)
        if not self._signature.joinable:
            for call, work in queue:
                self._run([call], work)
            return
        for group in self._groups(queue):
            self._run_group(group)

    def _groups(self, queue: Sequence[tuple[Call, int]]) -> list[list[tuple[Call, int]]]:
        """Return calls by their keys, in the order of the first of each."""
        groups: dict[Hashable, list[tuple[Call, int]]] = {}
        for entry in queue:
            call = entry[0]
            if call.is_cancelled:
                continue
            key = batch_key(self._signature, call.inputs, call.parameters)
            groups.setdefault(id(call) if key is None else key, []).append(entry)
        return list(groups.values())

    def _run_group(self, group: Sequence[tuple[Call, int]]) -> None:
        """Run calls that may be joined, in as few executions as are short."""
        calls: list[Call] = []
        total = rows = 0
        for call, work in group:
            more = self._rows(call)
            if calls and (
                rows + more > self._max_rows
                or not self._may_grow(total, total + work)
                or (rows + more) * self._row_bytes > _MOST_JOINED_BYTES
            ):
                self._run(calls, total)
                calls, total, rows = [], 0, 0
            calls.append(call)
            total += work
            rows += more
        if calls:
            self._run(calls, total)

    def _rows(self, call: Call) -> int:
        return len(call.inputs[self._signature.row_inputs[0]])

    def _may_grow(self, work: int, larger: int) -> bool:
        """Return whether joining keeps an execution on the event loop there."""
        return self.cost.is_short(larger) or not self.cost.is_short(work)

    def _run(self, calls: list[Call], work: int) -> None:
        """Run calls as one execution, now or on a thread; or keep them while another one runs."""
        if len(calls) == 1 and calls[0].is_cancelled:
            return
        if self.cost.is_short(work):
            outcomes = self._execute(calls)
            self._observe(work, outcomes)
            self._finish(calls, outcomes)
            return
        may_wait = self._running and self._signature.joinable
        if (
            may_wait
            and sum(map(self._rows, calls)) < self._max_rows
            and not any(map(self._is_overdue, calls))
        ):
            self._keep(calls)
            return
        self._start(calls, work)

    def _is_overdue(self, call: Call) -> bool:
        return time.perf_counter_ns() - call.decoded_ns >= self._max_wait_s * 1e9

    def _keep(self, calls: Sequence[Call]) -> None:
        """Queue calls again, until an execution ends or the first of them has waited long enough."""
        for call in calls:
            work = self._signature.work(call.inputs)
            self._queue.append((call, work))
            self._queued_ns += self.cost.at_least_ns(work)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._max_wait_s, self._flush)

    def _execute(self, calls: Sequence[Call]) -> list[Outcome]:
        """Return the outcomes of calls; on any thread."""
        begun = time.perf_counter_ns()
        signature = self._signature
        found = answer_joined(signature, [call.inputs for call in calls], calls[0].parameters)
        ended = time.perf_counter_ns()
        return [
            Outcome(None, _of_request(each), begun, ended, int(place == 0))
            if isinstance(each, Exception)
            else Outcome(each, None, begun, ended, int(place == 0), signature.rows_sequence)
            for place, each in enumerate(found)
        ]

    def _observe(self, work: int, outcomes: Sequence[Outcome]) -> None:
        """Learn from an execution; on the event loop's thread, which reads the estimates."""
        self.cost.observe(work, outcomes[0].ended_ns - outcomes[0].begun_ns)

    def _start(self, calls: list[Call], work: int) -> None:
        """Run calls on a thread."""
        execution = _Execution(calls)
        loop = asyncio.get_running_loop()
        try:
            future = self._executor.submit(
                lambda: self._execute(calls), execution.cancellation, long=self.cost.is_long(work)
            )
        except RefusedError as refusal:
            now = time.perf_counter_ns()
            self._finish(calls, [Outcome(None, refusal, now, now) for _ in calls])
            return
        estimate_ns = self.cost.at_least_ns(work)
        self._running += 1
        self._running_ns += estimate_ns
        future.add_done_callback(
            lambda ended: (
                loop.call_soon_threadsafe(self._end, calls, work, estimate_ns, ended)
                if not loop.is_closed()
                else None
            )
        )

    def _end(
        self, calls: Sequence[Call], work: int, estimate_ns: float, future: Future[list[Outcome]]
    ) -> None:
        """Pass on what a thread has found, and run what waited for it."""
        self._running -= 1
        self._running_ns = max(0.0, self._running_ns - estimate_ns)
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, ExecutionCancelledError):
            outcomes = [_refused(_ended()) for _ in calls]
        elif isinstance(error, Exception):
            outcomes = [_refused(error) for _ in calls]
        else:
            outcomes = future.result()
            self._observe(work, outcomes)
        if self._queue and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)
        self._finish(calls, outcomes)

    def _finish(self, calls: Sequence[Call], outcomes: Sequence[Outcome]) -> None:
        for call, outcome in zip(calls, outcomes, strict=True):
            try:
                call.deliver(outcome)
            except Exception:  # the others are delivered all the same
                logger.exception("the outcome of a call could not be delivered")

    def _time_out(self, call: Call) -> None:
        if call._done is not None:
            call._timer = None
            done = call._done
            call.cancel()
            done(_refused(_too_late(call)))


def _of_request(error: Exception) -> Exception:
    """Return the error of a call whose model exists: a node that does not is a wrong request."""
    if isinstance(error, NotFoundError):
        return InvalidRequestError(error.message, where=error.where, hint=error.hint)
    return error


def _refused(error: Exception) -> Outcome:
    now = time.perf_counter_ns()
    return Outcome(None, error, now, now)


def _too_late(call: Call) -> TimeLimitError:
    return TimeLimitError(
        f"expected an answer within {call.timeout_s:g} s, the limit of the request; it was not ready",
        hint="send fewer rows in one request, or a longer timeout",
    )


def _ended() -> RefusedError:
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the server is stopping")


def overloaded(waiting: int) -> RefusedError:
    """Return the refusal of a call of a model of which so many wait."""
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "overloaded",
        f"{waiting} requests to this model wait, as much work as this server queues",
        hint="try again in a second",
        headers={"retry-after": "1"},
    )
