"""Measurement and output of benchmarks of the native core: a line for each case and system."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from graphbox import _core

RANDOM_READ_MEMORY_BYTES = 1 << 30
REPEATS = 5

Rate = Callable[[], float]
"""One run of a system: how many units it did in a second."""


@dataclass(frozen=True)
class Measurement:
    """Units per second of one system at one case; equal ``case`` means the same work."""

    case: str
    system: str
    threads: int
    rate: float
    unit: str
    min: float
    max: float
    repeats: int
    per_cpu_s: float


def measure(
    case: str, system: str, unit: str, work: Callable[[int], int], *, threads: int = 1, repeats: int = 7
) -> Measurement:
    """Time ``work(repeat)``, which returns how many units it did, after one call that is not counted."""
    work(repeats)
    rates, per_cpu = [], []
    for repeat in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        units = work(repeat)
        rates.append(units / (time.perf_counter() - wall))
        per_cpu.append(units / max(time.process_time() - cpu, 1e-9))
    return Measurement(
        case,
        system,
        threads,
        statistics.median(rates),
        unit,
        min(rates),
        max(rates),
        repeats,
        statistics.median(per_cpu),
    )


def rate_of(work: Callable[[], float]) -> Rate:
    """Return what times ``work``, which returns how many units it did."""

    def timed() -> float:
        started = time.perf_counter()
        units = work()
        return units / (time.perf_counter() - started)

    return timed


def show_in_turns(
    case: str,
    unit: str,
    systems: Mapping[str | tuple[str, int], Rate] | Mapping[str, Rate],
    *,
    as_json: bool,
    threads: int = 1,
    repeats: int = REPEATS,
) -> dict[str | tuple[str, int], float]:
    """Run systems in turns, ``repeats`` times after one that is not counted, and print each.

    Args:
        case: what all of them do.
        unit: of their rates.
        systems: by name, or by name and number of threads.
        as_json: one JSON object per line.
        threads: of the systems that do not say.
        repeats: how often each runs.

    Returns:
        The median rate of each.
    """
    rates: dict[str | tuple[str, int], list[float]] = {system: [] for system in systems}
    per_cpu: dict[str | tuple[str, int], list[float]] = {system: [] for system in systems}
    for repeat in range(repeats + 1):
        for system, run in systems.items():
            wall, cpu = time.perf_counter(), _cpu_seconds()
            rate = run()
            wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
            if repeat:
                rates[system].append(rate)
                per_cpu[system].append(rate * wall / max(cpu, 1e-9))
    medians = {system: statistics.median(measured) for system, measured in rates.items()}
    for system, median in medians.items():
        name, used = system if isinstance(system, tuple) else (system, threads)
        low, high = min(rates[system]), max(rates[system])
        cpu_median = statistics.median(per_cpu[system])
        show(Measurement(case, name, used, median, unit, low, high, repeats, cpu_median), as_json=as_json)
    return medians


def _cpu_seconds() -> float:
    """Return the processor time of this process and of those it waited for, fio among them."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def random_read_limit(case: str, unit: str, lines_per_unit: float, read_bytes: int = 64) -> Measurement:
    """Measure how many units one thread could do if it only waited for their random memory reads.

    Args:
        case: the case this bounds.
        unit: of the case.
        lines_per_unit: random reads of ``read_bytes`` that one unit needs when nothing is in a cache.
        read_bytes: a multiple of 64.
    """
    reads = int(2e7 * 64 / read_bytes)

    seconds = [_core.random_read_seconds(RANDOM_READ_MEMORY_BYTES, reads, read_bytes) for _ in range(3)]
    rates = [reads / wall / lines_per_unit for wall, _ in seconds]
    per_cpu = statistics.median(reads / cpu / lines_per_unit for _, cpu in seconds)
    return Measurement(
        case, "limit", 1, statistics.median(rates), unit, min(rates), max(rates), len(rates), per_cpu
    )


def arguments(description: str, *, data: str | None = None) -> argparse.Namespace:
    """Parse the options that every benchmark has; ``data``: what the option of that name says."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    if data is not None:
        parser.add_argument("--data", help=data)
    return parser.parse_args()


def show(measurement: Measurement, *, as_json: bool) -> None:
    """Print one measurement."""
    if as_json:
        print(json.dumps(asdict(measurement)), flush=True)
        return
    rate, low, high, per_cpu_s = (
        _readable(value)
        for value in (measurement.rate, measurement.min, measurement.max, measurement.per_cpu_s)
    )
    print(
        f"{measurement.case:40} {measurement.system:12} {measurement.threads} thread(s) "
        f"{rate:>10} {measurement.unit} [{low} - {high}], {per_cpu_s} per CPU second",
        flush=True,
    )


def _readable(rate: float) -> str:
    if rate >= 1e6:
        return f"{rate / 1e6:.2f} M"
    return f"{rate / 1e3:.2f} k" if rate >= 1e4 else f"{rate:.2f}"
