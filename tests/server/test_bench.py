"""Latency of requests: what is asked is what clients ask, and it is asked of a whole server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphbox.artifact import Artifact
from graphbox.deploy import open_model
from graphbox.deploy.bench import bench
from graphbox.errors import GraphboxError, UsageError
from graphbox.server.bench import bench_requests
from tests.server.sample_models import write_encoder, write_numbers, write_vectors

FORMATS = Path(__file__).parents[1] / "formats" / "artifact-1"


@pytest.mark.parametrize("write", [write_encoder, write_vectors, write_numbers])
def test_requests_of_models_with_embeddings(tmp_path: Path, write: Callable[..., Artifact]) -> None:
    path = tmp_path / "model" / "1"
    write(path, name="model")
    found = bench_requests({"one": path, "same": path}, (1, 4), seconds=0.05)
    assert set(found) == {"one", "same"}
    for latencies in found.values():
        assert [(each.operation, each.latency.batch) for each in latencies] == [
            ("neighbors", 1),
            ("infer", 1),
            ("infer", 4),
        ]
        for each in latencies:
            assert 0 < each.latency.p50_ms <= each.latency.p99_ms
            assert each.latency.repeats == 5
            assert each.effective["adapter"] == "onnxruntime"


@pytest.mark.parametrize(
    ("kind", "operations"),
    [("click", ["infer", "infer"]), ("knowledge_graph", ["answers", "infer", "infer"])],
)
def test_requests_of_other_kinds(kind: str, operations: list[str]) -> None:
    found = bench_requests({"model": FORMATS / kind / "1"}, (1, 3), seconds=0.05)["model"]
    assert [each.operation for each in found] == operations


def test_request_costs_more_than_its_lookup(tmp_path: Path) -> None:
    path = tmp_path / "model" / "1"
    write_vectors(path, name="model")
    (neighbors, infer) = bench_requests({"model": path}, (1,), seconds=0.2)["model"]
    with open_model(path) as model:
        lookup = bench(model, (1,), seconds=0.2, operation="encode").batches[0]
    assert neighbors.latency.p50_min_ms > lookup.p50_ms
    assert infer.latency.p50_min_ms > lookup.p50_ms


def test_requests_are_measured_where_an_event_loop_runs(tmp_path: Path) -> None:
    path = tmp_path / "model" / "1"
    write_vectors(path, name="model")

    async def notebook() -> Any:
        return bench_requests({"model": path}, (1,), seconds=0.05)

    assert asyncio.run(notebook())["model"]


def test_damaged_version_is_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "model" / "1"
    write_vectors(path, name="model")
    table = next(each for each in (path / "tables").rglob("*") if each.is_file())
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(GraphboxError, match="expected"):
        bench_requests({"model": path}, (1,), seconds=0.05)


def test_there_has_to_be_something_to_measure() -> None:
    with pytest.raises(UsageError, match="at least 5 repeats"):
        bench_requests({}, (1,), repeats=1)
