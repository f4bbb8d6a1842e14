"""Whole rows out of a table and back: what a tier above it moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.table import CountAdmission, EmbeddingTable, ShowClickScore
from graphbox.table.arguments import Optimizer

Records = npt.NDArray[np.uint8]


def trained(optimizer: Optimizer, seed: int = 0, **arguments: Any) -> EmbeddingTable:
    table = EmbeddingTable(5, optimizer, 0.1, seed=seed, **arguments)
    rng = np.random.default_rng(1)
    for _ in range(3):
        keys = rng.integers(-50, 50, 200)
        table.push(keys, rng.normal(size=(200, 5)).astype(np.float32))
    return table


def read(table: EmbeddingTable, keys: npt.NDArray[np.int64]) -> tuple[Records, npt.NDArray[np.bool_]]:
    records = np.empty((len(keys), _core.table_record_bytes(table._current)), np.uint8)
    return records, _core.table_read_records(table._current, keys, records, 2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_a_row_that_moves_goes_on_where_it_is_put(optimizer: Optimizer, dtype: Any) -> None:
    table, other = (trained(optimizer, dtype=dtype, score=ShowClickScore()) for _ in range(2))
    keys = np.random.default_rng(2).permutation(np.arange(-60, 60))
    other.push(keys, np.ones((120, 5), np.float32))  # of no matter: it is all replaced
    records, has_row = read(table, keys)
    np.testing.assert_array_equal(has_row, table.contains(keys))
    assert _core.table_write_records(other._current, keys, records, 2) == 120
    table.pull(keys)
    for each in (table, other):
        each.push(keys, np.full((120, 5), 0.5, np.float32))
    np.testing.assert_array_equal(table.pull(keys), other.pull(keys))
    np.testing.assert_array_equal(read(table, keys)[0], read(other, keys)[0])


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_the_record_of_a_key_without_a_row_is_that_of_a_new_one(optimizer: Optimizer) -> None:
    table = EmbeddingTable(3, optimizer, dtype="float16", score=ShowClickScore(), clock=lambda: 0.0)
    keys = np.arange(7)
    before, has_row = read(table, keys)
    assert not has_row.any()
    assert len(table) == 0
    table.pull(keys)
    after, has_row = read(table, keys)
    assert has_row.all()
    np.testing.assert_array_equal(before, after)


def test_rows_on_ssd_are_read_where_they_are_and_replaced_unread(tmp_path: Path) -> None:
    table = EmbeddingTable(256, "adagrad", path=tmp_path / "table", memory_bytes=16 << 20)
    plain = EmbeddingTable(256, "adagrad")
    keys = np.arange(12_000)
    for part in np.array_split(keys, 12):
        for each in (table, plain):
            each.push(part, np.ones((len(part), 256), np.float32))
    assert table.tier_statistics().cold_rows > 5_000
    records, has_row = read(table, keys)
    assert has_row.all()
    np.testing.assert_array_equal(records, read(plain, keys)[0])
    assert table.tier_statistics().bytes_read > 0
    read_before = table.tier_statistics().bytes_read
    mixed = records[np.roll(keys, 1)]
    assert _core.table_write_records(table._current, keys, mixed, 1) == len(keys)
    assert table.tier_statistics().bytes_read - read_before < records.nbytes / 4  # but what compaction reads
    table.close()
    with EmbeddingTable.open(tmp_path / "table") as opened:
        np.testing.assert_array_equal(read(opened, keys)[0], mixed)


def test_written_rows_are_in_the_next_delta(tmp_path: Path) -> None:
    table = trained("adam")
    table.save_base(tmp_path / "base")
    keys = np.array([3, 4])
    records, _ = read(table, keys)
    _core.table_write_records(table._current, keys, records[::-1].copy(), 1)
    table.save_delta(tmp_path / "delta")
    loaded = EmbeddingTable.load(tmp_path / "base", deltas=tmp_path / "delta")
    np.testing.assert_array_equal(read(loaded, np.arange(-50, 50))[0], read(table, np.arange(-50, 50))[0])


def test_admission_is_that_of_pulls_and_pushes() -> None:
    tables = [EmbeddingTable(4, admission=CountAdmission(3)) for _ in range(2)]
    rng = np.random.default_rng(0)
    for step in range(6):
        keys = rng.integers(0, 40, 30)
        if step % 3 == 2:
            tables[0].push(keys, np.zeros((30, 4), np.float32))
        else:
            tables[0].pull(keys)
        _core.table_admit(tables[1]._current, keys, step % 3 != 2, 1)
        np.testing.assert_array_equal(tables[0].keys(), tables[1].keys())
        assert tables[0].policy_events == tables[1].policy_events


def test_keys_without_a_row_get_none_by_writing_and_shapes_are_checked() -> None:
    table = trained("sgd")
    keys = np.array([1000, 1001])
    records, _ = read(table, keys)
    assert _core.table_write_records(table._current, keys, records, 1) == 0
    assert not table.contains(keys).any()
    with pytest.raises(UsageError, match="records must have shape"):
        _core.table_write_records(table._current, keys, records[:, :-1].copy(), 1)
    with pytest.raises(UsageError, match="records must have shape"):
        _core.table_read_records(table._current, keys, records[:1].copy(), 1)
