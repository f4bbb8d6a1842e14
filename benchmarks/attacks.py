"""Delay that hostile requests cause to other clients, and the memory the server keeps after them.

    python -m benchmarks.attacks [--repeats 5] [--json] [--cases headers ...]

A probe, in a process of its own, asks for one embedding every two milliseconds while an attack runs on a
server. Each line has the probe's median, 99th percentile and maximum during the attack, beside those of the
same time without one, medians over the repeats. Memory is resident memory of the server two seconds after the
attack, less that before it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.serving_models import write_encoder

PROBE_INTERVAL_S = 0.002
SHORTEST_ATTACK_S = 1.0
HEADER = "Inference-Header-Content-Length"
PATH = "/v2/models/encoder/infer"

Attack = Callable[[int], None]


@dataclass(frozen=True)
class Delay:
    """Latencies of the probe in milliseconds.

    Attributes:
        case: the attack.
        p50_ms: median.
        p99_ms: 99th percentile.
        max_ms: maximum.
        idle_p50_ms: median without the attack.
        idle_p99_ms: 99th percentile without the attack.
        idle_max_ms: maximum without the attack.
        kept_mb: resident memory of the server after the attack, less that before it.
        seconds: time the attack took.
        repeats: how often each was run; every figure is the median.
    """

    case: str
    p50_ms: float
    p99_ms: float
    max_ms: float
    idle_p50_ms: float
    idle_p99_ms: float
    idle_max_ms: float
    kept_mb: float
    seconds: float
    repeats: int


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def _send(port: int, data: bytes, *, answer: bool = True) -> None:
    """Send bytes on a connection of their own, and read until the server closes it or is silent."""
    with _connect(port) as connection:
        try:
            connection.sendall(data)
            while answer and select.select([connection], [], [], 30)[0] and connection.recv(1 << 20):
                pass
        except (BrokenPipeError, ConnectionResetError):
            return


def _post(body: bytes, path: str = PATH, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _infer(ids: list[str]) -> bytes:
    entry = {"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}
    return json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()


def _binary(raw: bytes, count: int) -> bytes:
    entry = {
        "name": "id",
        "datatype": "BYTES",
        "shape": [count],
        "parameters": {"binary_data_size": len(raw)},
    }
    header = json.dumps({"inputs": [entry]}).encode()
    return _post(header + raw, headers=f"{HEADER}: {len(header)}\r\n")


def _predict(rows: bytes) -> bytes:
    return _post(rows, "/api/v1/models/encoder/predict")


MOST_IDS = [f"package-{number % 1000}" for number in range(65_536)]

# Built when it is their turn, before the probe starts: to build them takes a processor, too.
REQUESTS: dict[str, Callable[[], list[bytes]]] = {
    "headers": lambda: [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * lines + b"\r\n" for lines in (16_000, 30_000)
    ],
    "largest-request": lambda: [_post(_infer(MOST_IDS))],
    "abandoned": lambda: [_post(_infer(MOST_IDS))] * 12,
    "unknown-id-60mb-json": lambda: [_post(_infer(["x" * 60_000_000]))],
    "unknown-id-60mb-binary": lambda: [_binary(struct.pack("<I", 60_000_000) + b"x" * 60_000_000, 1)],
    "empty-elements-48mb": lambda: [_binary(b"\0" * 48_000_000, 2)],
    "predict-62mb": lambda: [_predict(b'{"rows": [' + b'{"age": 38, "job": "x"},' * 2_600_000 + b"{}]}")],
    "predict-1mb": lambda: [_predict(b'{"rows": [' + b'{"age": 38, "job": "x"},' * 40_000 + b"{}]}")],
    "json-lists-1mb": lambda: [_post(b'{"inputs": [' + b"{}," * 340_000 + b"{}]}")],
    "json-numbers-1mb": lambda: [_post(b'{"inputs": [' + b"1," * 500_000 + b"1]}")],
    "json-keys-1mb": lambda: [_post(b'{"inputs": [' + b'":",' * 250_000 + b'""], "id": "", "id": ""}')],
    "body-65mb": lambda: [_post(b" " * (65 << 20))],
    "idle-connections": list,
}
ABANDONED = {"abandoned"}
IDLE_CONNECTIONS = 5000


def attack_of(case: str) -> Attack:
    """Return the attack, its requests built."""
    if case == "idle-connections":
        return _idle_connections
    requests = REQUESTS[case]()

    def attack(port: int) -> None:
        for request in requests:
            _send(port, request, answer=case not in ABANDONED)

    return attack


def _idle_connections(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            stack.enter_context(_connect(port))


PROBE = """
import http.client, json, sys, time
port, interval = int(sys.argv[1]), float(sys.argv[2])
body = json.dumps({"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["package-1"]}]})
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
def ask():
    started = time.perf_counter()
    connection.request("POST", "/v2/models/encoder/infer", body)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    return time.perf_counter() - started
for _ in range(50):
    ask()
print("ready", flush=True)
import select
times = []
while not select.select([sys.stdin], [], [], interval)[0]:
    times.append(ask())
print(json.dumps(times), flush=True)
"""


def probe(port: int, work: Callable[[], None]) -> tuple[list[float], float]:
    """Return the latencies of the probe in milliseconds while ``work`` runs, and the seconds that took."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROBE, str(port), str(PROBE_INTERVAL_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdin is None or process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("expected the probe to start")
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    time.sleep(max(0.0, SHORTEST_ATTACK_S - seconds))
    process.stdin.write("\n")
    process.stdin.close()
    times = [1e3 * value for value in json.loads(process.stdout.readline())]
    process.wait(10)
    return times, seconds


@contextmanager
def server() -> Iterator[tuple[int, int]]:
    """Serve one encoder; give port and process id."""
    program = "import sys; from pathlib import Path; from graphbox.server import Settings, serve; "
    program += (
        "serve(Settings(models=(Path(sys.argv[1]),), port=0), on_start=lambda url: print(url, flush=True))"
    )
    with tempfile.TemporaryDirectory() as folder:
        write_encoder(Path(folder) / "encoder" / "1")
        process = subprocess.Popen(
            [sys.executable, "-c", program, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            if process.stdout is None or not (address := process.stdout.readline()):
                raise RuntimeError("expected the server to start")
            yield int(address.rstrip("/\n").rpartition(":")[2]), process.pid
        finally:
            process.terminate()
            process.wait(30)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(case: str, attack: Attack, port: int, pid: int, repeats: int) -> Delay:
    """Run one attack several times, each after the same time without it."""
    figures: list[list[float]] = []
    for _ in range(repeats):
        idle, _ = probe(port, lambda: time.sleep(SHORTEST_ATTACK_S))
        before = resident_mb(pid)
        times, seconds = probe(port, lambda: attack(port))
        time.sleep(2.0)
        figures.append(
            [
                *(float(np.percentile(times, share)) for share in (50, 99, 100)),
                *(float(np.percentile(idle, share)) for share in (50, 99, 100)),
                resident_mb(pid) - before,
                seconds,
            ]
        )
    medians = [round(statistics.median(column), 2) for column in zip(*figures, strict=True)]
    p50, p99, most, idle_p50, idle_p99, idle_most, kept, seconds = medians
    return Delay(case, p50, p99, most, idle_p50, idle_p99, idle_most, kept, seconds, repeats)


def main() -> None:
    """Measure every attack and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="*", default=list(REQUESTS), choices=list(REQUESTS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with server() as (port, pid):
        for case in options.cases:
            found = measure(case, attack_of(case), port, pid, options.repeats)
            if options.json:
                print(json.dumps(asdict(found)), flush=True)
            else:
                print(
                    f"{case:22} p50 {found.p50_ms:6.2f}  p99 {found.p99_ms:7.2f}  max {found.max_ms:7.2f} ms"
                    f"   idle {found.idle_p50_ms:5.2f} / {found.idle_p99_ms:5.2f} / {found.idle_max_ms:6.2f}"
                    f"   kept {found.kept_mb:6.1f} MB   {found.seconds:5.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
