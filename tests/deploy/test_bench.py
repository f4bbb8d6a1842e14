"""Latency and throughput measurements of models."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import numpy as np
import pytest

from graphbox.deploy import DeployedEncoder
from graphbox.deploy.bench import bench, bench_together
from graphbox.errors import UsageError


@pytest.mark.parametrize("operation", ["encode", "neighbors", "program"])
def test_every_batch_size_is_measured(encoder: DeployedEncoder, operation: Any) -> None:
    report = bench(encoder, (1, 8), seconds=0.05, operation=operation)
    assert [batch.batch for batch in report.batches] == [1, 8]
    assert report.effective["provider"] == "CPUExecutionProvider"
    for batch in report.batches:
        assert batch.repeats == 5
        assert batch.calls >= 5
        assert 0 < batch.p50_min_ms <= batch.p50_ms <= batch.p50_max_ms
        assert batch.p50_ms <= batch.p99_ms
        assert batch.rows_per_s > 0
    assert json.loads(json.dumps(report.as_dict()))["batches"][1]["batch"] == 8


class _Timed(DeployedEncoder):
    """A model whose calls take a known time."""

    def __init__(self, model: DeployedEncoder, seconds: float, calls: list[float]) -> None:
        self.__dict__.update(model.__dict__)
        self._seconds, self._calls_seen = seconds, calls

    def encode_indices(self, indices: Any, node_type: str | None = None) -> Any:
        self._calls_seen.append(self._seconds)
        stop = time.perf_counter() + self._seconds
        while time.perf_counter() < stop:
            pass
        return np.empty((len(indices), 4), np.float32)


def test_figures_are_the_times_of_the_calls_and_models_alternate(encoder: DeployedEncoder) -> None:
    calls: list[float] = []
    models: dict[str, DeployedEncoder] = {
        "slow": _Timed(encoder, 0.004, calls),
        "fast": _Timed(encoder, 0.002, calls),
    }
    reports = bench_together(models, (4,), seconds=0.1)
    slow, fast = (reports[name].batches[0] for name in ("slow", "fast"))
    # A busy machine makes calls longer than their own work, never shorter.
    assert 4 <= slow.p50_min_ms <= slow.p50_ms <= slow.p99_ms
    assert 2 <= fast.p50_min_ms < slow.p99_ms
    assert slow.rows_per_s <= 1000
    changes = sum(first != second for first, second in itertools.pairwise(calls))
    assert changes == 2 * (5 + 1) - 1, "warm-up and five repeats, one model after the other"


@pytest.mark.parametrize(
    "wrong", [{"batch_sizes": ()}, {"batch_sizes": (0,)}, {"repeats": 4}, {"seconds": 0}]
)
def test_there_has_to_be_something_to_measure(encoder: DeployedEncoder, wrong: Any) -> None:
    with pytest.raises(UsageError, match="at least 5 repeats"):
        bench(encoder, **wrong)
