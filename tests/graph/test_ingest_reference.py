"""Imports of random tables against the plain reference of the builder, cut into batches at random."""

from __future__ import annotations

import string
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbox.graph import EdgeSource, GraphSource, NodeSource
from graphbox.graph.format import read_manifest
from graphbox.graph.ingest import import_graph
from graphbox.graph.ingest.budget import Budget
from tests.graph import reference_build as reference

ODD = ["", "x", "0", "007", "9223372036854775808", "1e3", "-", "ä", "nan", "-5", " 1"]
"""Cells that are something in one column and nothing in another."""
CELLS = st.sampled_from(ODD) | st.integers(-3, 12).map(str) | st.text(string.ascii_lowercase, max_size=2)
MEBIBYTE = 1 << 20


def csv_of(columns: dict[str, list[str]], path: Path) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(row) for row in rows)]) + "\n")
    return path


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    ids = draw(st.lists(CELLS.filter(lambda cell: cell != ""), min_size=1, max_size=15, unique=True))
    size = draw(st.integers(1, 60))
    ends = st.sampled_from(ids) | CELLS

    def cells(values: st.SearchStrategy[str]) -> list[str]:
        return draw(st.lists(values, min_size=size, max_size=size))

    weights = st.sampled_from(["1", "0.5", "2e3", "0", "-1", "", "inf", "x"])
    return {"id": ids}, {"source": cells(ends), "target": cells(ends), "w": cells(weights)}


def plain(cell: str) -> bool:
    """Return whether a cell is a 64-bit integer spelled as it is printed."""
    try:
        return str(int(cell)) == cell and -(2**63) <= int(cell) < 2**63
    except ValueError:
        return False


def built(
    nodes: list[str] | None, edges: dict[str, list[str]], *, keep_duplicates: bool
) -> tuple[dict[str, Any], reference.BuiltEdges | None]:
    """Return the arrays of the reference, given what the documentation says of cells."""
    writer = reference.MemoryWriter()
    options: dict[str, Any] = {"scratch": Path(), "memory_bytes": 0}
    seen = [*edges["source"], *edges["target"]] if nodes is None else nodes
    integers = all(plain(cell) for cell in seen if cell != "")
    ids = reference.NodeIds("int64" if integers else "string", **options)
    kind = reference.arrow_type(ids.kind)

    def id_of(cell: str) -> Any:
        if not integers:
            return cell or None
        return int(cell) if plain(cell) else None

    if nodes is not None:
        ids.add(pa.array([id_of(cell) for cell in nodes], kind))
    weights = [float(cell) if cell not in ("", "x") else 0 for cell in edges["w"]]
    ends = [[id_of(cell) for cell in edges[name]] for name in ("source", "target")]
    rows = [
        row
        for row, weight in enumerate(weights)
        if 0 < weight < np.inf and ends[0][row] is not None and ends[1][row] is not None
    ]
    builder = reference.EdgeBuilder(
        ids,
        ids,
        discover=(nodes is None,) * 2,
        columns={"weight": np.dtype(np.float32)},
        keep_duplicates=keep_duplicates,
        **options,
    )
    sources, targets = (pa.array([each[row] for row in rows], kind) for each in ends)
    builder.add(sources, targets, {"weight": np.array([weights[row] for row in rows], np.float32)})
    result = builder.finish(writer, "edges")
    ids.write(writer, "ids")
    return writer.arrays, result if result.num_edges else None


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=tables(),
    found=st.booleans(),
    keep_duplicates=st.booleans(),
    batch_bytes=st.sampled_from([60, 400, 1 << 20]),
    threads=st.sampled_from([1, 2]),
)
def test_an_import_is_what_the_reference_builds(
    case: tuple[dict[str, list[str]], dict[str, list[str]]],
    found: bool,
    keep_duplicates: bool,
    batch_bytes: int,
    threads: int,
) -> None:
    nodes, edges = case
    expected, result = built(None if found else nodes["id"], edges, keep_duplicates=keep_duplicates)
    budget = Budget(1 << 30, batch_bytes, MEBIBYTE, 200 * MEBIBYTE)
    with TemporaryDirectory() as name, mock.patch.object(Budget, "divide", return_value=budget):
        folder = Path(name)
        table = NodeSource() if found else NodeSource(csv_of(nodes, folder / "node.csv"))
        source = EdgeSource(
            ("n", "to", "n"),
            csv_of(edges, folder / "edge.csv"),
            weight="w",
            keep_duplicates=keep_duplicates,
        )
        graph = GraphSource("random", {"n": table}, (source,))
        if result is None:
            return  # every row is unusable, which tests of mistakes look at
        report = import_graph(graph, folder / "graph", threads=threads).edges[0]
        manifest = read_manifest(folder / "graph")
        entry, ids = manifest["edge_types"][0], manifest["node_types"][0]["ids"]
        names = {f"edges/{array}": entry[array] for array in ("indptr", "indices", "weight")}
        names |= (
            {"ids/ids": ids["values"]}
            if "values" in ids
            else {
                "ids/ids-offsets": ids["offsets"],
                "ids/ids-text": ids["text"],
            }
        )
        arrays = {array: np.load(folder / "graph" / path) for array, path in names.items()}
    assert arrays.keys() == expected.keys()
    for array, values in arrays.items():
        assert values.dtype == expected[array].dtype, array
        np.testing.assert_array_equal(values, expected[array], array)
    assert (report.rows, report.edges) == (len(edges["w"]), result.num_edges)
    assert (report.duplicate_edges, report.self_loops) == (result.duplicates, result.self_loops)
    assert report.dangling_edges == result.dangling
    assert sum(report.skipped.values()) + result.rows == report.rows
