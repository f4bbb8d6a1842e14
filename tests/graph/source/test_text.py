"""CSV and TSV against a plain reference, with exact places, and their errors."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbox.errors import DataError, UsageError
from graphbox.graph.source import Table, open_table
from tests.graph.source.reading import BATCH_BYTES, read, split_text

PIECES = [
    b"a",
    b"17",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b'"',
    b'""',
    "\u00e9\u4e16".encode(),
    b"\xff",
    b" ",
    b"\x00",
]
TEXTS = {
    "csv": st.lists(st.sampled_from([*PIECES, b",", b",", b",", b"\t"]), max_size=60).map(b"".join),
    "tsv": st.lists(st.sampled_from([*PIECES, b"\t", b"\t", b"\t", b","]), max_size=60).map(b"".join),
}
RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def headless(path: Path, *names: str) -> Table:
    return open_table(path, has_header=False, names=names)


@settings(RELAXED, max_examples=300)
@given(
    data=st.data(), kind=st.sampled_from(["csv", "tsv"]), batch_bytes=st.sampled_from([1, 40, 400, 1 << 20])
)
def test_any_bytes_become_the_rows_and_places_of_the_reference(
    tmp_path: Path, data: st.DataObject, kind: str, batch_bytes: int
) -> None:
    text = data.draw(TEXTS[kind])
    path = write(tmp_path, f"table.{kind}", text)
    expected = split_text(text, b"," if kind == "csv" else b"\t", 2)
    table = headless(path, "x", "y")
    result = read(table, ["y", "x"], batch_bytes)
    assert list(zip(result.columns["x"], result.columns["y"], strict=True)) == expected.rows
    counts: dict[str, int] = {}
    for malformed_kind, _ in expected.malformed:
        counts[malformed_kind] = counts.get(malformed_kind, 0) + 1
    assert result.malformed_counts == counts
    shown = [(line.kind, line.place) for line in result.malformed]
    places = [(malformed_kind, f"{path}:{line}") for malformed_kind, line in expected.malformed]
    assert set(shown) <= set(places)
    if batch_bytes == 1 or len(places) <= 5:
        assert shown == places
    assert [table.where(row, "x") for row in range(result.num_rows)] == [
        f"{path}:{line}, column `x`" for line in expected.lines
    ]
    assert result.read_bytes == (len(text) if result.num_batches else 0)


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=8)


@RELAXED
@given(rows=st.lists(st.tuples(CELL, CELL, CELL), max_size=20), end=st.sampled_from(["\n", "\r\n"]))
def test_what_the_csv_module_writes_is_read_back(
    tmp_path: Path, rows: list[tuple[str, ...]], end: str
) -> None:
    for suffix, delimiter in ((".csv", ","), (".tsv.gz", "\t")):
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
        writer.writerow(["a", "b c", "\u4e16"])
        writer.writerows(rows)
        content = text.getvalue().encode()
        path = write(tmp_path, "t" + suffix, gzip.compress(content) if suffix.endswith(".gz") else content)
        table = open_table(path)
        assert table.column_names() == ("a", "b c", "\u4e16")
        result = read(table, ["\u4e16", "a", "b c"], 64)
        expected = list(zip(*rows, strict=True)) or [(), (), ()]
        assert [tuple(result.columns[name]) for name in ("a", "b c", "\u4e16")] == expected
        assert not result.malformed


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".zstd"])
@pytest.mark.parametrize("batch_bytes", BATCH_BYTES)
def test_cells_are_those_that_pyarrow_reads(tmp_path: Path, suffix: str, batch_bytes: int) -> None:
    text = b"".join(
        b'%d\t"n %d"\t%s\n' % (i * 7919, i % 13, b"" if i % 5 else b"\xc3\xa9") for i in range(2000)
    )
    text = b"id\tname\tnote\n" + text
    codec = {"": None, ".gz": "gzip"}.get(suffix, "zstd")
    packed = text if codec is None else pa.compress(text, codec, asbytes=True)
    table = open_table(write(tmp_path, "t.tsv" + suffix, packed), threads=2)
    assert table.size_bytes == len(packed)
    assert table.is_text
    assert table.reiterable
    expected = arrow_csv.read_csv(
        io.BytesIO(text),
        parse_options=arrow_csv.ParseOptions(delimiter="\t"),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(["id", "name", "note"], pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    first = read(table, ["note", "id", "name"], batch_bytes)
    assert first.columns == {name: expected.column(name).to_pylist() for name in ("note", "id", "name")}
    assert first.read_bytes == len(packed)
    assert set(first.types.values()) == {pa.large_string()}
    assert read(table, ["id"], 300).columns["id"] == first.columns["id"]  # again, another way
    assert table.where(1999, "id").endswith(":2001, column `id`")
    assert table.where(3, "id").endswith(":5, column `id`")


def test_malformed_lines_are_told_and_the_others_kept(tmp_path: Path) -> None:
    text = (
        b"\xef\xbb\xbfa,b\r\n"  # 1
        b"\r\n"
        b'"x\r\ny",1\r\n'  # 3, 4
        b"lonely\r\n"  # 5
        b"1,2,3\r\n"
        b"bad \xc3,2\r\n"  # 7
        b'"closed" early,2\r\n'
        b'"never closed,2\r\n'
        b'fine,"5"" disk"\r\n'  # 10
    )
    path = write(tmp_path, "edges.csv", text)
    result = read(table := open_table(path), ["a", "b"])
    assert result.columns == {"a": ["x\r\ny", "fine"], "b": ["1", '5" disk']}
    assert [(line.kind, line.place, line.text) for line in result.malformed] == [
        ("wrong number of cells", f"{path}:5", "lonely (expected 2 cells, received 1)"),
        ("wrong number of cells", f"{path}:6", "1,2,3 (expected 2 cells, received 3)"),
        ("bad encoding", f"{path}:7", "bad \\xc3,2"),
        ("unbalanced quote", f"{path}:8", '"closed" early,2'),
        ("unbalanced quote", f"{path}:9", '"never closed,2'),
    ]
    assert result.malformed_counts == {"wrong number of cells": 2, "bad encoding": 1, "unbalanced quote": 2}
    assert table.where(0, "a") == f"{path}:3, column `a`"
    assert table.where(1, "b") == f"{path}:10, column `b`"


def test_many_malformed_lines_are_counted_and_few_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "a,b\n" + "1\n" * 10_000 + "x" * 1000)
    result = read(open_table(path), ["a"])
    assert result.num_rows == 0
    assert result.malformed_counts == {"wrong number of cells": 10_001}
    assert 0 < len(result.malformed) < 20
    assert len(result.malformed[0].text) < 200


def test_the_file_without_a_header_line(tmp_path: Path) -> None:
    path = write(tmp_path, "edges.tsv", "1\t2\n3\t4")
    with pytest.raises(DataError, match="expected a column `source`, received `1`, `2`") as caught:
        open_table(path).batches(["source"], batch_bytes=100)
    assert "looks like data" in (caught.value.hint or "")
    assert read(headless(path, "source", "target"), ["source"]).columns == {"source": ["1", "3"]}
    with pytest.raises(UsageError, match="names"):
        open_table(path, has_header=False)
    with pytest.raises(UsageError, match="expected no names"):
        open_table(path, names=["a"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "received an empty file"),
        (b"\n\n", "received an empty file"),
        ("id,x\n1,2\n".encode("utf-16"), "received UTF-16"),
        (b"id\xff,x\n", "header line of UTF-8"),
        (b'"id,x\n', "header line of UTF-8"),
        (b"id,id\n1,2\n", "expected one column `id`, received 2"),
        (b"Id,x\n1,2\n", "expected a column `id`, received `Id`, `x`"),
    ],
)
def test_headers_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(open_table(write(tmp_path, "t.csv", content)), ["id"])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_of_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    text = 'id,a note\n1,"x;,|\ty"\n2,\n'.replace(",", delimiter, 2)[:-2] + delimiter + "\n"
    result = read(open_table(write(tmp_path, "t.csv", text)), ["a note", "id"])
    assert result.columns == {"a note": ["x;,|\ty", None], "id": ["1", "2"]}
    assert not result.malformed


def test_a_single_column_may_hold_other_delimiters(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "id\na;b\n")
    assert read(open_table(path), ["id"]).columns == {"id": ["a;b"]}
    assert read(headless(path, "x"), ["x"]).columns == {"x": ["id", "a;b"]}


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    for text in ("id,x", "id,x\n", "\n\nid,x\r\n\r\n"):
        assert read(open_table(write(tmp_path, "t.csv", text)), ["id"]).num_rows == 0


def test_a_closest_column_is_proposed(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_table(write(tmp_path, "t.csv", "sources,target\n")).batches(["source"], batch_bytes=10)
    assert caught.value.hint == "did you mean `sources`?"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_or_wrong_archive_is_an_error(tmp_path: Path, suffix: str) -> None:
    text = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(20_000))
    packed = pa.compress(text, "gzip" if suffix == ".gz" else "zstd", asbytes=True)
    path = write(tmp_path, "t.csv" + suffix, packed[: len(packed) // 2])
    with pytest.raises(DataError, match="Truncated compressed stream") as caught:
        read(open_table(path), ["a"])
    assert caught.value.where == str(path)
    with pytest.raises(DataError, match="starts otherwise"):
        read(open_table(write(tmp_path, "u.csv" + suffix, text)), ["a"])
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 0x10
    if suffix == ".gz":  # Zstandard frames of Arrow have no checksum
        with pytest.raises(DataError):
            read(open_table(write(tmp_path, "v.csv.gz", bytes(damaged))), ["a"])


def test_an_archive_is_known_by_its_content_too(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", gzip.compress(b"a\n1\n") + gzip.compress(b"2\n"))
    assert read(open_table(path), ["a"]).columns == {"a": ["1", "2"]}


def test_a_line_without_end_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", b"a\n" + b"x" * (40 << 20))
    with pytest.raises(DataError, match="lines of at most 16 MiB"):
        read(open_table(path), ["a"])


def test_stopping_early_ends_the_threads(tmp_path: Path) -> None:
    import threading

    path = write(tmp_path, "t.csv", b"a\n" + b"1\n" * 100_000)
    before = threading.active_count()
    batches = open_table(path).batches(["a"], batch_bytes=1000)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
