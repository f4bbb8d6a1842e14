"""Limits on the requests of one client: rate and burst, requests that wait, and what is remembered."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from graphbox.errors import UsageError
from graphbox.server import client_limits
from graphbox.server.access import Principal, Scope
from graphbox.server.client_limits import ClientLimits
from graphbox.server.problem import RefusedError
from graphbox.server.settings import Settings
from tests.server.sample_models import add_model, build_workspace, write_wide_encoder
from tests.server.server_process import StartServer
from tests.server.test_tokens import bearer, write_tokens

READER = Principal("reader", frozenset({Scope.READ}))


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr("graphbox.server.client_limits.time.monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def refusals(
    limits: ClientLimits, count: int, address: str = "10.0.0.1", principal: Principal | None = None
) -> int:
    refused = 0
    for _ in range(count):
        try:
            limits.take(principal, address)
        except RefusedError as refusal:
            refused += refusal.status == 429 and int(refusal.headers["retry-after"]) >= 1
    return refused


def test_bucket_against_a_reference(clock: Clock) -> None:
    generator = np.random.default_rng(3)
    limits = ClientLimits(rate=7.0, burst=4, pending=None)
    level, at_s = 4.0, clock.now_s
    for _ in range(2000):
        clock.now_s += float(generator.exponential(0.1))
        level, at_s = min(4.0, level + (clock.now_s - at_s) * 7.0), clock.now_s
        expected = level < 1.0
        level -= not expected
        assert refusals(limits, 1) == expected


def test_clients_have_buckets_of_their_own(clock: Clock) -> None:
    limits = ClientLimits(rate=1.0, burst=2, pending=None)
    assert refusals(limits, 5) == 3
    assert refusals(limits, 5, "10.0.0.2") == 3
    assert refusals(limits, 5, "10.0.0.2", READER) == 3, "a token is another client than its address"
    assert refusals(limits, 1, "10.0.0.3", READER) == 1, "a token has one bucket, wherever it comes from"
    clock.now_s += 1.0
    assert refusals(limits, 2) == 1


def test_retry_after_says_when(clock: Clock) -> None:
    limits = ClientLimits(rate=0.1, burst=1, pending=None)
    limits.take(None, "a")
    clock.now_s += 4.0
    with pytest.raises(RefusedError, match=r"at most 0\.1 requests per second") as caught:
        limits.take(None, "a")
    assert caught.value.headers["retry-after"] == "6"
    clock.now_s += 6.0
    limits.take(None, "a")


def test_waiting_requests() -> None:
    limits = ClientLimits(rate=None, burst=1, pending=2)
    states = [limits.take(None, "a") for _ in range(3)]
    limits.begin(states[0])
    limits.begin(states[1])
    with pytest.raises(RefusedError, match="at most 2 requests of one client that wait"):
        limits.begin(states[2])
    limits.begin(limits.take(None, "b"))
    limits.end(states[0])
    limits.begin(states[2])


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "MOST_CLIENTS", 100)
    limits = ClientLimits(rate=1.0, burst=1, pending=5)
    waiting = limits.take(None, "waits")
    limits.begin(waiting)
    for number in range(5000):
        limits.take(None, f"client {number}")
    assert len(limits._clients) <= 101
    assert limits._clients["waits"] is waiting


@pytest.mark.parametrize(
    "settings", [{"max_client_rate": 0}, {"max_client_rate": float("nan")}, {"max_client_pending": 0}]
)
def test_wrong_limits(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected at least"):
        Settings(**settings).check()


def test_none_by_default() -> None:
    assert ClientLimits.of(Settings()) is None


def test_rate_over_rest_and_grpc(start_server: StartServer, tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml", one=tuple(Scope), other=tuple(Scope))
    (tmp_path / "models").mkdir()
    server = start_server(
        models=[tmp_path / "models"],
        grpc_port=0,
        token_file=tmp_path / "tokens.toml",
        max_client_rate=0.01,
        max_client_burst=3,
    )
    with server.client(headers=bearer(tokens["one"])) as client:
        answers = [client.get("/v2") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert int(answers[-1].headers["retry-after"]) > 1
        assert "requests per second" in answers[-1].json()["error"]
        problem = client.get("/api/v1/overview")
        assert problem.status_code == 429
        assert problem.json()["code"] == "too_many_requests"
        for _ in range(10):
            assert client.get("/healthz/live").status_code == 200
    with triton.InferenceServerClient(server.grpc_address) as grpc_client:
        with pytest.raises(InferenceServerException) as caught:
            grpc_client.get_server_metadata(headers=bearer(tokens["one"]))
        assert "RESOURCE_EXHAUSTED" in str(caught.value.status())
        other = bearer(tokens["other"])
        for _ in range(3):
            grpc_client.get_server_metadata(headers=other)
        with pytest.raises(InferenceServerException, match="requests per second"):
            grpc_client.get_server_metadata(headers=other)
        for _ in range(10):
            assert grpc_client.is_server_live()
    assert "Traceback" not in server.log.read_text()


def test_requests_of_a_stream_count(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    server = start_server(models=[tmp_path / "models"], grpc_port=0, max_client_rate=0.01, max_client_burst=3)
    messages: list[str] = []
    done = threading.Event()

    def received(result: Any, error: Any) -> None:
        assert result is None
        messages.append(str(error))
        if len(messages) == 4:
            done.set()

    tensor = triton.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(received)  # the first of the three
        for _ in range(4):
            client.async_stream_infer("absent", [tensor])
        assert done.wait(30)
        client.stop_stream()
    assert ["requests per second" in message for message in messages] == [False, False, True, True]


def test_waiting_requests_of_a_server(start_server: StartServer, tmp_path: Path) -> None:
    workspace = build_workspace(tmp_path / "debian")
    add_model(workspace, "wide", write_wide_encoder)
    server = start_server(workspace=workspace.root, max_client_pending=2, max_queue_ms=30_000)
    server.wait_until_ready()
    ids = [f"p{number}" for number in np.random.default_rng(5).integers(0, 20_000, 30_000)]
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]}

    def ask(_number: int) -> int:
        return httpx.post(f"{server.base}/v2/models/wide/infer", json=body, timeout=60).status_code

    with ThreadPoolExecutor(12) as threads:
        statuses = Counter(threads.map(ask, range(24)))
    assert set(statuses) == {200, 429}
    assert ask(0) == 200, "nothing is counted that has ended"
    # Clients that leave amid their requests are counted no more.
    for _ in range(6):
        with httpx.Client(timeout=0.02) as client, pytest.raises(httpx.TimeoutException):
            client.post(f"{server.base}/v2/models/wide/infer", json=body)
    deadline = time.monotonic() + 20
    while ask(0) != 200:
        assert time.monotonic() < deadline
    assert grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] == 8
