"""Malformed requests: each is answered by the right status and a message that says what is wrong."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import numpy as np
import pytest

from tests.server.bad_request_cases import CASES, GOLDEN, Case
from tests.server.sample_models import DIM
from tests.server.server_process import TOKEN, ServerProcess, start_process


@pytest.fixture(scope="module")
def guarded(shared_workspace: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a token, so that the routes which need one can be tried too."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    settings = {"port": 0, "workspace": shared_workspace.root, "token": TOKEN, "max_rows": 100}
    server = start_process(settings, log)
    server.wait_until_ready()
    yield server
    assert server.stop() == 0
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "Traceback" not in log.read_text()


def ask(server: ServerProcess, case: Case) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        body = case.content() if case.method != "GET" else None
        headers = {"Authorization": f"Bearer {TOKEN}", **case.headers}
        connection.request(case.method, case.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_request(guarded: ServerProcess, case: Case) -> None:
    status, body = ask(guarded, case)
    assert status == case.status, body
    if status != 200:
        error = json.loads(body)
        assert set(error) == {"error"}
        assert case.says in error["error"]
        assert len(error["error"]) < 600


def test_every_measured_input_has_a_case() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert set(GOLDEN.values()) <= set(names)
    assert len(GOLDEN) == 71


def test_server_answers_after_all_of_it(guarded: ServerProcess) -> None:
    status, body = ask(guarded, Case("ok", 200))
    assert status == 200
    embedding = np.array(json.loads(body)["outputs"][0]["data"]).reshape(2, DIM)
    rows = (np.arange(5 * DIM, dtype=np.float32) / 8).reshape(5, DIM)
    np.testing.assert_allclose(embedding[0], rows[1] + (rows[1] + rows[2]) / 2, rtol=1e-6)
    assert ask(guarded, Case("ready", 200, method="GET", path="/v2/health/ready"))[0] == 200


def test_bombs(guarded: ServerProcess) -> None:
    """A few kilobytes that decompress to gigabytes are refused without being decompressed."""
    zeros = b"\0" * (1 << 20)
    for encoding, flavour in (("gzip", 31), ("deflate", 15)):
        stream = zlib.compressobj(9, zlib.DEFLATED, flavour)
        bomb = b"".join(stream.compress(zeros) for _ in range(1024)) + stream.flush()
        assert len(bomb) < 2 << 20
        case = Case("bomb", 413, body=bomb, headers={"Content-Encoding": encoding})
        status, body = ask(guarded, case)
        assert status == 413, body
        assert b"once decompressed" in body
