"""Limits of gRPC calls: connections, memory, and the time of the event loop."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from graphbox.server.access import Scope
from graphbox.server.grpc.call import GrpcCall
from graphbox.server.grpc.health_messages import HealthCheckRequest, HealthCheckResponse
from graphbox.server.grpc.inference_messages import (
    LogSettingsRequest,
    ModelInferRequest,
    ModelMetadataRequest,
)
from graphbox.server.grpc.status import Status
from graphbox.server.grpc.watches import HealthWatches
from graphbox.workspace import Workspace
from tests.server import http2_frames as http2
from tests.server.sample_models import add_model, build_workspace, write_wide_encoder
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_grpc_connections import NO_WINDOW, connect, opened_stream
from tests.server.test_tokens import bearer, write_tokens

WATCH = "/grpc.health.v1.Health/Watch"
CHECK = "/grpc.health.v1.Health/Check"
LIVE = "/inference.GRPCInferenceService/ServerLive"
MOST_SMALL_BYTES = 16 * 1024
ServingStatus = HealthCheckResponse.ServingStatus


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    built = build_workspace(tmp_path_factory.mktemp("limits") / "debian")
    add_model(built, "wide", write_wide_encoder)
    return built


def wide_input(rows: int) -> Any:
    ids = [f"p{number}".encode() for number in np.random.default_rng(5).integers(0, 20_000, rows)]
    return triton.InferInput("id", [rows], "BYTES").set_data_from_numpy(np.array(ids, object))


# Connections


def opened(path: str) -> bytes:
    fields = http2.fields(http2.call_headers(path))
    return http2.frame(http2.HEADERS, fields, flags=http2.END_HEADERS, stream=1)


HELD: dict[str, bytes] = {
    "watch": http2.call(1, b"", WATCH),
    "message that does not come": opened(LIVE),
    "stream without requests": opened_stream(),
    "answer that is not taken": NO_WINDOW + http2.call(1, b"", LIVE),
}


@pytest.mark.parametrize("held", HELD)
def test_calls_that_wait_for_their_client_make_way(
    start_server: StartServer, workspace: Workspace, held: str
) -> None:
    """Without a token or a request under way, a client keeps nobody out: neither of gRPC nor of HTTP."""
    server = start_server(workspace=workspace.root, grpc_port=0, max_connections=6, max_queue_ms=30_000)
    server.wait_until_ready()
    answers: queue.Queue[Any] = queue.Queue()
    with ExitStack() as stack:
        client = stack.enter_context(triton.InferenceServerClient(server.grpc_address))
        client.async_infer("wide", [wide_input(65_536)], lambda result, error: answers.put(error or result))
        for _ in range(12):
            stack.enter_context(closing(connect(server, HELD[held])))
            time.sleep(0.02)
        for _ in range(3):
            assert httpx.get(f"{server.base}/healthz").status_code == 200
        # The one with a request under way was closed for none of them.
        assert not isinstance(found := answers.get(timeout=60), Exception), found
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def test_the_watches_of_a_connection_are_limited(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    server = start_server(models=[tmp_path / "models"], grpc_port=0)
    with grpc.insecure_channel(server.grpc_address) as channel:
        watch = channel.unary_stream(WATCH)
        watches = [watch(b"", timeout=60) for _ in range(4)]
        for each in watches:
            assert HealthCheckResponse.FromString(next(each)).status != ServingStatus.UNKNOWN
        with pytest.raises(grpc.RpcError, match="at most 4 watches in one connection") as caught:
            next(watch(b"", timeout=60))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches.pop().cancel()
        unknown = watch(HealthCheckRequest(service="other").SerializeToString(), timeout=60)
        assert HealthCheckResponse.FromString(next(unknown)).status == ServingStatus.SERVICE_UNKNOWN
        assert server.stop() == 0
        for each in (*watches, unknown):
            with pytest.raises(grpc.RpcError) as caught:
                next(each)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


class WatchingCall:
    """Part of a call that health watches use.

    Attributes:
        sent: statuses sent by the server.
        ended: status at the end of the call.
    """

    def __init__(self) -> None:
        self.sent: list[ServingStatus] = []
        self.ended: Status | None = None
        self.on_left: Callable[[], object] | None = None

    def limit_time(self) -> None:
        pass

    def send(self, message: bytes) -> None:
        self.sent.append(HealthCheckResponse.FromString(message).status)

    def finish(self, status: Status, _text: str) -> None:
        self.ended = status


def test_watches_share_one_look_at_the_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.server.grpc.watches._INTERVAL_S", 0.01)
    current, looks, is_stopping = ServingStatus.NOT_SERVING, 0, False

    def health(service: str) -> ServingStatus:
        nonlocal looks
        looks += 1
        return current if not service else ServingStatus.SERVICE_UNKNOWN

    async def look(at_least: int) -> None:
        until = looks + at_least
        while looks < until:
            await asyncio.sleep(0.005)

    async def watch() -> None:
        nonlocal current, looks, is_stopping
        watches = HealthWatches(health, lambda: is_stopping)
        calls = [WatchingCall() for _ in range(500)]
        unknown = WatchingCall()
        for call in calls:
            watches.add(cast("GrpcCall", call), "")
        watches.add(cast("GrpcCall", unknown), "other")
        looks = 0
        await look(5)
        current = ServingStatus.SERVING
        await look(3)
        assert looks < 100, "one for all of them"
        assert all(call.sent == [ServingStatus.NOT_SERVING, ServingStatus.SERVING] for call in calls)
        assert unknown.sent == [ServingStatus.SERVICE_UNKNOWN]
        left = calls.pop()
        assert left.on_left is not None
        left.on_left()
        is_stopping = True
        while calls[-1].ended is None:
            await asyncio.sleep(0.005)
        assert {call.ended for call in (*calls, unknown)} == {Status.UNAVAILABLE}
        assert left.ended is None

    asyncio.run(watch())


# Memory


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_messages_count_until_they_are_answered(
    start_server: StartServer, workspace: Workspace, compression: str | None
) -> None:
    """Those that wait for their model, too, and as large as they are without their compression."""
    server = start_server(
        workspace=workspace.root, grpc_port=0, max_buffered_bytes=1_500_000, max_queue_ms=600_000
    )
    server.wait_until_ready()
    tensor = wide_input(40_000)  # 400 kB
    options: dict[str, Any] = {"compression_algorithm": compression, "client_timeout": 120}

    def ask(client: Any) -> str:
        try:
            client.infer("wide", [tensor], **options)
        except InferenceServerException as error:
            return str(error.message())
        return "OK"

    with triton.InferenceServerClient(server.grpc_address) as client, ThreadPoolExecutor(16) as threads:
        statuses = Counter(threads.map(ask, [client] * 16))
        refusal = "the messages of calls that are not answered take the 1500000 bytes this server gives them"
        refusal = f"{refusal}: try again in a second"
        # Those that are still on their way have a share of their own, which 16 at once may exceed.
        receiving = "the messages that are being received take all the memory this server gives them"
        assert {"OK", refusal} <= statuses.keys() <= {"OK", refusal, receiving}
        assert statuses["OK"] >= 3
        # Nothing is counted that has ended.
        assert [ask(client) for _ in range(6)] == ["OK"] * 6
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def peak_bytes(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def test_compressed_messages_are_not_all_kept_at_once(
    start_server: StartServer, workspace: Workspace
) -> None:
    """Each is decoded before others are parsed: 20 of 16 MB come as 320 kB."""
    server = start_server(workspace=workspace.root, grpc_port=0, keep_alive_s=600)
    server.wait_until_ready()
    entry: dict[str, Any] = {"name": "id", "datatype": "BYTES", "shape": [4_000_000]}
    plain = ModelInferRequest(model_name="wide", inputs=[entry], raw_input_contents=[bytes(16_000_000)])
    content = zlib.compress(plain.SerializeToString(), wbits=31)
    headers = http2.call_headers(**{"grpc-encoding": "gzip"})
    calls = b"".join(
        http2.frame(http2.HEADERS, http2.fields(headers), flags=http2.END_HEADERS, stream=stream)
        + http2.frame(
            http2.DATA,
            struct.pack(">BI", 1, len(content)) + content,
            flags=http2.END_STREAM,
            stream=stream,
        )
        for stream in range(1, 41, 2)
    )
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # forgets the peak
    before = peak_bytes(server)
    with closing(connect(server, calls)) as connection:
        connection.settimeout(60)
        received = b""
        while sum(each.kind == http2.HEADERS for each in http2.frames_of(received)) < 20:
            data = connection.recv(65536)
            assert data
            received += data
    at_once = min(os.cpu_count() or 1, 20)
    assert peak_bytes(server) - before < (at_once * 36 + 60) << 20


# Messages of management


def test_messages_that_name_a_model_or_a_setting_are_small(
    start_server: StartServer, workspace: Workspace
) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0, token=TOKEN)
    server.wait_until_ready()
    settings = {f"setting {number}": {"bool_param": True} for number in range(5000)}
    large = LogSettingsRequest(settings=cast("Any", settings)).SerializeToString()
    metadata = tuple(bearer(TOKEN).items())
    log_settings = "/inference.GRPCInferenceService/LogSettings"
    cases: list[tuple[str, bytes, Any, Any]] = [
        (CHECK, HealthCheckRequest(service="x" * 20_000).SerializeToString(), None, None),
        (WATCH, HealthCheckRequest(service="x" * 20_000).SerializeToString(), None, None),
        (log_settings, large, metadata, None),
        (log_settings, large, metadata, grpc.Compression.Gzip),
    ]
    with grpc.insecure_channel(server.grpc_address) as channel:
        for path, message, sent_metadata, compression in cases:
            with pytest.raises(grpc.RpcError, match=f"at most {MOST_SMALL_BYTES} bytes") as caught:
                channel.unary_unary(path)(
                    message, metadata=sent_metadata, compression=compression, timeout=20
                )
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        request = ModelMetadataRequest(name="x" * 15_000).SerializeToString()
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")(
                request, metadata=metadata, timeout=20
            )
        assert caught.value.code() in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT}
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


# Streams


def test_a_stream_ends_with_its_token(
    start_server: StartServer, workspace: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.toml"
    tokens = write_tokens(file, one=(Scope.INFER,), other=(Scope.INFER,), reader=(Scope.READ,))
    server = start_server(workspace=workspace.root, grpc_port=0, token_file=file)
    server.wait_until_ready()
    received: queue.Queue[tuple[Any, Any]] = queue.Queue()
    tensor = triton.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(
            lambda result, error: received.put((result, error)), headers=bearer(tokens["one"])
        )
        client.async_stream_infer("companion", [tensor])
        assert received.get(timeout=20)[1] is None
        write_tokens(file, other=(Scope.INFER,))
        options = {"headers": bearer(tokens["one"])}
        wait_until(lambda: "the token" in answer_to(client, tensor, **options), what="the tokens")
        client.async_stream_infer("companion", [tensor])
        result, error = received.get(timeout=20)
        assert result is None
        assert error.status() == "StatusCode.UNAUTHENTICATED"
        assert "expected the token of this server" in error.message()
        client.stop_stream()
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def test_requests_of_a_stream_that_wait_count(start_server: StartServer, workspace: Workspace) -> None:
    """Its own wait for each other; those of the client's other connections are refused."""
    server = start_server(workspace=workspace.root, grpc_port=0, max_client_pending=1, max_queue_ms=600_000)
    server.wait_until_ready()
    received: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with (
        triton.InferenceServerClient(server.grpc_address) as client,
        triton.InferenceServerClient(server.grpc_address) as other,
    ):
        client.start_stream(lambda result, error: received.put((result, error)))
        for number in range(12):
            client.async_stream_infer("wide", [wide_input(20_000)], request_id=str(number))
        small = triton.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
        others: Counter[str] = Counter()
        while received.qsize() < 12:
            others[answer_to(other, small)] += 1
        assert others.keys() <= {"", "expected at most 1 requests of one client that wait, received more"}
        assert others.total() > others[""]
        answers = [received.get() for _ in range(12)]
        assert [error for _, error in answers if error is not None] == []
        assert [result.get_response().id for result, _ in answers] == [str(number) for number in range(12)]
        other.infer("companion", [small])  # nothing is counted that has ended
        for _ in range(3):  # neither of those that were left
            client.async_stream_infer("wide", [wide_input(20_000)])
        client.stop_stream(cancel_requests=True)
        wait_until(lambda: not answer_to(other, small), what="the requests that were left")
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def answer_to(client: Any, tensor: Any, **options: Any) -> str:
    """The message of the error, if there is one."""
    try:
        client.infer("companion", [tensor], **options)
    except InferenceServerException as error:
        return str(error.message())
    return ""
