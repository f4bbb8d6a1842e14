"""Graphs with random schemas and random content: everything that goes in comes back."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbox.errors import UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import EdgeType, FeatureKind

# No line breaks (refused in ids) and no surrogates (no UTF-8); NUL ends a cell for some CSV readers.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
NAMES = st.from_regex(r"[a-zA-Z][a-z0-9]{0,5}", fullmatch=True)
INT64 = st.integers(-(2**63), 2**63 - 1)
WORDS = TEXT.filter(lambda text: "|" not in text and not text.lstrip("-").isdigit())
VALUES: dict[FeatureKind, st.SearchStrategy[Any]] = {
    "number": st.none() | st.floats(width=32, allow_nan=False),
    "integer": INT64,
    "categorical": st.none() | TEXT,
    "boolean": st.booleans(),
    "vector": st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3),
    "slots": st.lists(INT64, max_size=4) | st.lists(WORDS, max_size=4),
}
LISTS = ("vector", "slots")


@dataclass
class Table:
    columns: dict[str, list[Any]]
    kinds: dict[str, FeatureKind] = field(default_factory=dict)
    is_text: bool = False


@dataclass
class Case:
    nodes: dict[str, Table]
    edges: dict[EdgeType, Table]
    keep_duplicates: bool


@st.composite
def features(draw: st.DrawFn, rows: int, *, is_text: bool, slots: bool) -> Table:
    allowed = [kind for kind in VALUES if slots or kind != "slots"]
    names = draw(
        st.lists(
            TEXT.filter(lambda name: name not in ("id", "source", "target", "w", "t")),
            max_size=3,
            unique=True,
        )
    )
    kinds = {name: draw(st.sampled_from(allowed)) for name in names}
    # A column of Parquet holds lists of one type.
    slot_values = draw(st.sampled_from([INT64, WORDS]))
    values = VALUES if is_text else {**VALUES, "slots": st.lists(slot_values, max_size=4)}
    columns = {
        name: draw(st.lists(values[kind], min_size=rows, max_size=rows)) for name, kind in kinds.items()
    }
    return Table(columns, kinds, is_text)


@st.composite
def graphs(draw: st.DrawFn) -> Case:
    nodes: dict[str, Table] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        ids = draw(st.lists(draw(st.sampled_from([TEXT, INT64])), min_size=1, max_size=12, unique=True))
        table = draw(features(len(ids), is_text=draw(st.booleans()), slots=True))
        table.columns = {"id": ids, **table.columns}
        nodes[name] = table
    types = st.tuples(st.sampled_from(list(nodes)), NAMES, st.sampled_from(list(nodes)))
    edges: dict[EdgeType, Table] = {}
    for edge_type in draw(st.lists(types, min_size=1, max_size=3, unique=True)):
        ends = [nodes[edge_type[end]].columns["id"] for end in (0, 2)]
        pairs = draw(st.lists(st.tuples(*map(st.sampled_from, ends)), min_size=1, max_size=30))
        table = draw(features(len(pairs), is_text=draw(st.booleans()), slots=False))
        weight = st.floats(0.125, 2.0**60, width=32)
        table.columns = {
            "source": [source for source, _ in pairs],
            "target": [target for _, target in pairs],
            "w": draw(st.lists(weight, min_size=len(pairs), max_size=len(pairs))),
            "t": draw(st.lists(INT64, min_size=len(pairs), max_size=len(pairs))),
            **table.columns,
        }
        edges[edge_type] = table
    return Case(nodes, edges, draw(st.booleans()))


def written(table: Table, path: Path) -> Path:
    if not table.is_text:
        path = path.with_suffix(".parquet")
        types = {name: list_type(table, name) for name, kind in table.kinds.items() if kind in LISTS}
        arrays = {name: pa.array(values, types.get(name)) for name, values in table.columns.items()}
        pq.write_table(pa.table(arrays), path)
        return path
    path = path.with_suffix(".tsv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(table.columns)
        for row in zip(*table.columns.values(), strict=True):
            writer.writerow(map(cell_text, row))
    return path


def list_type(table: Table, name: str) -> pa.DataType:
    if table.kinds[name] == "vector":
        return pa.list_(pa.float32())
    words = any(isinstance(value, str) for row in table.columns[name] for value in row)
    return pa.list_(pa.string() if words else pa.int64())


def cell_text(cell: Any) -> str:
    if isinstance(cell, list):
        return "|".join(map(cell_text, cell))
    return "" if cell is None else repr(cell) if isinstance(cell, float) else str(cell)


def source_of(case: Case, folder: Path) -> GraphSource:
    nodes = {
        name: NodeSource(
            written(table, folder / f"nodes-{number}"),
            features=table.kinds,
            id_type="string" if isinstance(table.columns["id"][0], str) else "int64",
        )
        for number, (name, table) in enumerate(case.nodes.items())
    }
    edges = tuple(
        EdgeSource(
            edge_type,
            written(table, folder / f"edges-{number}"),
            weight="w",
            timestamp="t",
            features=table.kinds,
            keep_duplicates=case.keep_duplicates,
        )
        for number, (edge_type, table) in enumerate(case.edges.items())
    )
    return GraphSource("random", nodes, edges)


def slot_value(value: int | str) -> int:
    if isinstance(value, int):
        return value
    hashed = xxhash.xxh64_intdigest(value.encode())
    return hashed - 2**64 if hashed >= 2**63 else hashed


def same(
    kind: FeatureKind, array: np.ndarray, categories: tuple[str, ...] | None, expected: list[Any]
) -> bool:
    if kind == "categorical":
        assert categories is not None
        return [None if code < 0 else categories[code] for code in array.tolist()] == expected
    if kind == "number":
        return np.array_equal(
            array, np.array([np.nan if v is None else v for v in expected], np.float32), equal_nan=True
        )
    return bool(array.tolist() == expected)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(case=graphs())
def test_everything_comes_back(case: Case) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        import_graph(source_of(case, folder), folder / "graph")
        graph = Graph.open(folder / "graph", verify_digests=True)

    for node_type, table in case.nodes.items():
        ids = table.columns["id"]
        assert graph.ids(node_type).tolist() == ids
        assert graph.index(node_type, ids).tolist() == list(range(len(ids)))
        specs = graph.features(node_type)
        assert list(specs) == list(table.kinds)
        for name, kind in table.kinds.items():
            expected = table.columns[name]
            if kind == "slots":
                offsets, values = graph.slot_lists(node_type, name)
                rows = [values[slice(*pair)].tolist() for pair in pairwise(offsets.tolist())]
                assert rows == [[slot_value(value) for value in row] for row in expected], name
            else:
                assert same(kind, graph.feature(node_type, name), specs[name].categories, expected), name
                with pytest.raises(UsageError, match="of the kind `slots`"):
                    graph.slot_lists(node_type, name)

    for edge_type, table in case.edges.items():
        check_edges(graph, edge_type, table, keep_duplicates=case.keep_duplicates)


def check_edges(graph: Graph, edge_type: EdgeType, table: Table, *, keep_duplicates: bool) -> None:
    """Compare an edge type with its rows: sorted by target, source, row; first of duplicates."""
    sources = graph.index(edge_type[0], table.columns["source"]).tolist()
    targets = graph.index(edge_type[2], table.columns["target"]).tolist()
    rows = sorted(range(len(sources)), key=lambda row: (targets[row], sources[row], row))
    if not keep_duplicates:
        rows = [
            row
            for row in rows
            if (sources[row], targets[row]) not in zip(sources[:row], targets[:row], strict=True)
        ]
    csc = graph.csc(edge_type)
    assert [end.tolist() for end in csc.coo()] == [[ends[row] for row in rows] for ends in (sources, targets)]
    assert csc.weight is not None
    assert csc.timestamp is not None
    assert csc.weight.tolist() == [table.columns["w"][row] for row in rows]
    assert csc.timestamp.tolist() == [table.columns["t"][row] for row in rows]
    specs = graph.edge_features(edge_type)
    for name, kind in table.kinds.items():
        expected = [table.columns[name][row] for row in rows]
        assert same(kind, graph.edge_feature(edge_type, name), specs[name].categories, expected), name
    repeated = len(sources) - len(Counter(zip(sources, targets, strict=True)))
    assert graph.imported(edge_type)["duplicate_edges"] == repeated
