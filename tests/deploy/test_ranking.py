"""Exact ranking against a plain sort."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from graphbox.artifact import Ids, RowTable
from graphbox.deploy import CheckedProgram, Options, choose, compile_model, open_program
from graphbox.deploy.nearest import exact as ranking_module
from graphbox.deploy.nearest.exact import RANKING_MODEL, ExactRanking
from graphbox.deploy.nearest.row_filter import RowFilter
from graphbox.row_codecs import ArrayRows, TableShape, open_rows, row_codec

RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def program() -> Iterator[CheckedProgram]:
    adapter, device = choose("onnxruntime")
    with compile_model(adapter, RANKING_MODEL, device, Options()) as compiled:
        yield compiled


def _table(rows: Any) -> RowTable:
    codec = row_codec(rows.dtype.name)
    stored = open_rows(codec, codec.encode(ArrayRows(rows)), TableShape(*rows.shape))
    return RowTable(stored, Ids(pa.array(range(len(rows)), pa.int64()), "node"))


def _plain(rows: Any, queries: Any, k: int, exclude: Any, cosine: bool) -> Any:
    """Return the best rows of each query by sorting all of them."""
    best = []
    for number, query in enumerate(queries):
        scores = []
        for index, row in enumerate(rows):
            score = np.float32(np.dot(row.astype(np.float64), query.astype(np.float64)))
            if cosine:
                length = np.linalg.norm(row) * np.linalg.norm(query)
                score = score / length if length else np.float32(0)
            scores.append((-score, index))
        if exclude is not None:
            del scores[exclude[number]]
        best.append([index for _, index in sorted(scores)[:k]])
    return np.array(best)


@pytest.mark.parametrize("score", ["inner_product", "cosine"])
@pytest.mark.parametrize("excluding", [False, True])
def test_the_best_rows_in_order(
    program: CheckedProgram, score: Literal["inner_product", "cosine"], excluding: bool
) -> None:
    rows = RANDOM.standard_normal((150, 8), np.float32)
    queries = RANDOM.standard_normal((9, 8), np.float32)
    exclude = RANDOM.integers(0, 150, 9) if excluding else None
    for k in (1, 7, 149):
        index, scores = ExactRanking(_table(rows), score, program).top(queries, k, exclude)
        expected = _plain(rows, queries, k, exclude, score == "cosine")
        np.testing.assert_array_equal(index, expected)
        assert (np.diff(scores, axis=1) <= 0).all()
        assert index.dtype == np.int64
        assert scores.dtype == np.float32


@pytest.mark.parametrize("score", ["inner_product", "cosine"])
def test_rows_are_ranked_by_a_compiler_to_which_dimensions_of_one_name_are_equal(
    score: Literal["inner_product", "cosine"],
) -> None:
    """IREE reads as many values of an input as the other operand has."""
    pytest.importorskip("iree.compiler")
    rows, queries = (RANDOM.standard_normal((count, 8), np.float32) for count in (150, 9))
    with open_program("iree", RANKING_MODEL, Options()).program as compiled:
        ranking = ExactRanking(_table(rows), score, compiled)
        index, _ = ranking.top(queries, 7)
        np.testing.assert_array_equal(index, _plain(rows, queries, 7, None, score == "cosine"))
        allowed = np.arange(3, 60)
        ((index, _),) = ranking.filtered(queries[:1], 7, [RowFilter.of(allowed, allowed[:0])])
        expected = _plain(rows[allowed], queries[:1], 7, None, score == "cosine")
        np.testing.assert_array_equal(index, allowed[expected[0]])


def test_ties_go_to_the_lower_index(program: CheckedProgram) -> None:
    rows = np.ones((20, 4), np.float32)
    queries = np.ones((2, 4), np.float32)
    index, _ = ExactRanking(_table(rows), "inner_product", program).top(queries, 5)
    assert index.tolist() == [[0, 1, 2, 3, 4]] * 2
    index, _ = ExactRanking(_table(rows), "inner_product", program).top(queries, 5, np.array([0, 9]))
    assert index.tolist() == [[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]


def test_the_excluded_row_may_be_the_worst(program: CheckedProgram) -> None:
    rows = np.arange(5, dtype=np.float32)[:, None]
    index, scores = ExactRanking(_table(rows), "inner_product", program).top(
        np.ones((2, 1), np.float32), 4, np.array([0, 4])
    )
    assert index.tolist() == [[4, 3, 2, 1], [3, 2, 1, 0]]
    assert scores.tolist() == [[4, 3, 2, 1], [3, 2, 1, 0]]


def test_zero_rows_and_zero_queries_score_zero(program: CheckedProgram) -> None:
    rows = np.array([[0, 0], [1, 0], [-1, 0]], np.float32)
    index, scores = ExactRanking(_table(rows), "cosine", program).top(
        np.array([[2, 0], [0, 0]], np.float32), 3
    )
    assert index.tolist() == [[1, 0, 2], [0, 1, 2]]
    assert scores.tolist() == [[1, 0, -1], [0, 0, 0]]


def test_queries_are_taken_in_parts(program: CheckedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RANDOM.standard_normal((100, 8), np.float32)
    queries = RANDOM.standard_normal((50, 8), np.float32)
    exclude = np.arange(50)
    whole = ExactRanking(_table(rows), "inner_product", program).top(queries, 9, exclude)
    monkeypatch.setattr(ranking_module, "_MAX_SCORES_BYTES", 7 * 400)
    monkeypatch.setattr(ranking_module, "_BLOCK_ROWS", 13)
    parts = ExactRanking(_table(rows), "inner_product", program).top(queries, 9, exclude)
    np.testing.assert_array_equal(whole[0], parts[0])


def _stored(kind: str, rows: int, dim: int) -> RowTable:
    """Return a table of random rows, stored as float16 or as codes."""
    if kind == "float16":
        return _table(RANDOM.standard_normal((rows, dim)).astype(np.float16))
    scale_bias = np.abs(RANDOM.standard_normal((rows, 2))).astype(np.float16)
    scale_bias[:, 1] *= -100
    codes = RANDOM.integers(0, 256, (rows, dim), dtype=np.uint8)
    arrays: Any = {"codes.npy": codes, "scale_bias.npy": scale_bias}
    stored = open_rows(row_codec("int8_rowwise"), arrays, TableShape(rows, dim))
    return RowTable(stored, Ids(pa.array(range(rows), pa.int64()), "node"))


@pytest.mark.parametrize("score", ["inner_product", "cosine"])
@pytest.mark.parametrize("kind", ["float16", "int8"])
@pytest.mark.parametrize("dim", [1, 6, 64, 257])
def test_encoded_rows_rank_as_their_decoded_values(
    program: CheckedProgram,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    score: Literal["inner_product", "cosine"],
    dim: int,
) -> None:
    table = _stored(kind, 80, dim)
    queries = RANDOM.standard_normal((4, dim), np.float32)
    exclude = RANDOM.integers(0, 80, 4)
    rows = table.block(0, 80).astype(np.float64)
    if score == "cosine":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        expected = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ rows.T
    else:
        expected = queries @ rows.T
    monkeypatch.setattr(ranking_module, "_MAX_PRODUCTS", 160)  # two queries at a time
    ranking = ExactRanking(table, score, program)
    largest = np.abs(rows).max() * np.abs(queries).max() * dim
    expected[np.arange(4), exclude] = -np.inf
    for k in (1, 10, 79):
        index, scores = ranking.top(queries, k, exclude)
        # Of what differs by rounding alone, either may come first.
        np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=1e-6 * largest)
        np.testing.assert_allclose(np.take_along_axis(expected, index, 1), scores, atol=1e-6 * largest)
        assert all(len(set(row)) == k for row in index.tolist())


def test_ties_of_encoded_rows_go_to_the_lower_index(program: CheckedProgram) -> None:
    table = _table(np.ones((2000, 4), np.float16))
    index, _ = ExactRanking(table, "cosine", program).top(np.ones((2, 4), np.float32), 5, np.array([0, 9]))
    assert index.tolist() == [[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]


def test_zero_rows_that_are_encoded_score_zero(program: CheckedProgram) -> None:
    rows = np.array([[0, 0], [1, 0], [-1, 0]], np.float16)
    table = _table(rows)
    index, scores = ExactRanking(table, "cosine", program).top(np.array([[2, 0], [0, 0]], np.float32), 3)
    assert index.tolist() == [[1, 0, 2], [0, 1, 2]]
    assert scores.tolist() == [[1, 0, -1], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_encoded_rows_are_not_decoded_as_a_whole(program: CheckedProgram, kind: str) -> None:
    table = _stored(kind, 100_000, 64)
    queries = RANDOM.standard_normal((3, 64), np.float32)
    tracemalloc.start()
    ranking = ExactRanking(table, "cosine", program)
    ranking.top(queries, 10)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 12 << 20  # lengths are computed from blocks of 4.2 MB; decoded, the rows are 25.6 MB
