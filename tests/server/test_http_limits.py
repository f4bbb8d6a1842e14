"""Limits on clients whose request is incomplete, written byte by byte."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphbox.workspace import Workspace
from tests.server.sample_models import add_model, write_wide_encoder
from tests.server.server_process import ServerProcess, StartServer, start_process, wait_until

HEAD = b"POST /v2/models/companion/infer HTTP/1.1\r\nHost: localhost\r\n"
BODY = json.dumps({"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}).encode()


@pytest.fixture(scope="module")
def strict(shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with short limits."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    settings: dict[str, Any] = {
        "port": 0,
        "workspace": shared_workspace.root,
        "header_timeout_s": 0.5,
        "body_timeout_s": 0.5,
        "keep_alive_s": 1,
        "max_body_bytes": 100_000,
    }
    server = start_process(settings, log)
    yield server
    assert server.stop() == 0
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "Traceback" not in log.read_text()


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    answer = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionResetError:
            return answer
        if not chunk:
            return answer
        answer += chunk


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return  # the server has said no already


@pytest.mark.parametrize("start", [b"", b"\r\n", b"GET", HEAD, HEAD + b"X-Half: 1"])
def test_slow_headers(strict: ServerProcess, start: bytes) -> None:
    with connect(strict) as connection:
        connection.sendall(start)
        started = time.monotonic()
        assert status(read_all(connection)) == 408
        assert time.monotonic() - started < 10


def test_headers_byte_by_byte(strict: ServerProcess) -> None:
    """Each byte in time does not make the whole in time."""
    answer = b""
    with connect(strict) as connection:
        connection.settimeout(0.03)
        started = time.monotonic()
        for byte in b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"a" * 500:
            send(connection, bytes([byte]))
            try:
                answer = connection.recv(1000)
                break
            except TimeoutError:
                continue
    assert status(answer) == 408
    assert time.monotonic() - started < 10


def test_slow_second_request(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = connection.recv(65536)
        assert status(first) == 200
        connection.sendall(b"GET /heal")
        assert status(read_all(connection)) == 408


def test_idle_connection_is_closed(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1") == 1


def test_slow_body(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        answer = read_all(connection)
        assert status(answer) == 408
        assert b"expected the whole body within 0.5 s, received 1 bytes" in answer


def test_content_length_of_a_terabyte(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000000000000\r\n\r\n{")
        assert status(read_all(connection)) == 413


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"0x10", b"+5", b"99999999999999999999999"])
def test_malformed_content_length(strict: ServerProcess, length: bytes) -> None:
    with connect(strict) as connection:
        send(connection, HEAD + b"Content-Length: " + length + b"\r\n\r\n{}")
        assert status(read_all(connection)) in {400, 413}


def test_chunked_body(strict: ServerProcess) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks)
        assert status(read_all(connection)) == 200


def test_chunked_body_beyond_the_limit(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(40):
            send(connection, b"1000\r\n" + b"x" * 4096 + b"\r\n")
        assert status(read_all(connection)) in {413, 0}
    assert httpx.get(f"{strict.base}/healthz").status_code == 200


def test_length_and_chunks_together(strict: ServerProcess) -> None:
    """Two ways to find the end of a body are how requests are smuggled past a proxy."""
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert status(read_all(connection)) == 400


@pytest.mark.parametrize("count", [101, 10_000, 40_000])
def test_many_headers(strict: ServerProcess, count: int) -> None:
    """Each costs time that every other client waits."""
    with connect(strict) as connection:
        send(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * count + b"\r\n")
        answer = read_all(connection)
    assert status(answer) == 431
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "headers_too_large"


def test_many_trailers(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
        send(connection, b"a:\r\n" * 200 + b"\r\n")
        assert status(read_all(connection)) == 431


def test_as_many_headers_as_clients_send(strict: ServerProcess) -> None:
    headers = {f"x-header-{number}": "value" for number in range(90)}
    assert httpx.get(f"{strict.base}/healthz", headers=headers).status_code == 200


@pytest.mark.parametrize("size", [70_000, 1_000_000])
def test_large_headers(strict: ServerProcess, size: int) -> None:
    with connect(strict) as connection:
        send(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * size + b"\r\n\r\n")
        assert status(read_all(connection)) in {400, 431, 0}
    assert httpx.get(f"{strict.base}/healthz").status_code == 200


def test_headers_within_the_limit(strict: ServerProcess) -> None:
    assert httpx.get(f"{strict.base}/healthz", headers={"x-large": "x" * 30_000}).status_code == 200


def test_large_body(strict: ServerProcess) -> None:
    body = b" " * 90_000 + BODY
    url = f"{strict.base}/v2/models/companion/infer"
    assert httpx.post(url, content=body).status_code == 200
    answer = httpx.post(url, content=b" " * 100_001)
    assert answer.status_code == 413
    assert "at most 100000 bytes" in answer.json()["error"]


def test_a_body_beyond_the_limit_is_answered_while_it_is_sent(strict: ServerProcess) -> None:
    """Closed at once, the connection would be reset, and the client would never read the answer."""
    size = 65 * 1024 * 1024
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(65):
            connection.sendall(b" " * 1024 * 1024)
        answer = read_all(connection)
    assert status(answer) == 413
    assert b"at most 100000 bytes" in answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "rest", [b"no chunk\r\n\r\n", b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]
)
def test_nothing_follows_the_answer_that_closes_the_connection(strict: ServerProcess, rest: bytes) -> None:
    """A second one would be taken for the answer to the next request of a proxy."""
    head = b"POST /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(strict) as connection:
        connection.sendall(head + rest)
        answer = read_all(connection)
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_refused_body_that_never_comes_does_not_hold_the_connection(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: 65000000\r\nExpect: 100-continue\r\n\r\n")
        answer = read_all(connection)
    assert status(answer) == 413
    assert b"100 Continue" not in answer


@pytest.mark.parametrize("length", [b"9" * 5000, b"9" * 25, b"1e3", b"-1", b"+5"])
def test_wrong_content_length(strict: ServerProcess, length: bytes) -> None:
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: " + length + b"\r\n\r\n")
        assert status(read_all(connection)) in {400, 413}


def test_idle_connections_make_way(start_server: StartServer, shared_workspace: Workspace) -> None:
    """The connection that was idle longest is closed for a new one; requests under way are never."""
    server = start_server(workspace=shared_workspace.root, max_connections=20)
    with connect(server) as busy, ExitStack() as stack:
        busy.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY[:-1])
        idle = [stack.enter_context(connect(server)) for _ in range(100)]
        assert httpx.get(f"{server.base}/healthz").status_code == 200
        # Those that were opened first were closed, without an answer.
        assert [read_all(connection) for connection in idle[:80]] == [b""] * 80
        busy.sendall(BODY[-1:])
        assert status(read_all(busy)) == 200


def test_bodies_that_do_not_come_make_way(start_server: StartServer, shared_workspace: Workspace) -> None:
    """Neither those that are read nor those that were refused keep new clients out."""
    server = start_server(workspace=shared_workspace.root, max_connections=10)
    with ExitStack() as stack:
        for length in (len(BODY), 65_000_000) * 20:
            connection = stack.enter_context(connect(server))
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % length)
        assert httpx.get(f"{server.base}/healthz").status_code == 200


def test_no_connection_beyond_those_with_requests(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace", create=True)
    with workspace.start_run("run", "version: 1\n", "0" * 64, ["train"]) as run, ExitStack() as stack:
        run.begin_stage("train")
        server = start_server(workspace=workspace.root, max_connections=3)
        request = f"GET /api/v1/events?run={run.id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        busy = [stack.enter_context(connect(server)) for _ in range(3)]
        for connection in busy:
            connection.sendall(request)
            assert status(connection.recv(65536)) == 200  # the stream goes on until the run ends
        answer = read_all(stack.enter_context(connect(server)))
        assert status(answer) == 503
        assert b"retry-after: 1" in answer
        busy[0].close()
        wait_until(lambda: is_answered(server), what="the place of the client that left")


def is_answered(server: ServerProcess) -> bool:
    return httpx.get(f"{server.base}/healthz").status_code == 200


def test_pipelined_requests(strict: ServerProcess) -> None:
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    with connect(strict) as connection:
        connection.sendall(one * 3 + one.replace(b"Host:", b"Connection: close\r\nHost:"))
        assert read_all(connection).count(b"HTTP/1.1 200") == 4


def test_client_that_leaves_amid_its_request(strict: ServerProcess) -> None:
    for _ in range(20):
        with connect(strict) as connection:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(BODY) + BODY)
        assert status(read_all(connection)) == 200


def test_upgrade_is_ignored(strict: ServerProcess) -> None:
    with connect(strict) as connection:
        connection.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert status(connection.recv(65536)) in {200, 400}


def test_garbage(strict: ServerProcess) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\x00" * 100, b"HTTP/1.1 200 OK\r\n\r\n"):
        with connect(strict) as connection:
            send(connection, data)
            assert status(read_all(connection)) in {400, 408}
    assert httpx.get(f"{strict.base}/healthz").status_code == 200


@pytest.mark.parametrize("name", [b"Host", b"Authorization", b"Content-Encoding"])
def test_headers_that_say_something_twice(strict: ServerProcess, name: bytes) -> None:
    """A proxy may have checked the first, where the server would use the last."""
    twice = name + b": localhost\r\n" + name + b": other\r\n"
    with connect(strict) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + twice + b"\r\n")
        answer = connection.recv(65536)
        assert status(answer) == 400
        assert b"repeated_header" in answer
        # The connection itself is sound.
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status(connection.recv(65536)) == 200


def test_a_deep_pipeline_is_answered_in_part(strict: ServerProcess) -> None:
    """A packet of 64 KiB holds a thousand requests, each of which would wait in memory."""
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(strict) as connection:
        send(connection, one * 1000)
        answer = read_all(connection)
    answered = answer.count(b"HTTP/1.1 200")
    assert 1 <= answered <= 200
    assert answer.count(b"connection: close") == 1


def test_a_client_that_does_not_read_is_dropped(start_server: StartServer, tmp_path: Path) -> None:
    """It is told apart from a slow one by the time in which it reads nothing."""
    workspace = Workspace(tmp_path / "workspace", create=True)
    add_model(workspace, "wide", write_wide_encoder)
    server = start_server(workspace=workspace.root, body_timeout_s=0.5)
    ids = [f"p{number}" for number in range(20_000)]
    body = json.dumps(
        {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]}
    ).encode()
    head = b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head % len(body) + body)
        wait_until(
            lambda: 'route="/v2/models/{model}/infer",status="200"' in metrics_of(server), what="the answer"
        )
        wait_until(lambda: open_connections(server) == 0, what="the connection to be dropped")


def metrics_of(server: ServerProcess) -> str:
    return httpx.get(f"{server.base}/metrics").text


def open_connections(server: ServerProcess) -> int:
    """Return how many connections the server has, by the table of the system."""
    port = f":{server.port:04X}"
    lines = Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()[1:]
    established = "01"
    return sum(line.split()[1].endswith(port) and line.split()[3] == established for line in lines)


@pytest.mark.parametrize("head", [HEAD, b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n"])
def test_endless_trailers(strict: ServerProcess, head: bytes) -> None:
    """The parser keeps a trailer until it is complete."""
    with connect(strict) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        sent = 0
        with suppress(BrokenPipeError, ConnectionResetError):  # closed, as it should be
            while sent < 64 << 20:
                sent += connection.send(b"a" * 65536)
    assert sent < 64 << 20


def test_endless_trailers_of_a_refused_request(strict: ServerProcess) -> None:
    """They are dropped for as long as the rest of any refused body, and no longer."""
    with connect(strict) as connection:
        connection.sendall(b"POST /v2 HTTP/1.1\r\nHost: evil.example\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        deadline = time.monotonic() + 15
        with suppress(BrokenPipeError, ConnectionResetError):  # closed, as it should be
            while time.monotonic() < deadline:
                connection.send(b"a" * 65536)
                time.sleep(0.02)
        assert time.monotonic() < deadline


def test_every_request_of_a_pipeline_is_answered(strict: ServerProcess) -> None:
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    with connect(strict) as connection:
        send(connection, one * 70)
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == 1 + 64
    assert answer.count(b"connection: close") == 1


def test_garbage_behind_a_request_is_no_answer_to_it(strict: ServerProcess) -> None:
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    with connect(strict) as connection:
        connection.sendall(one + b"\x00garbage")
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1") == 1
    assert status(answer) == 200


@pytest.mark.parametrize("host", [b"localhost", b"evil.example"])
def test_a_request_to_change_the_protocol_leaves_the_connection_as_it_is(
    strict: ServerProcess, host: bytes
) -> None:
    """Java's HttpClient asks for HTTP/2 that way with its first request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    request = b"GET /v2 HTTP/1.1\r\nHost: " + host + b"\r\n" + upgrade + b"\r\n"
    with connect(strict) as connection:
        for _ in range(2):
            connection.sendall(request)
            assert status(connection.recv(65536)) == (200 if host == b"localhost" else 403)
        connection.sendall(request * 2)
        answer = b""
        while answer.count(b"HTTP/1.1 ") < 2:
            answer += connection.recv(65536)


