"""RecBole's atomic files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from graphbox.errors import DataError
from graphbox.graph.source import Batch, Table, open_table


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def read(table: Table, *columns: str) -> dict[str, list[object]]:
    batches: list[Batch] = list(table.batches(columns, batch_bytes=1 << 16))
    return {name: [cell for batch in batches for cell in batch.columns[name].to_pylist()] for name in columns}


def test_interactions(tmp_path: Path) -> None:
    file = write(
        tmp_path / "ml.inter",
        ("user_id:token", "item_id:token", "rating:float", "timestamp:float"),
        ("196", "242", "3", "881250949"),
        ("186", "a b", "", "891717742"),
    )
    table = open_table(file)
    assert table.is_text
    assert table.column_names() == ("user_id", "item_id", "rating", "timestamp")
    assert read(table, "user_id", "item_id", "rating") == {
        "user_id": ["196", "186"],
        "item_id": ["242", "a b"],
        "rating": ["3", None],
    }
    assert table.where(1, "rating") == f"{file}:3, column `rating`"


def test_sequences(tmp_path: Path) -> None:
    file = write(
        tmp_path / "ml.item",
        ("item_id:token", "class:token_seq", "vector:float_seq", "year:token"),
        ("1", "Animation Comedy", "0.5 -1e-2 3", "1995"),
        ("2", "", "", "1996"),
        ("3", "  Drama  ", "1 x 2", ""),
        ("4", "a  b", "7", "1997"),
    )
    table = open_table(file)
    assert read(table, "class", "vector", "year", "item_id") == {
        "class": [["Animation", "Comedy"], [], ["Drama"], ["a", "b"]],
        "vector": [[0.5, -0.01, 3.0], None, None, [7.0]],
        "year": ["1995", "1996", None, "1997"],
        "item_id": ["1", "2", "3", "4"],
    }
    batch = next(iter(open_table(file).batches(["class", "vector"], batch_bytes=1 << 16)))
    assert batch.columns["class"].type == pa.large_list(pa.large_string())
    assert batch.columns["vector"].type == pa.large_list(pa.float64())


@pytest.mark.parametrize("suffix", ["inter", "user", "item", "kg", "link", "net"])
def test_told_by_the_suffix(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"data.{suffix}", ("a_id:token", "b:c:token"), ("1", "2"))
    assert open_table(file).column_names() == ("a_id", "b:c")
    assert read(open_table(file, format="recbole"), "b:c") == {"b:c": ["2"]}


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("user_id", "types: token, token_seq, float, float_seq; columns are separated by tabs"),
        ("user_id:tokn", "did you mean `token`?"),
        (":token", "did you mean `token`?"),
    ],
)
def test_header_without_types(tmp_path: Path, cell: str, hint: str) -> None:
    file = write(tmp_path / "x.inter", (cell, "item_id:token"), ("1", "2"))
    with pytest.raises(DataError, match="name:type") as caught:
        open_table(file).column_names()
    assert caught.value.where == f"{file}:1"
    assert caught.value.hint == hint


def test_wrong_number_of_cells(tmp_path: Path) -> None:
    file = write(tmp_path / "x.kg", ("head_id:token", "tail_id:token"), ("1",), ("1", "2"))
    batches = list(open_table(file).batches(["head_id"], batch_bytes=1 << 16))
    assert sum(batch.malformed_counts.get("wrong number of cells", 0) for batch in batches) == 1
    assert sum(batch.num_rows for batch in batches) == 1
