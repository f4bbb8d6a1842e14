"""Fuzz a server of two workers over REST and gRPC.

python -m tests.server.fuzz [--requests 1000000] [--seed 1] [--folder FOLDER]

Prints a line after each part, and ends with exit code 1 where something was found. A finding holds the bytes
that were sent. The same seed sends the same requests.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tests.server.fuzz.run import Report, fuzz_server


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Fuzz a server over REST and gRPC.")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep workspace and log here; it must be empty")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        report = fuzz_server(folder, given.seed, given.requests, _print_progress)
    print(report.as_json())
    return 1 if report.findings else 0


def _print_progress(report: Report) -> None:
    text = f"{report.requests} requests in {report.seconds:g} s, {len(report.findings)} findings"
    if report.findings:
        text += f", the last: {report.findings[-1]}"
    memory = f", workers {report.worker_mb[-1]} MB" if report.worker_mb else ""
    print(text + memory, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
