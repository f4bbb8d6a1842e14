"""Gradients that are not finite, gradients that are clipped, and arrays of other libraries."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphbox.errors import DataError, UsageError
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Optimizer

Float32Array = npt.NDArray[np.float32]


class Foreign:
    """An array of a library that neither NumPy nor we know."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def a_gradient(count: int, dim: int, seed: int = 0) -> Float32Array:
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("slots", [False, True])
def test_refused_gradients_name_key_and_position(bad: float, slots: bool) -> None:
    table = EmbeddingTable(4)
    keys = np.arange(10_000)
    before = table.pull(keys)
    gradients = a_gradient(len(keys), 4)
    gradients[7777, 3] = bad
    pulled = table.pull_slots(keys)[1]
    with pytest.raises(DataError, match=r"key 7777: .* at position 7777 holds NaN or infinity, and none was"):
        table.push_slots(pulled, gradients) if slots else table.push(keys, gradients)
    np.testing.assert_array_equal(table.pull(keys), before)
    assert table.skipped_gradients == 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("slots", [False, True])
def test_skipped_gradients_are_left_out_and_counted(slots: bool, threads: int) -> None:
    tables = [EmbeddingTable(4, "adam", nonfinite="skip", threads=threads) for _ in range(2)]
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 3000, 20_000)
    gradients = a_gradient(len(keys), 4)
    bad = rng.choice(len(keys), 500, replace=False)
    left = np.setdiff1d(np.arange(len(keys)), bad)
    for table in tables:
        table.pull(keys)
    tables[1].push(keys[left], gradients[left])
    gradients[bad, rng.integers(0, 4, 500)] = rng.choice([np.nan, np.inf, -np.inf], 500)
    if slots:
        tables[0].push_slots(tables[0].pull_slots(keys)[1], gradients)
    else:
        tables[0].push(keys, gradients)
    np.testing.assert_array_equal(tables[0].pull(keys), tables[1].pull(keys))
    assert [table.skipped_gradients for table in tables] == [500, 0]


def test_keys_of_skipped_gradients_keep_their_state() -> None:
    table = EmbeddingTable(2, "adam", nonfinite="skip")
    before = table.pull([1])
    table.push([1, 1], np.full((2, 2), np.nan, dtype=np.float32))
    np.testing.assert_array_equal(table.pull([1]), before)
    table.push([1], np.ones((1, 2), dtype=np.float32))
    np.testing.assert_allclose(before - table.pull([1]), 0.05, rtol=1e-5)  # what a first step of Adam is
    assert table.skipped_gradients == 2


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_clipped_gradients_are_what_torch_clips(optimizer: Optimizer) -> None:
    dim, keys = 19, np.array([5, 2, 5, 9])
    plain = EmbeddingTable(dim, optimizer)
    by_norm = EmbeddingTable(dim, optimizer, clip_norm=1.5)
    by_value = EmbeddingTable(dim, optimizer, clip_value=0.25)
    both = EmbeddingTable(dim, optimizer, clip_norm=1.5, clip_value=0.25)
    norms = EmbeddingTable(dim, optimizer)
    values = EmbeddingTable(dim, optimizer)
    boths = EmbeddingTable(dim, optimizer)
    for step in range(5):
        gradients = a_gradient(4, dim, step) * np.float32(0.1 * 4**step)
        for table in (plain, by_norm, by_value, both):
            table.push(keys, gradients)
        unique = np.array([5, 2, 9])
        sums = [gradients[0] + gradients[2], gradients[1], gradients[3]]
        rows = [torch.nn.Parameter(torch.zeros(dim)) for _ in unique]
        for table, norm, value in ((norms, 1.5, None), (values, None, 0.25), (boths, 1.5, 0.25)):
            for row, gradient in zip(rows, sums, strict=True):
                row.grad = torch.from_numpy(gradient.copy())
                if norm is not None:
                    torch.nn.utils.clip_grad_norm_([row], norm)
                if value is not None:
                    torch.nn.utils.clip_grad_value_([row], value)
            table.push(unique, torch.stack([row.grad for row in rows if row.grad is not None]))
    for table, expected in ((by_norm, norms), (by_value, values), (both, boths)):
        np.testing.assert_allclose(table.pull(unique), expected.pull(unique), rtol=1e-5, atol=1e-6)
        assert not np.allclose(table.pull(unique), plain.pull(unique), rtol=1e-3, atol=1e-3)


