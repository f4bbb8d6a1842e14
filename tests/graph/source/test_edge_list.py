"""Edge lists: comments, separators, names of columns, and what is no edge list."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from graphbox.errors import DataError
from graphbox.graph.source import open_table
from tests.graph.source.reading import read

SNAP = "# Directed graph: web.txt\n# FromNodeId\tToNodeId\n\n0\t1\n0\t2\n"


def write(folder: Path, content: str, name: str = "edges.txt") -> Path:
    path = folder / name
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (SNAP, [("0", "1"), ("0", "2")]),
        ("% sym unweighted\n%\n1 2\n3 4\n", [("1", "2"), ("3", "4")]),
        ("  1   2 \n3\t 4\r\n\n5 6", [("1", "2"), ("3", "4"), ("5", "6")]),
        ("New York\tParis\nParis\tRome\n", [("New York", "Paris"), ("Paris", "Rome")]),
        ("a,b\nc,d\n", [("a", "b"), ("c", "d")]),
        ('"a b\n"c d"\n', [('"a', "b"), ('"c', 'd"')]),
    ],
)
def test_separators_and_comments(tmp_path: Path, content: str, rows: list[tuple[str, str]]) -> None:
    table = open_table(write(tmp_path, content))
    assert table.column_names() == ("source", "target")
    result = read(table, ["source", "target"]).columns
    assert list(zip(result["source"], result["target"], strict=True)) == rows


def test_comments_are_counted_and_places_are_lines_of_the_file(tmp_path: Path) -> None:
    table = open_table(write(tmp_path, SNAP))
    assert table.comment_lines == 2
    (batch,) = [batch for batch in table.batches(["source"], batch_bytes=1 << 20) if batch.num_rows]
    assert batch.first_row == 0
    assert table.where(1, "source").startswith(f"{tmp_path / 'edges.txt'}:5,")


def test_random_edge_lists_in_blocks_of_any_size(tmp_path: Path) -> None:
    generator = random.Random(0)
    rows = [(str(generator.randrange(10**6)), f"n{generator.randrange(9)}") for _ in range(3000)]
    lines = [
        generator.choice(["", " "])
        + generator.choice([" ", "  ", " \t"]).join(row)
        + generator.choice(["", " "])
        for row in rows
    ]
    path = tmp_path / "edges.edgelist.gz"
    path.write_bytes(gzip.compress(("#c\n" * 5 + " 7  n0\n" + "\n".join(lines)).encode()))
    table = open_table(path)
    for batch_bytes in (1, 300, 1 << 20):
        found = [
            row
            for batch in table.batches(["source", "target"], batch_bytes=batch_bytes)
            for row in zip(*(batch.columns[name].to_pylist() for name in ("source", "target")), strict=True)
        ]
        assert found == [("7", "n0"), *rows]


def test_further_cells_are_columns_by_number_or_as_named(tmp_path: Path) -> None:
    path = write(tmp_path, "1 2 1082040961\n3 4 1082155839\n")
    assert open_table(path).column_names() == ("source", "target", "column_3")
    named = open_table(path, has_header=False, names=["a", "b", "time"])
    assert read(named, ["time"]).columns["time"] == ["1082040961", "1082155839"]


def test_a_line_with_another_number_of_cells_is_malformed(tmp_path: Path) -> None:
    table = open_table(write(tmp_path, "# c\n1 2\n3 4 5\n6 7\n"))
    malformed = [line for batch in table.batches(["source"], batch_bytes=1 << 20) for line in batch.malformed]
    assert [(line.kind, line.place) for line in malformed] == [
        ("wrong number of cells", f"{tmp_path / 'edges.txt'}:3")
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("src dst\n1 2\n", "without a header line, received `src dst`"),
        ("", "received an empty file"),
        ("# nothing\n", "received an empty file"),
        ("1 2 3 4 5 6\n2 7 8\n", "received lines of 6 and 3 cells"),
    ],
)
def test_what_is_no_edge_list_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_table(write(tmp_path, content)).column_names()


def test_comments_before_named_columns_of_csv_and_tsv_but_not_ids_that_begin_so(tmp_path: Path) -> None:
    tsv = write(tmp_path, "# FromNodeId\tToNodeId\n#tag\tb\n", "edges.tsv")
    table = open_table(tsv, has_header=False, names=["a", "b"])
    assert table.comment_lines == 1
    assert read(table, ["a"]).columns["a"] == ["#tag"]


def test_a_text_beside_parts_in_a_folder_is_no_part(tmp_path: Path) -> None:
    write(tmp_path, "how this was made\n", "README.txt")
    write(tmp_path, "source,target\n1,2\n", "part.csv")
    assert read(open_table(tmp_path), ["source"]).columns["source"] == ["1"]
