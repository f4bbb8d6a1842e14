"""PGLBox part files, against a reader of one line after another and the lines that were sharded."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphbox.errors import DataError
from graphbox.graph.source import Batch, Table, open_table
from graphbox.graph.source.pglbox import PglboxEdges
from tests.graph.source.pglbox_files import read_node_lines, shard_edges, shard_nodes, write_parts

LARGEST = 2**64 - 1


def read(
    table: Table, *columns: str, batch_bytes: int = 1 << 20
) -> tuple[dict[str, list[object]], list[Batch]]:
    batches = list(table.batches(columns, batch_bytes=batch_bytes))
    rows = 0
    for batch in batches:
        assert batch.first_row == rows
        rows += batch.num_rows
        assert all(len(batch.columns[name]) == batch.num_rows for name in columns)
    values = {
        name: [cell for batch in batches for cell in batch.columns[name].to_pylist()] for name in columns
    }
    return values, batches


def nodes(path: Path, node_type: str = "u") -> Table:
    return open_table(path, format="pglbox", node_type=node_type, threads=2)


def edges(path: Path) -> PglboxEdges:
    table = open_table(path, format="pglbox", threads=2)
    assert isinstance(table, PglboxEdges)
    return table


def counted(batches: list[Batch]) -> dict[str, int]:
    return dict(sum((Counter(batch.malformed_counts) for batch in batches), Counter()))


# Nodes


def test_nodes_of_one_type_with_slots(tmp_path: Path) -> None:
    file = tmp_path / "part-00000"
    file.write_text("u\t1\t11:1\t21:30,31\nv\t1\t11:9\n\nu\t2\r\nu\t3\t21:32\t\n")
    values, batches = read(nodes(file), "id", "slot_11", "slot_21")
    assert values == {"id": ["1", "2", "3"], "slot_11": [[1], [], []], "slot_21": [[30, 31], [], [32]]}
    assert batches[0].columns["id"].type == pa.large_string()
    assert batches[0].columns["slot_11"].type == pa.large_list(pa.int64())
    assert read(nodes(file, "v"), "id", "slot_11")[0] == {"id": ["1"], "slot_11": [[9]]}
    assert read(nodes(file, "w"), "id", "slot_11")[0] == {"id": [], "slot_11": []}
    assert nodes(file).column_names() == ("id", "slot_11", "slot_21")
    assert nodes(file, "v").column_names() == ("id", "slot_11")


def test_slots_in_one_cell(tmp_path: Path) -> None:
    file = tmp_path / "graph4rec"
    file.write_text("u\t1127\ts 1:583,2:697,1:584\n")
    assert read(nodes(file), "id", "slot_1", "slot_2")[0] == {
        "id": ["1127"],
        "slot_1": [[583, 584]],
        "slot_2": [[697]],
    }


def test_float_slots(tmp_path: Path) -> None:
    file = tmp_path / "part-00000"
    file.write_text("u\t1\t9109:0.5,-1e-3,3\t11:4\nu\t2\nu\t3\t9109:1,2,.5\n")
    values, batches = read(nodes(file), "float_slot_9109_3", "slot_11")
    assert values == {
        "float_slot_9109_3": [[0.5, -0.001, 3.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.5]],
        "slot_11": [[4], [], []],
    }
    assert batches[0].columns["float_slot_9109_3"].type == pa.list_(pa.float64(), 3)


def test_64_bits_unsigned(tmp_path: Path) -> None:
    file = tmp_path / "part-00000"
    file.write_text(
        f"u\t0\t11:0\nu\t{LARGEST}\t11:{LARGEST}\nu\t{2**63}\t11:{2**63}\nu\t7\t11:{2**64}\nu\t8\t11:-1\n"
    )
    values, batches = read(nodes(file), "id", "slot_11")
    assert values["id"] == ["0", str(LARGEST), str(2**63)], "ids come as they are written"
    assert values["slot_11"] == [[0], [-1], [-(2**63)]], "values keep their 64 bits"
    assert counted(batches) == {"slot value that is no unsigned 64-bit integer": 2}


def test_malformed_node_lines(tmp_path: Path) -> None:
    file = tmp_path / "part-00000"
    file.write_bytes(
        "u\t1\t11:1\nalone\nu\t2\tx:1\nu\t3\t5\nu\t4\t11:1,,2\nu\t5\t11:a\nu\t6\t9:x,1\nv\t7\t5\nu\t中\t11:2\n".encode()
        + b"u\t\xff\nu\t\t11:3\nu\t8\t9:1\n"
    )
    values, batches = read(nodes(file), "id", "slot_11", "float_slot_9_2")
    assert values["id"] == ["1", "中", None]
    assert values["slot_11"] == [[1], [2], [3]]
    assert counted(batches) == {
        "wrong number of cells": 1,
        "no slot:value": 3,
        "slot value that is no unsigned 64-bit integer": 1,
        "slot value that is no number": 1,
        "float slot of another length": 1,
        "bad encoding": 1,
    }
    found = [(line.kind, line.place, line.text) for batch in batches for line in batch.malformed]
    assert found == [
        ("wrong number of cells", f"{file}:2", "alone"),
        ("no slot:value", f"{file}:3", "u\t2\tx:1"),
        ("no slot:value", f"{file}:4", "u\t3\t5"),
        ("no slot:value", f"{file}:5", "u\t4\t11:1,,2"),
        ("slot value that is no unsigned 64-bit integer", f"{file}:6", "u\t5\t11:a"),
        ("slot value that is no number", f"{file}:7", "u\t6\t9:x,1"),
        ("bad encoding", f"{file}:10", "u\t\\xff"),
        ("float slot of another length", f"{file}:12", "u\t8\t9:1"),
    ]
    table = nodes(file)
    read(table, "id", "slot_11", "float_slot_9_2")
    assert [table.where(row, "slot_11") for row in range(3)] == [
        f"{file}:{line}, column `slot_11`" for line in (1, 9, 11)
    ]


def test_unknown_node_column(tmp_path: Path) -> None:
    file = tmp_path / "part-00000"
    file.write_text("u\t1\t11:1\n")
    with pytest.raises(DataError, match="slot_<number>") as caught:
        nodes(file).batches(["slot11"], batch_bytes=1 << 20)
    assert caught.value.hint == "did you mean `slot_11`?"


@pytest.mark.parametrize("batch_bytes", [600, 1 << 24])
def test_random_nodes_like_one_line_after_another(tmp_path: Path, batch_bytes: int) -> None:
    generator = np.random.default_rng(batch_bytes)
    lines = []
    for number in range(1000):
        cells = [str(generator.choice(["u", "item", "中"])), str(number * 977 % (1 << 40))]
        for slot in generator.choice([1, 11, 21, 9008], int(generator.integers(0, 4)), replace=False):
            drawn = generator.integers(0, 1 << 62, int(generator.integers(1, 4)))
            cells.append(f"{slot}:" + ",".join(map(str, drawn)))
        lines.append("\t".join(cells))
    parts = shard_nodes(lines, 8)
    write_parts(tmp_path / "node_types", parts)
    table = nodes(tmp_path / "node_types", "中")
    values, batches = read(table, "id", "slot_11", "slot_9008", batch_bytes=batch_bytes)
    for slot in ("11", "9008"):
        rows = [row for part in parts for row in read_node_lines("\n".join(part), "中", slot)]
        assert values["id"] == [identifier for identifier, _ in rows]
        assert values[f"slot_{slot}"] == [[int(value) for value in texts] for _, texts in rows]
    assert batches[-1].read_bytes == table.size_bytes
    for row in generator.integers(0, len(values["id"]), 20).tolist():
        place = table.where(row, "id").rpartition(", column")[0]
        file, _, line = place.rpartition(":")
        assert Path(file).read_text().splitlines()[int(line) - 1].split("\t")[1] == values["id"][row]


def test_places_where_parts_lack_the_type(tmp_path: Path) -> None:
    write_parts(tmp_path, [["v\t1"], [], ["v\t2", "u\t3"], ["v\t4"], ["u\t5"], ["v\t6"]])
    table = nodes(tmp_path)
    assert read(table, "id")[0]["id"] == ["3", "5"]
    assert table.where(0, "id") == f"{tmp_path / 'part-00002'}:2, column `id`"
    assert table.where(1, "id") == f"{tmp_path / 'part-00004'}:1, column `id`"


# Edges


def test_edges_with_and_without_weights(tmp_path: Path) -> None:
    write_parts(tmp_path / "a2b", [["1\t2\t0.5", "0\t18446744073709551615\t1"], ["3\t4"], []])
    values, batches = read(edges(tmp_path / "a2b"), "source", "target", "weight")
    assert values == {
        "source": ["1", "0", "3"],
        "target": ["2", "18446744073709551615", "4"],
        "weight": ["0.5", "1", "1"],
    }
    assert counted(batches) == {}
    assert read(edges(tmp_path / "a2b"), "weight")[0] == {"weight": ["0.5", "1", "1"]}
    assert edges(tmp_path / "a2b").column_names() == ("source", "target", "weight")


def test_malformed_edge_lines(tmp_path: Path) -> None:
    file = tmp_path / "edges"
    file.write_text("1\t2\n3\n4\t5\t0.5\n6\t7\n")
    table = edges(file)
    values, batches = read(table, "source", "target")
    assert values["source"] == ["1", "6"]
    assert counted(batches) == {"wrong number of cells": 2}
    assert [line.place for batch in batches for line in batch.malformed] == [f"{file}:2", f"{file}:3"]
    assert table.where(1, "target") == f"{file}:4, column `target`"


def test_gzipped_part(tmp_path: Path) -> None:
    (tmp_path / "part-0.gz").write_bytes(gzip.compress(b"1\t2\n"))
    assert read(edges(tmp_path), "source")[0] == {"source": ["1"]}


def random_edges(count: int, seed: int, *, low: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    # Few nodes, so that repeated edges, self loops and ends in one part all occur.
    ends = generator.integers(low, low + 200, (count, 2), dtype=np.uint64)
    return [
        f"{source}\t{target}\t{weight}" for (source, target), weight in zip(ends, range(count), strict=True)
    ]


@pytest.mark.parametrize("parts", [2, 3, 8])
@pytest.mark.parametrize("batch_bytes", [300, 1 << 20])
def test_edges_stored_twice_are_read_once(tmp_path: Path, parts: int, batch_bytes: int) -> None:
    lines = random_edges(1500, parts, low=2**63)
    write_parts(tmp_path / "a2a", shard_edges(lines, parts, symmetry=True))
    table = edges(tmp_path / "a2a")
    assert table.stored_twice
    values, batches = read(table, "source", "target", "weight", batch_bytes=batch_bytes)
    rows = zip(values["source"], values["target"], values["weight"], strict=True)
    assert sorted("\t".join(map(str, row)) for row in rows) == sorted(lines)
    loops = sum(line.split("\t")[0] == line.split("\t")[1] for line in lines)
    assert sum(batch.stored_again for batch in batches) == len(lines) - loops
    assert read(edges(tmp_path / "a2a"), "weight", batch_bytes=batch_bytes)[0]["weight"] == values["weight"]
    for row in (0, 17, len(lines) - 1, 5):
        place = table.where(row, "weight").rpartition(", column")[0]
        file, _, line = place.rpartition(":")
        assert Path(file).read_text().splitlines()[int(line) - 1].split("\t")[2] == values["weight"][row]


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_repeated_edges_within_one_part_stay(tmp_path: Path, repeats: int) -> None:
    lines = [*random_edges(2000, 0), *["16\t24\t7"] * repeats, "32\t32\t1"]
    write_parts(tmp_path / "a2a", shard_edges(lines, 8, symmetry=True))
    values, _ = read(edges(tmp_path / "a2a"), "source", "target", "weight", batch_bytes=300)
    rows = zip(values["source"], values["target"], values["weight"], strict=True)
    assert sorted("\t".join(map(str, row)) for row in rows) == sorted(lines)


@pytest.mark.parametrize(
    "case",
    ["sharded once", "not sharded", "one line elsewhere", "a part is missing", "too few", "no numbers"],
)
def test_what_is_not_stored_twice_is_read_whole(tmp_path: Path, case: str) -> None:
    lines = random_edges(3 if case == "too few" else 1000, 1)
    parts = shard_edges(lines, 8, symmetry=case != "sharded once")
    if case == "not sharded":
        parts = [lines[number::8] for number in range(8)]
    elif case == "one line elsewhere":
        parts[0].insert(0, "3\t5\t0")
    elif case == "no numbers":
        parts = [[f"n{line}" for line in part] for part in parts]
    write_parts(tmp_path / "a2a", parts)
    if case == "a part is missing":
        (tmp_path / "a2a" / "part-00003").unlink()
        del parts[3]
    table = edges(tmp_path / "a2a")
    assert not table.stored_twice
    assert read(table, "weight")[0]["weight"] == [line.split("\t")[2] for part in parts for line in part]


def test_an_edge_in_a_third_part_is_kept(tmp_path: Path) -> None:
    # Beyond the sample: what PGLBox would pass over without a word is read.
    lines = random_edges(40_000, 2)
    parts = shard_edges(lines, 8, symmetry=True)
    parts[0].append("3\t5\t-1")
    write_parts(tmp_path / "a2a", parts)
    table = edges(tmp_path / "a2a")
    assert table.stored_twice
    values, _ = read(table, "weight")
    assert len(values["weight"]) == len(lines) + 1
    assert "-1" in values["weight"]


def test_empty_files(tmp_path: Path) -> None:
    write_parts(tmp_path / "a2a", [[], []])
    assert read(edges(tmp_path / "a2a"), "source", "target", "weight")[0]["source"] == []
    assert read(nodes(tmp_path / "a2a"), "id", "slot_1")[0] == {"id": [], "slot_1": []}
    assert nodes(tmp_path / "a2a").column_names() == ("id",)


def test_columns_that_may_be_asked_for(tmp_path: Path) -> None:
    write_parts(tmp_path / "parts", [["u\t1\t11:1"]])
    table = nodes(tmp_path / "parts")
    present = [name for name in ("id", "slot_11", "slot_21", "float_slot_9_3") if table.has_column(name)]
    assert present == ["id", "slot_11", "slot_21", "float_slot_9_3"]
    assert not any(table.has_column(name) for name in ("slot_x", "float_slot_9", "float_slot_9_0", "weight"))
    assert not edges(tmp_path / "parts").has_column("id")
