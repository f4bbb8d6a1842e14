"""Parquet, Arrow and NumPy files, and tables in memory, against what was written."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbox.errors import DataError, UsageError
from graphbox.graph.source import TableLike, open_table
from tests.graph.source.reading import BATCH_BYTES, read

RELAXED = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)

CELLS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "narrow": (pa.uint8(), st.integers(0, 255)),
    "number": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=5)),
    "large text": (pa.large_string(), st.text(max_size=5)),
    "category": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["", "a", "\u4e16"])),
    "flag": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 2**40)),
    "list": (pa.list_(pa.float32()), st.lists(st.floats(width=32, allow_nan=False), max_size=3)),
    "vector": (pa.list_(pa.float32(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4, unique=True))
    num_rows = draw(st.integers(0, 30))
    columns = {}
    for kind in kinds:
        arrow_type, cells = CELLS[kind]
        values = draw(st.lists(st.none() | cells, min_size=num_rows, max_size=num_rows))
        columns[kind] = pa.array(values, arrow_type)
    return pa.table(columns)


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=7)


def write_arrow_file(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def write_compressed_arrow_file(table: pa.Table, path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=7)


def write_arrow_stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "t.parquet": write_parquet,
    "t.arrow": write_arrow_file,
    "compressed.feather": write_compressed_arrow_file,
    "t.arrows": write_arrow_stream,
}


def plain_type(kind: pa.DataType) -> pa.DataType:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.large_string() if pa.types.is_string(value) else value


@RELAXED
@given(table=tables(), name=st.sampled_from(sorted(WRITERS)), batch_bytes=st.sampled_from(BATCH_BYTES))
def test_files_give_what_was_written(tmp_path: Path, table: pa.Table, name: str, batch_bytes: int) -> None:
    path = tmp_path / name
    WRITERS[name](table, path)
    source = open_table(path)
    assert source.column_names() == tuple(table.schema.names)
    wanted = list(reversed(table.schema.names))[:2]
    for _ in range(2):  # twice
        result = read(source, wanted, batch_bytes)
        assert result.columns == {column: table.column(column).to_pylist() for column in wanted}
        if table.num_rows:
            assert result.types == {column: plain_type(table.schema.field(column).type) for column in wanted}
            assert result.read_bytes == path.stat().st_size
    assert source.size_bytes == path.stat().st_size
    if table.num_rows:
        assert source.where(1, wanted[0]) == f"{path}, row 2, column `{wanted[0]}`"


@RELAXED
@given(table=tables(), batch_bytes=st.sampled_from(BATCH_BYTES))
def test_streams_give_what_they_hold(table: pa.Table, batch_bytes: int) -> None:
    wanted = table.schema.names[:2]
    expected = {column: table.column(column).to_pylist() for column in wanted}
    for data in (table, pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=4))):
        source = open_table(data, where="edges")
        assert source.column_names() == tuple(table.schema.names)
        assert read(source, wanted, batch_bytes).columns == expected
        assert source.name == "edges"


def test_a_stream_is_read_once() -> None:
    table = pa.table({"a": [1, 2]})
    source = open_table(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), where="edges")
    assert not source.reiterable
    read(source, ["a"])
    with pytest.raises(DataError, match="not read yet"):
        source.batches(["a"], batch_bytes=10)
    assert open_table(table).reiterable


def test_frames_of_other_libraries() -> None:
    columns = {"id": [7, -1, 2**62], "name": ["a", "\u4e16", None]}
    polars_frame = pl.DataFrame(columns)
    relation = duckdb.from_arrow(polars_frame.to_arrow()).filter("id <> 0")
    for data in (polars_frame, pd.DataFrame(columns), relation, polars_frame["id"].to_frame()):
        source = open_table(data)
        for _ in range(2 if source.reiterable else 1):
            result = read(source, ["id"])
            assert result.columns == {"id": columns["id"]}
        if "name" in source.column_names() and source.reiterable:
            assert read(source, ["name"]).types == {"name": pa.large_string()}


@pytest.mark.parametrize("batch_bytes", BATCH_BYTES)
def test_arrays_in_memory_and_in_archives(tmp_path: Path, batch_bytes: int) -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "id": random.integers(-(2**63), 2**63 - 1, 300),
        "big endian": random.integers(0, 99, 300).astype(">i4"),
        "text": np.array([f"n\u00e9 {i}" for i in range(300)]),
        "bytes": np.array([b"x%d" % i for i in range(300)]),
        "flag": random.integers(0, 2, 300).astype(bool),
        "time": np.arange(300).astype("datetime64[us]"),
        "vector": random.standard_normal((300, 3)).astype(np.float32),
    }
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "small.npz", **arrays)
    names = list(arrays)
    expected = {name: values.tolist() for name, values in arrays.items()}
    expected["bytes"] = [text.decode() for text in expected["bytes"]]
    sources: list[TableLike] = [
        arrays,
        {**arrays, "id": expected["id"]},
        tmp_path / "plain.npz",
        tmp_path / "small.npz",
    ]
    for data in sources:
        source = open_table(data)
        assert source.column_names() == tuple(names)
        result = read(source, names, batch_bytes)
        assert result.columns == expected
        assert result.read_bytes == source.size_bytes
        assert result.types["vector"] == pa.list_(pa.float32(), 3)


def test_lists_with_missing_values_have_one_type_in_all_batches() -> None:
    columns = {"text": [None, None, "a", "\u4e16"], "number": [None, 1, 2, None], "vector": [[1.0]] * 4}
    result = read(open_table(columns), ["text", "number", "vector"], batch_bytes=1)
    assert result.num_batches > 1
    assert result.columns == columns
    assert (result.types["text"], result.types["number"]) == (pa.large_string(), pa.int64())
    with pytest.raises(DataError, match="received object"):
        open_table({"mixed": [1, "a", None]})


def test_arrays_of_npy_files(tmp_path: Path) -> None:
    path = tmp_path / "edges.npy"
    np.save(path, np.array([[1, 2], [3, 4], [5, 6]]))
    assert read(open_table(path), ["1", "0"], 1).columns == {"1": [2, 4, 6], "0": [1, 3, 5]}
    named = open_table(path, has_header=False, names=["source", "target"])
    assert read(named, ["target"]).columns == {"target": [2, 4, 6]}
    with pytest.raises(DataError, match="expected 3 columns"):
        open_table(path, has_header=False, names=["a", "b", "c"]).column_names()
    np.save(path, np.array([(1, 2.5), (3, 4.5)], dtype=[("id", "<i8"), ("x", "<f8")]))
    assert read(open_table(path), ["x", "id"]).columns == {"x": [2.5, 4.5], "id": [1, 3]}


def test_numpy_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, a=np.array([{}, 1], dtype=object))
    with pytest.raises(DataError, match="received Python objects"):
        read(open_table(path), ["a"])
    np.savez(path, a=np.arange(3), b=np.arange(4))
    with pytest.raises(DataError, match="arrays of one length, received `a` 3, `b` 4"):
        read(open_table(path), ["a", "b"])
    np.savez(path, a=np.asfortranarray(np.ones((2, 2))))
    with pytest.raises(DataError, match="Fortran order"):
        read(open_table(path), ["a"])
    np.savez(path, a=np.ones((2, 2, 2)))
    with pytest.raises(DataError, match=r"received shape \[2, 2, 2\]"):
        read(open_table(path), ["a"])
    np.savez(path, a=np.ones(2, complex))
    with pytest.raises(DataError, match="received complex128"):
        read(open_table(path), ["a"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"nonsense")
    with pytest.raises(DataError, match="expected a NumPy file"):
        read(open_table(path), ["a"])
    with pytest.raises(DataError, match="columns of one length"):
        open_table({"a": [1], "b": [1, 2]})


@pytest.mark.parametrize("name", [*WRITERS, "t.npz", "t.npy"])
def test_damaged_files_are_errors_that_name_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    table = pa.table({"a": np.arange(5000), "b": [f"text {i}" for i in range(5000)]})
    if name == "t.npz":
        np.savez_compressed(path, a=np.arange(5000))
    elif name == "t.npy":
        np.save(path, np.arange(5000))
    else:
        WRITERS[name](table, path)
    whole = path.read_bytes()
    column = "0" if name == "t.npy" else "a"
    random = np.random.default_rng(0)
    for size in (0, 3, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError) as caught:
            read(open_table(path), [column])
        assert (caught.value.where or "").startswith(str(path))
    for _ in range(40):  # whatever byte is damaged: values, or an error of ours, and no crash
        damaged = bytearray(whole)
        for position in random.integers(0, len(whole), 3):
            damaged[position] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(DataError, UsageError):
            read(open_table(path), [column])


def test_an_object_that_gives_no_records() -> None:
    with pytest.raises(DataError, match="Arrow stream"):
        open_table(pa.chunked_array([[1, 2]]), where="edges").column_names()
    with pytest.raises(UsageError, match="received int"):
        open_table(7, where="edges")  # type: ignore[arg-type]
