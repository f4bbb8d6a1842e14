"""Runs hostile model versions in a process that is watched: time, memory, crashes, each with its seed."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = ["HostileReport", "run_cases"]

MAX_SECONDS = 30.0
MAX_GROWTH_BYTES = 1 << 30
_START_S = 60.0
_POLL_S = 0.02
_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class HostileReport:
    """Outcomes of the cases.

    Attributes:
        outcomes: how often each: ``answered``, or the name of a typed error.
        findings: what is wrong, by seed: another error, a crash, a hang, memory, a read outside.
        cases: by what was done to a version, how often.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    cases: Counter[str] = field(default_factory=Counter)


def run_cases(
    folder: Path, first: int, count: int, target: str = "onnxruntime", kind: str = "versions"
) -> HostileReport:
    """Open the versions, or the files, of the seeds from ``first``, in a new process after each fault."""
    report = HostileReport()
    seed, stop, number = first, first + count, 0
    while seed < stop:
        scratch = folder / f"process_{number}"
        scratch.mkdir(parents=True)
        seed = _one_process(scratch, seed, stop - seed, ["--target", target, "--kind", kind], report)
        number += 1
    return report


def _one_process(scratch: Path, first: int, count: int, options: list[str], report: HostileReport) -> int:
    """Return the seed to go on with."""
    command = [sys.executable, "-m", "tests.deploy.hostile_process", str(scratch), *options]
    command += ["--first", str(first), "--count", str(count)]
    log = (scratch / "stderr.txt").open("w+b")
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log) as process, log:
        assert process.stdout is not None
        lines = _Lines(process.stdout)
        current: dict[str, Any] | None = None
        limit_s, base_bytes, began = _START_S, 0, time.monotonic()
        while True:
            line = lines.next(_POLL_S)
            if line is not None and "seed" in line:
                current, limit_s, began = line, MAX_SECONDS, time.monotonic()
                base_bytes = _resident_bytes(process.pid)
                continue
            if line is not None and current is not None:
                _note(report, current, line)
                current, limit_s, began = None, _START_S, time.monotonic()
                continue
            if process.poll() is not None and not lines.ended:
                continue
            fault = _fault(process, base_bytes if current else None, time.monotonic() - began, limit_s)
            if fault is None:
                continue
            process.kill()
            process.wait()
            if current is None:
                log.seek(0)
                assert fault == "ended with 0", f"{fault}: {log.read()[-4000:].decode()}"
                return first + count
            report.findings[current["seed"]] = f"{current['case']}: {fault}"
            return int(current["seed"]) + 1


def _note(report: HostileReport, case: dict[str, Any], line: dict[str, Any]) -> None:
    outcome = line["outcome"]
    if line["grown_bytes"] > MAX_GROWTH_BYTES:
        outcome = f"finding: {line['grown_bytes']} bytes more"
    report.cases.update(case["case"].partition(": ")[2].removesuffix(", signed").split(", "))
    if outcome.startswith("finding"):
        report.findings[case["seed"]] = f"{case['case']}: {outcome}"
    else:
        report.outcomes[outcome] += 1


def _fault(
    process: subprocess.Popen[bytes], base_bytes: int | None, seconds: float, limit_s: float
) -> str | None:
    code = process.poll()
    if code is not None:
        return f"ended with {code}"
    if seconds > limit_s:
        return f"no answer in {limit_s:g} s"
    if base_bytes is not None and _resident_bytes(process.pid) - base_bytes > MAX_GROWTH_BYTES:
        return f"more than {MAX_GROWTH_BYTES} bytes more"
    return None


class _Lines:
    """JSON lines of a pipe, without waiting longer than asked."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._descriptor = stream.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(stream, selectors.EVENT_READ)
        self._buffer = b""
        self.ended = False

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next line; None where there is none in time, or at the end."""
        if b"\n" not in self._buffer and self._selector.select(timeout_s):
            read = os.read(self._descriptor, 65536)
            self._buffer += read
            self.ended = not read
        line, separator, rest = self._buffer.partition(b"\n")
        if not separator:
            return None
        self._buffer = rest
        found: dict[str, Any] = json.loads(line)
        return found


def _resident_bytes(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
