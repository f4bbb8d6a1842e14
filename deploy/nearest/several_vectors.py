"""Nearest rows of queries with several vectors: a row's score is the largest of its scores for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from graphbox.deploy.nearest.exact import Float32, Found, Int64
from graphbox.deploy.nearest.row_filter import RowFilter

__all__ = ["RankedRows", "SeveralVectors"]


class RankedRows(Protocol):
    """Rows that are ranked for queries; see `graphbox.deploy.nearest.rows.NearestRows`."""

    def __len__(self) -> int: ...

    def top(self, queries: Float32, k: int, exclude: Int64 | None = None) -> tuple[Int64, Float32]:
        """Return the best ``k`` rows for each query, best first."""
        ...

    def filtered(self, queries: Float32, k: int, filters: Sequence[RowFilter]) -> list[Found]:
        """Return the best ``k`` rows that pass the filter of each query."""
        ...


class SeveralVectors:
    """The nearest rows of queries with several vectors. Safe to use from several threads.

    The best ``k`` rows of each vector are ranked by their largest score. No other row is among the best ``k``
    of the query: for the vector that gives it its score, ``k`` rows are better, or equal with a lower index.
    So answers are exact where those for single vectors are, and ties go to the lower index.

    Args:
        ranking: ranks the rows for single vectors.
        vectors: of a query, one after the other.
    """

    def __init__(self, ranking: RankedRows, vectors: int) -> None:
        self._ranking = ranking
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._ranking)

    def top(self, queries: Float32, k: int, exclude: Int64 | None = None) -> tuple[Int64, Float32]:
        """Return the best ``k`` rows for each query, best first.

        Args:
            queries: float32 [n, vectors * dim], finite.
            k: at most the number of rows that are not excluded.
            exclude: int64 [n], one row for each query that is no candidate.

        Returns:
            Row indices int64 [n, k] and scores float32 [n, k].
        """
        excluded = None if exclude is None else np.repeat(exclude, self._vectors)
        rows, scores = self._ranking.top(self._single(queries), k, excluded)
        index, score = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        for number in range(len(queries)):
            part = slice(number * self._vectors, (number + 1) * self._vectors)
            index[number], score[number] = _merged(rows[part].ravel(), scores[part].ravel(), k)
        return index, score

    def filtered(self, queries: Float32, k: int, filters: Sequence[RowFilter]) -> list[Found]:
        """Return the best ``k`` rows that pass the filter of each query; fewer where fewer pass.

        Args:
            queries: float32 [n, vectors * dim], finite.
            k: at least 1.
            filters: one for each query.
        """
        of_vectors = [each for each in filters for _ in range(self._vectors)]
        found = self._ranking.filtered(self._single(queries), k, of_vectors)
        merged = []
        for start in range(0, len(found), self._vectors):
            rows, scores = zip(*found[start : start + self._vectors], strict=True)
            merged.append(_merged(np.concatenate(rows), np.concatenate(scores), k))
        return merged

    def _single(self, queries: Float32) -> Float32:
        """Return the vectors of queries, one in each row."""
        return queries.reshape(len(queries) * self._vectors, queries.shape[1] // self._vectors)


def _merged(rows: Int64, scores: Float32, k: int) -> Found:
    """Return the best ``k`` of rows that may be several times among them, by their largest scores."""
    order = np.lexsort((rows, -scores))
    _, first = np.unique(rows[order], return_index=True)
    best = order[np.sort(first)[:k]]
    return rows[best], scores[best]
