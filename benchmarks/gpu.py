"""Runs all benchmarks of a GPU, and writes what they measured as a page.

python -m benchmarks.gpu [--device cuda:1] [--quick] [--data FOLDER] [--only gpu_walk ...] [--page FILE]

The page is benchmarks/results/gpu.md, by the interpreter (``--device cpu``) standard output. A benchmark that
fails is named on the page, and this ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import graphbox
from benchmarks.gpu_measure import device_name, readable, share_text
from graphbox.bandwidth import ROW_BYTES, Bandwidths, measured_bandwidths
from graphbox.device import check_device, chosen_device
from graphbox.device_report import nvidia_driver
from graphbox.errors import GraphboxError

__all__ = ["Outcome", "machine", "page", "run_benchmark"]

FOLDER = Path(__file__).parent
PAGE = FOLDER / "results" / "gpu.md"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one benchmark.

    Attributes:
        name: name of its module.
        purpose: the first line of its docstring.
        figures: printed figures.
        failure: reason for an early end, or None.
    """

    name: str
    purpose: str
    figures: Sequence[Mapping[str, Any]]
    failure: str | None


def main() -> int:
    """Run the benchmarks and write the page; return the exit code."""
    names = sorted(
        path.stem for path in FOLDER.glob("gpu_*.py") if '__name__ == "__main__"' in path.read_text()
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ...; cpu: small, by the interpreter")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that they run")
    parser.add_argument("--data", type=Path, help="folder with data sets; without it graphs are made")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=str(names))
    parser.add_argument("--page", type=Path, help="where to write; - is standard output")
    options = parser.parse_args()
    try:
        device = chosen_device(options.device)
        check_device(device)
        bandwidths = measured_bandwidths(device)
    except GraphboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    given = ["--device", str(device), *(["--quick"] if options.quick else [])]
    given += ["--data", str(options.data)] if options.data else []
    outcomes = []
    for name in options.only:
        purpose = (FOLDER / f"{name}.py").read_text().partition('"""')[2].partition("\n")[0]
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *given]
        outcomes.append(run_benchmark(name, purpose, command))
    command_line = shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]])
    text = page(machine(device), command_line, bandwidths, outcomes)
    if options.page is not None or (device.type == "cuda" and not options.quick):
        target = options.page or PAGE
        target.write_text(text)
        print(f"wrote {target}", file=sys.stderr)
    else:
        print(text, end="")
    return 1 if any(outcome.failure for outcome in outcomes) else 0


def run_benchmark(name: str, purpose: str, command: Sequence[str]) -> Outcome:
    """Run a benchmark in a process of its own, whose lines are shown as they come."""
    print(f"{name}: {purpose}", file=sys.stderr, flush=True)
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+") as complaints:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment, cwd=FOLDER.parent
        ) as process:
            for line in process.stdout or ():
                print(f"  {line}", end="", file=sys.stderr, flush=True)
                figures.append(json.loads(line))
        complaints.seek(0)
        complaint = complaints.read()
    print(complaint, end="", file=sys.stderr, flush=True)
    if process.returncode == 0:
        return Outcome(name, purpose, figures, None)
    last = complaint.strip().rpartition("\n")[2] or "it said nothing"
    return Outcome(name, purpose, figures, f"it ended with {process.returncode}: {last}")


def machine(device: torch.device) -> str:
    """Return what was measured on: device and versions."""
    driver = nvidia_driver()
    parts = [
        device_name(device),
        f"driver {driver.version or 'of unknown version'}" if driver else "no driver",
        f"PyTorch {torch.__version__}",
        f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA",
        f"Triton {metadata.version('triton')}",
        f"Python {platform.python_version()}",
        f"graphbox {graphbox.__version__}",
        f"{len(os.sched_getaffinity(0))} processors",
    ]
    return ", ".join(parts)


def page(where: str, command: str, bandwidths: Bandwidths, outcomes: Sequence[Outcome]) -> str:
    """Return the page, in Markdown.

    Args:
        where: of :func:`machine`.
        command: that was called.
        bandwidths: of the device.
        outcomes: of the benchmarks.
    """
    lines = [
        "# Measured on a GPU",
        "",
        f"`{command}` on {datetime.now(UTC):%Y-%m-%d}: {where}.",
        "",
        "Each figure is a share of a limit that a probe measured in the same run: what the GPU reads in",
        "random sectors of 32 bytes or in random rows, of its own memory (device) or of pinned host memory,",
        "or what it copies. Medians of five, the slowest and the fastest run in brackets.",
        "",
        "## Limits",
        "",
        *table(("", "GB/s"), bandwidth_rows(bandwidths)),
    ]
    for outcome in outcomes:
        lines += ["", f"## {outcome.name}", "", outcome.purpose, ""]
        if outcome.figures:
            columns = ("case", "system", "rate", "share", "goal")
            lines += table(columns, (figure_row(figure) for figure in outcome.figures))
        if outcome.failure:
            lines += ["", f"Not complete: {outcome.failure}."]
    return "\n".join(lines) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    cells = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def bandwidth_rows(bandwidths: Bandwidths) -> Iterator[tuple[str, str]]:
    """Yield what the probes measured."""
    places = (
        ("device", bandwidths.device_sectors, bandwidths.device_rows),
        ("pinned", bandwidths.pinned_sectors, bandwidths.pinned_rows),
    )
    for place, sectors, rows in places:
        yield f"{place} sectors", f"{sectors / 1e9:,.1f}"
        for row_bytes, rate in zip(ROW_BYTES, rows, strict=True):
            yield f"{place} rows of {row_bytes} bytes", f"{rate / 1e9:,.1f}"
    for direction in ("host_to_device", "device_to_host", "device_to_device"):
        yield f"copy {direction}".replace("_", " "), f"{getattr(bandwidths, direction) / 1e9:,.1f}"


def figure_row(figure: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a figure."""
    share = f"{share_text(figure['share'])} of {figure['limit']}" if figure["share"] is not None else ""
    median, low, high = (readable(figure[name]) for name in ("rate", "min", "max"))
    rate = f"{median} [{low} - {high}] {figure['unit']}"
    goal = share_text(figure["goal"]) if figure["goal"] is not None else ""
    return str(figure["case"]), str(figure["system"]), rate, share, goal


if __name__ == "__main__":
    sys.exit(main())
