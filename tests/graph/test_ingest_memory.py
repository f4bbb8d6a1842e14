"""The memory an import may take: kept whatever the size of the graph, and changing nothing of the result."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DoesNotFitError
from graphbox.graph import GraphSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.ingest.budget import PROGRAM_BYTES, Budget, Shares, least_bytes
from graphbox.graph.ingest.demand import Demand
from graphbox.memory import available_bytes, resident_bytes

MEBIBYTE = 1 << 20

IMPORT = """
    import json, sys
    from pathlib import Path
    from graphbox.errors import DoesNotFitError
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.ingest import import_graph

    folder, suffix, destination = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    memory_bytes, threads = json.loads(sys.argv[4]), json.loads(sys.argv[5])
    features = {"x": "number", "kind": "categorical", "tags": "slots"}
    nodes = NodeSource(folder / f"node{suffix}", features=features)
    edges, kind = folder / f"edge{suffix}", {"kind": "categorical"}
    to = EdgeSource(("n", "to", "n"), edges, weight="w", timestamp="t", features=kind)
    met = EdgeSource(("a", "meets", "b"), edges)
    source = GraphSource("g", {"n": nodes, "a": NodeSource(), "b": NodeSource()}, (to, met))
    try:
        report = import_graph(source, destination, memory_bytes=memory_bytes, threads=threads)
    except DoesNotFitError as error:
        print(json.dumps({"error": str(error), "hint": error.hint}))
    else:
        # Not ru_maxrss, which a child inherits from the process that started it.
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps({**report.as_dict(), "high_water_bytes": int(status["VmHWM"].split()[0]) * 1024}))
"""


BESIDE_FRAMES = """
    import json, sys
    from pathlib import Path

    import numpy as np

    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.ingest import import_graph
    from graphbox.memory import resident_bytes

    memory_bytes, held_bytes = json.loads(sys.argv[3]), json.loads(sys.argv[4])
    held = np.ones(held_bytes, np.uint8)
    edges = EdgeSource(("n", "to", "n"), Path(sys.argv[1]) / "edge.parquet", weight="w", timestamp="t")
    source = GraphSource("g", {"n": NodeSource()}, (edges,))
    before = resident_bytes()
    assert before > memory_bytes
    report = import_graph(source, Path(sys.argv[2]), memory_bytes=memory_bytes, threads=2)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    added = int(status["VmHWM"].split()[0]) * 1024 - before
    print(json.dumps({"added": added, "reported": report.peak_memory_bytes, "edges": report.edges[0].edges}))