def test_enormous_gradients_are_clipped_in_their_direction() -> None:
    table = EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0, clip_norm=5.0)
    table.push([1], np.array([[3e30, 4e30]], dtype=np.float32))
    np.testing.assert_allclose(table.pull([1]), [[-3, -4]], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nonfinite": "ignore"}, "nonfinite: expected 'refuse' or 'skip', received 'ignore'"),
        ({"clip_norm": 0}, "clip_norm: clip_norm must be above 0"),
        ({"clip_value": -1.0}, "clip_value: expected a finite number, 0 or more, received -1.0"),
        ({"clip_value": float("nan")}, "clip_value: expected a finite number"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EmbeddingTable(4, **arguments)


def test_arrays_of_other_libraries() -> None:
    table = EmbeddingTable(3)
    keys = Foreign(np.array([4, 5]))
    rows = table.pull(keys)  # type: ignore[call-overload]
    assert isinstance(rows, np.ndarray)
    np.testing.assert_array_equal(rows, table.pull([4, 5]))
    memory = np.zeros((2, 3), dtype=np.float32)
    out = Foreign(memory)
    assert table.pull(keys, out=out) is out  # type: ignore[call-overload]
    np.testing.assert_array_equal(memory, rows)
    other = EmbeddingTable(3)
    table.push(keys, Foreign(np.ones((2, 3), dtype=np.float32)))
    other.push(np.array([4, 5]), torch.ones(2, 3))
    np.testing.assert_array_equal(table.pull(keys), other.pull([4, 5]))  # type: ignore[call-overload]
    assert table.contains(keys).all()
    assert table.erase(keys) == 2


def test_tensors_elsewhere_are_refused() -> None:
    class Elsewhere(Foreign):
        def __dlpack__(self, **arguments: Any) -> Any:
            raise BufferError("the tensor is on a GPU")

    table = EmbeddingTable(3)
    with pytest.raises(
        UsageError, match=r"keys: expected a tensor in host memory .*: the tensor is on a GPU"
    ):
        table.pull(Elsewhere(np.array([1])))  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="out: expected a tensor in host memory, received one on meta"):
        table.pull(torch.tensor([1]), out=torch.empty(1, 3, device="meta"))


# ------------------------------------------------------------------ going through a table


def test_items_give_each_key_once() -> None:
    for dtype in ("float32", "float16"):
        table = EmbeddingTable(5, dtype=dtype)
        assert list(table.items()) == []
        table.pull(np.arange(1000))
        table.erase(np.arange(0, 1000, 3))
        for chunk_rows in (1, 7, 666, 10_000):
            chunks = list(table.items(chunk_rows=chunk_rows))
            assert all(len(keys) == chunk_rows for keys, _ in chunks[:-1])
            keys = np.concatenate([keys for keys, _ in chunks])
            rows = np.concatenate([rows for _, rows in chunks])
            np.testing.assert_array_equal(keys, table.keys())
            np.testing.assert_array_equal(rows, table.pull(keys, create=False))


def test_items_while_the_table_changes() -> None:
    table = EmbeddingTable(3)
    staying = np.arange(500)
    table.pull(np.arange(1000))
    given: list[int] = []
    for number, (keys, _) in enumerate(table.items(chunk_rows=50)):
        given.extend(keys.tolist())
        table.erase(np.arange(500 + 20 * number, 520 + 20 * number))
        table.pull(np.arange(2000 + 30 * number, 2030 + 30 * number))
        if number > 100:
            break
    assert [given.count(key) for key in staying.tolist()] == [1] * 500


def test_wrong_chunks() -> None:
    with pytest.raises(UsageError, match="chunk_rows: expected an integer from 1 to"):
        EmbeddingTable(3).items(chunk_rows=0)