def test_answers_that_are_not_read_do_not_keep_a_connection(
    start_server: StartServer, shared_workspace: Workspace
) -> None:
    """A few hundred bytes that the system does not take are no reason to wait for ever."""
    server = start_server(workspace=shared_workspace.root, keep_alive_s=1, body_timeout_s=0.5)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", server.port))
        connection.settimeout(0.2)
        request = b"GET /v2/models/" + b"a" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with suppress(TimeoutError, ConnectionError):  # neither side reads any more
            for _ in range(20_000):
                connection.sendall(request)
        wait_until(lambda: open_connections(server) == 0, what="the connection to be dropped")


def test_the_refusals_of_one_packet_are_bounded(strict: ServerProcess) -> None:
    """Each is some hundred bytes for 18 of the client's, and none needs a token."""
    with connect(strict) as connection:
        send(connection, b"GET / HTTP/1.1\r\n\r\n" * 13_000)
        answer = read_all(connection)
    # Fewer where the system drops answers, as the rest of the requests is not read.
    assert 1 <= answer.count(b"HTTP/1.1 400") <= 1 + 64


def test_refusals_have_their_place_in_a_pipeline(strict: ServerProcess) -> None:
    infer = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    foreign = b"GET /v2 HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for packet, expected in (
        (infer + foreign + infer + last, [200, 403, 200, 200]),
        (foreign + foreign + infer + foreign + last, [403, 403, 200, 403, 200]),
    ):
        with connect(strict) as connection:
            connection.sendall(packet)
            answer = read_all(connection)
        assert [int(each[:3]) for each in answer.split(b"HTTP/1.1 ")[1:]] == expected


@pytest.mark.parametrize(("host", "expected"), [(b"localhost", b"200"), (b"evil.example", b"403")])
def test_many_requests_to_change_the_protocol(strict: ServerProcess, host: bytes, expected: bytes) -> None:
    """Pipelined, they are no deeper in the stack than one alone."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    request = b"GET /v2 HTTP/1.1\r\nHost: " + host + b"\r\n" + upgrade + b"\r\n"
    with connect(strict) as connection:
        send(connection, request * 3000)
        answer = read_all(connection)
    assert 1 <= answer.count(b"HTTP/1.1 " + expected) <= 1 + 64
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 " + expected)


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_request_to_change_the_protocol_keeps_its_body(
    strict: ServerProcess, is_chunked: bool, pieces: int
) -> None:
    """Taken for the next request, the body would be one that no proxy has seen."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(BODY)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) if is_chunked else BODY
    request = HEAD + upgrade + length + b"\r\n\r\n" + body
    packet = request * 2 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(strict) as connection:
        step = -(-len(packet) // pieces)
        for start in range(0, len(packet), step):
            connection.sendall(packet[start : start + step])
            time.sleep(0.05)
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1") == 3
    assert answer.count(b'"embedding"') == 2
