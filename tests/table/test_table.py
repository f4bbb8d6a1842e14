"""The embedding table against what it promises; test_state_machine.py has it against a dictionary."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from graphbox.errors import DataError, DoesNotFitError, UsageError
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Optimizer
from tests.table.reference import initial_row

INT64 = np.iinfo(np.int64)
Float32 = np.float32


def test_rowwise_adagrad_keeps_one_state_for_the_row() -> None:
    table = EmbeddingTable(4, "rowwise_adagrad", lr=1.0, eps=0.0, initial_accumulator=0.5)
    before = table.pull([3])
    gradient = np.array([[1, 2, 3, 4]], dtype=Float32)
    table.push([3], gradient)
    np.testing.assert_allclose(before - table.pull([3]), gradient / np.sqrt(0.5 + 7.5), rtol=1e-6)


def test_initial_rows() -> None:
    table = EmbeddingTable(70, seed=11, init_scale=0.25)
    keys = [0, -1, 1, INT64.min, INT64.max, 2**32, -(2**32)]
    rows = table.pull(keys)
    for key, row in zip(keys, rows, strict=True):
        np.testing.assert_array_equal(row, initial_row(key, 70, 0.25, 11))
    assert not np.array_equal(rows, EmbeddingTable(70, seed=12, init_scale=0.25).pull(keys))
    many = EmbeddingTable(64).pull(np.arange(2000))
    assert abs(many.mean()) < 0.001
    assert many.std() == pytest.approx(0.125 / np.sqrt(3), rel=0.01)  # 1 / sqrt(64), uniform
    assert len(np.unique(many[:, 0])) > 1990


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_same_for_any_number_of_threads_and_after_loading(optimizer: Optimizer, tmp_path: Path) -> None:
    def train(table: EmbeddingTable, steps: range) -> None:
        for step in steps:
            rng = np.random.default_rng(step)
            keys = np.minimum(rng.zipf(1.3, 30_000), 5000) * (-1) ** (step % 2)
            rows = table.pull(keys)
            table.push(keys, rows + rng.normal(size=rows.shape).astype(Float32))

    tables = [EmbeddingTable(9, optimizer, seed=5, threads=threads) for threads in (1, 2, 5)]
    for table in tables:
        train(table, range(4))
    tables[2].save(tmp_path / "table")
    tables[2] = EmbeddingTable.load(tmp_path / "table", threads=2)
    assert tables[2].optimizer == optimizer
    for table in tables:
        train(table, range(4, 8))
    keys = tables[0].keys()
    rows = tables[0].pull(keys)
    for table in tables[1:]:
        np.testing.assert_array_equal(table.keys(), keys)
        np.testing.assert_array_equal(table.pull(keys).view(np.uint32), rows.view(np.uint32))


def test_order_of_arrival_does_not_matter() -> None:
    keys = np.random.default_rng(0).permutation(20_000)
    left, right = EmbeddingTable(5, threads=2), EmbeddingTable(5)
    left.pull(keys)
    right.pull(np.sort(keys))
    np.testing.assert_array_equal(left.pull(keys), right.pull(keys))


def test_a_push_pulls_first() -> None:
    pushed, pulled = EmbeddingTable(3), EmbeddingTable(3)
    gradient = np.ones((2, 3), dtype=Float32)
    pulled.pull([1, 2])
    for table in (pushed, pulled):
        table.push([1, 2], gradient)
    np.testing.assert_array_equal(pushed.pull([1, 2]), pulled.pull([1, 2]))


def test_shapes_and_faces() -> None:
    table = EmbeddingTable(3)
    assert table.pull([]).shape == (0, 3)
    assert table.pull([[1, 2], [3, 4]]).shape == (2, 2, 3)
    assert table.pull(np.int64(7)).shape == (3,)
    rows = table.pull(torch.tensor([1, 2], dtype=torch.int32))
    assert isinstance(rows, torch.Tensor)
    out = torch.empty(2, 3)
    assert table.pull(torch.tensor([1, 2]), out=out) is out
    assert torch.equal(out, rows)
    assert table.pull(np.array([1, 2], dtype=np.uint8)).tolist() == rows.tolist()
    assert table.pull(np.arange(10)[1:6:2]).shape == (3, 3)
    assert len(table) == 6
    assert "rows=6, dim=3" in repr(table)
    table.lr = 0.5
    assert table.lr == 0.5
    assert table.memory_bytes is None
    assert table.seed == 0


def test_growth_and_memory() -> None:
    table = EmbeddingTable(64)
    keys = np.random.default_rng(0).integers(INT64.min, INT64.max, 200_000)
    rows = table.pull(keys)
    assert len(table) == len(np.unique(keys))
    np.testing.assert_array_equal(table.pull(keys), rows)
    payload = len(table) * (64 * 4 + 4)
    assert payload < table.nbytes < payload + 50 * len(table) + (4 << 20)


def test_budget_is_kept() -> None:
    table = EmbeddingTable(64, memory_bytes=16 << 20)
    table.pull(np.arange(20_000))
    kept = table.pull(np.arange(20_000), create=False)
    actions: list[Callable[[], object]] = [
        lambda: table.pull(np.arange(10_000, 100_000)),
        lambda: table.push(np.arange(10_000, 100_000), np.ones((90_000, 64), dtype=Float32)),
    ]
    for action in actions:
        with pytest.raises(DoesNotFitError, match=r"16777216 bytes \(memory_bytes\)") as caught:
            action()
        assert caught.value.hint
        assert len(table) == 20_000
        assert not table.contains([20_001]).any()
        np.testing.assert_array_equal(table.pull(np.arange(20_000), create=False), kept)
    assert table.nbytes <= 16 << 20
    with pytest.raises(DoesNotFitError):
        EmbeddingTable(64, memory_bytes=1)


def test_gradients_that_are_not_finite_change_nothing() -> None:
    table = EmbeddingTable(4)
    before = table.pull([1, 2])
    for bad in (np.nan, np.inf, -np.inf):
        grads = np.ones((3, 4), dtype=Float32)
        grads[1, 3] = bad
        with pytest.raises(DataError, match=r"key 2: .* at position 1 holds NaN or infinity"):
            table.push([1, 2, 3], grads)
    np.testing.assert_array_equal(table.pull([1, 2]), before)
    assert len(table) == 2


def test_threads_share_a_table() -> None:
    table = EmbeddingTable(8, "sgd", lr=1.0, threads=2)
    keys = np.arange(10_000)
    start = table.pull(keys)
    grads = np.ones((len(keys), 8), dtype=Float32)

    def push() -> None:
        for _ in range(5):
            table.push(keys, grads)

    workers = [threading.Thread(target=push) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_allclose(start - table.pull(keys), 20, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim: expected an integer from 1 to 65536, received 0"),
        ({"dim": 2.0}, "dim"),
        ({"dim": True}, "dim"),
        (
            {"dim": 4, "optimizer": "lion"},
            "optimizer: expected 'sgd' or 'adagrad' or .* or 'ftrl', received 'lion'",
        ),
        ({"dim": 4, "optimizer": 64}, "optimizer: expected 'sgd' or .*, received 64"),
        ({"dim": 4, "lr": -1}, "lr: expected a finite number"),
        ({"dim": 4, "lr": float("nan")}, "lr"),
        ({"dim": 4, "eps": "x"}, "eps"),
        ({"dim": 4, "init_scale": float("inf")}, "init_scale"),
        ({"dim": 4, "initial_accumulator": True}, "initial_accumulator"),
        ({"dim": 4, "seed": -1}, "seed"),
        ({"dim": 4, "memory_bytes": -1}, "memory_bytes"),
        ({"dim": 4, "threads": 0}, "threads"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EmbeddingTable(**arguments)


def test_wrong_arrays() -> None:
    table = EmbeddingTable(4)
    keys = [1, 2]
    wrong_rows: list[Any] = [np.ones((2, 3), dtype=Float32), np.ones((3, 4), dtype=Float32), np.ones((2, 4))]
    for bad in wrong_rows:
        with pytest.raises(UsageError, match=r"grads: expected float32 \(2, 4\), received float"):
            table.push(keys, bad)
        with pytest.raises(UsageError, match="out: expected"):
            table.pull(keys, out=bad)
    with pytest.raises(UsageError, match="out: expected contiguous"):
        table.pull(keys, out=np.ones((4, 2), dtype=Float32).T)
    read_only = np.ones((2, 4), dtype=Float32)
    read_only.flags.writeable = False
    with pytest.raises(UsageError, match="writable"):
        table.pull(keys, out=read_only)
    with pytest.raises(UsageError, match="received list"):
        table.pull(keys, out=[[0.0] * 4] * 2)  # type: ignore[call-overload]
    wrong_keys: list[Any] = [[0.5], ["a"], np.array([2**63], dtype=np.uint64), [None]]
    for wrong in wrong_keys:
        with pytest.raises(UsageError, match="keys: expected integers"):
            table.pull(wrong)
    with pytest.raises(UsageError, match="lr"):
        table.lr = -1
