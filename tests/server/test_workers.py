"""Servers with several worker processes: killed workers and parents, sums of counters, unloading, the end."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from graphbox.server.binding import bind_listeners
from graphbox.server.counters import create_counter_file
from graphbox.server.settings import Settings
from graphbox.server.shared_document import create_document_file
from graphbox.server.supervisor import Supervisor
from graphbox.server.worker_task import WorkerTask
from graphbox.workspace import Workspace
from tests.server.sample_models import add_model, build_workspace, write_encoder
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_process import damage, infer, pending_bytes, run_to_end

BODY = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}
BEARER = {"authorization": f"Bearer {TOKEN}"}


def workers_of(server: ServerProcess) -> list[int]:
    """Return the process ids of the workers."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def wait_until_all_ready(server: ServerProcess) -> None:
    """Wait until every worker is ready: connections are divided by their ports, so many are tried."""

    def are_ready() -> bool:
        return all(request_status(server, "/healthz/ready", "GET") == 200 for _ in range(20))

    wait_until(are_ready, what="all workers to be ready", timeout_s=30)


def request_status(
    server: ServerProcess,
    path: str = "/v2/models/companion/infer",
    method: str = "POST",
    **headers: str,
) -> int:
    """Return the status of a request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with closing(connection):
        connection.request(method, path, json.dumps(BODY) if method == "POST" else None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def metric(server: ServerProcess, name: str, **labels: str) -> float:
    """Return the sum of the samples of a metric with these labels."""
    text = httpx.get(f"{server.base}/metrics", headers=BEARER).text
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(each in line for each in wanted))


def runs(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Clients:
    """Threads that send requests, each on a new connection, until the block ends."""

    def __init__(self, server: ServerProcess, threads: int = 4) -> None:
        self.outcomes: Counter[str] = Counter()
        self._server = server
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _send(self) -> None:
        while not self._stop.is_set():
            try:
                outcome = str(request_status(self._server))
            except ConnectionRefusedError:
                outcome = "refused"
            except (OSError, http.client.HTTPException):
                outcome = "lost"
            with self._lock:
                self.outcomes[outcome] += 1


def test_killed_worker_is_replaced_without_refused_connections_or_lost_counts(
    start_server: StartServer, shared_workspace: Workspace
) -> None:
    server = start_server(workspace=shared_workspace.root, workers=2)
    wait_until_all_ready(server)
    before = workers_of(server)
    assert len(before) == 2
    assert [each.pid for each in shared_workspace.running_servers()] == [server.process.pid]
    clients = Clients(server)
    with clients:
        wait_until(lambda: clients.outcomes["200"] > 100, what="answers")
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(workers_of(server)) - set(before)) == 1, what="the next worker")
        wait_until_all_ready(server)
        since = clients.outcomes["200"]
        wait_until(lambda: clients.outcomes["200"] > since + 100, what="answers of both")
    outcomes = clients.outcomes
    assert outcomes.keys() <= {"200", "lost"}, "no connection is refused"
    assert outcomes["lost"] <= 4, "one request of each client at most was being answered"
    counted = metric(server, "nv_inference_request_success", model="companion")
    assert outcomes["200"] <= counted <= outcomes["200"] + outcomes["lost"]
    assert metric(server, "graphbox_workers") == 2
    assert metric(server, "graphbox_http_requests_total", route="/v2/models/{model}/infer") in (
        counted,
        counted - 1,  # killed between the two
    )
    with server.client() as client:
        (statistics,) = client.get("/v2/models/companion/stats").json()["model_stats"]
    assert statistics["inference_stats"]["success"]["count"] == counted
    assert f"(process {before[0]}) ended by signal SIGKILL, and is started again" in server.log.read_text()
    assert server.stop() == 0
    assert shared_workspace.running_servers() == []


def test_workers_end_when_their_parent_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    """Models from folders: the file of their requests, too, is removed."""
    workspace = build_workspace(tmp_path / "debian")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(temporary))
        server = start_server(models=[workspace.root / "models"], workers=2)
    wait_until_all_ready(server)
    workers = workers_of(server)
    assert list(temporary.glob("graphbox-server-*/state.db"))
    server.process.kill()
    wait_until(lambda: not any(map(runs, workers)), what="the workers to end")
    assert list(temporary.glob("graphbox-server-*")) == []
    with closing(socket.create_server(("127.0.0.1", server.port))):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_are_finished(
    start_server: StartServer, shared_workspace: Workspace, number: signal.Signals
) -> None:
    server = start_server(workspace=shared_workspace.root, workers=2)
    wait_until_all_ready(server)
    workers = workers_of(server)
    body = json.dumps(BODY).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = f"POST /v2/models/companion/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:10])
        wait_until(lambda: pending_bytes(connection) == 0, what="the request to be sent")
        time.sleep(0.2)  # until the worker has read the headers; one that has not may refuse it
        server.process.send_signal(number)
        wait_until(lambda: is_refused(server), what="the server to stop accepting")
        connection.sendall(body[10:])
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert server.process.wait(20) == 0
    assert not any(map(runs, workers))
    assert "Traceback" not in server.log.read_text()


def is_refused(server: ServerProcess) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_second_interrupt_drops_requests(start_server: StartServer, shared_workspace: Workspace) -> None:
    server = start_server(workspace=shared_workspace.root, workers=2, drain_timeout_s=60)
    wait_until_all_ready(server)
    workers = workers_of(server)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            b"POST /v2/models/companion/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        )
        wait_until(lambda: pending_bytes(connection) == 0, what="the request to be sent")
        time.sleep(0.2)
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: is_refused(server), what="the server to stop accepting")
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) != 0
    assert not any(map(runs, workers))


def models_folder(workspace: Workspace) -> dict[str, Any]:
    return {"models": [workspace.root / "models"]}


def whole_workspace(workspace: Workspace) -> dict[str, Any]:
    return {"workspace": workspace.root}


@pytest.mark.parametrize("source", [whole_workspace, models_folder])
@pytest.mark.parametrize("follow", [True, False])
def test_unloading_and_loading_reaches_all_workers_within_a_second(
    start_server: StartServer, tmp_path: Path, source: Callable[[Workspace], dict[str, Any]], follow: bool
) -> None:
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workers=3, token=TOKEN, follow=follow, **source(workspace))
    wait_until_all_ready(server)
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in workers_of(server)]
    assert len(commands) == 3
    assert not any(TOKEN in command for command in commands)

    def statuses(count: int) -> set[int]:
        return {request_status(server, **BEARER) for _ in range(count)}

    assert statuses(30) == {200}
    for verb, before, after in (("unload", 200, 503), ("load", 503, 200)):
        with server.client(headers=BEARER) as client:
            assert client.post(f"/v2/repository/models/companion/{verb}").status_code == 200
            answered = time.monotonic()
            assert client.post("/v2/models/companion/infer", json=BODY).status_code == after, "at once"
        while before in statuses(30):
            assert time.monotonic() - answered < 1.5, "with time for the requests that look"
        assert statuses(30) == {after}
    server.process.send_signal(signal.SIGHUP)
    assert statuses(30) == {200}
    assert server.stop() == 0


def test_unloaded_models_stay_unloaded_in_a_workspace(start_server: StartServer, tmp_path: Path) -> None:
    """For a worker that is started again, and for the next server, until the model is loaded or removed."""
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workspace=workspace.root, workers=2, token=TOKEN)
    wait_until_all_ready(server)
    with server.client(headers=BEARER) as client:
        assert client.post("/v2/repository/models/companion/unload").status_code == 200
    os.kill(workers_of(server)[0], signal.SIGKILL)
    wait_until_all_ready(server)
    available = [
        httpx.get(f"{server.base}/healthz/ready", headers=BEARER).json()["available"] for _ in range(20)
    ]
    assert available == [["numbers", "section"]] * 20
    assert server.stop() == 0
    server = start_server(workspace=workspace.root)
    server.wait_until_ready()
    assert httpx.get(f"{server.base}/healthz/ready").json()["available"] == ["numbers", "section"]
    workspace.remove_model("companion")
    add_model(workspace, "companion", write_encoder)
    wait_until(lambda: httpx.get(f"{server.base}/v2/models/companion").status_code == 200, what="the model")
    infer(server, ["zsh"])


def test_worker_that_cannot_start_again(start_server: StartServer, tmp_path: Path) -> None:
    """It is tried again while another worker serves; else the server ends with its error."""
    workspace = build_workspace(tmp_path / "debian")
    models, aside = workspace.root / "models", tmp_path / "aside"
    server = start_server(models=[models], workers=2)
    wait_until_all_ready(server)
    models.rename(aside)
    os.kill(workers_of(server)[0], signal.SIGKILL)
    wait_until(lambda: "is started again: " in server.log.read_text(), what="the failed start")
    aside.rename(models)
    wait_until(lambda: metric(server, "graphbox_workers") == 2, what="the next worker")
    wait_until_all_ready(server)
    models.rename(aside)
    for pid in workers_of(server):
        os.kill(pid, signal.SIGKILL)
    assert server.process.wait(20) == 2
    assert server.log.read_text().splitlines()[-1].endswith("expected a folder of models, found none")


def test_reload_reaches_all_workers(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    restore = damage(workspace, 1)
    server = start_server(workspace=workspace.root, workers=2)
    wait_until(lambda: server.log.read_text().count("cannot be opened") == 2, what="both workers to try")
    restore()
    server.process.send_signal(signal.SIGHUP)
    wait_until_all_ready(server)


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"workspace": "absent"}, 2, "absent"),
        ({"models": ["absent"]}, 2, "absent"),
        ({"host": "192.0.2.1", "token": TOKEN}, 2, "cannot listen there"),
        ({"target": "absent"}, 2, "absent"),
        ({"workers": 0}, 2, "expected at least 1, received 0"),
        ({"workers": 20_000}, 2, "on this machine, received 20000"),
    ],
)
def test_refusals_to_start_are_those_of_one_process(
    settings: dict[str, Any], code: int, message: str, tmp_path: Path
) -> None:
    for name in ("workspace", "models"):
        if name in settings:
            settings = {name: tmp_path / "absent" if name == "workspace" else [tmp_path / "absent"]}
    ended = run_to_end(**{"workers": 2, **settings})
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (ended.stdout, list(tmp_path.iterdir())) == ("", [])
    if "workers" not in settings:
        assert run_to_end(**settings).stderr == ended.stderr


def test_port_in_use(start_server: StartServer, shared_workspace: Workspace) -> None:
    """By a server with several workers, whose port another one must not share."""
    server = start_server(workspace=shared_workspace.root, workers=2)
    for workers in (1, 2):
        ended = run_to_end(workspace=shared_workspace.root, port=server.port, workers=workers)
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"127.0.0.1:{server.port}: port {server.port} is in use by another")


def test_the_parent_is_small(start_server: StartServer, shared_workspace: Workspace) -> None:
    server = start_server(workspace=shared_workspace.root, workers=2)
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (resident,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 35 * 1024


def test_a_worker_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system has no memory for another process, those that run are not ended."""
    settings = Settings(port=0, workers=2, models=(tmp_path,))
    listeners = bind_listeners(settings)
    counters = tuple(create_counter_file() for _ in listeners)
    document = create_document_file()
    tasks = [
        WorkerTask(settings, position, each.descriptors(), counters, None, None, document)
        for position, each in enumerate(listeners)
    ]
    supervisor = Supervisor(tasks, listeners, lambda: None, lambda _: None, 1.0)
    worker = supervisor._workers[0]
    open_before = len(list(Path("/proc/self/fd").iterdir()))

    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    try:
        for _ in range(3):
            supervisor._restart(worker)
        assert worker.reports is None
        assert worker.restart_at is not None
        assert worker.restart_at > time.monotonic()
        assert caplog.text.count("cannot be started, and is tried again") == 3
        assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    finally:
        supervisor._selector.close()
        for each in listeners:
            each.close()
        for descriptor in (*counters, document):
            os.close(descriptor)
