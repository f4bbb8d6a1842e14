"""Measurement and output of GPU benchmarks: each figure beside a limit that is probed in the same run.

A benchmark ``gpu_*.py`` is a function that is given a :class:`GpuBench`, and ``run(__doc__, that_function)``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from graphbox.bandwidth_gpu import (
    Direction,
    Place,
    copy_bandwidth,
    row_bandwidth,
    run_seconds,
    sector_bandwidth,
)
from graphbox.device import check_device, chosen_device
from graphbox.errors import GraphboxError

__all__ = ["GpuBench", "GpuMeasurement", "Limit", "run"]


class Limit(NamedTuple):
    """Reference of a figure: a probe, or another system at the same work.

    Attributes:
        name: its name.
        rate: its rate, in the unit of the figure.
    """

    name: str
    rate: float


@dataclass(frozen=True, slots=True)
class GpuMeasurement:
    """Units per second of one system at one case; equal ``case`` means the same work.

    Attributes:
        case: the work.
        system: who did it: ``graphbox``, or a peer's name and version.
        device: where.
        rate: units per second, the median.
        unit: of the rate.
        min: of the slowest run.
        max: of the fastest run.
        repeats: runs.
        limit: name of what it is a share of; None: a figure of its own.
        limit_rate: units per second of that.
        share: rate / limit_rate.
        goal: the share to be reached.
    """

    case: str
    system: str
    device: str
    rate: float
    unit: str
    min: float
    max: float
    repeats: int
    limit: str | None
    limit_rate: float | None
    share: float | None
    goal: float | None


class GpuBench:
    """One run of a benchmark: its device, the probes of it, what is printed.

    Attributes:
        device: where kernels run.
        quick: inputs are to be small: to see that it runs, or by Triton's interpreter.
        data: a folder with data sets, where the user has one.
        options: all options.
    """

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        self.device = device
        self.quick: bool = options.quick or device.type != "cuda"
        self.data: Path | None = options.data
        self.options = options
        self._size_bytes = 1 << 14 if device.type != "cuda" else None
        self._sectors, self._rows, self._copies = cache(self._sector), cache(self._row), cache(self._copy)

    def sector_limit(self, where: Place, sectors_per_unit: float, size_bytes: int | None = None) -> Limit:
        """Return the rate of work that only waited for random sectors of 32 bytes.

        Args:
            where: what is read.
            sectors_per_unit: how many a unit of the work must read.
            size_bytes: of the arrays that are read; None: as large as the probe likes.
        """
        return Limit(f"{where} sectors", self._sectors(where, size_bytes) / 32 / sectors_per_unit)

    def row_limit(
        self, where: Place, row_bytes: int, rows_per_unit: float = 1, size_bytes: int | None = None
    ) -> Limit:
        """Return the rate of work that only waited for random rows of ``row_bytes``."""
        rate = self._rows(where, row_bytes, size_bytes) / row_bytes / rows_per_unit
        return Limit(f"{where} rows of {row_bytes} bytes", rate)

    def copy_limit(self, direction: Direction, bytes_per_unit: float) -> Limit:
        """Return the rate of work that only waited for copying ``bytes_per_unit``."""
        return Limit(f"copy {direction}".replace("_", " "), self._copies(direction) / bytes_per_unit)

    def show(
        self,
        case: str,
        work: Callable[[], object],
        *,
        units: float,
        unit: str,
        limit: Limit | None,
        goal: float | None = None,
        system: str = "graphbox",
    ) -> GpuMeasurement:
        """Time ``work`` five times, by the interpreter once, and print the median.

        Args:
            case: what it does.
            work: what is timed, on the current stream.
            units: how many it does.
            unit: of them, ``.../s``.
            limit: what it is a share of; None: a figure of its own.
            goal: the share to be reached.
            system: who does it.
        """
        seconds = run_seconds(work, self.device)
        return self.show_seconds(case, seconds, units=units, unit=unit, limit=limit, goal=goal, system=system)

    def show_seconds(
        self,
        case: str,
        seconds: Sequence[float],
        *,
        units: float,
        unit: str,
        limit: Limit | None,
        goal: float | None = None,
        system: str = "graphbox",
    ) -> GpuMeasurement:
        """Print what was timed otherwise; see :meth:`show`."""
        rates = sorted(units / each for each in seconds)
        rate = statistics.median(rates)
        measurement = GpuMeasurement(
            case=case,
            system=system,
            device=device_name(self.device),
            rate=rate,
            unit=unit,
            min=rates[0],
            max=rates[-1],
            repeats=len(rates),
            limit=limit.name if limit else None,
            limit_rate=limit.rate if limit else None,
            share=rate / limit.rate if limit else None,
            goal=goal,
        )
        print(json.dumps(asdict(measurement)) if self.options.json else _line(measurement), flush=True)
        return measurement

    def _sector(self, where: Place, size_bytes: int | None) -> float:
        return sector_bandwidth(where, self.device, size_bytes=self._size_bytes or size_bytes)

    def _row(self, where: Place, row_bytes: int, size_bytes: int | None) -> float:
        size_bytes = max(self._size_bytes, row_bytes) if self._size_bytes else size_bytes
        return row_bandwidth(where, row_bytes, self.device, size_bytes=size_bytes)

    def _copy(self, direction: Direction) -> float:
        return copy_bandwidth(direction, self.device, size_bytes=self._size_bytes)


def device_name(device: torch.device) -> str:
    """Return what a device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter"


def run(
    description: str | None,
    benchmark: Callable[[GpuBench], None],
    add_options: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """Parse the options that every benchmark of a GPU has, and run it; where there is none, say so: exit 5.

    Args:
        description: for ``--help``.
        benchmark: what is run.
        add_options: gives the parser more options.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="cuda", help="cuda, cuda:1, ...; cpu: small, by Triton's interpreter"
    )
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--data", type=Path, help="folder with data sets; without it graphs are made")
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args()
    try:
        device = chosen_device(options.device)
        check_device(device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        benchmark(GpuBench(device, options))
    except GraphboxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _line(measurement: GpuMeasurement) -> str:
    line = (
        f"{measurement.case:48} {measurement.system:12} {readable(measurement.rate):>9} {measurement.unit} "
        f"[{readable(measurement.min)} - {readable(measurement.max)}]"
    )
    if measurement.share is not None:
        line += f"  {share_text(measurement.share)} of {measurement.limit}"
    return line if measurement.goal is None else f"{line} (goal: {share_text(measurement.goal)})"


def share_text(share: float) -> str:
    """Return a share in percent, what is many times as much as a factor."""
    return f"{share:.0%}" if share < 2 else f"{share:.1f} times"


def readable(rate: float) -> str:
    """Return a rate with three digits or so."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if rate >= factor:
            return f"{rate / factor:.2f}{letter}"
    return f"{rate:.2f}"
