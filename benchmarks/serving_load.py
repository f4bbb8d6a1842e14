"""Load generators of the serving benchmark: wrk for HTTP/1.1, h2load for gRPC, our own for open loops."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.serving_models import Request
from graphbox.server.load.grpc_load import INFER_METHOD

_DONE = """
done = function(summary, latency, requests)
  local errors = summary.errors
  io.stderr:write(string.format('%d %d %d %d %d %d %d\\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), errors.status, errors.timeout,
    errors.read + errors.write + errors.connect))
end
"""


@dataclass(frozen=True)
class Load:
    """One run of a load generator; latencies in milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float


def http_load(url: str, requests: Sequence[Request], connections: int, seconds: float) -> Load:
    """Run wrk, one thread, repeating the requests one after the other.

    Raises:
        RuntimeError: a request failed.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_script(requests))
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", script.name, url]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    count, microseconds, p50, p99, *errors = map(int, re.findall(r"\d+", ended.stderr)[-7:])
    if any(errors):
        kinds = "{} by status, {} by timeout, {} by connection".format(*errors)
        raise RuntimeError(f"of {count} requests failed {kinds} at {url}{requests[0].path}")
    return Load(count / microseconds * 1e6, p50 / 1e3, p99 / 1e3)


def _script(requests: Sequence[Request]) -> str:
    formatted = []
    for each in requests:
        headers = ", ".join(
            f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in each.headers.items()
        )
        body = "'" + "".join(f"\\x{byte:02x}" for byte in each.body) + "'" if each.body else "nil"
        method = "POST" if each.body else "GET"
        formatted.append(f"wrk.format('{method}', {json.dumps(each.path)}, {{{headers}}}, {body})")
    return (
        "local requests, last = {}, 0\n"
        f"init = function()\n  requests = {{{', '.join(formatted)}}}\nend\n"
        "request = function()\n  last = last % #requests + 1\n  return requests[last]\nend\n" + _DONE
    )


def grpc_load(port: int, message: bytes, connections: int, seconds: float) -> Load:
    """Run h2load, one thread, repeating a message to ModelInfer; one call at a time on each connection.

    Raises:
        RuntimeError: a request failed on the level of HTTP. h2load ignores trailers: check an answer before.
    """
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder) / "body", Path(folder) / "log"
        body.write_bytes(struct.pack(">BI", 0, len(message)) + message)
        headers = [
            part for each in ("content-type: application/grpc", "te: trailers") for part in ("-H", each)
        ]
        command = [
            "h2load",
            "-t1",
            f"-c{connections}",
            "-m1",
            f"-D{seconds:g}",
            f"--log-file={log}",
            *headers,
        ]
        url = f"http://127.0.0.1:{port}{INFER_METHOD}"
        ended = subprocess.run(
            [*command, "-d", str(body), url], capture_output=True, text=True, check=True, timeout=120
        )
        lines = [line.split() for line in log.read_text().splitlines()]
    failed = [line for line in lines if line[1] != "200"]
    if failed or not lines:
        raise RuntimeError(f"{len(failed)} of {len(lines)} requests failed:\n{ended.stdout}")
    latencies = np.array([int(line[2]) for line in lines]) / 1e3
    return Load(
        len(lines) / seconds, float(np.percentile(latencies, 50)), float(np.percentile(latencies, 99))
    )
