"""Statistics of features by `describe`, against NumPy on whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphbox.graph.columns import Column
from graphbox.graph.describe import FeatureDescription
from graphbox.graph.describe.features import describe_feature as describe_rows
from graphbox.graph.ids import IntegerIds
from graphbox.graph.tables import NodeTable


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.graph.describe.features._BLOCK_VALUES", 4)


def describe_feature(
    name: str, column: Column, removed: npt.NDArray[np.int64] | None = None
) -> FeatureDescription:
    rows = NodeTable(IntegerIds(np.arange(len(column))), {name: column}).column(name)
    return describe_rows(name, rows, removed)


def _kept(values: npt.NDArray[Any], removed: list[int]) -> npt.NDArray[Any]:
    return np.delete(values, removed, axis=0)


@given(
    hnp.arrays(np.float32, st.integers(0, 30), elements=st.floats(width=32, allow_infinity=False)),
    st.data(),
)
def test_numbers(values: npt.NDArray[np.float32], data: st.DataObject) -> None:
    removed = data.draw(st.lists(st.integers(0, max(0, len(values) - 1)), unique=True)) if len(values) else []
    described = describe_feature("n", Column("number", values), np.array(sorted(removed), np.int64))
    kept = _kept(values, removed)
    present = kept[~np.isnan(kept)]
    assert (described.rows, described.missing) == (len(kept), len(kept) - len(present))
    if len(present):
        assert (described.min, described.max) == (present.min(), present.max())
        assert described.p50 == np.percentile(present, 50, method="inverted_cdf")
        assert described.constant == (len(np.unique(present)) == 1)
    else:
        assert described.p50 is None


@given(hnp.arrays(np.int64, st.integers(1, 30)))
def test_integers(values: npt.NDArray[np.int64]) -> None:
    described = describe_feature("n", Column("integer", values))
    assert (described.min, described.max) == (values.min(), values.max())
    assert described.p50 == sorted(values.tolist())[(len(values) + 1) // 2 - 1]
    assert described.constant == (len(set(values.tolist())) == 1)


def test_vectors() -> None:
    values = np.array([[1, 2, np.nan], [1, 3, 5], [1, 4, 5], [1, 4, 5]], np.float32)
    described = describe_feature("v", Column("vector", values))
    assert (described.dim, described.missing, described.constant_dims, described.constant) == (3, 1, 2, False)
    assert describe_feature("v", Column("vector", np.ones((5, 2), np.float32))).constant


def test_categories_and_booleans() -> None:
    described = describe_feature("c", Column("categorical", np.array([2, -1, 2, 2, 2, -1], np.int32)))
    assert (described.missing, described.constant) == (2, True)
    described = describe_feature("c", Column("categorical", np.array([0, -1, 1], np.int32)))
    assert (described.missing, described.constant) == (1, False)
    described = describe_feature("b", Column("boolean", np.array([True] * 5 + [False])), np.array([5]))
    assert (described.rows, described.true, described.constant) == (5, 5, True)


def test_slots() -> None:
    offsets = np.array([0, 2, 2, 5, 5, 5, 6])
    described = describe_feature("s", Column("slots", np.arange(6), None, offsets), np.array([1]))
    assert (described.rows, described.missing, described.values, described.longest) == (5, 2, 6, 3)
