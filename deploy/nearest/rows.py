"""Nearest rows of a table: exact until an index is ready, and wherever exact ranking is as fast."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphbox.deploy.nearest.background import Background
from graphbox.deploy.nearest.exact import ExactRanking, Float32, Found, Int64
from graphbox.deploy.nearest.graph_index import GraphIndex
from graphbox.deploy.nearest.recall import found_rows
from graphbox.deploy.nearest.row_filter import RowFilter, ranked_together

__all__ = ["EXACT_ROWS", "NearestRows", "Tuned", "tuned"]

EXACT_ROWS: Final = 50_000
"""Tables of at most so many rows have no index: exact ranking of 50,000 x 64 takes 0.6 ms."""
LEAST_RECALL: Final = 0.998
"""Recall of the sample by which an index is tuned. It is that of queries from the model, for most tables rows
of them; vectors from elsewhere are found less often (benchmarks/nearest.py)."""
_TUNED_K: Final = 20
_WIDTHS: Final = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
# Rows that are ranked exactly in the time that a search takes for a width of 1, measured with 100,000 x 64
# (benchmarks/nearest.py): 0.9 us, against 11 ns for a row that is read in order, 45 ns for one of an
# allow-list.
_ROWS_IN_ORDER: Final = 80
_ROWS_GATHERED: Final = 20
_SAMPLED_EVERY: Final = 1_000


@dataclass(frozen=True, slots=True)
class Tuned:
    """An index, the width that reaches `LEAST_RECALL` for k = 20, and the recall that was measured."""

    index: GraphIndex
    width: int
    recall: float


def tuned(index: GraphIndex, exact: ExactRanking, queries: Float32) -> Tuned | None:
    """Return an index with the smallest width that finds enough of the nearest rows of sample queries.

    Args:
        index: of the rows of ``exact``.
        exact: ranks the same rows.
        queries: float32 [n, dim], such as clients ask for.

    Returns:
        None where exact ranking takes no longer than the width that would be needed, no width finds enough,
        or there are no queries that would show it.
    """
    if not len(queries):
        return None
    k = min(_TUNED_K, len(index))
    _, nearest = exact.top(queries, k)
    for width in _WIDTHS:
        if width * _ROWS_IN_ORDER >= len(index):
            return None
        rows, scores = index.search(queries, k, max(k, width))
        found = sum(
            found_rows(score[row >= 0], best) for row, score, best in zip(rows, scores, nearest, strict=True)
        )
        if found >= LEAST_RECALL * nearest.size:
            return Tuned(index, width, found / nearest.size)
    return None


class NearestRows:
    """The nearest rows of one table. Safe to use from several threads.

    Args:
        exact: ranks the rows exactly.
        count: called for sampled queries with the number of their nearest rows, and of those that were found.
        background: runs the exact ranking of sampled queries.
    """

    def __init__(
        self, exact: ExactRanking, count: Callable[[int, int], None], background: Background
    ) -> None:
        self._exact = exact
        self._count = count
        self._background = background
        self._tuned: Tuned | None = None
        self._numbers = itertools.count()
        self._sampling = threading.Lock()

    def __len__(self) -> int:
        return len(self._exact)

    @property
    def tuned(self) -> Tuned | None:
        """The index that answers; None: exact ranking does."""
        return self._tuned

    def use(self, found: Tuned | None) -> None:
        """Answer by this index from the next call on; None: exactly."""
        self._tuned = found

    def top(self, queries: Float32, k: int, exclude: Int64 | None = None) -> tuple[Int64, Float32]:
        """Return the best ``k`` rows for each query, best first.

        Args:
            queries: float32 [n, dim], finite.
            k: at most the number of rows that are not excluded.
            exclude: int64 [n], one row for each query that is no candidate.

        Returns:
            Row indices int64 [n, k] and scores float32 [n, k].
        """
        found = self._tuned
        wanted = k + (exclude is not None)
        if found is None or not _is_faster(found, wanted, len(self)):
            return self._exact.top(queries, k, exclude)
        rows, scores = found.index.search(queries, wanted, _width(found, wanted))
        complete = (rows[:, -1] >= 0) & queries.any(axis=1)
        if exclude is not None:
            kept = rows != exclude[:, None]
            kept[kept.all(axis=1), -1] = False
            rows, scores = rows[kept].reshape(-1, k), scores[kept].reshape(-1, k)
        if not complete.all():
            # All scores of a zero query are 0: exact ranking answers the same rows each time.
            other = np.flatnonzero(~complete)
            rows[other], scores[other] = self._exact.top(
                queries[other], k, None if exclude is None else exclude[other]
            )
        number = self._sampled(len(queries))
        if number is not None:
            excluded = None if exclude is None else exclude[number : number + 1]
            query, answered = queries[number : number + 1].copy(), scores[number].copy()
            self._check(lambda: self._exact.top(query, k, excluded)[1][0], answered)
        return rows, scores

    def filtered(self, queries: Float32, k: int, filters: Sequence[RowFilter]) -> list[Found]:
        """Return the best ``k`` rows that pass the filter of each query; fewer where fewer pass.

        Args:
            queries: float32 [n, dim], finite.
            k: at least 1.
            filters: one for each query.
        """
        using = self._tuned
        if using is None:
            return self._exact.filtered(queries, k, filters)
        found: dict[int, Found] = {}
        denied = []
        for number, each in enumerate(filters):
            if each.allowed is None:
                denied.append(number)
            elif len(each.allowed):
                found |= self._allowed(using, queries, k, filters, number)
        for part, most in ranked_together(filters, denied):
            found |= self._not_denied(using, queries, k, filters, part, most)
        left = [number for number in range(len(filters)) if number not in found]
        if left:
            exact = self._exact.filtered(queries[left], k, [filters[number] for number in left])
            found |= dict(zip(left, exact, strict=True))
        sampled = self._sampled(len(filters))
        if sampled is not None and sampled not in left:
            query, answered, each = queries[sampled : sampled + 1].copy(), found[sampled][1], filters[sampled]
            self._check(lambda: self._exact.filtered(query, k, [each])[0][1], answered)
        return [found[number] for number in range(len(filters))]

    # The searches below leave out queries for which exact ranking is as fast, those of which a search found
    # too few rows, and zero queries.

    def _allowed(
        self, using: Tuned, queries: Float32, k: int, filters: Sequence[RowFilter], number: int
    ) -> dict[int, Found]:
        """Return the best rows of one query with an allow-list, by its number."""
        allowed = filters[number].allowed
        query = queries[number : number + 1]
        if allowed is None or not query.any():
            return {}
        wanted = min(k, len(allowed))
        # Of the rows that a search keeps, the share that is allowed counts.
        width = math.ceil(_width(using, wanted) * len(self) / len(allowed))
        if width * _ROWS_GATHERED >= len(allowed):
            return {}
        rows, scores = using.index.search(query, wanted, width, allowed)
        return {number: (rows[0], scores[0])} if rows[0, -1] >= 0 else {}

    def _not_denied(
        self, using: Tuned, queries: Float32, k: int, filters: Sequence[RowFilter], part: list[int], most: int
    ) -> dict[int, Found]:
        """Return the best rows of queries without allow-lists, by their numbers.

        Args:
            using: the index.
            queries: of all filters.
            k: wanted rows.
            filters: of all queries.
            part: numbers of the queries.
            most: length of their longest deny-list.
        """
        ranked = min(k + most, len(self))
        if not _is_faster(using, ranked, len(self)):
            return {}
        found: dict[int, Found] = {}
        wanted = queries[part]
        rows, scores = using.index.search(wanted, ranked, _width(using, ranked))
        is_zero = np.logical_not(wanted.any(axis=1))
        for place, number in enumerate(part):
            kept = rows[place] >= 0
            is_complete = bool(kept[-1]) and not bool(is_zero[place])
            if most:
                kept &= ~filters[number].is_denied(rows[place])
            if is_complete:
                found[number] = rows[place][kept][:k], scores[place][kept][:k]
        return found

    def _sampled(self, queries: int) -> int | None:
        """Return the number of the query among ``queries`` that is checked; None: none of them is."""
        # Counted by call: a large batch is checked as seldom as a single query. Not always the first of a
        # call: vectors of one query come together, and some are found less often than others.
        sample, calls_since = divmod(next(self._numbers), _SAMPLED_EVERY)
        return sample % queries if queries and not calls_since else None

    def _check(self, rank: Callable[[], Float32], answered: Float32) -> None:
        """Rank a sampled query exactly in the background, one at a time; others meanwhile are not checked."""
        if not self._sampling.acquire(blocking=False):
            return

        def check() -> None:
            try:
                nearest = rank()
                self._count(len(nearest), found_rows(answered, nearest))
            finally:
                self._sampling.release()

        if not self._background.start(check):
            self._sampling.release()


def _width(found: Tuned, k: int) -> int:
    """Return the width for ``k`` rows: recall stays about the same where it grows with ``k``."""
    return max(found.width, math.ceil(found.width * k / _TUNED_K))


def _is_faster(found: Tuned, k: int, rows: int) -> bool:
    """Return whether a search takes less time than exact ranking of all rows."""
    return _width(found, k) * _ROWS_IN_ORDER < rows