"""


def test_what_the_process_held_before_is_outside_the_budget(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", 20_000, 400_000, ".parquet")
    memory = least_bytes(Demand(1, edge_columns=2, edge_row_bytes=12)) + 32 * MEBIBYTE
    arguments = [tmp_path / "tables", tmp_path / "graph", memory, 2 * memory]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BESIDE_FRAMES), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["edges"] > 300_000
    assert 0 < document["added"] <= memory
    assert document["reported"] <= memory


def write_tables(folder: Path, num_nodes: int, num_edges: int, suffix: str) -> None:
    rng = np.random.default_rng(num_edges)
    # Of one form and yet scattered: an odd factor permutes the integers of 64 bits.
    ids = (np.arange(num_nodes, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    ends = [ids[(num_nodes * rng.random(num_edges) ** 3).astype(np.int64)] for _ in range(2)]
    kinds = np.array([f"kind {number}" for number in range(50)])
    tags = pa.array([f"{number % 97}|tag {number % 1009}" for number in range(num_nodes)])
    nodes = {"id": ids, "x": rng.random(num_nodes, np.float32), "kind": kinds[np.arange(num_nodes) % 50]}
    edges = {
        "source": ends[0],
        "target": ends[1],
        "w": rng.random(num_edges, np.float32) + 1,
        "t": rng.integers(0, 2**40, num_edges),
        "kind": kinds[rng.integers(0, 50, num_edges)],
    }
    folder.mkdir(exist_ok=True)
    lists = pc.split_pattern(tags, "|") if suffix == ".parquet" else tags
    for name, table in (("node", pa.table({**nodes, "tags": lists})), ("edge", pa.table(edges))):
        if suffix == ".parquet":
            pq.write_table(table, folder / f"{name}.parquet")
        else:
            options = arrow_csv.WriteOptions(delimiter="\t", quoting_style="none")
            arrow_csv.write_csv(table, folder / f"{name}.tsv", options)


def run(
    folder: Path, suffix: str, destination: Path, memory_bytes: int | None, threads: int = 2
) -> dict[str, Any]:
    arguments = [str(folder), suffix, str(destination), json.dumps(memory_bytes), json.dumps(threads)]
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IMPORT), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.stderr == ""
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".tsv"])
@pytest.mark.parametrize("num_edges", [100_000, 2_000_000])
def test_the_budget_holds_and_changes_nothing(suffix: str, num_edges: int, tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", num_edges // 20, num_edges, suffix)
    refused = run(tmp_path / "tables", suffix, tmp_path / "none", 64 * MEBIBYTE)
    assert "expected at least" in refused["error"]
    least = int(refused["hint"].split()[2]) * MEBIBYTE
    free = run(tmp_path / "tables", suffix, tmp_path / "free", None)
    expected = files_of(tmp_path / "free")
    for name, memory, threads in (("least", least, 2), ("more", least + 100 * MEBIBYTE, 1)):
        report = run(tmp_path / "tables", suffix, tmp_path / name, memory, threads)
        assert "error" not in report, report["error"]
        assert report["memory_bytes"] == memory
        assert report["high_water_bytes"] <= 1.1 * memory
        assert report["peak_memory_bytes"] <= 1.1 * memory
        assert files_of(tmp_path / name) == expected
        assert report["edges"] == free["edges"]


@pytest.mark.slow
def test_the_least_that_works_is_said(tmp_path: Path, papers: GraphSource) -> None:
    with pytest.raises(DoesNotFitError, match="expected at least") as caught:
        import_graph(papers, tmp_path / "graph", memory_bytes=10 * MEBIBYTE)
    assert caught.value.hint is not None
    least = int(caught.value.hint.split()[2]) * MEBIBYTE
    assert import_graph(papers, tmp_path / "graph", memory_bytes=least).memory_bytes == least


@pytest.mark.parametrize("node_types", [1, 2, 3, 4, 5])
def test_with_the_least_memory_every_part_has_what_it_cannot_do_without(node_types: int) -> None:
    demand = Demand(node_types, categorical_columns=1)
    with pytest.raises(DoesNotFitError) as caught:
        Budget.divide(MEBIBYTE, demand)
    assert caught.value.hint is not None
    least = int(caught.value.hint.split()[2]) * MEBIBYTE
    budget = Budget.divide(least, demand)
    assert budget.categories_bytes >= 2 * MEBIBYTE
    assert budget.parts_bytes >= (32 + 22 * node_types) * MEBIBYTE


def test_half_of_what_is_available_is_taken_by_default() -> None:
    budget = Budget.divide(None, Demand(1, categorical_columns=1))
    half = (available_bytes() + min(resident_bytes(), PROGRAM_BYTES)) // 2
    assert abs(budget.total_bytes - half) < half // 4
    assert budget.total_bytes > PROGRAM_BYTES + budget.parts_bytes + budget.categories_bytes


def test_shares_never_exceed_the_budget() -> None:
    budget = Budget(1000 * MEBIBYTE, MEBIBYTE, 0, 900 * MEBIBYTE)
    shares = Shares(budget, {"a": 100, "b": None, "c": 300})
    first = shares.of_ids("a")
    before = shares.of_edges()
    shares.settle("a", first // 10)
    assert shares.of_edges() >= before  # what `a` leaves over helps those that follow
    second, third = shares.of_ids("b"), shares.of_ids("c")
    assert third > second
    assert first // 10 + second + third + shares.of_edges() == budget.parts_bytes
    assert shares.of_edges() >= 32 * MEBIBYTE
