"""Nearest rows of a table with row updates: stored rows by their own ranking, changed rows exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from graphbox.artifact.updated_rows import UpdatedTable
from graphbox.deploy.nearest.exact import ExactRanking, Float32, Found, Int64
from graphbox.deploy.nearest.graph_index import Score
from graphbox.deploy.nearest.row_filter import ALL_ROWS, RowFilter
from graphbox.deploy.nearest.rows import NearestRows
from graphbox.deploy.program import CheckedProgram
from graphbox.rows import StoredRows

__all__ = ["UpdatedNearestRows"]

_LEAST_MORE: Final = 8
_GROWTH: Final = 4
# Beyond this, the unchanged rows are ranked as an allow-list is.
_MOST_FETCHED: Final = 4_096


class UpdatedNearestRows:
    """The nearest rows of a table with changed rows. Safe to use from several threads.

    Stored rows are ranked as before, by an index where there is one: changed ones are dropped from the
    answer, and as many more are asked for as are needed to replace them. Changed and added rows are ranked
    exactly.

    Args:
        stored: ranks the stored rows.
        table: the table with its changed rows.
        score: ``cosine`` divides by the lengths of query and row.
        program: `graphbox.deploy.nearest.exact.RANKING_MODEL`, compiled.
    """

    def __init__(
        self, stored: NearestRows, table: UpdatedTable, score: Score, program: CheckedProgram
    ) -> None:
        self._stored = stored
        self._rows = len(table)
        self._changed = table.changed
        self._ranking = ExactRanking(StoredRows.of_float32(table.changed.rows), score, program)

    def __len__(self) -> int:
        return self._rows

    def top(self, queries: Float32, k: int, exclude: Int64 | None = None) -> tuple[Int64, Float32]:
        """Return the best ``k`` rows for each query, best first; see `NearestRows.top`."""
        filters = [ALL_ROWS] * len(queries)
        if exclude is not None:
            filters = [RowFilter(None, exclude[place : place + 1]) for place in range(len(queries))]
        index, score = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        for place, (rows, scores) in enumerate(self.filtered(queries, k, filters)):
            index[place], score[place] = rows, scores
        return index, score

    def filtered(self, queries: Float32, k: int, filters: Sequence[RowFilter]) -> list[Found]:
        """Return the best ``k`` rows that pass the filter of each query; see `NearestRows.filtered`."""
        if not len(queries):
            return []
        changed = self._ranking.filtered(
            queries, min(k, len(self._ranking)), [self._of_changed(each) for each in filters]
        )
        stored = self._best_stored(queries, k, filters)
        return [self._merged(*each, k) for each in zip(stored, changed, strict=True)]

    def _merged(self, stored: Found, changed: Found, k: int) -> Found:
        rows = np.concatenate([stored[0], self._changed.nodes[changed[0]]])
        scores = np.concatenate([stored[1], changed[1]])
        order = np.lexsort((rows, -scores))[:k]
        return rows[order], scores[order]

    def _of_changed(self, each: RowFilter) -> RowFilter:
        """Return a filter as one of places among the changed rows."""
        if each is ALL_ROWS:
            return each
        if each.allowed is not None:
            places = self._changed.places(each.allowed)
            return RowFilter(np.sort(places[places >= 0]))
        places = self._changed.places(each.denied)
        return RowFilter(None, np.sort(places[places >= 0]))

    def _best_stored(self, queries: Float32, k: int, filters: Sequence[RowFilter]) -> list[Found]:
        """Return the best rows that no update has changed and that pass the filter of each query."""
        found: dict[int, Found] = {}
        listed = [number for number, each in enumerate(filters) if each.allowed is not None]
        found |= self._of_lists(
            queries, k, listed, [self._unchanged(filters[each].allowed) for each in listed]
        )
        left = [number for number, each in enumerate(filters) if each.allowed is None]
        share = len(self._changed.nodes) / max(1, self._rows)
        wanted = k + _LEAST_MORE + math.ceil(2 * k * share)
        while left and wanted <= _MOST_FETCHED:
            fetched = min(wanted, len(self._stored))
            ranked = self._stored.filtered(
                queries[left], fetched, [self._denied(filters[each]) for each in left]
            )
            incomplete = []
            for number, (rows, scores) in zip(left, ranked, strict=True):
                kept = self._changed.places(np.ascontiguousarray(rows)) < 0
                if np.count_nonzero(kept) >= min(k, len(self._stored)) or len(rows) < wanted:
                    found[number] = rows[kept][:k], scores[kept][:k]
                else:
                    incomplete.append(number)
            left, wanted = incomplete, wanted * _GROWTH
        allowed = [
            np.setdiff1d(self._all_unchanged, filters[each].denied, assume_unique=True) for each in left
        ]
        found |= self._of_lists(queries, k, left, allowed)
        return [found[number] for number in range(len(filters))]

    def _of_lists(
        self, queries: Float32, k: int, numbers: list[int], allowed: Sequence[Int64]
    ) -> dict[int, Found]:
        if not numbers:
            return {}
        ranked = self._stored.filtered(queries[numbers], k, [RowFilter(each) for each in allowed])
        return dict(zip(numbers, ranked, strict=True))

    def _unchanged(self, allowed: Int64 | None) -> Int64:
        if allowed is None:
            return self._all_unchanged
        kept = allowed[allowed < len(self._stored)]
        return kept[self._changed.places(kept) < 0]

    def _denied(self, each: RowFilter) -> RowFilter:
        denied = each.denied[each.denied < len(self._stored)]
        return RowFilter(None, denied) if len(denied) else ALL_ROWS

    @cached_property
    def _all_unchanged(self) -> Int64:
        is_unchanged = np.ones(self._rows, np.bool_)
        is_unchanged[self._changed.nodes] = False
        return np.flatnonzero(is_unchanged[: len(self._stored)])
