"""Closed and open loop against servers that answer, refuse, stall and hang up."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from graphbox.errors import BackendMissingError, UsageError
from graphbox.server.load import LoadPlan, LoadReport, run_load
from graphbox.server.load.pacing import arrival_times

REQUEST = b"POST /infer HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Answer = Callable[[int], bytes | None]
"""The answer to the n-th request; None: hang up."""


class Peer:
    """A server on a thread of its own."""

    def __init__(self, answer: Answer, delay_s: float = 0.0) -> None:
        self._answer = answer
        self._delay_s = delay_s
        self.requests = 0
        self.connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._answer_all(reader, writer)
        finally:
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readexactly(len(REQUEST))
            self.requests += 1
            answer = self._answer(self.requests)
            if answer is None:
                return
            await asyncio.sleep(self._delay_s)
            writer.write(answer)
            if answer == LAST:
                return

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        ports: queue.SimpleQueue[int] = queue.SimpleQueue()
        stops: list[Callable[[], object]] = []

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            stopping = asyncio.Event()
            loop = asyncio.get_running_loop()
            stops.append(lambda: loop.call_soon_threadsafe(stopping.set))
            ports.put(server.sockets[0].getsockname()[1])
            await stopping.wait()
            server.close()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        port = ports.get(timeout=10)
        try:
            yield port
        finally:
            stops[0]()
            thread.join(10)


def plan(port: int, **options: object) -> LoadPlan:
    defaults: dict[str, object] = {"connections": 4, "seconds": 0.3, "warm_up_s": 0.0}
    return LoadPlan(host="127.0.0.1", port=port, requests=(REQUEST,), **(defaults | options))  # type: ignore[arg-type]


def counts(report: LoadReport) -> int:
    """Return how many requests have an outcome; each sent one has exactly one."""
    assert report.tally.sent == report.accepted + report.refused + report.failed
    return report.tally.sent


def test_a_closed_loop_counts_what_the_server_answered() -> None:
    peer = Peer(lambda _: OK)
    with peer.running() as port:
        report = run_load(plan(port))
    assert counts(report) == peer.requests == report.accepted > 100
    assert peer.connections == 4
    assert report.goodput == pytest.approx(report.accepted / 0.3, rel=0.2)


def test_requests_of_the_warm_up_are_not_counted() -> None:
    peer = Peer(lambda _: OK, delay_s=0.01)
    with peer.running() as port:
        report = run_load(plan(port, warm_up_s=0.3))
    assert 0 < counts(report) < peer.requests


def test_processes_share_the_load() -> None:
    peer = Peer(lambda _: OK)
    with peer.running() as port:
        report = run_load(plan(port, processes=2, connections=2))
    assert counts(report) == peer.requests > 100
    assert peer.connections == 4


def test_an_open_loop_keeps_its_rate() -> None:
    peer = Peer(lambda _: OK)
    with peer.running() as port:
        report = run_load(plan(port, rate=1000.0, arrivals="constant", seconds=0.5, connections=16))
    assert counts(report) + report.tally.unsent == pytest.approx(500, abs=2)
    assert counts(report) == peer.requests


def test_latency_counts_from_the_intended_time() -> None:
    # One connection and 50 ms an answer: the n-th request waits for those before it.
    peer = Peer(lambda _: OK, delay_s=0.05)
    with peer.running() as port:
        report = run_load(plan(port, rate=100.0, arrivals="constant", seconds=0.5, connections=1))
    assert 5 <= counts(report) <= 11
    assert report.tally.unsent == pytest.approx(50 - report.tally.sent, abs=1)
    assert report.tally.latency.max_ms > 300


def test_refusals_are_no_failures() -> None:
    peer = Peer(lambda number: REFUSED if number % 4 == 0 else OK)
    with peer.running() as port:
        report = run_load(plan(port))
    assert counts(report) == peer.requests
    assert report.refused == peer.requests // 4
    assert report.failed == 0
    assert report.tally.refusal.percentile_ms(99) > 0


def test_errors_are_counted_by_status() -> None:
    peer = Peer(lambda number: FAILED if number % 2 else OK)
    with peer.running() as port:
        report = run_load(plan(port))
    assert report.tally.errors == {"500": (peer.requests + 1) // 2}
    assert counts(report) == peer.requests


def test_lost_connections_are_opened_again() -> None:
    peer = Peer(lambda number: None if number % 50 == 0 else OK)
    with peer.running() as port:
        report = run_load(plan(port))
    assert counts(report) == peer.requests
    assert report.tally.errors == {"connection": peer.requests // 50}
    assert peer.connections >= 4 + peer.requests // 50 - 4


def test_a_server_that_closes_after_each_answer() -> None:
    peer = Peer(lambda _: LAST)
    with peer.running() as port:
        report = run_load(plan(port))
    assert counts(report) == peer.requests == report.accepted > 20
    assert report.failed == 0


def test_requests_time_out() -> None:
    peer = Peer(lambda _: OK, delay_s=30.0)
    with peer.running() as port:
        started = time.monotonic()
        report = run_load(plan(port, timeout_s=0.1, seconds=0.4))
        assert time.monotonic() - started < 5
    assert report.accepted == 0
    assert set(report.tally.errors) == {"timeout"}
    assert counts(report) >= 4


def test_garbage_is_a_lost_connection() -> None:
    peer = Peer(lambda _: b"no HTTP at all\r\n\r\n")
    with peer.running() as port:
        report = run_load(plan(port))
    assert set(report.tally.errors) == {"connection"}


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(BackendMissingError, match=r"expected a server on 127\.0\.0\.1:1, cannot connect"):
        run_load(plan(1))
    with pytest.raises(BackendMissingError, match="cannot connect"):
        run_load(plan(1, processes=2))


@pytest.mark.parametrize(
    "wrong",
    [{"connections": 0}, {"processes": 0}, {"seconds": 0.0}, {"rate": -1.0}, {"rate": float("nan")}],
)
def test_a_plan_that_cannot_be_carried_out(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="expected"):
        run_load(plan(1, **wrong))


def test_arrivals() -> None:
    times = arrival_times(1000, "constant", 5, 0)
    assert [next(times) for _ in range(3)] == [1_000_005, 2_000_005, 3_000_005]
    for _ in range(9997):
        last = next(times)
    assert last == 10_000_000_005
    poisson = [next(found) for found in [arrival_times(1000, "poisson", 0, 1)] for _ in range(20_000)]
    assert poisson == sorted(poisson)
    assert poisson[-1] == pytest.approx(20e9, rel=0.05)
