"""A new version beside the active one: what can be compared, and which is better."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graphbox.workspace import BenchRecord, ModelRecord, Pair, compare


def measured(**values: Any) -> ModelRecord:
    bench = tuple(
        BenchRecord("cpu", batch, 1, p50_ms, p50_ms, 1.0, datetime.now(UTC), operation)
        for operation, batch, p50_ms in values.pop("bench", [])
    )
    known: dict[str, Any] = {
        "name": "encoder",
        "version": 2,
        "kind": "encoder",
        "task": "companion",
        "path": Path("models/encoder/2"),
        "size_bytes": 100,
        "precision": "float32",
        "parent": None,
        "run_id": None,
        "metrics": {"companion": {"mrr": 0.9, "recall@20": 0.5}},
        "created_at": datetime.now(UTC),
        "active": False,
        "deciding_metric": "recall@20",
        "measured_on": "a",
    }
    return ModelRecord(**{**known, "bench": bench, **values})


def test_comparison_with_the_active_version() -> None:
    active = measured(version=1, size_bytes=50, bench=[("neighbors", 1, 2.0), ("program", 1, 0.1)])
    new = measured(
        metrics={"companion": {"recall@20": 0.6}}, bench=[("infer", 1, 1.0), ("neighbors", 1, 3.0)]
    )
    comparison = compare(new, active)
    assert (comparison.metric, comparison.quality) == ("recall@20", Pair(0.6, 0.5))
    assert comparison.is_better
    assert comparison.size_bytes == Pair(100, 50)
    assert (comparison.request, comparison.request_ms) == ("neighbors", Pair(3.0, 2.0))
    assert not compare(active, new).is_better
    assert compare(measured(), active).request_ms == Pair(None, 2.0), "a part of a request is no request"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task": "section", "metrics": {"section": {"recall@20": 0.1}}}, "version 1 for section"),
        ({"deciding_metric": "mrr"}, "measured by recall@20, version 1 by mrr"),
        ({"measured_on": "b"}, "another version of the graph or another test part"),
        ({"measured_on": None}, "an earlier release made it"),
        ({"metrics": {"companion": {}}}, "version 1 has no recall@20"),
    ],
)
def test_metrics_that_cannot_be_compared(change: dict[str, Any], reason: str) -> None:
    comparison = compare(measured(), measured(version=1, **change))
    assert comparison.not_comparable is not None
    assert reason in comparison.not_comparable
    assert not comparison.is_better
