"""Workers, and then their parent, are killed under load, while models are promoted and loaded."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.server.sample_models import (
    PACKAGES,
    add_model,
    build_workspace,
    expected_embeddings,
    write_encoder,
)
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_workers import BEARER, is_refused, runs, wait_until_all_ready, workers_of

BODY = json.dumps(
    {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(PACKAGES)], "data": PACKAGES}]}
)


class Asker(threading.Thread):
    """Sends requests, each on a connection of its own, and compares the answers with both versions."""

    def __init__(self, server: ServerProcess, outcomes: Counter[str], stop: threading.Event) -> None:
        super().__init__()
        self._server, self._outcomes, self._stop_asking = server, outcomes, stop
        self._expected = expected_embeddings(PACKAGES).ravel()

    def run(self) -> None:
        """Ask until the end."""
        while not self._stop_asking.is_set():
            self._outcomes[self._ask()] += 1

    def _ask(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=60)
        with closing(connection):
            try:
                connection.request("POST", "/v2/models/companion/infer", BODY, BEARER)
                answer = connection.getresponse()
                text = answer.read()
            except ConnectionRefusedError:
                return "refused"
            except (ConnectionError, http.client.HTTPException):
                return "lost"
            except TimeoutError:
                return "hung"
        if answer.status != 200:
            return f"status {answer.status}"
        found = json.loads(text)
        sign = 1 if found["model_version"] == "1" else -1
        rows = np.array(found["outputs"][0]["data"])
        return "right" if np.allclose(rows, sign * self._expected, rtol=1e-5) else "wrong"


@pytest.mark.parametrize(
    "kills", [2, pytest.param(100, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]
)
def test_kills_under_load(start_server: StartServer, tmp_path: Path, kills: int) -> None:
    """No answer is wrong, none is missing for long, no connection is refused, and no process is left."""
    workspace = build_workspace(tmp_path / "debian")
    version = add_model(workspace, "companion", write_encoder, scale=-1.0, activate=False)
    server = start_server(workspace=workspace.root, workers=2, token=TOKEN, max_queue_ms=60_000)
    wait_until_all_ready(server)
    source, seen = random.Random(kills), set(workers_of(server))
    outcomes: Counter[str] = Counter()
    stop = threading.Event()
    askers = [Asker(server, outcomes, stop) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        for number in range(kills):
            workspace.promote_model("companion", version if number % 2 == 0 else 1)
            with suppress(httpx.TransportError):  # the worker that answers may be the one that is killed
                httpx.post(f"{server.base}/v2/repository/models/section/load", headers=BEARER, timeout=60)
            time.sleep(source.random())
            os.kill(source.choice(workers_of(server)), signal.SIGKILL)
            answered = outcomes["right"]
            wait_until(lambda: outcomes["right"] > answered + 5, 60, "answers after a kill")  # noqa: B023
            wait_until(lambda: len(workers_of(server)) == 2, 60, "the next worker")
            seen |= set(workers_of(server))
            wait_until_all_ready(server)
    finally:
        stop.set()
        for asker in askers:
            asker.join(90)
    assert outcomes.keys() <= {"right", "lost"}, outcomes
    # Of each kill, what that worker was just answering or had accepted.
    assert outcomes["lost"] <= 3 * len(askers) * kills
    seen |= set(workers_of(server))
    server.process.kill()
    wait_until(lambda: not any(map(runs, seen)), 60, "the workers to end")
    wait_until(lambda: is_refused(server), what="the port to be free")
    assert "Traceback" not in server.log.read_text()
