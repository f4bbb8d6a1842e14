"""Connections of gRPC that break the protocol, or take more than their share."""

from __future__ import annotations

import random
import resource
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from graphbox._http2 import CALL, CLOSED, HALF_CLOSED, MESSAGE, OPENED, Http2Session
from graphbox.server.grpc.inference_messages import (
    ModelInferRequest,
    ModelStreamInferResponse,
    RepositoryModelUnloadRequest,
)
from graphbox.workspace import Workspace
from tests.server import http2_frames as http2
from tests.server.sample_models import PACKAGES, build_workspace, expected_embeddings
from tests.server.server_process import TOKEN, ServerProcess, StartServer, start_process, wait_until

ENHANCE_YOUR_CALM = 11


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return build_workspace(tmp_path_factory.mktemp("grpc") / "debian")


@pytest.fixture(scope="module")
def server(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    settings = {"body_timeout_s": 1, "keep_alive_s": 2, "header_timeout_s": 2, "max_connections": 40}
    running = start_process({"port": 0, "grpc_port": 0, "workspace": workspace.root, **settings}, log)
    running.wait_until_ready()
    yield running
    assert running.stop(signal.SIGTERM) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


def connect(server: ServerProcess, *frames: bytes) -> socket.socket:
    host, _, port = server.grpc_address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    if frames:
        connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS) + b"".join(frames))
    return connection


def infer_message(ids: list[str]) -> bytes:
    raw = b"".join(struct.pack("<I", len(name)) + name for name in (each.encode() for each in ids))
    entry: dict[str, Any] = {"name": "id", "datatype": "BYTES", "shape": [len(ids)]}
    request = ModelInferRequest(model_name="companion", inputs=[entry], raw_input_contents=[raw])
    content: bytes = request.SerializeToString()
    return content


def expect_service(server: ServerProcess) -> None:
    """Others are answered as ever."""
    with triton.InferenceServerClient(server.grpc_address) as client:
        tensor = triton.InferInput("id", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([b"zsh"], dtype=object))
        found = client.infer("companion", [tensor], client_timeout=20).as_numpy("embedding")
        np.testing.assert_allclose(found, expected_embeddings(["zsh"]), rtol=1e-5)


def goaway_code(data: bytes) -> int:
    *_, last = [each for each in http2.frames_of(data) if each.kind == http2.GOAWAY]
    return int.from_bytes(last.payload[4:8], "big")


def rss_bytes(server: ServerProcess) -> int:
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        http2.PREFACE + b"\xff" * 64,
        b"\0" * 100,
    ],
)
def test_other_protocols_are_closed(server: ServerProcess, content: bytes) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(content + b"\0" * 32)
        http2.read_all(connection)
    expect_service(server)


def test_calls_by_hand(server: ServerProcess) -> None:
    with closing(connect(server, http2.call(1, infer_message(["zsh"])))) as connection:
        data = b""
        while not any(each.kind == http2.DATA for each in http2.frames_of(data)):
            data += connection.recv(65536)
        (answer,) = [each for each in http2.frames_of(data) if each.kind == http2.DATA]
        assert expected_embeddings(["zsh"]).tobytes()[:4] in answer.payload or answer.payload[0] == 0


def test_a_message_that_does_not_come_is_given_up(server: ServerProcess) -> None:
    head = http2.frame(http2.HEADERS, http2.fields(http2.call_headers()), flags=http2.END_HEADERS, stream=1)
    part = http2.frame(http2.DATA, http2.message(b"x" * 10, announced=1000), stream=1)
    with closing(connect(server, head, part)) as connection:
        data = http2.read_all(connection, 15)
    trailers = [each.payload for each in http2.frames_of(data) if each.kind == http2.HEADERS]
    assert any(b"grpc-status" in each or len(each) > 20 for each in trailers)
    expect_service(server)


def test_idle_connections_end_in_order(server: ServerProcess) -> None:
    with closing(connect(server, b"")) as silent, closing(connect(server)) as empty:
        assert goaway_code(http2.read_all(silent, 15)) == 0
        http2.read_all(empty, 15)


