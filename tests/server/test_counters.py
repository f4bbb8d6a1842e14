"""Counters in shared memory: sums over workers, successors of killed workers, a full file."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest

from graphbox.server.counters import GAUGE, Counters, create_counter_file, mark_ended, total
from graphbox.server.telemetry import InferenceTimes, ModelStatistics, Telemetry


@pytest.fixture
def files() -> Iterator[list[int]]:
    descriptors = [create_counter_file() for _ in range(2)]
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def totals(counters: Counters, *group: str) -> dict[str, list[int]]:
    return {name: total(records) for name, records in counters.records(group).items()}


def test_sums_over_workers(files: list[int]) -> None:
    first, second = Counters(files, 0), Counters(files, 1)
    first.record(("model", "a"), "", 2)[1] += 5
    second.record(("model", "a"), "", 2)[1] += 7
    second.record(("model", "a"), "other", 1)[0] += 1
    second.record(("model", "ä" * 100), "", 1)[0] += 3
    for counters in (first, second):
        assert totals(counters, "model", "a") == {"": [0, 12], "other": [1]}
        assert totals(counters, "model", "ä" * 100) == {"": [3]}
        assert totals(counters, "model") == {}


def count_until_killed(files: list[int]) -> None:
    counters = Counters(files, 0)
    counters.gauge("running")[0] = 9
    for number in range(1000):
        counters.record(("names",), str(number), 1)[0] += 1
    counters.record(("names",), "last", 1)[0] += 1
    os.kill(os.getpid(), signal.SIGKILL)


def test_successor_continues_the_counts_of_a_killed_worker(files: list[int]) -> None:
    other = Counters(files, 1)
    other.gauge("running")[0] = 1
    for _ in range(2):
        process = multiprocessing.get_context("fork").Process(target=count_until_killed, args=(files,))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    assert other.process_ids() == {0: process.pid, 1: os.getpid()}
    assert other.gauge_total("running") == 10
    mark_ended(files[0])
    assert other.process_ids() == {1: os.getpid()}
    assert other.gauge_total("running") == 1
    names = totals(other, "names")
    assert len(names) == 1001
    assert set(map(tuple, names.values())) == {(2,)}
    Counters(files, 0)
    assert other.gauge_total("running") == 1, "gauges begin at zero"


def test_states_of_a_worker_begin_at_zero_with_its_successor(files: list[int]) -> None:
    other = Counters(files, 1)
    killed = Counters(files, 0)
    killed.record((GAUGE, "rows", "a", "1"), "", 2)[1] = 7
    killed.record(("rows", "a", "1"), "", 1)[0] = 9
    other.record((GAUGE, "rows", "a", "1"), "", 2)[0] = 5

    def states() -> list[tuple[int, tuple[str, ...], list[int]]]:
        found = other.records_of_workers((GAUGE, "rows"))
        return [(worker, group, list(record)) for worker, group, record in found]

    assert states() == [(0, ("a", "1"), [0, 7]), (1, ("a", "1"), [5, 0])]
    Counters(files, 0)
    assert states() == [(0, ("a", "1"), [0, 0]), (1, ("a", "1"), [5, 0])]
    ((worker, group, record),) = other.records_of_workers(("rows",))
    assert (worker, group, list(record)) == (0, ("a", "1"), [9])


def test_unfinished_record_is_overwritten(files: list[int]) -> None:
    """A worker is killed before it has written the size of a record: the record does not exist."""
    Counters(files, 0).record(("whole",), "", 1)[0] = 1
    os.pwrite(files[0], b"\xff" * 400, 64 + 8 * 6)  # behind the sizes that are still zero
    counters = Counters(files, 0)
    counters.record(("next",), "", 3)[2] += 1
    assert totals(Counters(files, 1), "next") == {"": [0, 0, 1]}


def test_full_file(files: list[int], caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters(files, 0)
    counters.record(("many",), "", 8_000_000)[0] = 1
    for name in "ab":
        counters.record(("further",), name, 1_000_000)[0] += 1
    assert totals(counters, "further") == {}
    assert totals(counters, "many")[""][0] == 1
    assert [record.getMessage() for record in caplog.records] == [
        "statistics of further and others are not counted: their file is full"
    ]


def test_statistics_of_models(files: list[int]) -> None:
    statistics = [ModelStatistics(Counters(files, worker), "shop", 3) for worker in (0, 1)]
    assert not statistics[0].used
    statistics[0].succeeded(2, InferenceTimes(10, 1, 2, 3, 4))
    statistics[1].succeeded(2, InferenceTimes(20, 1, 2, 3, 4))
    statistics[1].succeeded(5, InferenceTimes(30, 1, 2, 3, 4))
    statistics[1].failed(7)
    for each in statistics:
        assert each.used
        numbers = each.as_json()
        assert (numbers["inference_count"], numbers["execution_count"]) == (9, 3)
        assert numbers["inference_stats"]["success"] == {"count": 3, "ns": 60}
        assert numbers["inference_stats"]["fail"] == {"count": 1, "ns": 7}
        assert numbers["inference_stats"]["compute_infer"] == {"count": 3, "ns": 9}
        assert [batch["batch_size"] for batch in numbers["batch_stats"]] == [2, 5]
        assert numbers["batch_stats"][0]["compute_output"] == {"count": 2, "ns": 8}
        assert numbers["last_inference"] > 0


def test_batch_sizes_are_bounded(files: list[int]) -> None:
    statistics = ModelStatistics(Counters(files, 0), "shop", 3)
    for rows in range(1, 301):
        statistics.succeeded(rows, InferenceTimes(10, 1, 2, 3, 4))
    numbers = statistics.as_json()
    assert len(numbers["batch_stats"]) == 256
    assert numbers["inference_count"] == sum(range(1, 301))
    assert numbers["inference_stats"]["compute_infer"] == {"count": 300, "ns": 900}


def test_requests_by_route(files: list[int]) -> None:
    telemetry = [Telemetry(Counters(files, worker)) for worker in (0, 1)]
    telemetry[0].request("GET", "/v2", 200, 0.001)
    telemetry[1].request("GET", "/v2", 200, 0.1)
    telemetry[1].request("BREW", "/v2", 0, 0.1)
    text = telemetry[0].text()[0].decode()
    assert 'graphbox_http_requests_total{method="GET",route="/v2",status="200"} 2.0' in text
    assert 'graphbox_http_requests_total{method="other",route="/v2",status="disconnected"} 1.0' in text
    assert 'graphbox_http_request_duration_seconds_bucket{le="0.0005",route="/v2"} 0.0' in text
    assert 'graphbox_http_request_duration_seconds_bucket{le="0.001",route="/v2"} 1.0' in text
    assert 'graphbox_http_request_duration_seconds_count{route="/v2"} 3.0' in text
    for worker in (0, 1):
        assert f'process_resident_memory_bytes{{worker="{worker}"}}' in text
