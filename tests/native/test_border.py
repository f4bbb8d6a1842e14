"""What users pass to native functions, and what they get back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphbox import _core, native
from graphbox.errors import UsageError
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