def test_connections_beyond_the_limit_take_the_place_of_idle_ones(server: ServerProcess) -> None:
    idle = [connect(server, b"") for _ in range(60)]
    try:
        expect_service(server)
    finally:
        for connection in idle:
            connection.close()


def test_connections_beyond_the_limit_are_refused_where_all_are_in_use(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Those of HTTP count, too. Open calls that wait for their client are not in use: test_grpc_limits."""
    workspace = Workspace(tmp_path / "workspace", create=True)
    with workspace.start_run("run", "version: 1\n", "0" * 64, ["train"]) as run:
        run.begin_stage("train")
        server = start_server(workspace=workspace.root, grpc_port=0, max_connections=3)
        events = f"GET /api/v1/events?run={run.id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        busy = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(3)]
        for connection in busy:
            connection.sendall(events)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with closing(connect(server, b"")) as refused:
            http2.read_all(refused, 5)
        for connection in busy:
            connection.close()
        with triton.InferenceServerClient(server.grpc_address) as client:
            wait_until(client.is_server_live, what="the places of the clients that left")


def test_rapid_resets_end_the_connection(server: ServerProcess) -> None:
    """CVE-2023-44487."""
    with closing(connect(server, b"")) as connection:
        content = infer_message(["zsh"])
        try:
            for number in range(4000):
                stream = 2 * number + 1
                reset = http2.frame(http2.RST_STREAM, struct.pack(">I", 8), stream=stream)
                connection.sendall(http2.call(stream, content) + reset)
        except (BrokenPipeError, ConnectionResetError):
            return
        assert goaway_code(http2.read_all(connection)) == ENHANCE_YOUR_CALM
    expect_service(server)


@pytest.mark.parametrize("kind", ["ping", "settings", "empty data", "continuation"])
def test_floods_end_the_connection(server: ServerProcess, kind: str) -> None:
    head = http2.frame(http2.HEADERS, http2.fields(http2.call_headers()), flags=http2.END_HEADERS, stream=1)
    start, repeated = {
        "ping": (b"", http2.frame(http2.PING, b"01234567")),
        "settings": (b"", http2.frame(http2.SETTINGS)),
        "empty data": (head, http2.frame(http2.DATA, stream=1)),
        "continuation": (
            http2.frame(http2.HEADERS, http2.fields(http2.call_headers()), stream=1),
            http2.frame(http2.CONTINUATION, http2.fields({"x": "y" * 1000}), stream=1),
        ),
    }[kind]
    with closing(connect(server, start)) as connection:
        try:
            for _ in range(200):
                connection.sendall(repeated * 100)
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            http2.read_all(connection)
    expect_service(server)


def test_a_client_that_does_not_read_costs_little_memory(server: ServerProcess) -> None:
    window = http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", (1 << 31) - 1 - 65535))
    large_windows = http2.frame(http2.SETTINGS, struct.pack(">HI", 4, (1 << 31) - 1))
    content = infer_message(PACKAGES * 100)
    before = rss_bytes(server)
    with closing(connect(server, large_windows, window)) as connection:
        connection.settimeout(3)
        try:
            for number in range(20_000):  # 260 MB of answers
                connection.sendall(http2.call(2 * number + 1, content))
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            pass
        assert rss_bytes(server) - before < 50 << 20
        expect_service(server)
    expect_service(server)


def test_a_refused_call_is_not_run(start_server: StartServer, workspace: Workspace) -> None:
    """The whole call comes at once: its message is there when its headers are refused."""
    server = start_server(workspace=workspace.root, grpc_port=0, token=TOKEN)
    server.wait_until_ready()
    path = "/inference.GRPCInferenceService/RepositoryModelUnload"
    content = RepositoryModelUnloadRequest(model_name="companion").SerializeToString()
    with closing(connect(server, http2.call(1, content, path))) as connection:
        received = b""
        while not any(each.kind == http2.HEADERS for each in http2.frames_of(received)):
            received += connection.recv(65536)
        time.sleep(0.5)
    with triton.InferenceServerClient(server.grpc_address) as client:
        assert client.is_model_ready("companion", headers={"authorization": f"Bearer {TOKEN}"})


NO_WINDOW = http2.frame(http2.SETTINGS, struct.pack(">HI", 4, 0))


def opened_stream(number: int = 1) -> bytes:
    fields = http2.fields(http2.call_headers(http2.STREAM))
    return http2.frame(http2.HEADERS, fields, flags=http2.END_HEADERS, stream=number)


def test_answers_that_are_not_taken_end_the_connection(server: ServerProcess) -> None:
    with closing(connect(server, NO_WINDOW, http2.call(1, infer_message(["zsh"])))) as connection:
        assert goaway_code(http2.read_all(connection, 15)) == 0
    expect_service(server)


def executed(server: ServerProcess) -> int:
    stats = httpx.get(f"{server.base}/v2/models/companion/stats").json()["model_stats"][0]
    count: int = stats["inference_stats"]["success"]["count"]
    return count


def send_as_far_as_read(connection: socket.socket, data_frame: bytes) -> int:
    """Send a frame of stream 1 again and again, until the server opens the window no further."""
    received = connection.recv(65536)  # its settings
    connection.sendall(http2.frame(http2.SETTINGS, flags=1))
    connection.settimeout(1)
    sent = 0
    while True:
        updates = [each for each in http2.frames_of(received) if each.kind == http2.WINDOW_UPDATE]
        window = (1 << 20) + sum(int.from_bytes(each.payload) for each in updates if each.stream == 1)
        while (sent + 1) * len(data_frame) <= window:
            connection.sendall(data_frame)
            sent += 1
        try:
            received += connection.recv(65536)
        except TimeoutError:
            return sent


def test_requests_wait_while_answers_are_not_taken(start_server: StartServer, workspace: Workspace) -> None:
    """Neither those of a stream nor calls are run for a client that takes no answers; then they are."""
    server = start_server(workspace=workspace.root, grpc_port=0, body_timeout_s=60)
    server.wait_until_ready()
    content = infer_message(PACKAGES * 100)  # 13 kB of answer
    request = http2.frame(http2.DATA, http2.message(content), stream=1)
    with closing(connect(server, NO_WINDOW, opened_stream())) as connection:
        sent = send_as_far_as_read(connection, request)
        before = executed(server)
        assert 300 < before < 400  # 4 MiB of answers
        assert before + 64 < sent < 600
        calls = b"".join(http2.call(number, content) for number in range(3, 43, 2))
        connection.sendall(calls)
        time.sleep(0.5)
        assert executed(server) == before
        window = struct.pack(">I", (1 << 31) - 1 - 65535)
        connection.sendall(
            http2.frame(http2.WINDOW_UPDATE, window)
            + http2.frame(http2.SETTINGS, struct.pack(">HI", 4, (1 << 31) - 1))
        )
        connection.settimeout(10)
        expected = before + 20
        while executed(server) < expected:
            assert connection.recv(1 << 20)
    expect_service(server)


def test_a_slow_client_gets_all_responses_of_its_stream(server: ServerProcess) -> None:
    received: list[Any] = []

    def slowly(result: Any, error: Any) -> None:
        received.append(error or result.get_response().id)
        time.sleep(0.001)

    tensor = triton.InferInput("id", [len(PACKAGES) * 200], "BYTES")
    tensor.set_data_from_numpy(np.array([name.encode() for name in PACKAGES * 200], dtype=object))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(slowly)
        for number in range(800):
            client.async_stream_infer("companion", [tensor], request_id=str(number))
        wait_until(lambda: len(received) >= 800, 60, "the responses")
        client.stop_stream()
    assert received == [str(number) for number in range(800)]


def test_silent_clients_are_asked_for_a_sign_of_life(server: ServerProcess) -> None:
    """A stream without requests stays open where its client is there, and no longer."""
    results: list[Any] = []
    tensor = triton.InferInput("id", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"zsh"], dtype=object))
    with (
        triton.InferenceServerClient(server.grpc_address) as client,
        closing(connect(server, opened_stream())) as silent,
    ):
        client.start_stream(lambda result, error: results.append(error or result))
        data = http2.read_all(silent, 15)
        assert any(each.kind == http2.PING for each in http2.frames_of(data))
        time.sleep(1)
        client.async_stream_infer("companion", [tensor])
        wait_until(lambda: bool(results), 10, "the response")
        assert not isinstance(results[0], Exception), results[0]
        client.stop_stream()


def test_a_busy_stream_ends_with_the_server(start_server: StartServer, workspace: Workspace) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0, drain_timeout_s=30)
    server.wait_until_ready()
    content = http2.frame(http2.DATA, http2.message(infer_message(PACKAGES)), stream=1)
    windows = http2.frame(http2.SETTINGS, struct.pack(">HI", 4, (1 << 31) - 1))
    window = http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", (1 << 31) - 1 - 65535))
    with closing(connect(server, windows, window, opened_stream(), content)) as connection:
        first = connection.recv(65536)
        while not any(each.kind == http2.DATA for each in http2.frames_of(first)):
            first += connection.recv(65536)
        connection.settimeout(2)
        received, answered, answer_bytes, stopped_at, deadline = b"", 0, 0, 0.0, time.monotonic() + 8
        response_bytes = next(len(each.payload) for each in http2.frames_of(first) if each.kind == http2.DATA)
        connection.sendall(content * 40)
        try:
            while time.monotonic() < deadline and (data := connection.recv(1 << 16)):
                received += data
                frames = [*http2.frames_of(received)]
                received = received[sum(9 + len(each.payload) for each in frames) :]
                answer_bytes += sum(len(each.payload) for each in frames if each.kind == http2.DATA)
                connection.sendall(content * (answer_bytes // response_bytes - answered))  # 40 always wait
                answered = answer_bytes // response_bytes
                if not stopped_at and answered > 500:
                    stopped_at = time.monotonic()
                    server.process.send_signal(signal.SIGTERM)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert time.monotonic() < deadline
    assert server.process.wait(10) == 0
    assert stopped_at


def test_what_the_session_refuses_is_counted(server: ServerProcess) -> None:
    def count() -> float:
        start = f'graphbox_grpc_requests_total{{method="{http2.INFER}",status="INVALID_ARGUMENT"}} '
        lines = httpx.get(f"{server.base}/metrics").text.splitlines()
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    before = count()
    headers = http2.call_headers(**{"grpc-timeout": "soon"})
    head = http2.frame(http2.HEADERS, http2.fields(headers), flags=http2.END_HEADERS, stream=1)
    with closing(connect(server, head)):
        wait_until(lambda: count() == before + 1, 10, "the count")


def test_compressed_requests_of_a_stream_need_an_encoding(server: ServerProcess) -> None:
    content = infer_message(["zsh"])
    compressed = struct.pack(">BI", 1, len(content)) + content
    data = http2.frame(http2.DATA, compressed, stream=1)
    with closing(connect(server, opened_stream(), data)) as connection:
        received = b""
        while not any(each.kind == http2.DATA for each in http2.frames_of(received)):
            received += connection.recv(65536)
        (answer,) = [each for each in http2.frames_of(received) if each.kind == http2.DATA]
    assert "encoding" in ModelStreamInferResponse.FromString(answer.payload[5:]).error_message


def test_half_closed_streams_are_bounded(server: ServerProcess) -> None:
    """Streams that stay open without requests: calls beyond the limit of a connection are refused."""
    opened = b"".join(
        http2.frame(
            http2.HEADERS,
            http2.fields(http2.call_headers(http2.STREAM)),
            flags=http2.END_HEADERS,
            stream=2 * number + 1,
        )
        for number in range(1000)
    )
    with closing(connect(server, opened)) as connection:
        time.sleep(0.5)
        connection.settimeout(5)
        data = connection.recv(1 << 20)
        assert any(each.kind == http2.RST_STREAM for each in http2.frames_of(data))
        expect_service(server)


def test_stopping_drops_what_is_not_finished(start_server: StartServer, workspace: Workspace) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0, drain_timeout_s=1, body_timeout_s=60)
    head = http2.frame(http2.HEADERS, http2.fields(http2.call_headers()), flags=http2.END_HEADERS, stream=1)
    with closing(connect(server, head)) as connection:
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        assert goaway_code(http2.read_all(connection, 10)) == 0
    assert server.process.wait(10) == 0


def test_connections_end_with_the_server(start_server: StartServer, workspace: Workspace) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0)
    with triton.InferenceServerClient(server.grpc_address) as client:
        assert client.is_server_live()
        server.process.kill()
        server.process.wait(10)
        with pytest.raises(InferenceServerException) as caught:
            client.is_server_live(client_timeout=5)
        assert str(caught.value.status()) in {"StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"}


def session(announce_calls: bool = False) -> Http2Session:
    return Http2Session(
        streaming_paths=[http2.STREAM],
        large_paths=[http2.INFER],
        announce_calls=announce_calls,
        max_concurrent_calls=16,
        max_header_bytes=4096,
        max_message_bytes=4096,
        max_small_message_bytes=1024,
        max_buffered_bytes=16384,
    )


def test_responses_as_large_as_a_frame_are_all_sent() -> None:
    """The first ends where a frame of the default size does."""
    head = http2.frame(
        http2.HEADERS, http2.fields(http2.call_headers(http2.STREAM)), flags=http2.END_HEADERS, stream=1
    )
    for size in range(16370, 16390):
        connection = session()
        assert connection.receive(http2.PREFACE + http2.frame(http2.SETTINGS) + head)[0][0] == OPENED
        contents = [b"r" * size, b"s" * 10, b"t" * size]
        for content in contents:
            connection.send(1, content)
        connection.finish(1, 0)
        found = http2.frames_of(connection.output(1 << 20))
        data = b"".join(each.payload for each in found if each.kind == http2.DATA)
        assert data == b"".join(http2.message(content) for content in contents)


def test_random_and_mutated_frames_leave_nothing_behind() -> None:
    """Neither a crash nor a leak: memory after 20,000 connections is that after 2,000."""
    generator = random.Random(11)
    recorded = http2.PREFACE + http2.frame(http2.SETTINGS)
    for number in range(6):
        path = http2.STREAM if number % 2 else http2.INFER
        recorded += http2.call(2 * number + 1, b"x" * 200, path)
    peak = 0
    for round_ in range(20_000):
        content = bytearray(recorded)
        for _ in range(generator.randrange(1, 6)):
            place = generator.randrange(24, len(content))
            content[place : place + generator.randrange(3)] = generator.randbytes(generator.randrange(4))
        answers_to(session(announce_calls=round_ % 3 == 0), bytes(content), generator)
        if round_ == 2000:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 20_000  # kB


def answers_to(connection: Http2Session, content: bytes, generator: random.Random) -> None:
    step = generator.randrange(1, len(content))
    for offset in range(0, len(content), step):
        for event in connection.receive(content[offset : offset + step]):
            if event[0] == CALL:
                connection.answer(event[1], event[4], "gzip" if event[5] else "")
            elif event[0] == MESSAGE:
                connection.send(event[1], event[2])
            elif event[0] in {HALF_CLOSED, CLOSED}:
                connection.finish(event[1], 0)
        connection.output(1 << 16)


def test_statistics_agree_after_all_of_this(server: ServerProcess) -> None:
    pending = "graphbox_pending_executions"

    def nothing_pending() -> bool:
        lines = httpx.get(f"{server.base}/metrics").text.splitlines()
        return all(line.endswith(" 0.0") for line in lines if line.startswith(pending))

    wait_until(nothing_pending, what="no execution to be left")
