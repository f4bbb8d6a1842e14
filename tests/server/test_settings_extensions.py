"""Log and trace settings by the clients of Triton: they have an effect in every worker, or are refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from graphbox.workspace import Workspace
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until

BEARER = {"authorization": f"Bearer {TOKEN}"}
TRANSPORTS = ["http", "grpc"]
UNSUPPORTED = {"501", "StatusCode.UNIMPLEMENTED"}
INVALID = {"400", "StatusCode.INVALID_ARGUMENT"}


@dataclass
class Command:
    """A server that the command line started, with its log."""

    http_address: str
    grpc_address: str
    log: Path

    def client(self, transport: str) -> Any:
        """Return a client with connections of its own, which any worker may answer."""
        module = triton_http if transport == "http" else triton_grpc
        return module.InferenceServerClient(self.http_address if transport == "http" else self.grpc_address)

    def lines(self, logger: str) -> list[str]:
        """Return the messages of a logger."""
        marker = f" {logger}: "
        return [line.partition(marker)[2] for line in self.log.read_text().splitlines() if marker in line]


@pytest.fixture(scope="module")
def server(shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A server of two workers, which logs warnings."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    command = [sys.executable, "-m", "graphbox", "-C", str(shared_workspace.root), "--json", "serve"]
    command += ["--port", "0", "--grpc-port", "0", "--workers", "2"]
    environment = {**os.environ, "GRAPHBOX_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        addresses = json.loads(line)
        address = addresses["url"].removeprefix("http://").rstrip("/")
        yield Command(address, addresses["grpc"], log)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
    assert "Traceback" not in log.read_text()


def infer(server: Command, transport: str, model: str = "companion", request_id: str = "") -> None:
    with server.client(transport) as client:
        module = triton_http if transport == "http" else triton_grpc
        tensor = module.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
        client.infer(model, [tensor], headers=dict(BEARER), request_id=request_id)


def log_settings(found: Any, transport: str) -> dict[str, Any]:
    """Return settings of either client as values."""
    if transport == "http":
        return dict(found)
    return {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in found.settings.items()}


def trace_settings(found: Any, transport: str) -> dict[str, Any]:
    if transport == "http":
        return {name: each if isinstance(each, list) else [each] for name, each in found.items()}
    return {name: [*each.value] for name, each in found.settings.items()}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_log_levels_have_an_effect_in_every_worker(server: Command, transport: str) -> None:
    access = "graphbox.server.access"

    def none_logs() -> bool:
        before = len(server.lines(access))
        for _ in range(8):
            infer(server, transport)
        return len(server.lines(access)) == before

    with server.client(transport) as client:
        assert log_settings(client.get_log_settings(headers=dict(BEARER)), transport) == {
            "log_file": "",
            "log_info": False,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": "default",
        }
        wait_until(none_logs, 20, "no worker to log requests")
        before = len(server.log.read_text().splitlines())
        changed = client.update_log_settings({"log_info": True}, headers=dict(BEARER))
        assert log_settings(changed, transport)["log_info"] is True

    def both_log() -> bool:
        infer(server, transport)
        lines = [line for line in server.log.read_text().splitlines()[before:] if access in line]
        return all(any(f"worker {number}:" in line for line in lines) for number in (0, 1))

    wait_until(both_log, 20, "both workers to log requests")
    with server.client(transport) as client:
        assert log_settings(client.get_log_settings(headers=dict(BEARER)), transport)["log_info"] is True
        client.update_log_settings({"log_info": False}, headers=dict(BEARER))

    wait_until(none_logs, 20, "no worker to log requests")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_traces_are_as_many_as_asked_for(server: Command, transport: str) -> None:
    """Of all workers together; the rate and the count hold, and settings of a model win."""
    traces = "graphbox.server.trace"
    before = len(server.lines(traces))
    with server.client(transport) as client:
        changed = client.update_trace_settings(
            "companion",
            {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "5"},
            headers=dict(BEARER),
        )
        assert trace_settings(changed, transport)["trace_rate"] == ["2"]
        others = trace_settings(client.get_trace_settings("section", headers=dict(BEARER)), transport)
        assert others["trace_level"] == ["OFF"]

    def count_is_used_up() -> bool:
        infer(server, transport, request_id="a-request")
        infer(server, transport, model="section")
        with server.client(transport) as client:
            found = trace_settings(client.get_trace_settings("companion", headers=dict(BEARER)), transport)
        return bool(found["trace_count"] == ["0"])

    wait_until(count_is_used_up, 30, "all traces to be taken")
    for _ in range(10):
        infer(server, transport)
    lines = server.lines(traces)[before:]
    assert len(lines) == 5
    for line in lines:
        trace = json.loads(line[line.index("{") :])
        assert (trace["model_name"], trace["model_version"]) == ("companion", "1")
        assert trace["request_id"] == "a-request"
        names = [each["name"] for each in trace["timestamps"]]
        assert names == ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"]
        times = [each["ns"] for each in trace["timestamps"]]
        assert times == sorted(times)
    with server.client(transport) as client:
        cleared = client.update_trace_settings(
            "companion",
            dict.fromkeys(("trace_level", "trace_rate", "trace_count")),
            headers=dict(BEARER),
        )
        assert trace_settings(cleared, transport) == trace_settings(
            client.get_trace_settings(headers=dict(BEARER)), transport
        )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_settings_that_are_refused(server: Command, transport: str) -> None:
    """A setting that is refused leaves those beside it, too."""
    with server.client(transport) as client:
        logs = log_settings(client.get_log_settings(headers=dict(BEARER)), transport)
        traces = trace_settings(client.get_trace_settings(headers=dict(BEARER)), transport)
        refused_logs: list[tuple[dict[str, Any], set[str]]] = [
            ({"log_file": "/tmp/x"}, UNSUPPORTED),  # noqa: S108 - refused
            ({"log_format": "ISO8601"}, UNSUPPORTED),
            ({"log_verbose_level": 256}, INVALID),
            ({"log_infos": True}, INVALID),
        ]
        if transport == "http":  # the client of gRPC makes it true
            refused_logs.append(({"log_info": 1}, INVALID))
        for setting, statuses in refused_logs:
            with pytest.raises(InferenceServerException) as caught:
                client.update_log_settings({"log_warning": False, **setting}, headers=dict(BEARER))
            assert str(caught.value.status()) in statuses, setting
        for trace, statuses in (
            ({"trace_file": "/tmp/x"}, UNSUPPORTED),  # noqa: S108 - refused
            ({"trace_mode": "opentelemetry"}, UNSUPPORTED),
            ({"trace_level": ["TENSORS"]}, INVALID),
            ({"trace_level": ["OFF", "TIMESTAMPS"]}, INVALID),
            ({"trace_rate": "0"}, INVALID),
            ({"trace_rate": "-1"}, INVALID),
            ({"trace_rate": "x"}, INVALID),
            ({"trace_count": "-2"}, INVALID),
            ({"trace_count": "9" * 40}, INVALID),
            ({"trace_rates": "1"}, INVALID),
        ):
            with pytest.raises(InferenceServerException) as caught:
                client.update_trace_settings(settings={"trace_count": "7", **trace}, headers=dict(BEARER))
            assert str(caught.value.status()) in statuses, trace
        with pytest.raises(InferenceServerException, match="there is no model") as caught:
            client.update_trace_settings("absent", {"trace_rate": "1"}, headers=dict(BEARER))
        assert log_settings(client.get_log_settings(headers=dict(BEARER)), transport) == logs
        assert trace_settings(client.get_trace_settings(headers=dict(BEARER)), transport) == traces


def test_asyncio_clients(server: Command) -> None:
    async def ask(module: Any, address: str) -> None:
        async with module.InferenceServerClient(address) as client:
            assert await client.get_log_settings(headers=dict(BEARER)) is not None
            assert await client.update_trace_settings("section", {"trace_rate": "9"}, headers=dict(BEARER))
            found = await client.get_trace_settings("section", headers=dict(BEARER))
            assert "9" in str(found)
            await client.update_trace_settings("section", {"trace_rate": None}, headers=dict(BEARER))

    asyncio.run(ask(triton_http_aio, server.http_address))
    asyncio.run(ask(triton_grpc_aio, server.grpc_address))


@pytest.fixture
def open_server(start_server: StartServer, shared_workspace: Workspace) -> ServerProcess:
    """A server without a token."""
    running = start_server(workspace=shared_workspace.root, grpc_port=0)
    running.wait_until_ready()
    return running


def test_changes_need_a_token(open_server: ServerProcess) -> None:
    for module, address in (
        (triton_http, open_server.address),
        (triton_grpc, open_server.grpc_address),
    ):
        with module.InferenceServerClient(address) as client:
            assert client.get_log_settings() is not None
            assert client.get_trace_settings() is not None
            for change, settings in (
                (client.update_log_settings, {"log_info": True}),
                (client.update_trace_settings, {"trace_rate": "1"}),
            ):
                with pytest.raises(InferenceServerException, match="without a token") as caught:
                    change(settings=settings)
                assert str(caught.value.status()) in {"403", "StatusCode.PERMISSION_DENIED"}
