"""Conversion of arguments and results of native functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphbox import _core, native
from graphbox.errors import DataError, GraphboxError, UsageError
from graphbox.sample import sample_neighbors


@pytest.mark.parametrize(
    "values",
    [[1, 2], (1, 2), np.array([1, 2], dtype=np.uint16), np.array([1, 9, 2, 9])[::2], torch.tensor([1, 2])],
)
def test_integers_of_any_kind(values: Any) -> None:
    array = native.integer_array(values, "values")
    assert array.dtype == np.int64
    assert array.flags.c_contiguous
    assert array.tolist() == [1, 2]


def test_arrays_that_fit_are_not_copied() -> None:
    array = np.arange(5)
    assert np.shares_memory(native.integer_array(array, "values"), array)
    tensor = torch.arange(5)
    assert np.shares_memory(native.integer_array(tensor, "values"), tensor.numpy())


def test_results_come_back_as_what_was_passed() -> None:
    result = np.arange(3)
    assert native.like(result, [1]) is result
    assert isinstance(native.like(result, torch.tensor([1])), torch.Tensor)
    assert native.is_torch(torch.tensor([1]))
    assert not native.is_torch(result)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHBOX_THREADS", raising=False)
    assert native.thread_count(None) >= 1
    assert native.thread_count(3) == 3
    monkeypatch.setenv("GRAPHBOX_THREADS", "5")
    assert native.thread_count(None) == 5
    assert native.thread_count(2) == 2
    for wrong in ("", "0", "many", "-1", "1000"):
        monkeypatch.setenv("GRAPHBOX_THREADS", wrong)
        with pytest.raises(UsageError, match="GRAPHBOX_THREADS: expected 1 to 256 threads"):
            native.thread_count(None)


def test_memory_mapped_arrays(tmp_path: Path) -> None:
    class Csc:
        indptr = np.array([0, 2, 3, 3])
        indices = np.array([1, 2, 0], dtype=np.int32)

    expected = sample_neighbors(Csc, [0], [-1, -1])
    for name in ("indptr", "indices"):
        np.save(tmp_path / f"{name}.npy", getattr(Csc, name))
        setattr(Csc, name, np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    assert sample_neighbors(Csc, [0], [-1, -1]).edge_ids.tolist() == expected.edge_ids.tolist()


def test_wrong_numbers_do_not_reach_the_core() -> None:
    relation = _core.Relation(np.array([0, 1]), np.array([0]), 0, 0, [1], "test")
    for source, hops in ((0, 2), (0, -1), (5, 1)):
        wrong = _core.Relation(np.array([0, 1]), np.array([0]), source, 0, [1], "test")
        with pytest.raises(UsageError, match="expected seeds for each node type"):
            _core.sample_neighbors([wrong], [1], [np.array([0])], hops, False, 0, 0, 0, 1)
    with pytest.raises(UsageError, match="expected seeds for each node type"):
        _core.sample_neighbors([relation], [1], [], 1, False, 0, 0, 0, 1)
    with pytest.raises(UsageError, match="int32 or int64"):
        _core.Relation(np.array([0, 1]), np.array([0], dtype=np.int16), 0, 0, [1], "test")
    with pytest.raises(UsageError, match="multiple of 64"):
        _core.random_read_seconds(1024, 1, 65)


def test_arrays_of_another_type_are_refused_and_never_copied() -> None:
    with pytest.raises(TypeError):
        _core.Relation(np.array([0.0, 1]), np.array([0]), 0, 0, [1], "test")
    with pytest.raises(TypeError):
        _core.AliasTable(np.ones(3)).sample(np.zeros(3, dtype=np.int32), 0, 0, 0, 1)
    with pytest.raises(TypeError):
        _core.AliasTable(np.ones(3)).sample(np.zeros(6, dtype=np.int64)[::2], 0, 0, 0, 1)


def test_none_among_arrays_is_refused_where_none_may_stand_for_all_of_them() -> None:
    some, table = np.array([0]), _core.AliasTable.uniform(3)
    for rows in ((None, some, "rates", None), (np.array([0, 1]), None, "rates", None)):
        with pytest.raises(UsageError, match="received None for one") as caught:
            table.sample_for(None, rows, some, 1, False, False, 0, 0, 0, 1)  # type: ignore[arg-type]
        assert caught.value.where == "rates"


def test_tables_of_edges_must_be_made_of_all_of_them() -> None:
    indptr, times, weights = np.array([0, 2, 3]), np.array([1, 2, 3]), np.ones(3, np.float32)
    order = _core.TimeOrder(indptr, times, "test", 1)
    for part, message in (
        (indptr[:-1], "for each of 2 edges, received 3"),
        (indptr[1:], "indptr must begin with 0, received 2"),
    ):
        with pytest.raises(GraphboxError, match=message):
            _core.AliasTables(part, weights, "test", 1)
        with pytest.raises(GraphboxError, match=message):
            _core.TimeOrder(part, times, "test", 1)
        with pytest.raises(GraphboxError, match=message):
            _core.WeightSums(order, part, weights, "test", 1)


@pytest.mark.parametrize("p", [1.0, 0.5])
def test_walks_never_leave_the_edges_by_tables_of_other_rows(p: float) -> None:
    one_row, edges = np.array([0, 64]), np.zeros(64, np.int64)
    weights = np.geomspace(1e-9, 1, 64).astype(np.float32)  # nearly every column stands for the last edge
    tables = _core.AliasTables(one_row, weights, "test", 1)
    step = _core.WalkStep(np.arange(65), edges, "rows", weights=tables)
    walkers = _core.Walkers(np.arange(64))
    with pytest.raises(DataError, match="weights belong to rows other than these"):
        _core.random_walks(_core.WalkPlan([[step]], 4, p), walkers, (0, 0, 0), 1)


def test_absurdly_many_threads_take_no_memory() -> None:
    ids = np.arange(1000)
    for threads in (-(2**31), 0, 2**31 - 1):
        assert (
            _core.build_ids_index(ids, None, None, threads)[1:]
            == _core.build_ids_index(ids, None, None, 1)[1:]
        )


def test_stores_of_rows_give_only_those_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(65536))
    store = _core.Store([(str(path), 65536)], (0, 512, 10), 5000, "threads", 8, False)
    with pytest.raises(UsageError, match="the rows that the store was made for"):
        store.read_rows((0, 0, 512, 128), np.array([100]), np.zeros(512, np.uint8), False, 1)
    with pytest.raises(UsageError, match="a store of arrays"):
        store.read_items(
            (0, 0, 512, 10),
            np.array([0]),
            1,
            np.array([[0, 3]]),
            np.array([0, 3]),
            np.zeros(1536, np.uint8),
            False,
            1,
        )


@pytest.mark.parametrize("budget_bytes", [0, 1 << 20])
def test_lists_without_offsets_have_no_bounds(tmp_path: Path, budget_bytes: int) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(bytes(4096))
    store = _core.Store([(str(path), 4096)], None, budget_bytes, "threads", 8, False)
    with pytest.raises(UsageError, match="none at all"):
        store.read_bounds((0, 0, 8, 0), 1, np.array([2**40]), False, 1)
