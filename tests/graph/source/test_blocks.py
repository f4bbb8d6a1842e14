"""Blocks of rows from all over a table: whole rows of it, in order, each at most once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DataError
from graphbox.graph.source import open_table

ROWS = 20_000
PLACES = [place / 32 for place in range(32)]


def write(path: Path, first: int = 0, rows: int = ROWS) -> None:
    numbers = range(first, first + rows)
    if path.suffix == ".parquet":
        table = pa.table({"id": list(numbers), "text": [f"row {number}" for number in numbers]})
        pq.write_table(table, path, row_group_size=500, use_dictionary=False)
        return
    content = "id,text\n" + "".join(f"{number},row {number}\n" for number in numbers)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())


def numbers_in(path: Path, block_bytes: int = 1024) -> list[list[int]]:
    blocks = list(open_table(path).blocks(["text", "id"], PLACES, block_bytes=block_bytes))
    for block in blocks:
        assert list(block) == ["text", "id"]
        assert [f"row {number}" for number in block["id"].to_pylist()] == block["text"].to_pylist()
    return [[int(number) for number in block["id"].to_pylist()] for block in blocks]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_blocks_are_rows_from_all_over(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"e{suffix}")
    blocks = numbers_in(tmp_path / f"e{suffix}")
    assert len(blocks) == 32
    rows = [number for block in blocks for number in block]
    assert rows == sorted(set(rows)), "no row twice"
    assert all(block == list(range(block[0], block[-1] + 1)) for block in blocks), "whole rows, none left out"
    assert rows[0] == 0
    assert rows[-1] > ROWS * 30 // 32
    assert len(rows) < ROWS // 4


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_part_files_are_one_table(tmp_path: Path, suffix: str) -> None:
    for part in range(4):
        write(tmp_path / f"part-{part}{suffix}", part * ROWS // 4, ROWS // 4)
    blocks = numbers_in(tmp_path)
    quarters = [block[0] * 4 // ROWS for block in blocks]
    assert {quarter: quarters.count(quarter) for quarter in range(4)} == pytest.approx(
        dict.fromkeys(range(4), 8), abs=2
    )
    rows = [number for block in blocks for number in block]
    assert rows == sorted(set(rows))


def test_blocks_larger_than_the_file_are_all_of_it(tmp_path: Path) -> None:
    write(tmp_path / "e.csv", rows=10)
    assert numbers_in(tmp_path / "e.csv", 1 << 20)[0] == list(range(10))


def test_compressed_text_has_none(tmp_path: Path) -> None:
    write(tmp_path / "e.csv.gz")
    assert numbers_in(tmp_path / "e.csv.gz") == []


def test_malformed_lines_are_left_out(tmp_path: Path) -> None:
    lines = ["id,text", *(f"{number},row {number}" + ",more" * (number % 7 == 3) for number in range(ROWS))]
    (tmp_path / "e.csv").write_text("\n".join(lines) + "\n")
    assert all(number % 7 != 3 for block in numbers_in(tmp_path / "e.csv") for number in block)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_missing_column_is_named(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"e{suffix}")
    with pytest.raises(DataError, match="expected a column `other`"):
        list(open_table(tmp_path / f"e{suffix}").blocks(["other"], PLACES, block_bytes=1024))
