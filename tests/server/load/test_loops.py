"""Closed and open loop against servers that answer, refuse, stall and hang up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest

from graphbox.errors import BackendMissingError, UsageError
from graphbox.server.load import LoadPlan, LoadReport, run_load
from graphbox.server.load.grpc_load import INFER_METHOD, GrpcLoad
from graphbox.server.load.http_load import HttpLoad
from graphbox.server.load.pacing import arrival_times
from graphbox.server.load.plan import Tally

REQUEST = b"POST /infer HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
UNASKED = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
UNASKED_OPEN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Answer = Callable[[int], bytes | None]
"""The answer to the n-th request; None: hang up."""


class Peer:
    """A server on a thread of its own."""

    def __init__(
        self, answer: Answer, delay_s: float = 0.0, unasked: bytes = b"", idle_s: float = 0.0
    ) -> None:
        self._answer = answer
        self._delay_s = delay_s
        self._unasked = unasked  # sent on a connection without a request for `idle_s`
        self._idle_s = idle_s
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
            try:
                async with asyncio.timeout(self._idle_s if self._unasked else None):
                    await reader.readexactly(len(REQUEST))
            except TimeoutError:
                writer.write(self._unasked)
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


@pytest.mark.timeout(30, method="thread")  # a thread that never ends cannot be left
@pytest.mark.parametrize("unasked", [UNASKED, UNASKED_OPEN], ids=["closes", "stays"])
@pytest.mark.parametrize("rate", [None, 20.0])
def test_an_answer_without_a_request_is_none(unasked: bytes, rate: float | None) -> None:
    peer = Peer(lambda _: OK, unasked=unasked, idle_s=0.02)
    with peer.running() as port:
        report = run_load(plan(port, rate=rate, seconds=0.5, arrivals="constant"))
    assert counts(report) >= 9
    assert report.accepted >= 5
    # The server may give up a connection while a request is on its way.
    assert set(report.tally.errors) <= {"408", "connection"}
    assert peer.connections > 20 or rate is None


@pytest.mark.timeout(30, method="thread")  # a thread that never ends cannot be left
@pytest.mark.parametrize("unasked", [UNASKED, UNASKED_OPEN], ids=["closes", "stays"])
def test_connections_that_are_given_up_before_the_start(unasked: bytes) -> None:
    peer = Peer(lambda _: OK, unasked=unasked, idle_s=0.2)

    async def run() -> Tally:
        load = HttpLoad(plan(port))
        await load.connect()
        await asyncio.sleep(0.5)
        return await load.run()

    with peer.running() as port:
        tally = asyncio.run(run())
    assert tally.latency.count > 100
    assert peer.connections >= 8


# ---- gRPC ----


def grpc_service(answer: Callable[[grpc.ServicerContext], bytes]) -> grpc.GenericRpcHandler:
    handler = grpc.unary_unary_rpc_method_handler(lambda _, context: answer(context))
    service, method = INFER_METHOD.removeprefix("/").split("/")
    return grpc.method_handlers_generic_handler(service, {method: handler})


@contextlib.contextmanager
def grpc_peer(answer: Callable[[grpc.ServicerContext], bytes]) -> Iterator[tuple[int, grpc.Server]]:
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc_service(answer),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port, server
    finally:
        server.stop(0).wait()


def grpc_plan(port: int, **options: object) -> LoadPlan:
    return replace(plan(port, **options), protocol="grpc", requests=(b"hi",))


@pytest.mark.parametrize("rate", [None, 100.0])
def test_grpc_refusals_are_no_failures(rate: float | None) -> None:
    numbers = itertools.count()
    codes = [None, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE]

    def answer(context: grpc.ServicerContext) -> bytes:
        code = codes[next(numbers) % 3]
        if code is not None:
            context.abort(code, "no")
        return b"ok"

    with grpc_peer(answer) as (port, _):
        report = run_load(grpc_plan(port, rate=rate))
    assert counts(report) == next(numbers) >= 9
    assert report.refused == pytest.approx(report.accepted, abs=1)
    assert set(report.tally.errors) == {"UNAVAILABLE"}
    assert report.failed == pytest.approx(report.accepted, abs=1)


def test_a_grpc_server_that_ends_meanwhile() -> None:
    with grpc_peer(lambda _: b"ok") as (port, server):
        stop = threading.Timer(0.3, server.stop, [0])
        stop.start()
        report = run_load(grpc_plan(port, seconds=0.6))
        stop.join()
    counts(report)
    assert report.accepted
    assert not report.refused
    assert "UNAVAILABLE" in report.tally.errors


@pytest.mark.timeout(30, method="thread")  # a thread that never ends cannot be left
@pytest.mark.parametrize("rate", [None, 100.0])
def test_an_error_of_the_grpc_client_ends_the_test(
    rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(GrpcLoad, "_send", fails)
    with grpc_peer(lambda _: b"ok") as (port, _), pytest.raises(ZeroDivisionError):
        run_load(grpc_plan(port, rate=rate))


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
