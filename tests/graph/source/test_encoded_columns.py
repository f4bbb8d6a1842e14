"""Views and dictionaries of every kind: read alike from files and memory, and imported as what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.config import load_config
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.source import open_table
from graphbox.graph.source.table import plain_column, plain_type
from graphbox.pipeline.table_check import table_mistakes

TEXTS = ["a", "", None, "a text of more than twelve bytes", "b"]
LISTS = [["a", ""], [], None, [None, "a text of more than twelve bytes"], ["b"]]
VIEW = pa.string_view()


def dictionary(indices: Sequence[int | None], values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.uint8()), values)


CODED = [0, 1, None, 2, 0]
COLUMNS: dict[str, tuple[pa.Array, pa.DataType]] = {
    "string_view": (pa.array(TEXTS, VIEW), pa.large_string()),
    "binary_view": (pa.array([b"a", b"", None, b"c" * 20, b"b"], pa.binary_view()), pa.large_binary()),
    "large_list of views": (pa.array(LISTS, pa.large_list(VIEW)), pa.large_list(pa.large_string())),
    "list of views": (pa.array(LISTS, pa.list_(VIEW)), pa.large_list(pa.large_string())),
    "pairs of views": (
        pa.array([["a", "b"], None, ["c", None], ["", "d"], ["e", "f"]], pa.list_(VIEW, 2)),
        pa.large_list(pa.large_string()),
    ),
    "dictionary of views": (
        dictionary(CODED, pa.array(["", "x", "a text of more than twelve bytes"], VIEW)),
        pa.large_string(),
    ),
    "dictionary of strings": (dictionary(CODED, pa.array(["x", "y", "z"])), pa.large_string()),
    "dictionary of integers": (dictionary(CODED, pa.array([7, -1, 2**62])), pa.int64()),
    "dictionary of floats": (dictionary(CODED, pa.array([0.5, -1, 2], pa.float32())), pa.float32()),
    "list of dictionaries": (
        pa.ListArray.from_arrays([0, 2, 2, 3, 4, 5], dictionary(CODED, pa.array(["x", "y", "z"]))),
        pa.large_list(pa.large_string()),
    ),
}
NOT_IN_PARQUET = {"list of dictionaries", "pairs of views", "dictionary of views"}
"""Columns that PyArrow cannot write to Parquet."""


def in_memory(table: pa.Table, folder: Path) -> Any:
    return table


def in_slices(table: pa.Table, folder: Path) -> Any:
    return pa.Table.from_batches([table.slice(0, 2).to_batches()[0], table.slice(2).to_batches()[0]])


def in_parquet(table: pa.Table, folder: Path) -> Any:
    pq.write_table(table, folder / "table.parquet")
    return folder / "table.parquet"


def in_arrow(table: pa.Table, folder: Path) -> Any:
    with pa.ipc.new_file(folder / "table.arrow", table.schema) as file:
        file.write_table(table)
    return folder / "table.arrow"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name in COLUMNS
        for form in (in_memory, in_slices, in_parquet, in_arrow)
        if form is not in_parquet or name not in NOT_IN_PARQUET
    ],
)
def test_encoded_columns_are_decoded(tmp_path: Path, name: str, form: Callable[..., Any]) -> None:
    column, expected = COLUMNS[name]
    assert plain_type(column.type) == expected
    source = open_table(form(pa.table({"x": column}), tmp_path))
    for batch_bytes in (1 << 20, 40):
        parts = [batch.columns["x"] for batch in source.batches(["x"], batch_bytes=batch_bytes)]
        assert [value for part in parts for value in part.to_pylist()] == column.to_pylist()
        assert {part.type for part in parts} == {expected}


@pytest.mark.parametrize(
    "kind", [pa.list_view(pa.string()), pa.large_list_view(VIEW), pa.list_view(pa.int8())]
)
def test_list_views_are_lists(kind: pa.DataType) -> None:
    rows: list[Any] = LISTS if kind.value_type != pa.int8() else [[1, 2], [], None, [None], [3]]
    for part in (slice(0, 5), slice(1, 4), slice(3, 3)):
        plain = plain_column(pa.array(rows, kind)[part])
        plain.validate(full=True)
        assert (plain.type, plain.to_pylist()) == (plain_type(kind), rows[part])


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": pl.Series(["u", "v", "w"], dtype=pl.Categorical),
            "tags": [["red", ""], None, ["blue"]],
            "topics": pl.Series([["x"], ["y", "x"], []], dtype=pl.List(pl.Categorical)),
            "size": pl.Series(["s", None, "l"], dtype=pl.Enum(["s", "m", "l"])),
        }
    )


def as_frame(table: pl.DataFrame, folder: Path, name: str) -> Any:
    return table


def as_arrow_file(table: pl.DataFrame, folder: Path, name: str) -> Any:
    table.write_ipc(folder / f"{name}.arrow")
    return folder / f"{name}.arrow"


def as_parquet_file(table: pl.DataFrame, folder: Path, name: str) -> Any:
    table.write_parquet(folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


@pytest.mark.parametrize("form", [as_frame, as_arrow_file, as_parquet_file])
def test_frames_of_polars_are_imported(tmp_path: Path, form: Callable[..., Any]) -> None:
    features = {"tags": "slots", "topics": "slots", "size": "categorical"}
    ends = [
        pl.Series(name, each, dtype=pl.Categorical) for name, each in (("a", ["u", "v"]), ("b", ["v", "w"]))
    ]
    nodes, edges = form(frame(), tmp_path, "nodes"), form(pl.DataFrame(ends), tmp_path, "edges")
    source = GraphSource(
        "g",
        {"n": NodeSource(nodes, features=features)},  # type: ignore[arg-type]
        (EdgeSource(("n", "to", "n"), edges, source="a", target="b"),),
    )
    report = import_graph(source, tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert graph.ids("n").tolist() == ["u", "v", "w"]
    assert [np.diff(graph.slot_lists("n", name)[0]).tolist() for name in ("tags", "topics")] == [
        [1, 0, 1],
        [1, 2, 0],
    ]
    assert graph.feature("n", "size").tolist() == [1, -1, 0]
    assert (report.nodes, report.edges[0].edges) == ({"n": 3}, 2)


def test_numbers_of_a_dictionary_are_imported(tmp_path: Path) -> None:
    codes = [0, 1, 0]
    nodes = pa.table(
        {
            "id": dictionary([0, 1, 2], pa.array([7, 9, -3])),
            "kind": dictionary(codes, pa.array([5, 6])),
            "tags": dictionary(codes, pa.array([2**40, 2], pa.uint64())),
            "x": dictionary(codes, pa.array([0.5, 2.0])),
        }
    )
    edges = pa.table(
        {
            "a": dictionary([0, 1, 0], pa.array([7, 9])),
            "b": dictionary([0, 1, 0], pa.array([9, -3])),
            "w": dictionary([0, 1, 0], pa.array([0.25, 4])),
        }
    )
    paths = {"nodes": in_parquet(nodes, tmp_path), "edges": in_arrow(edges, tmp_path)}
    kinds = {"kind": "categorical", "tags": "slots", "x": "number"}
    run_file = tmp_path / "run.yaml"
    run_file.write_text(
        f"version: 1\nname: g\ngraph:\n  name: g\n  root: {tmp_path}\n  nodes: {{n: {{path: table.parquet, "
        "features: {kind: categorical, tags: slots, x: number}}}\n  edges: [{type: [n, to, n], "
        "path: table.arrow, source: a, target: b, weight: w}]\n"
    )
    load_config(run_file, [], check_tables=table_mistakes)
    for data in (paths, {"nodes": nodes, "edges": edges}):
        source = GraphSource(
            "g",
            {"n": NodeSource(data["nodes"], features=kinds)},  # type: ignore[arg-type]
            (EdgeSource(("n", "to", "n"), data["edges"], source="a", target="b", weight="w"),),
        )
        import_graph(source, tmp_path / "graph")
        graph = Graph.open(tmp_path / "graph")
        assert graph.ids("n").tolist() == [7, 9, -3]
        assert graph.slot_lists("n", "tags")[1].tolist() == [2**40, 2, 2**40]
        assert graph.feature("n", "kind").tolist() == [0, 1, 0]
        assert graph.feature("n", "x").tolist() == [0.5, 2, 0.5]
        assert graph.csc(("n", "to", "n")).weight.tolist() == [0.25, 4]  # type: ignore[union-attr]
