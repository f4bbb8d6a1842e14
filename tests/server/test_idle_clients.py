"""Clients that open connections and hardly use them: thousands of idle ones, slow ones, half-closed ones."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from graphbox.workspace import Workspace
from tests.server import http2_frames as http2
from tests.server.server_process import ServerProcess, StartServer, wait_until

FILES_BESIDES = 400


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process, and those that it starts, have many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"the limit on open files is {hard}, expected {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def rss_mb(server: ServerProcess) -> float:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def connect_idle(stack: ExitStack, port: int, first: bytes) -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
    connection.sendall(first)
    return connection


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.stress)])
def test_idle_connections(
    start_server: StartServer, shared_workspace: Workspace, protocol: str, count: int
) -> None:
    """They cost little memory each, and delay nobody; those beyond the limit make way."""
    with many_files(2 * count + FILES_BESIDES), ExitStack() as stack:
        server = start_server(
            workspace=shared_workspace.root,
            grpc_port=0,
            max_connections=count,
            keep_alive_s=600,
            header_timeout_s=600,
        )
        server.wait_until_ready()
        before, files_before = rss_mb(server), open_files(server)
        is_http2 = protocol == "HTTP/2"
        port = int(server.grpc_address.rpartition(":")[2]) if is_http2 else server.port
        first = (
            http2.PREFACE + http2.frame(http2.SETTINGS) if is_http2 else b"GET /healthz HTTP/1.1\r\nHost: a"
        )
        idle = [connect_idle(stack, port, first) for _ in range(count - 10)]
        wait_until(lambda: open_files(server) - files_before >= len(idle) - 5, 60, "the connections")
        assert rss_mb(server) - before < 20 + len(idle) * 0.05
        for _ in range(20):
            assert httpx.get(f"{server.base}/healthz", timeout=30).status_code == 200
        # Newer ones close the oldest.
        idle += [connect_idle(stack, port, first) for _ in range(100)]
        assert httpx.get(f"{server.base}/healthz", timeout=30).status_code == 200
        idle[0].settimeout(30)
        while idle[0].recv(65536):
            pass
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def drip(connection: socket.socket, content: bytes, interval_s: float) -> float:
    """Send a byte at a time until the server closes the connection; return after how many seconds it did."""
    began = time.monotonic()
    connection.settimeout(interval_s)
    for position in range(len(content)):
        try:
            connection.sendall(content[position : position + 1])
            if not connection.recv(65536):
                break
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            break
    return time.monotonic() - began


SLOW = {
    "headers": (False, b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"a" * 5000),
    "body": (
        False,
        b"POST /v2/models/companion/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" + b" " * 5000,
    ),
    "chunks": (
        False,
        b"POST /v2/models/companion/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\n \r\n" * 900,
    ),
    "preface": (True, http2.PREFACE + http2.frame(http2.SETTINGS, b"\0" * 6) * 300),
    "call headers": (
        True,
        http2.PREFACE
        + http2.frame(http2.SETTINGS)
        + http2.frame(http2.HEADERS, http2.fields(http2.call_headers()), flags=http2.END_HEADERS, stream=1),
    ),
    "message": (
        True,
        http2.PREFACE
        + http2.frame(http2.SETTINGS)
        + http2.frame(http2.HEADERS, http2.fields(http2.call_headers()), flags=http2.END_HEADERS, stream=1)
        + http2.frame(http2.DATA, http2.message(b"\0" * 4000), stream=1),
    ),
}


def test_slow_clients(start_server: StartServer, shared_workspace: Workspace) -> None:
    """However each part comes in time, the whole has a limit; meanwhile others are answered."""
    server = start_server(
        workspace=shared_workspace.root, grpc_port=0, header_timeout_s=1, body_timeout_s=1, keep_alive_s=1
    )
    server.wait_until_ready()
    took: dict[str, float] = {}
    files_before = open_files(server)

    def attack(name: str) -> None:
        is_http2, content = SLOW[name]
        port = int(server.grpc_address.rpartition(":")[2]) if is_http2 else server.port
        with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
            # What is needed to reach the slow part is sent at once.
            at_once = content.find(b"\r\n\r\n") + 4 if name in {"body", "chunks"} else 0
            at_once = len(content) - 3900 if name == "message" else at_once
            connection.sendall(content[:at_once])
            took[name] = drip(connection, content[at_once:], 0.02)

    threads = [threading.Thread(target=attack, args=(name,)) for name in SLOW]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert httpx.get(f"{server.base}/healthz", timeout=30).status_code == 200
        for thread in threads:
            thread.join(0.05)
    assert took.keys() == SLOW.keys()
    # The bytes themselves take 80 s and more.
    assert max(took.values()) < 40, took
    wait_until(lambda: open_files(server) <= files_before + 2, what="the connections to be forgotten")
    assert server.stop() == 0


def test_half_closed_connections_end(start_server: StartServer, shared_workspace: Workspace) -> None:
    """A client that announces that it sends no more gets what it asked for, and leaves nothing behind."""
    server = start_server(workspace=shared_workspace.root, grpc_port=0)
    server.wait_until_ready()
    files_before = open_files(server)
    grpc_port = int(server.grpc_address.rpartition(":")[2])
    stream = http2.frame(
        http2.HEADERS, http2.fields(http2.call_headers(http2.STREAM)), flags=http2.END_HEADERS, stream=1
    )
    starts = [
        (server.port, b""),
        (server.port, b"GET /heal"),
        (server.port, b"POST /v2/models/companion/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"),
        (grpc_port, b""),
        (grpc_port, http2.PREFACE),
        (grpc_port, http2.PREFACE + http2.frame(http2.SETTINGS) + stream),
    ]
    for _ in range(20):
        for port, start in starts:
            with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
                connection.sendall(start)
                connection.shutdown(socket.SHUT_WR)
                http2.read_all(connection, 30)
    wait_until(lambda: open_files(server) <= files_before + 2, what="the connections to be forgotten")
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def test_no_descriptor_left(start_server: StartServer, shared_workspace: Workspace) -> None:
    """Where the system gives a server no more descriptors, connections wait, and are accepted later."""
    server = start_server(workspace=shared_workspace.root)
    server.wait_until_ready()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_files(server) + 5, hard))
    with httpx.Client(base_url=server.base, timeout=30) as kept:
        assert kept.get("/healthz").status_code == 200
        with ExitStack() as stack:
            for _ in range(30):
                connect_idle(stack, server.port, b"")
            wait_until(lambda: "no connection can be accepted" in server.log.read_text(), what="the limit")
            assert kept.get("/healthz").status_code == 200
        wait_until(lambda: httpx.get(f"{server.base}/healthz").status_code == 200, what="a free descriptor")
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
