"""With the least memory that an import asks for it works, whatever columns and types there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DoesNotFitError
from graphbox.graph.ingest.budget import Budget, least_bytes
from graphbox.graph.ingest.demand import Demand

MEBIBYTE = 1 << 20
ROWS = 40_000

IMPORT = """
    import json, sys
    from pathlib import Path
    from graphbox.errors import DoesNotFitError
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.ingest import import_graph

    document = json.loads(sys.argv[1])
    nodes = {name: NodeSource(**each) for name, each in document["nodes"].items()}
    edges = tuple(EdgeSource(tuple(each.pop("type")), **each) for each in document["edges"])
    source = GraphSource("g", nodes, edges)
    destination = Path(sys.argv[2])
    try:
        import_graph(source, destination, memory_bytes=1 << 20)
    except DoesNotFitError as error:
        least = int(error.hint.split()[2]) << 20
    report = import_graph(source, destination, memory_bytes=least, threads=int(sys.argv[3]))
    peak = report.peak_memory_bytes
    print(json.dumps({"least": least, "peak": peak, "edges": sum(each.edges for each in report.edges)}))
"""

Tables = dict[str, Any]


def written(path: Path, columns: dict[str, Any]) -> str:
    table = pa.table(columns)
    if path.suffix == ".csv":
        arrow_csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return str(path)


def ends(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"source": rng.permutation(rows), "target": rng.permutation(rows)}


def many_columns(folder: Path, suffix: str) -> Tables:
    rng = np.random.default_rng(1)
    numbers = {f"x{number}": rng.random(ROWS // 4).astype(np.float32) for number in range(120)}
    kinds = {f"k{number}": [f"kind {row % 300}" for row in range(ROWS // 4)] for number in range(30)}
    nodes = written(folder / f"n{suffix}", {"id": np.arange(ROWS // 4), **numbers, **kinds})
    edges = written(folder / f"e{suffix}", ends(ROWS // 4))
    features = dict.fromkeys(numbers, "number") | dict.fromkeys(kinds, "categorical")
    return {
        "nodes": {"n": {"data": nodes, "features": features}},
        "edges": [{"type": ["n", "to", "n"], "data": edges}],
    }


def wide_edges(folder: Path, suffix: str) -> Tables:
    rows = 6000
    vectors = np.random.default_rng(2).random((rows, 600)).astype(np.float32)
    vector: Any = list(vectors)
    if suffix == ".csv":
        vector = ["|".join(f"{value:.3f}" for value in row) for row in vectors]
    numbers = {f"x{number}": np.arange(rows) for number in range(14)}
    edges = written(folder / f"e{suffix}", {**ends(rows), "v": vector, **numbers})
    features = {"v": "vector", **dict.fromkeys(numbers, "integer")}
    return {"nodes": {"n": {}}, "edges": [{"type": ["n", "to", "n"], "data": edges, "features": features}]}


def many_types(folder: Path, suffix: str) -> Tables:
    names = [f"t{number}" for number in range(12)]
    edges = []
    for number, name in enumerate(names):
        columns = {**ends(ROWS // 8, number), "kind": [f"kind {row % 40}" for row in range(ROWS // 8)]}
        path = written(folder / f"e{number}{suffix}", columns)
        target = names[(number + 1) % len(names)]
        edges.append({"type": [name, "to", target], "data": path, "features": {"kind": "categorical"}})
    return {"nodes": {name: {} for name in names}, "edges": edges}


def wide_strings(folder: Path, suffix: str) -> Tables:
    ids = [f"{'long ' * 150}{number}" for number in range(ROWS // 2)]
    tags = [f"{number % 97}|tag {number % 1009}" for number in range(ROWS // 2)]
    nodes = written(folder / f"n{suffix}", {"id": ids, "tags": tags})
    order = ends(ROWS // 2)
    edges = {name: [ids[row] for row in rows] for name, rows in order.items()}
    return {
        "nodes": {
            "n": {"data": nodes, "features": {"tags": "slots"}} if suffix == ".csv" else {"data": nodes}
        },
        "edges": [{"type": ["n", "to", "n"], "data": written(folder / f"e{suffix}", edges)}],
    }


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("schema", [many_columns, wide_edges, many_types, wide_strings])
def test_the_least_memory_is_enough(
    schema: Callable[[Path, str], Tables], suffix: str, tmp_path: Path
) -> None:
    tables = schema(tmp_path, suffix)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IMPORT), json.dumps(tables), str(tmp_path / "g"), "2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["edges"] > 0
    assert document["peak"] <= 1.1 * document["least"]


@pytest.mark.parametrize(
    "demand",
    [
        Demand(1),
        Demand(7, table_columns=300, categorical_columns=40),
        Demand(1, edge_columns=20, edge_row_bytes=5000, edge_input_bytes=10**11),
    ],
)
def test_what_is_said_to_be_enough_is_enough(demand: Demand) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        Budget.divide(MEBIBYTE, demand)
    (least,) = re.findall(r"give it (\d+) MiB", caught.value.hint or "")
    budget = Budget.divide(int(least) * MEBIBYTE, demand)
    assert budget.parts_bytes >= budget.least_edges_bytes + demand.node_types * 22 * MEBIBYTE
    assert budget.categories_bytes >= demand.categorical_columns * MEBIBYTE // 2


def test_the_least_budget_is_exact_to_its_step() -> None:
    demand = Demand(2)
    least = least_bytes(demand)
    assert Budget.of(least, demand) is not None
    assert Budget.of(least - 16 * MEBIBYTE, demand) is None
