"""Plans of imports: the formulas against what imports take, and what is said when it does not fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DoesNotFitError
from graphbox.graph import EdgeSource, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.plan import ImportPlan, plan_import

BUYS = ("user", "buys", "item")
TOLERANCE = 0.15
KEPT_BYTES = 16 << 20
"""Tolerance for freed memory that allocators keep, and for stacks of threads, which vary by machine: most of
the peak of a small import is that of the interpreter and its libraries."""


def written(path: Path, edges: int, *, strings: bool = False) -> Path:
    rng = np.random.default_rng(edges)
    users = rng.integers(0, edges // 8 + 1, edges) * 2_654_435_761 % (1 << 40)
    items = rng.zipf(1.4, edges) % (edges // 20 + 1)
    target: npt.NDArray[np.int64] | list[str] = [f"item-{item}" for item in items] if strings else items
    columns = {"source": users, "target": target, "price": rng.random(edges, dtype=np.float32) + 0.1}
    pq.write_table(pa.table(columns), path)
    return path


def source_of(path: Path, **settings: Any) -> GraphSource:
    edges = EdgeSource(BUYS, path, weight="price", **settings)
    return GraphSource("shop", {"user": NodeSource(), "item": NodeSource()}, (edges,))


def off(predicted: float, measured: float) -> float:
    return abs(predicted / measured - 1)


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("csr", [False, True])
def test_the_size_is_exact_when_the_tables_are_read_wholly(tmp_path: Path, strings: bool, csr: bool) -> None:
    source = source_of(written(tmp_path / "e.parquet", 100_000, strings=strings), csr=csr)
    plan = plan_import(source, str(tmp_path / "g"), probe=False)
    report = import_graph(source, str(tmp_path / "g"))
    assert report.path == tmp_path / "g"
    assert off(plan.size_bytes, report.size_bytes) < 0.01
    assert plan.written_bytes == plan.size_bytes
    assert plan.scratch_bytes == 0
    assert plan.uncertain == ()


def test_node_tables_and_features(tmp_path: Path) -> None:
    count = 5000
    rng = np.random.default_rng(0)
    columns = {
        "id": [f"n{number}" for number in range(count)],
        "x": rng.random(count),
        "kind": [f"kind {number % 17}" for number in range(count)],
        "embedding": list(rng.random((count, 8), dtype=np.float32)),
        "flag": rng.random(count) < 0.5,
    }
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    ends = {
        name: [f"n{number}" for number in rng.integers(0, count, 20_000)] for name in ("source", "target")
    }
    pq.write_table(pa.table(ends), tmp_path / "e.parquet")
    features = {"x": "number", "kind": "categorical", "embedding": "vector", "flag": "boolean"}
    nodes = NodeSource(tmp_path / "n.parquet", features=features)  # type: ignore[arg-type]
    source = GraphSource("g", {"n": nodes}, (EdgeSource(("n", "to", "n"), tmp_path / "e.parquet"),))
    plan = plan_import(source, tmp_path / "g", probe=False)
    assert off(plan.size_bytes, import_graph(source, tmp_path / "g").size_bytes) < 0.01
    assert plan.feature_bytes == count * (4 + 4 + 32 + 1)


def test_less_memory_means_scratch(tmp_path: Path) -> None:
    source = source_of(written(tmp_path / "e.parquet", 4_000_000))
    whole = plan_import(source, tmp_path / "g", probe=False)
    assert whole.in_memory_bytes <= whole.memory_bytes
    little = _least_memory(source, tmp_path)
    tight = plan_import(source, tmp_path / "g", memory_bytes=little, probe=False)
    assert tight.peak_memory_bytes <= little
    assert tight.scratch_bytes == 4_000_000 * (8 + 4)
    assert tight.size_bytes == whole.size_bytes
    assert tight.written_bytes == tight.size_bytes + tight.scratch_bytes


def _least_memory(source: GraphSource, folder: Path) -> int:
    """Return the least memory that an import can do with."""
    with pytest.raises(DoesNotFitError) as caught:
        plan_import(source, folder / "g", memory_bytes=1, probe=False)
    return int(caught.value.message.split()[3].replace(",", ""))


def test_time_and_rates(tmp_path: Path) -> None:
    source = source_of(written(tmp_path / "e.parquet", 300_000))
    plan = plan_import(source, tmp_path / "g")
    low, likely, high = plan.seconds
    assert 0 < low < likely < high
    assert plan.disk.write_bytes_per_s > 1e6
    assert not list(tmp_path.glob(".graphbox*")), "the probe leaves nothing"
    document = json.loads(json.dumps(plan.as_dict()))
    assert document["fits"] is True
    assert document["tiers"]["MEM"]["all_topology_bytes"] == plan.topology_bytes


def test_what_does_not_fit_and_what_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    source = source_of(written(tmp_path / "e.parquet", 1_500_000))
    plan = plan_import(source, tmp_path / "g", memory_bytes=_least_memory(source, tmp_path), probe=False)
    room = plan.size_bytes + plan.scratch_bytes // 2
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(room, 0, room))
    tight = plan_import(source, tmp_path / "g", memory_bytes=plan.memory_bytes, probe=False)
    ((message, hint),) = tight.problems
    assert f"received {room:,}" in message
    assert "no scratch space is needed" in hint
    enough = plan_import(source, tmp_path / "g", memory_bytes=tight.in_memory_bytes, probe=False)
    assert enough.problems == ()


def _measured(path: Path, folder: Path, memory: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan and import in processes of their own, as a user does."""
    options = [str(path), "--type", "user,buys,item", "--weight", "price", "--memory", memory, "--json", "-q"]
    documents = []
    for verb, extra in (("plan", []), ("import", ["--name", "g", "--again"])):
        arguments = ["-m", "graphbox", "-C", str(folder / "workspace"), verb, *options, *extra]
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        documents.append(json.loads(done.stdout))
    return documents[0], documents[1]["report"]


def _check_prediction(path: Path, folder: Path, memory: str) -> None:
    plan, report = _measured(path, folder, memory)
    memory_tier, disk_tier = plan["tiers"]["MEM"], plan["tiers"]["SSD"]
    peak = report["peak_memory_bytes"]
    assert abs(memory_tier["peak_bytes"] - peak) < TOLERANCE * peak + KEPT_BYTES
    assert off(disk_tier["size_bytes"], report["size_bytes"]) < TOLERANCE
    assert off(disk_tier["written_bytes"], report["written_bytes"]) < TOLERANCE


def test_prediction_of_a_small_import(tmp_path: Path) -> None:
    _check_prediction(written(tmp_path / "e.parquet", 400_000, strings=True), tmp_path, "1GiB")


@pytest.mark.stress
@pytest.mark.parametrize("edges", [200_000, 1_000_000, 3_000_000, 6_000_000, 10_000_000])
def test_predictions_of_five_sizes(tmp_path: Path, edges: int) -> None:
    path = written(tmp_path / "e.parquet", edges)
    _check_prediction(path, tmp_path, "2GiB")
    _check_prediction(path, tmp_path, "450MB")


def test_types_of_the_plan(tmp_path: Path) -> None:
    plan: ImportPlan = plan_import(source_of(written(tmp_path / "e.parquet", 1000)), tmp_path, probe=False)
    assert [(each.kind, each.name) for each in plan.types] == [
        ("nodes", "user"),
        ("nodes", "item"),
        ("edges", "user__buys__item"),
    ]
    assert plan.types[2].rows is not None
    assert plan.types[2].rows.likely == 1000
