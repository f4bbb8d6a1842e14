"""The log of a server: lines of JSON, and what the line of a request has."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton

from graphbox.server.logs import JsonFormatter
from graphbox.server.worker_task import LogFormat
from tests.server.sample_models import write_encoder
from tests.server.server_process import TOKEN

FIELDS = {
    *("time", "level", "logger", "message", "request_id", "method", "path", "route", "status", "model"),
    *("version", "bytes", "duration_ms", "client"),
}


def record(message: str, *arguments: Any, **values: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "graphbox.server", logging.ERROR, "", 0, message, arguments, values.pop("exc", None)
    )
    made.__dict__.update(values)
    return made


def test_line_of_a_record() -> None:
    line = json.loads(JsonFormatter(3).format(record("two %s", "words", fields={"status": 7})))
    assert {key: line[key] for key in ("level", "logger", "message", "worker", "status")} == {
        "level": "error",
        "logger": "graphbox.server",
        "message": "two words",
        "worker": 3,
        "status": 7,
    }
    assert line["time"].endswith("+00:00")


def test_traceback_is_one_field() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        text = JsonFormatter().format(record("failed", exc=sys.exc_info()))
    assert "\n" not in text
    assert "ValueError: first\nsecond" in json.loads(text)["traceback"]


def test_text_that_is_no_unicode() -> None:
    assert json.loads(JsonFormatter().format(record("a \ud800 b")))["message"] == "a \ud800 b"


def test_workers_log_in_the_form_of_their_parent() -> None:
    before = logging.getLogger().handlers[:]
    try:
        LogFormat(logging.INFO, "%(message)s", is_json=True).start(2)
        assert LogFormat.of_this_process() == LogFormat(logging.INFO, "%(message)s", is_json=True)
    finally:
        logging.getLogger().handlers[:] = before


@pytest.mark.parametrize("workers", [1, 2])
def test_lines_of_requests(tmp_path: Path, workers: int) -> None:
    write_encoder(tmp_path / "models" / "companion" / "1")
    options = ["--models", "models", "--port", "0", "--grpc-port", "0", "--workers", str(workers)]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "graphbox",
                "serve",
                *options,
                "--log-format",
                "json",
                "--log-level",
                "info",
                "--json",
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GRAPHBOX_TOKEN": TOKEN},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            addresses = json.loads(process.stdout.readline())
            ids = _ask(addresses["url"].rstrip("/"), addresses["grpc"])
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    requests = {line["request_id"]: line for line in lines if line["logger"] == "graphbox.server.access"}
    assert set(requests) == ids, "probes are at debug"
    assert all(set(line) >= FIELDS for line in requests.values())
    rest, noun, refused, call = (requests[name] for name in ("rest", "noun", "refused", "call"))
    for line in (rest, call):
        assert (line["model"], line["version"], line["client"]) == ("companion", "1", "default")
        assert line["bytes"] > 40
        assert line["duration_ms"] > 0
    assert (rest["method"], rest["route"], rest["status"]) == ("POST", "/v2/models/{model}/infer", 200)
    assert (noun["route"], noun["model"]) == ("/api/v1/models/{name}/ids", "companion")
    assert noun["path"] == "/api/v1/models/companion/ids"
    assert (refused["status"], refused["client"], refused["model"]) == (401, "127.0.0.1", None)
    assert (call["method"], call["status"]) == ("gRPC", "OK")
    assert any("serving" in line["message"] for line in lines)
    assert all("worker" in line for line in requests.values()) is (workers > 1)
    assert TOKEN not in (tmp_path / "log").read_text()


def _ask(base: str, grpc_address: str) -> set[str]:
    """Send requests with ids of their own; return the ids of those that are logged."""
    token = {"authorization": f"Bearer {TOKEN}"}
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}

    def headers(name: str) -> dict[str, str]:
        return {**token, "x-request-id": name}

    with httpx.Client(base_url=base, timeout=30) as client:
        answer = client.post("/v2/models/companion/infer", json=body, headers=headers("rest"))
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == "rest"
        assert client.get("/api/v1/models/companion/ids?prefix=z", headers=headers("noun")).status_code == 200
        assert client.get("/v2", headers={"x-request-id": "refused"}).status_code == 401
        made = client.get("/v2", headers={**token, "x-request-id": "not an id"}).headers["x-request-id"]
        assert " " not in made
        for probe in ("/healthz/live", "/v2/health/ready"):
            client.get(probe, headers={"x-request-id": "probe"})
        client.get("/metrics", headers=headers("probe"))
    tensor = triton.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
    with triton.InferenceServerClient(grpc_address) as grpc_client:
        grpc_client.infer("companion", [tensor], headers=headers("call"))
    return {"rest", "noun", "refused", "call", made}
