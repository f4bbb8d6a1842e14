"""Ranking where scores are: the same lists, ranks and reports as in host memory, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics import DeviceScores, FilteredQueries, evaluate_ranking, filtered_ranks, top_k
from graphbox.metrics.device_ranking import first_places
from tests.metrics import test_filtered, test_ranking
from tests.train.pretended_gpu import pretended_gpu

_NO_CELLS = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def on(scores: NDArray[np.float32], device: torch.device | str = "cpu") -> DeviceScores:
    held = torch.from_numpy(scores.copy()).to(device)
    return DeviceScores(lambda rows: held[torch.from_numpy(rows).to(device)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_rows", [1, 7, None])
@pytest.mark.parametrize("is_pretended", [False, True])
def test_reports_are_those_of_host_memory(seed: int, block_rows: int | None, is_pretended: bool) -> None:
    scores, positives, masked = test_ranking.problem(seed, levels=5)
    if seed == 4:  # lists that end before k
        masked = [set(range(40)) - each for each in positives]
    queries = test_ranking.as_queries(positives, masked)
    if seed == 5:
        queries = replace(queries, excluded=np.setdiff1d([0, 7, 39], queries.positives))
    in_degree = np.random.default_rng(seed).choice([0, 1, 4, 900], scores.shape[1])
    options = {"k": [1, 7, 60], "block_rows": block_rows}
    expected = evaluate_ranking(lambda rows: scores[rows], queries, in_degree, **options)  # type: ignore[arg-type]
    if is_pretended:
        with pretended_gpu() as gpu:
            found = evaluate_ranking(on(scores, gpu), queries, in_degree, **options)  # type: ignore[arg-type]
    else:
        found = evaluate_ranking(on(scores), queries, in_degree, **options)  # type: ignore[arg-type]
    assert found == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_rows", [1, 7, None])
def test_filtered_ranks_are_those_of_host_memory(seed: int, block_rows: int | None) -> None:
    scores, queries = test_filtered.problem(seed)
    if seed == 5:
        queries = replace(queries, excluded=np.setdiff1d(np.arange(40), [*queries.targets, *queries.known]))
    expected = filtered_ranks(lambda rows: scores[rows], queries, 40, block_rows=block_rows)
    np.testing.assert_array_equal(filtered_ranks(on(scores), queries, 40, block_rows=block_rows), expected)
    with pretended_gpu() as gpu:
        found = filtered_ranks(on(scores, gpu), queries, 40, block_rows=block_rows)
    np.testing.assert_array_equal(found, expected)


_numbers = st.one_of(
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 1e-45, -1e-45]),
    st.floats(width=32, allow_nan=False),
)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(1, 30))
def test_first_places_are_those_of_top_k(data: st.DataObject, rows: int, columns: int) -> None:
    row = st.lists(_numbers, min_size=columns, max_size=columns)
    scores = np.array(data.draw(st.lists(row, min_size=rows, max_size=rows)), np.float32)
    k = data.draw(st.integers(1, columns))
    expected = top_k(scores, k)
    expected[np.take_along_axis(scores, expected, axis=1) == -np.inf] = -1
    one_each = (np.arange(rows), np.zeros(rows, np.int64))
    ranked, counts, is_nan = first_places(
        torch.from_numpy(scores.copy()), _NO_CELLS, _NO_CELLS[0], one_each, k
    )
    np.testing.assert_array_equal(ranked, expected)
    np.testing.assert_array_equal(counts[:, 0], (scores > scores[:, :1]).sum(axis=1))
    np.testing.assert_array_equal(counts[:, 1], (scores == scores[:, :1]).sum(axis=1))
    assert not is_nan.any()


def test_refuses_what_host_memory_does() -> None:
    queries, in_degree = test_ranking.as_queries([{0}, {1}], [set(), set()]), np.zeros(3, np.int64)
    wrong = np.zeros((2, 3), np.float32)
    with pytest.raises(UsageError, match=r"expected scores of shape \(2, 3\)"):
        evaluate_ranking(on(wrong[:, :2]), queries, in_degree, k=2)
    wrong[1, 2] = np.nan
    with pytest.raises(UsageError, match="received a score that is NaN") as caught:
        evaluate_ranking(on(wrong), queries, in_degree, k=2)
    assert caught.value.where == "query 1"
    asked = FilteredQueries(np.zeros(2, np.int64), np.zeros(3, np.int64), np.zeros(0, np.int64))
    with pytest.raises(UsageError, match="received a score that is NaN"):
        filtered_ranks(on(wrong), asked, 3)
    with pytest.raises(UsageError, match=r"expected scores of shape \(2, 4\)"):
        filtered_ranks(on(wrong), asked, 4)
