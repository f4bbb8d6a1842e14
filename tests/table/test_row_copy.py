"""Whole rows, values and optimizer state, in another table under other keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable
from graphbox.table.row_copy import check_same_rows, copy_rows

KEYS = np.arange(100, dtype=np.int64)


def trained(**options: Any) -> EmbeddingTable:
    table = EmbeddingTable(4, seed=1, **options)
    for step in range(3):
        table.push(KEYS[: 60 + 10 * step], np.full((60 + 10 * step, 4), 0.1 * (step + 1), np.float32))
    return table


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_copied_row_learns_as_the_row_itself(optimizer: Any, dtype: Any) -> None:
    source = trained(optimizer=optimizer, dtype=dtype)
    # Rows of float16 are rounded by key and seed: the keys have to be the same for the same bits.
    shift = 0 if dtype == "float16" else 1000
    target = EmbeddingTable(4, optimizer, seed=1 if dtype == "float16" else 9, dtype=dtype)
    copied = copy_rows(source, KEYS, target, KEYS + shift)
    np.testing.assert_array_equal(copied, KEYS < 80)
    assert len(target) == 80
    gradients = np.full((80, 4), 0.3, np.float32)
    for table, keys in ((source, KEYS[:80]), (target, KEYS[:80] + shift)):
        table.push(keys, gradients)
    np.testing.assert_array_equal(target.pull(KEYS[:80] + shift), source.pull(KEYS[:80]))


def test_more_rows_than_memory_has_room_for(tmp_path: Path) -> None:
    count, budget = 120_000, 16 << 20
    keys = np.arange(count, dtype=np.int64)
    tables = [
        EmbeddingTable(64, seed=seed, path=tmp_path / str(seed), memory_bytes=budget) for seed in (1, 2)
    ]
    source, target = tables
    for begin in range(0, count, 10_000):
        part = keys[begin : begin + 10_000]
        source.push(part, np.repeat((part % 7 + 1.0).astype(np.float32)[:, None], 64, axis=1))
    assert copy_rows(source, keys, target, 2 * keys).all()
    assert target.nbytes <= budget
    chosen = np.random.default_rng(0).permutation(count)[:5000]
    np.testing.assert_array_equal(target.pull(2 * chosen, create=False), source.pull(chosen, create=False))
    for table in tables:
        table.close()


def test_other_values_keep_the_state() -> None:
    source, target, plain = trained(), EmbeddingTable(4, seed=3), EmbeddingTable(4, seed=4)
    values = np.random.default_rng(0).random((100, 4)).astype(np.float32)
    copy_rows(source, KEYS, target, KEYS, values)
    np.testing.assert_array_equal(target.pull(KEYS[:80]), values[:80])
    plain.assign(KEYS[:80], values[:80])
    for table in (target, plain):
        table.push(KEYS[:80], np.ones((80, 4), np.float32))
    step, whole = (np.abs(table.pull(KEYS[:80]) - values[:80]).mean() for table in (target, plain))
    assert step < whole, "the state of Adagrad goes on"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 8}, "expected rows of length 8 in the table `t`, received dim 4"),
        (
            {"dim": 4, "dtype": "float16"},
            "expected rows with dtype float16 in the table `t`, received dtype float32",
        ),
        ({"dim": 4, "optimizer": "adam"}, "expected rows with optimizer adam in the table `t`"),
    ],
)
def test_rows_of_another_kind(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_same_rows(trained(), EmbeddingTable(**settings), "t")
