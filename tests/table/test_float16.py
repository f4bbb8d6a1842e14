"""Rows of float16: what they hold, how they are rounded, and that nothing else depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Optimizer

ROUNDING_STREAM = 8
Float32Array = npt.NDArray[np.float32]


def rounded(values: Float32Array, key: int, step: int, seed: int) -> npt.NDArray[np.float16]:
    """Round up or down by 13 random bits: those of the Philox words of (seed, key, step), low half first."""
    blocks = -(-len(values) // 8)
    position = key % 2**64
    counters = np.zeros((blocks, 4), dtype=np.uint32)
    counters[:, 0] = np.arange(blocks)
    counters[:, 1] = step
    counters[:, 2:] = position & 0xFFFFFFFF, position >> 32
    words = _core.philox(counters, _core.philox_key(ROUNDING_STREAM, seed, 0, 0)).ravel()
    random = (words[:, None] >> np.array([0, 16], dtype=np.uint32)).ravel()[: len(values)] & 0x1FFF
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(values), 1e-30))), -14)
    unit = 2.0 ** (exponent - 10)  # between neighbours
    whole = np.floor(np.abs(values).astype(np.float64) / unit)
    rest = np.abs(values).astype(np.float64) / unit - whole
    up = np.floor(rest * 2**13) + random >= 2**13
    halves: npt.NDArray[np.float16] = np.sign(values) * np.minimum((whole + up) * unit, 65504)
    return halves.astype(np.float16)


def test_initial_rows_are_those_of_float32_rounded_to_the_nearest() -> None:
    keys = np.array([0, -1, 5, 2**62, -(2**63)])
    for dim in (1, 7, 64, 300):
        expected = EmbeddingTable(dim, seed=4).pull(keys).astype(np.float16).astype(np.float32)
        table = EmbeddingTable(dim, seed=4, dtype="float16")
        np.testing.assert_array_equal(table.pull(keys, create=False), expected)
        np.testing.assert_array_equal(table.pull(keys), expected)
        np.testing.assert_array_equal(table.pull(keys), expected)
        assert table.dtype == "float16"


def test_updates_are_computed_in_float32_and_rounded_by_draws_of_the_row() -> None:
    rng = np.random.default_rng(0)
    for dim in (3, 64, 131):
        table = EmbeddingTable(dim, "sgd", lr=0.5, init_scale=0.25, seed=9, dtype="float16")
        keys = [3, -7]
        rows = table.pull(keys)
        for step in range(1, 6):
            gradients = rng.normal(size=(2, dim)).astype(np.float32) * np.float32(10.0 ** -(step - 1))
            table.push(keys, gradients)
            wanted = rows - np.float32(0.5) * gradients
            rows = np.stack(
                [rounded(row, key, step, 9) for key, row in zip(keys, wanted, strict=True)]
            ).astype(np.float32)
            np.testing.assert_array_equal(table.pull(keys), rows)


@pytest.mark.parametrize("start", [1.0, 0.1, 3e-5, 1e-7])  # the last two: below the smallest normal number
def test_rounding_is_unbiased(start: float) -> None:
    count, dim = 4000, 32
    table = EmbeddingTable(dim, "sgd", lr=1.0, init_scale=0.0, seed=1, dtype="float16")
    keys = np.arange(count)
    wanted = np.float32(start) * np.linspace(1, 1.01, dim, dtype=np.float32)
    table.push(keys, np.tile(-wanted, (count, 1)))
    rows = table.pull(keys)
    assert max(len(np.unique(column)) for column in rows.T) == 2
    unit = np.maximum(np.spacing(wanted.astype(np.float16)).astype(np.float64), 2.0**-24)
    assert (np.abs(rows - wanted) < unit).all()
    deviation = (rows.astype(np.float64).mean(axis=0) - wanted) / (unit / 2 / np.sqrt(count))
    assert np.abs(deviation).max() < 5
    assert abs(deviation.mean()) < 1


def test_steps_too_small_for_float16_are_not_lost() -> None:
    table = EmbeddingTable(64, "sgd", lr=1.0, init_scale=0.0, dtype="float16")
    table.push([1], np.full((1, 64), -1, dtype=np.float32))
    for _ in range(1000):
        table.push([1], np.full((1, 64), -1e-4, dtype=np.float32))  # float16 has steps of 1e-3 there
    assert table.pull([1]).mean() == pytest.approx(1.1, abs=0.005)


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_same_for_any_number_of_threads_and_after_loading(optimizer: Optimizer, tmp_path: Path) -> None:
    def train(table: EmbeddingTable, steps: range) -> None:
        for step in steps:
            rng = np.random.default_rng(step)
            keys = np.minimum(rng.zipf(1.3, 20_000), 3000)
            table.push(keys, table.pull(keys) + rng.normal(size=(len(keys), 9)).astype(np.float32))

    tables = [EmbeddingTable(9, optimizer, seed=5, threads=n, dtype="float16") for n in (1, 2, 5)]
    for table in tables:
        train(table, range(3))
    tables[2].save(tmp_path / "table")
    tables[2] = EmbeddingTable.load(tmp_path / "table", threads=2)
    assert tables[2].dtype == "float16"
    for table in tables:
        train(table, range(3, 6))
    rows = tables[0].pull(tables[0].keys())
    np.testing.assert_array_equal(rows, rows.astype(np.float16))
    for table in tables[1:]:
        np.testing.assert_array_equal(table.pull(tables[0].keys()), rows)


def test_learns_as_float32_does() -> None:
    rng = np.random.default_rng(2)
    settings: dict[str, Any] = {"optimizer": "adam", "lr": 0.02, "seed": 3}
    tables = [
        EmbeddingTable(16, dtype="float32", **settings),
        EmbeddingTable(16, dtype="float16", **settings),
    ]
    target = rng.normal(size=(50, 16)).astype(np.float32)
    for _ in range(500):
        keys = rng.integers(0, 50, 100)
        for table in tables:
            table.push(keys, table.pull(keys) - target[keys])
    for table in tables:
        assert np.abs(table.pull(np.arange(50)) - target).mean() < 0.02


def test_takes_half_the_memory() -> None:
    keys = np.arange(200_000)
    tables = [EmbeddingTable(128, dtype="float32"), EmbeddingTable(128, dtype="float16")]
    for table in tables:
        table.pull(keys)
    assert tables[1].nbytes < 0.6 * tables[0].nbytes


def test_the_largest_value() -> None:
    table = EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0, dtype="float16")
    table.push([1], np.array([[1e6, -1e30]], dtype=np.float32))
    assert table.pull([1]).tolist() == [[-65504, 65504]]


def test_other_types_are_refused() -> None:
    with pytest.raises(UsageError, match="dtype: expected 'float32' or 'float16', received 'bfloat16'"):
        EmbeddingTable(4, dtype="bfloat16")  # type: ignore[arg-type]
