"""Gathering rows: what NumPy and torch index, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphbox.errors import UsageError
from graphbox.sample import gather_rows

ROWS = 1000


def table_of(dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize * int(np.prod(shape))
    raw = np.random.default_rng(size).integers(0, 256, ROWS * size, np.uint8)
    return raw.view(dtype).reshape(ROWS, *shape)


def same_bytes(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("f4", (128,)),
        ("f4", (64,)),
        ("f4", (16,)),
        ("f4", ()),
        ("i8", ()),
        ("u1", ()),
        ("u1", (3,)),
        ("f2", (7, 5)),
        ("f8", (1000,)),
        ("c8", (2,)),
        ("M8[s]", ()),
        ("S5", (2,)),
    ],
)
def test_rows_are_those_that_numpy_indexes(dtype: str, shape: tuple[int, ...], threads: int) -> None:
    table = table_of(dtype, shape)
    for count in (0, 1, 7, 5000):
        index = np.random.default_rng(count).integers(0, ROWS, count)
        given = gather_rows(table, index, num_threads=threads)
        assert same_bytes(given, table[index])
        out = np.empty_like(given)
        assert gather_rows(table, index.astype(np.int32), out, num_threads=threads) is out
        assert same_bytes(out, table[index])


def test_a_result_too_large_for_the_caches_is_the_same(tmp_path: Path) -> None:
    table = table_of("f4", (128,))
    index = np.random.default_rng(0).integers(0, ROWS, 30_000)
    assert same_bytes(gather_rows(table, index, num_threads=2), table[index])
    odd = table_of("u1", (301,))
    assert same_bytes(gather_rows(odd, np.tile(index, 2), num_threads=2), odd[np.tile(index, 2)])
    np.save(tmp_path / "table.npy", table)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    assert same_bytes(gather_rows(mapped, index), table[index])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64]
)
def test_torch_tensors_give_torch_tensors(dtype: torch.dtype) -> None:
    table = (torch.arange(ROWS * 6).reshape(ROWS, 6) % 251).to(dtype)
    index = torch.randint(0, ROWS, (300,), generator=torch.Generator().manual_seed(0))
    given = gather_rows(table, index)
    assert given.dtype == dtype
    assert torch.equal(given, table[index])
    out = torch.empty_like(given)
    assert gather_rows(table, index, out) is out
    assert torch.equal(out, table[index])
    assert gather_rows(table, torch.empty(0, dtype=torch.int64)).shape == (0, 6)


def test_empty_tables_and_rows_of_no_bytes() -> None:
    assert gather_rows(np.zeros((0, 4)), []).shape == (0, 4)
    assert gather_rows(np.zeros((5, 0)), [4, 0]).shape == (2, 0)
    with pytest.raises(UsageError, match=r"none at all, received 0 at position 0"):
        gather_rows(np.zeros((0, 4)), [0])


@pytest.mark.parametrize(("wrong", "position"), [(-1, 2), (ROWS, 0), (2**62, 5)])
def test_a_row_that_is_not_there_is_named_and_nothing_written(wrong: int, position: int) -> None:
    index = np.arange(6)
    index[position] = wrong
    out = np.full((6, 128), 7, np.float32)
    with pytest.raises(UsageError, match=f"from 0 to 999, received {wrong} at position {position}"):
        gather_rows(table_of("f4", (128,)), index, out)
    assert (out == 7).all()


def test_tables_and_outputs_that_do_not_fit_are_refused() -> None:
    table = table_of("f4", (8,))
    wrong_outputs: list[Any] = [
        np.empty((2, 8), np.float64),
        np.empty((3, 8), np.float32),
        np.empty((2, 16), np.float32)[:, ::2],
        torch.empty((2, 8)),
    ]
    for out in wrong_outputs:
        with pytest.raises(UsageError) as caught:
            gather_rows(table, [0, 1], out)
        assert caught.value.where == "out"
    frozen = np.empty((2, 8), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(UsageError, match="may be written to"):
        gather_rows(table, [0, 1], frozen)
    for bad in (table[:, ::2], np.float32(1), np.array([object()])):
        with pytest.raises(UsageError) as caught:
            gather_rows(bad, [0])
        assert caught.value.where == "table"
    tensor = torch.from_numpy(table)
    with pytest.raises(UsageError, match="contiguous rows"):
        gather_rows(tensor.t(), [0])
    for tensor_out in (torch.empty((2, 8), dtype=torch.float64), torch.empty((2, 16))[:, ::2], table[:2]):
        with pytest.raises(UsageError) as caught:
            gather_rows(tensor, [0, 1], tensor_out)
        assert caught.value.where == "out"
