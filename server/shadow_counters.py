"""Counters of shadows in shared memory, and their metrics."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from graphbox.server.counters import Counters, total
from graphbox.server.traffic import Route, unavailable_requests
from graphbox.workspace.traffic import ShadowSums

__all__ = ["ShadowCounters", "TrafficCollector"]

_CALL_SLOTS = 5
# Numbers of an output by position; the sum and the maximum are float64, kept as their bits.
_ROWS, _DIFFERENT_ROWS, _NUMBERS, _SUM, _MAX, _LISTED, _SHARED, _OUTPUT_SLOTS = range(8)
_DOUBLE, _INTEGER = struct.Struct("=d"), struct.Struct("=q")


class ShadowCounters:
    """The counters of one shadow in this worker; additions need a lock of the caller.

    Args:
        counters: of the server.
        name: of the model.
        change: number of the shadow.
    """

    def __init__(self, counters: Counters, name: str, change: int) -> None:
        self._counters = counters
        self._group = ("shadow outputs", name, str(change))
        self._calls = counters.record(("shadow calls", name, str(change)), "", _CALL_SLOTS)
        self._outputs: dict[str, memoryview[int]] = {}

    def add(self, sums: ShadowSums) -> None:
        """Add to the counters."""
        added = (sums.calls, sums.failed, sums.dropped, sums.active_ns, sums.shadow_ns)
        for slot, number in enumerate(added):
            self._calls[slot] += number
        for name, output in sums.outputs.items():
            own = self._outputs.get(name)
            if own is None:
                own = self._outputs[name] = self._counters.record(self._group, name, _OUTPUT_SLOTS)
            own[_ROWS] += output.rows
            own[_DIFFERENT_ROWS] += output.different_rows
            own[_NUMBERS] += output.numbers
            own[_SUM] = _bits(_number(own[_SUM]) + output.difference_sum)
            own[_MAX] = _bits(max(_number(own[_MAX]), output.difference_max))
            own[_LISTED] += output.listed
            own[_SHARED] += output.shared


class TrafficCollector(Collector):
    """Metrics of the canaries and shadows there are, over all workers.

    Args:
        counters: of the server.
        routes: returns the routes by model name.
    """

    def __init__(self, counters: Counters, routes: Callable[[], Mapping[str, Route]]) -> None:
        self._counters = counters
        self._routes = routes

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        labels = ["model", "version"]
        percent = GaugeMetricFamily(
            "graphbox_canary_percent", "Share of the requests that the canary answers", labels=labels
        )
        unavailable = CounterMetricFamily(
            "graphbox_canary_unavailable",
            "Requests for the canary that the active version answered, as the canary was not open",
            labels=labels,
        )
        shadows: list[tuple[str, str, str]] = []
        for name, route in sorted(self._routes().items()):
            if route.traffic.canary is not None:
                of_canary = [name, str(route.traffic.canary.version)]
                percent.add_metric(of_canary, route.traffic.canary.percent)
                count = unavailable_requests(self._counters, name, route.traffic.canary.version)
                unavailable.add_metric(of_canary, count)
            if route.traffic.shadow is not None:
                shadow = route.traffic.shadow
                shadows.append((name, str(shadow.version), str(shadow.change)))
        yield percent
        yield unavailable
        yield from self._of_calls(shadows)
        yield from self._of_outputs(shadows)

    def _of_calls(self, shadows: Sequence[tuple[str, str, str]]) -> list[CounterMetricFamily]:
        families = [
            CounterMetricFamily(f"graphbox_shadow_{name}", text, labels=["model", "version"])
            for name, text in (
                ("calls", "Calls repeated on the shadow and compared"),
                ("failures", "Calls that the shadow could not answer"),
                ("dropped", "Calls that were not repeated, as the server was busy or the shadow not open"),
                ("active_seconds", "Execution time of the compared calls on the active version"),
                ("seconds", "Execution time of the compared calls on the shadow"),
            )
        ]
        for name, version, change in shadows:
            records = self._counters.records(("shadow calls", name, change)).get("", [])
            calls, failed, dropped, active_ns, shadow_ns = total(records) or [0] * _CALL_SLOTS
            values = (calls, failed, dropped, active_ns / 1e9, shadow_ns / 1e9)
            for family, value in zip(families, values, strict=True):
                family.add_metric([name, version], value)
        return families

    def _of_outputs(self, shadows: Sequence[tuple[str, str, str]]) -> list[Metric]:
        labels = ["model", "version", "output"]
        counts = {
            slot: CounterMetricFamily(f"graphbox_shadow_{name}", text, labels=labels)
            for slot, name, text in (
                (_ROWS, "rows", "Rows compared"),
                (_DIFFERENT_ROWS, "different_rows", "Rows that differ by more than the tolerance"),
                (_NUMBERS, "numbers", "Pairs of numbers compared"),
                (_LISTED, "listed_ids", "Ids in the lists of the active version"),
                (_SHARED, "shared_ids", "Ids among them that the shadow lists, too"),
            )
        }
        differences = CounterMetricFamily(
            "graphbox_shadow_absolute_difference", "Sum of the absolute differences of numbers", labels=labels
        )
        largest = GaugeMetricFamily(
            "graphbox_shadow_largest_difference", "Largest absolute difference of numbers", labels=labels
        )
        for name, version, change in shadows:
            for output, records in self._counters.records(("shadow outputs", name, change)).items():
                values = [name, version, output]
                for slot, family in counts.items():
                    family.add_metric(values, sum(record[slot] for record in records))
                differences.add_metric(values, sum(_number(record[_SUM]) for record in records))
                largest.add_metric(values, max(_number(record[_MAX]) for record in records))
        return [*counts.values(), differences, largest]


def _bits(number: float) -> int:
    bits: int = _INTEGER.unpack(_DOUBLE.pack(number))[0]
    return bits


def _number(bits: int) -> float:
    number: float = _DOUBLE.unpack(_INTEGER.pack(bits))[0]
    return number
