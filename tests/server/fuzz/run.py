"""A fuzz run: workers, requests, and what is found."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import numpy as np
import uvloop

from graphbox.server.grpc.inference_messages import ModelInferResponse
from graphbox.server.grpc.status import Status
from graphbox.workspace import Workspace
from tests.deploy.form_models import WRITERS
from tests.server.fuzz.cases import (
    GrpcCase,
    RestCase,
    damaged_grpc_case,
    damaged_rest_case,
    grpc_case,
    rest_case,
)
from tests.server.fuzz.clients import Answer, CaseConnection, GrpcClient, RestClient
from tests.server.sample_models import build_workspace, expected_embeddings
from tests.server.server_process import TOKEN, ServerProcess, start_process, wait_until

__all__ = ["ANSWER_TIMEOUT_S", "Report", "fuzz_server"]

ANSWER_TIMEOUT_S = 30.0
"""After which an answer is missing: the machine may be busy."""

_CONNECTIONS = 12
_MOST_FINDINGS = 30
# Longer than the server waits for the rest of a request.
_PAUSE_S = 3.5
_SPARE_DESCRIPTORS = 4
_SPARE_MB = 48.0
_HTTP_STATUSES = frozenset({200, 307, 400, 401, 403, 404, 405, 408, 413, 415, 421, 422, 431, 501, 503, 504})
_CONTROL_IDS = ["zsh", "nginx"]
_BEARER = {"authorization": f"Bearer {TOKEN}"}
_SETTINGS: dict[str, Any] = {
    "port": 0,
    "grpc_port": 0,
    "workers": 2,
    "token": TOKEN,
    "max_rows": 300,
    "max_queue_ms": 30_000,  # no refusals on a busy machine
    "max_pending": 10_000,
    "header_timeout_s": 3,
    "body_timeout_s": 3,
    "follow": False,
}

AnyCase = TypeVar("AnyCase", RestCase, GrpcCase)


@dataclass
class Report:
    """Outcome of a fuzz run.

    Attributes:
        seed: of the run; with the position of a request it gives the same request again.
        requests: sent ones.
        seconds: duration.
        statuses: number of answers by protocol and status; of framed requests alone.
        findings: texts, the first thirty.
        worker_mb: memory of each worker at intervals: anonymous megabytes.
    """

    seed: int
    requests: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    worker_mb: list[list[float]] = field(default_factory=list)

    def find(self, text: str) -> None:
        """Add a finding."""
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(text)

    def as_json(self) -> str:
        """Return the report as one line."""
        return json.dumps({**self.__dict__, "rate": round(self.requests / max(self.seconds, 1e-9))})


def fuzz_server(
    folder: Path, seed: int, requests: int, progress: Callable[[Report], None] | None = None
) -> Report:
    """Send mutated requests to a server with two workers, over REST and gRPC in turn.

    Args:
        folder: an empty folder, for the workspace and the log.
        seed: of all random choices.
        requests: to send.
        progress: called after each part.

    Returns:
        The report; it has no findings where each request was answered in time by a status that says
        whose fault it is, counters equal what was received, and memory and descriptors stay as they were.
    """
    server = _start(folder)
    try:
        return _fuzz(server, seed, requests, progress)
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


def _start(folder: Path) -> ServerProcess:
    workspace: Workspace = build_workspace(folder / "workspace")
    models = []
    for form, write in WRITERS.items():
        if form.__name__ in {"FieldsForm", "TriplesForm", "TensorsForm"}:
            models.append(folder / form.__name__)
            write(models[-1])
    server = start_process(
        {**_SETTINGS, "workspace": workspace.root, "models": models}, folder / "server.log"
    )
    wait_until(lambda: all(_is_ready(server) for _ in range(20)), 60, "all workers to be ready")
    return server


def _is_ready(server: ServerProcess) -> bool:
    return httpx.get(f"{server.base}/healthz/ready", headers=_BEARER).status_code == 200


def _fuzz(
    server: ServerProcess, seed: int, requests: int, progress: Callable[[Report], None] | None
) -> Report:
    report, started = Report(seed), time.monotonic()
    workers = _workers_of(server)
    descriptors: list[int] = []
    stages = itertools.cycle(_STAGES)
    while report.requests < requests and len(report.findings) < _MOST_FINDINGS:
        stage = next(stages)
        numbers = range(report.requests, min(report.requests + stage.requests, requests))
        before = stage.counts(server)
        received = uvloop.run(_send_all(server, report, stage, numbers))
        if stage.is_framed:
            _compare(report, stage, numbers, received, stage.counts(server) - before)
        report.requests = numbers.stop
        report.seconds = round(time.monotonic() - started, 1)
        if stage is _STAGES[-1]:
            report.worker_mb.append([_anonymous_mb(pid) for pid in workers])
            descriptors = descriptors or _settled_descriptors(workers, [0] * len(workers))
        if progress is not None:
            progress(report)
    _check_end(server, report, workers, descriptors)
    return report


async def _send_all(
    server: ServerProcess, report: Report, stage: _Stage[AnyCase], numbers: range
) -> Counter[str]:
    """Send the requests with these numbers on several connections; return the statuses of their answers."""
    received: Counter[str] = Counter()
    remaining = iter(numbers)

    async def send_some() -> None:
        connection = await stage.connect(server)
        for number in remaining:
            case = stage.make(random.Random(f"{report.seed} {number}"))
            if not (case.is_framed and connection.is_open):
                connection.close()
                connection = await stage.connect(server)
            found = await _ask(connection, case, stage.check, number)
            if found is not None:
                report.find(f"request {number} over {stage.protocol}: {found}")
            received.update(str(answer.status) for answer in connection.answers)
        connection.close()

    await asyncio.gather(*(send_some() for _ in range(_CONNECTIONS)))
    for status, count in received.items():
        report.statuses[f"{stage.protocol} {status}"] += count
    return received


async def _ask(
    connection: CaseConnection[AnyCase],
    case: AnyCase,
    check: Callable[[AnyCase, list[Answer]], str | None],
    number: int,
) -> str | None:
    """Return what is wrong with the answers to a case."""
    pause_s = _PAUSE_S if number % 1500 == 0 else 0.0
    try:
        answers = await connection.ask(case, ANSWER_TIMEOUT_S, pause_s)
    except TimeoutError:
        return f"no answer within {ANSWER_TIMEOUT_S:g} s to {case!r:.3000}"
    problem = check(case, answers)
    return None if problem is None else f"{problem} to {case!r:.3000}"


def _check_rest(case: RestCase, answers: list[Answer]) -> str | None:
    if case.is_framed and len(answers) != 1:
        return f"{len(answers)} answers"
    for answer in answers:
        if answer.status not in _HTTP_STATUSES:
            return f"status {answer.status}, {answer.text[:300]!r},"
        if answer.status >= 400 and not _is_problem(answer.text):
            return f"status {answer.status} without an error text, {answer.text[:300]!r},"
    if case.is_control:
        found = json.loads(answers[0].text)["outputs"][0]["data"]
        return _wrong_rows(np.array(found))
    return None


def _is_problem(text: bytes) -> bool:
    if not text:  # of HEAD, and of readiness
        return True
    try:
        found = json.loads(text)
    except ValueError:
        return text.startswith((b"<!doctype", b"<!DOCTYPE"))  # the form for the token
    return isinstance(found, dict) and bool(found.get("error") or found.get("message") or "ready" in found)


def _check_grpc(case: GrpcCase, answers: list[Answer]) -> str | None:
    if case.is_framed and len(answers) != 1:
        return f"{len(answers)} answers"
    for answer in answers:
        if not case.is_framed:
            continue
        if not 0 <= answer.status <= 16 and answer.status != 415:
            return f"status {answer.status}"
        # 13 is what the protocol gives to messages that are cut off.
        if answer.status == 2 or b"the server failed" in answer.text:
            return f"status {answer.status}, {answer.text[:300]!r},"
        if answer.status and not answer.text:
            return f"status {answer.status} without a text"
    if case.is_control:
        response = ModelInferResponse.FromString(answers[0].messages[0])
        return _wrong_rows(np.frombuffer(response.raw_output_contents[0], np.float32))
    return None


def _wrong_rows(found: np.ndarray[Any, Any]) -> str | None:
    expected = expected_embeddings(_CONTROL_IDS).ravel()
    is_right = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5)
    return None if is_right else f"wrong rows {found.tolist()}"


def _http_counts(server: ServerProcess) -> Counter[str]:
    """Return the answered requests by status, without those for metrics."""
    return _counts(server, "graphbox_http_requests_total{")


def _grpc_counts(server: ServerProcess) -> Counter[str]:
    """Return the answered calls by the number of their status."""
    named = _counts(server, "graphbox_grpc_requests_total{")
    return Counter({str(Status[name].value): count for name, count in named.items()})


def _counts(server: ServerProcess, start: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in httpx.get(f"{server.base}/metrics", headers=_BEARER).text.splitlines():
        if line.startswith(start) and 'route="/metrics"' not in line:
            counts[line.partition('status="')[2].partition('"')[0]] += int(float(line.rsplit(" ", 1)[1]))
    return counts


def _compare(
    report: Report, stage: _Stage[Any], numbers: range, received: Counter[str], counted: Counter[str]
) -> None:
    """Compare what was received with what the server counted meanwhile."""
    for status in sorted(received.keys() | counted.keys()):
        if received[status] != counted[status] and status in stage.counted:
            part = f"requests {numbers.start} to {numbers.stop - 1} over {stage.protocol}"
            answers = f"{received[status]} answers with status {status}"
            report.find(f"{part}: {answers}, {counted[status]} counted by the server")


def _check_end(server: ServerProcess, report: Report, workers: list[int], descriptors: list[int]) -> None:
    """Compare workers, memory, descriptors and the log at the end with the beginning."""
    if _workers_of(server) != workers:
        report.find(f"workers {workers} became {_workers_of(server)}: {server.log.read_text()[-2000:]}")
        return
    if not all(_is_ready(server) for _ in range(20)):
        report.find("a worker is not ready at the end")
    log = server.log.read_text()
    if "Traceback" in log:
        report.find(f"the log has {log[log.index('Traceback') :][:2000]}")
    if descriptors:
        at_end = _settled_descriptors(workers, descriptors)
        if any(now > before + _SPARE_DESCRIPTORS for now, before in zip(at_end, descriptors, strict=True)):
            report.find(f"open descriptors of the workers grew from {descriptors} to {at_end}")
    if len(report.worker_mb) > 2:
        # Caches fill in the first part of a run.
        settled = report.worker_mb[len(report.worker_mb) // 3]
        growth = max(last - first for last, first in zip(report.worker_mb[-1], settled, strict=True))
        if growth > _SPARE_MB:
            report.find(f"memory of a worker grew by {growth:.0f} MB from {settled}")


def _workers_of(server: ServerProcess) -> list[int]:
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _anonymous_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (anonymous,) = (line for line in lines if line.startswith("RssAnon"))
    return round(int(anonymous.split()[1]) / 1024, 1)


def _settled_descriptors(workers: list[int], expected: list[int]) -> list[int]:
    """Return the open descriptors of each worker, once no more than expected, or after some seconds."""
    deadline = time.monotonic() + 3
    while _exceed(found := _descriptors(workers), expected) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _exceed(found: list[int], expected: list[int]) -> bool:
    return any(one > other for one, other in zip(found, expected, strict=True))


def _descriptors(workers: list[int]) -> list[int]:
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in workers]


@dataclass(frozen=True)
class _Stage(Generic[AnyCase]):
    """Requests of one kind that are sent together.

    Attributes:
        protocol: for messages.
        requests: in one turn.
        is_framed: whether each has exactly one answer.
        make: returns the next case.
        connect: opens a connection to a server.
        check: returns what is wrong with the answers to a case.
        counts: returns the server's counters by status.
        counted: statuses that it counts.
    """

    protocol: str
    requests: int
    is_framed: bool
    make: Callable[[random.Random], AnyCase]
    connect: Callable[[ServerProcess], Awaitable[CaseConnection[AnyCase]]]
    check: Callable[[AnyCase, list[Answer]], str | None]
    counts: Callable[[ServerProcess], Counter[str]]
    counted: Container[str]


async def _rest_client(server: ServerProcess) -> RestClient:
    return await RestClient.open("127.0.0.1", server.port)


async def _grpc_client(server: ServerProcess) -> GrpcClient:
    host, _, port = server.grpc_address.rpartition(":")
    return await GrpcClient.open(host, int(port))


_HTTP = frozenset(map(str, _HTTP_STATUSES))
_GRPC = frozenset(str(status.value) for status in Status)
_STAGES: tuple[_Stage[Any], ...] = (
    _Stage("REST", 1500, True, rest_case, _rest_client, _check_rest, _http_counts, _HTTP),
    _Stage("gRPC", 1500, True, grpc_case, _grpc_client, _check_grpc, _grpc_counts, _GRPC),
    _Stage("HTTP/1.1", 300, False, damaged_rest_case, _rest_client, _check_rest, _http_counts, _HTTP),
    _Stage("HTTP/2", 300, False, damaged_grpc_case, _grpc_client, _check_grpc, _grpc_counts, _GRPC),
)
