"""Large requests refused by their headers under overload, and the connections that they came on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import numpy as np
import pytest

from graphbox.artifact import TensorSpec
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import Outputs, Parameters, Signature
from graphbox.server.announced import AnnouncedBodies
from graphbox.server.batching import Batcher, Call, overloaded
from graphbox.server.executor import Executor
from graphbox.server.http.connection import HttpConnection
from graphbox.server.http.connections import ConnectionLimits, Connections
from graphbox.server.http.exchange import Exchange
from graphbox.server.problem import RefusedError

TIMEOUT_S = 20.0
LARGE_BYTES = 600_000
LIMITS = ConnectionLimits(
    max_connections=8,
    max_body_bytes=1 << 20,
    max_buffered_bytes=1 << 22,
    header_timeout_s=5.0,
    body_timeout_s=5.0,
    keep_alive_s=5.0,
)


class Application:
    """Refuses large bodies by their headers; returns others to the client.

    Attributes:
        status: of the refusals.
    """

    def __init__(self, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> None:
        self.status = status

    def admit(self, exchange: Exchange) -> None:
        if int(exchange.headers.get(b"content-length", b"0")) >= LARGE_BYTES:
            raise RefusedError(self.status, "overloaded", "too much waits")

    def refuse(self, exchange: Exchange, refusal: RefusedError) -> None:
        exchange.respond(refusal.status, (), b"refused")

    def answer(self, exchange: Exchange) -> None:
        exchange.respond(200, (), bytes(exchange.body))

    def answered(self, exchange: Exchange) -> None:
        pass


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def converse(application: Application, work: Callable[[Streams, Connections], Awaitable[None]]) -> None:
    """Run ``work`` with a connection to a server of the application."""

    async def run() -> None:
        connections = Connections(LIMITS)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: HttpConnection(application, connections), "127.0.0.1", 0)
        streams = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await work(streams, connections)
        finally:
            streams[1].close()
            server.close()
            connections.close()

    asyncio.run(run())


def request(body: bytes, headers: bytes = b"") -> bytes:
    return b"POST /x HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (headers, len(body), body)


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Return status, headers and body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split()[1]), head.lower(), await reader.readexactly(length)


@pytest.mark.parametrize("rest", [b"", request(b"behind it")], ids=["alone", "with the next one behind it"])
def test_a_connection_carries_on_after_a_body_refused_under_overload(rest: bytes) -> None:
    async def work(streams: Streams, connections: Connections) -> None:
        reader, writer = streams
        for _ in range(3):
            whole = request(b"x" * LARGE_BYTES)
            writer.write(whole[:1000])
            status, head, _ = await answer_of(reader)  # before the rest of the body is sent
            assert status == 503
            assert b"connection: close" not in head
            writer.write(whole[1000:] + rest)
            if rest:
                status, _, body = await answer_of(reader)
                assert (status, body) == (200, b"behind it")
            writer.write(request(b"small"))
            status, _, body = await answer_of(reader)
            assert (status, body) == (200, b"small")
        assert connections.buffered_bytes == 0

    converse(Application(), work)


@pytest.mark.parametrize("sizes", [(LARGE_BYTES,), (1, 255_999, 300_000), (100_000,) * 5])
def test_a_refused_body_in_pieces_of_any_size_is_dropped(sizes: tuple[int, ...]) -> None:
    async def work(streams: Streams, connections: Connections) -> None:
        reader, writer = streams
        body = b"x" * LARGE_BYTES
        writer.write(request(body)[:-LARGE_BYTES])
        assert (await answer_of(reader))[0] == 503
        sent = 0
        for size in (*sizes, LARGE_BYTES - sum(sizes)):
            writer.write(body[sent : sent + size])
            await writer.drain()
            await asyncio.sleep(0.01)
            sent += size
        writer.write(request(b"GET / HTTP/1.1"))
        status, _, answer = await answer_of(reader)
        assert (status, answer) == (200, b"GET / HTTP/1.1")
        assert connections.buffered_bytes == 0

    converse(Application(), work)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b""),
        (HTTPStatus.SERVICE_UNAVAILABLE, b"expect: 100-continue\r\n"),
        (HTTPStatus.SERVICE_UNAVAILABLE, b"connection: close\r\n"),
    ],
)
def test_other_connections_end_with_a_refused_body(status: HTTPStatus, headers: bytes) -> None:
    async def work(streams: Streams, _connections: Connections) -> None:
        reader, writer = streams
        writer.write(request(b"x" * LARGE_BYTES, headers)[:1000])
        found, head, _ = await answer_of(reader)
        assert found == status
        assert b"connection: close" in head
        writer.write(b"x" * LARGE_BYTES + request(b"small"))
        assert await reader.read() == b""

    converse(Application(status), work)


def test_a_stopping_server_ends_connections_after_refused_bodies() -> None:
    async def work(streams: Streams, connections: Connections) -> None:
        reader, writer = streams
        whole = request(b"x" * LARGE_BYTES)
        writer.write(whole[:1000])
        assert (await answer_of(reader))[0] == 503
        stopping = asyncio.create_task(connections.stop(TIMEOUT_S))
        await asyncio.sleep(0)
        writer.write(whole[1000:])
        assert await reader.read() == b""
        await stopping
        assert not connections.open

    converse(Application(), work)


def test_the_requests_of_one_packet_are_answered_in_turns() -> None:
    """Refusals, too: others are answered in between, and what the client does not read stays bounded."""

    class Counting(Application):
        answers = 0

        def admit(self, exchange: Exchange) -> None:
            if exchange.path == b"/refused":
                raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too much waits")

        def answered(self, exchange: Exchange) -> None:
            self.answers += 1

    application = Counting()

    async def work(streams: Streams, _connections: Connections) -> None:
        _, writer = streams
        writer.write((b"GET /refused HTTP/1.1\r\n\r\n" + request(b"")) * 30)
        most = 0
        while application.answers < 60:
            before = application.answers
            await asyncio.sleep(0)  # one turn of the loop, or two where the first was amid this one
            most = max(most, application.answers - before)
        assert most <= 2

    converse(application, work)


def batcher(executor: Executor, max_queue_s: float = 0.1) -> Batcher:
    """Return a batcher whose executions of one row are known to take 10 ms."""
    spec = TensorSpec(name="x", datatype="INT64", shape=(-1,))

    def answer(inputs: Feeds, _parameters: Parameters) -> Outputs:
        return {"x": inputs["x"]}

    signature = Signature(
        platform="test", inputs={"x": spec}, outputs={"x": spec}, answer=answer, work=lambda inputs: 1
    )
    found = Batcher(signature, executor, max_wait_s=0.0, max_rows=8, max_queue_s=max_queue_s)
    for _ in range(3):
        found.cost.observe(1, 10_000_000)
    return found


def run_announced(work: Callable[[AnnouncedBodies, Batcher], Awaitable[None]]) -> None:
    """Run ``work`` with bodies that may announce 100 ms of work, at 10 ms for 1,000 bytes."""
    executor = Executor(8, threads=1)

    async def run() -> None:
        owner = batcher(executor)
        bodies = AnnouncedBodies(owner, 0.1)
        bodies.announce(1000).arrived(10_000_000)
        async with asyncio.timeout(TIMEOUT_S):
            await work(bodies, owner)

    try:
        asyncio.run(run())
    finally:
        executor.close()


def test_announced_bodies_are_refused_beyond_the_longest_queue() -> None:
    async def work(bodies: AnnouncedBodies, _batcher: Batcher) -> None:
        announced = [bodies.announce(2000) for _ in range(5)]
        with pytest.raises(RefusedError) as refused:
            bodies.announce(1000)
        assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert refused.value.headers == overloaded(0).headers
        announced[0].arrived(20_000_000)
        bodies.announce(2000)
        with pytest.raises(RefusedError):
            bodies.announce(1000)

    run_announced(work)


def test_a_body_alone_is_taken_whatever_it_costs() -> None:
    async def work(bodies: AnnouncedBodies, _batcher: Batcher) -> None:
        bodies.announce(1_000_000)

    run_announced(work)


def test_a_body_that_does_not_come_keeps_others_out_for_a_moment_only() -> None:
    async def work(bodies: AnnouncedBodies, _batcher: Batcher) -> None:
        late = bodies.announce(10_000)
        with pytest.raises(RefusedError):
            bodies.announce(1000)
        while True:
            await asyncio.sleep(0.01)
            try:
                bodies.announce(1000)
            except RefusedError:
                continue
            break
        late.arrived(100_000_000)  # counts no second time
        for _ in range(9):
            bodies.announce(1000)

    run_announced(work)


def test_calls_that_run_count_with_announced_bodies() -> None:
    async def work(bodies: AnnouncedBodies, owner: Batcher) -> None:
        assert owner.waiting_ns == 0
        ended = asyncio.Event()
        owner.submit(Call({"x": np.zeros(1, np.int64)}), lambda _: ended.set())
        assert owner.waiting_ns == 10_000_000
        with pytest.raises(RefusedError):
            bodies.announce(9500)
        await ended.wait()
        bodies.announce(9500)

    run_announced(work)
