"""Placement of skip-gram's rows in the memory of a device, and their bytes: no kernel is run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphbox.skip_gram.row_bytes import RowRoom, device_row_bytes
from graphbox.skip_gram.rows import DeviceRows, RowTiers
from graphbox.table import EmbeddingTable

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_hot", [1, 4, 36])
def test_rows_that_are_met_most_come_first(seed: int, num_hot: int) -> None:
    visits = np.random.default_rng(seed).integers(0, 6, 37).astype(np.float64)  # many are alike
    found = RowTiers(37, num_hot, visits).positions(CPU)
    assert found is not None
    assert found.dtype == torch.int32
    positions = found.numpy()
    np.testing.assert_array_equal(np.sort(positions), np.arange(37))
    expected = np.sort(np.argsort(-visits, kind="stable")[:num_hot])
    np.testing.assert_array_equal(np.flatnonzero(positions < num_hot), expected)


@pytest.mark.parametrize("num_hot", [0, 1, 9, 20])
@pytest.mark.parametrize("at_once", [1, 7, 20, 50])
def test_chunks_name_every_row_once(num_hot: int, at_once: int) -> None:
    tiers = RowTiers(20, num_hot, np.arange(20.0) % 7)
    found = tiers.positions(CPU)
    positions = np.arange(20) if found is None else found.numpy()
    seen: list[int] = []
    for keys, pieces in tiers.chunks(at_once):
        assert len(keys) <= at_once
        np.testing.assert_array_equal(np.sort(np.concatenate([each.keys for each in pieces])), keys)
        for each in pieces:
            rows = np.arange(each.rows.start, each.rows.stop) + (0 if each.is_hot else num_hot)
            np.testing.assert_array_equal(positions[each.keys], rows)
            seen += each.keys.tolist()
    assert sorted(seen) == list(range(20))


def test_where_one_memory_has_all_rows_they_stand_in_the_order_of_keys() -> None:
    for num_hot in (0, 5):
        assert RowTiers(5, num_hot, np.arange(5.0)).positions(CPU) is None
    assert list(RowTiers(0, 0, np.zeros(0)).chunks(4)) == []


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("dim", [1, 128])
def test_as_many_rows_as_a_budget_has_room_for(tables: int, dim: int) -> None:
    row_bytes = tables * device_row_bytes(dim)

    def takes(hot: int) -> int:
        return hot * row_bytes + (4 * 10 if 0 < hot < 10 else 0)

    for budget in {*range(0, 12 * row_bytes, max(1, row_bytes // 7)), 10 * row_bytes - 1, 10 * row_bytes}:
        room = RowRoom(10, tables, dim, budget)
        assert room.hot_keys == max(hot for hot in range(11) if takes(hot) <= budget)
        assert room.device_bytes == takes(room.hot_keys)
        assert room.pinned_bytes == (10 - room.hot_keys) * row_bytes
    assert RowRoom(10, tables, dim).hot_keys == 10


def test_tables_on_ssd_and_pinned_rows_share_host_memory() -> None:
    rows = 1_000_000
    pinned = RowRoom(rows, 2, 64, 100 << 20, None).pinned_bytes
    least = RowRoom(rows, 2, 64).least_table_bytes
    assert RowRoom(rows, 2, 64, 100 << 20, pinned + least).lacking_bytes == 0
    assert RowRoom(rows, 2, 64, 100 << 20, pinned + least - 5).lacking_bytes == 5
    assert RowRoom(rows, 2, 64, 100 << 20, None).lacking_bytes == 0
    assert RowRoom(rows, 2, 64, 10**12, 1).lacking_bytes == 0, "all rows have room on the device"


@pytest.mark.parametrize(("dim", "rows"), [(1, 300_000), (64, 150_000), (512, 15_000)])
def test_tables_on_ssd_do_with_the_least(tmp_path: Path, dim: int, rows: int) -> None:
    least = RowRoom(rows, 1, dim).least_table_bytes
    table = EmbeddingTable(dim, "rowwise_adagrad", path=tmp_path / "table", memory_bytes=least, threads=1)
    table.reserve(rows)
    tiers = RowTiers(rows, rows // 2, np.arange(rows, dtype=np.float64) % 5)
    there = DeviceRows(table, tiers, CPU)
    assert there.arrays.rest is not None
    for number, part in enumerate((there.arrays.first, there.arrays.rest)):
        part.values.fill_(number)
        part.changed.fill_(1)
    there.store()
    positions = tiers.positions(CPU)
    assert positions is not None
    at_once = 10_000
    for begin in range(0, rows, at_once):
        values = table.pull(np.arange(begin, min(begin + at_once, rows)), create=False)
        expected = positions[begin : begin + at_once].numpy() >= rows // 2
        np.testing.assert_array_equal(values, np.broadcast_to(expected[:, None], values.shape))
    table.close()
