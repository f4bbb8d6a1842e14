"""Exact nearest rows by inner product or cosine, computed by the target that runs the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.deploy.cancellation import check_cancelled
from graphbox.deploy.nearest.graph_index import Score, unit_rows
from graphbox.deploy.nearest.row_filter import RowFilter, ranked_together
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.deploy.program import CheckedProgram
from graphbox.rows import StoredRows

__all__ = ["RANKING_MODEL", "ExactRanking", "Found"]

Float32: TypeAlias = npt.NDArray[np.float32]
Int64: TypeAlias = npt.NDArray[np.int64]
Found: TypeAlias = tuple[Int64, Float32]
"""Row indices int64 [k] and scores float32 [k] of one query, best first."""

# NumPy's BLAS is not used: its threads cannot be bounded per call, and where other processes want the same
# cores its product of one query with 63,000 rows took 20 ms, where this takes 0.2 ms. TopK gives ties to the
# lower index. `length` has a value for each row: IREE reads beyond the end of one value for all.
RANKING_MODEL: Final = write_onnx(
    [
        Node("Gemm", ["queries", "rows"], ["products"], {"transB": 1}),
        Node("Div", ["products", "length"], ["scores"]),
        Node("TopK", ["scores", "k"], ["score", "index"]),
    ],
    {
        "queries": (np.float32, ["n", "dim"]),
        "rows": (np.float32, ["m", "dim"]),
        "length": (np.float32, ["m"]),
        "k": (np.int64, [1]),
    },
    {"score": (np.float32, ["n", "best"]), "index": (np.int64, ["n", "best"])},
)
_MAX_SCORES_BYTES = 64 << 20
_BLOCK_ROWS = 16_384
# Products between two looks at whether the request still stands: 0.1 s.
_MAX_PRODUCTS = 1 << 23
# Longer deny-lists: the other rows are ranked as an allow-list is.
_MOST_DENIED = 4_096
_GATHERED_ROWS = 65_536


class ExactRanking:
    """Ranks all rows of a table for each query; ties go to the lower index.

    Rows stay as they are stored. The target ranks float32 rows. Others are ranked by the native core, which
    decodes a few at a time in the processor's cache; a runtime would need all of them decoded.

    Args:
        table: the rows to rank.
        score: ``cosine`` divides by the lengths of query and row; a zero row scores 0.
        program: `RANKING_MODEL`, compiled.
    """

    def __init__(self, table: StoredRows, score: Score, program: CheckedProgram) -> None:
        self._table = table
        self._program = program
        self._lengths = _lengths(table) if score == "cosine" else None

    def __len__(self) -> int:
        return len(self._table)

    def top(
        self, queries: Float32, k: int, exclude: npt.NDArray[np.int64] | None = None
    ) -> tuple[npt.NDArray[np.int64], Float32]:
        """Return the best ``k`` rows for each query, best first.

        Args:
            queries: float32 [n, dim], finite.
            k: at most the number of rows that are not excluded.
            exclude: int64 [n], one row for each query that is no candidate.

        Returns:
            Row indices int64 [n, k] and scores float32 [n, k].
        """
        if self._lengths is not None:
            queries = unit_rows(queries)
        index = np.empty((len(queries), k), np.int64)
        score = np.empty((len(queries), k), np.float32)
        wanted = k if exclude is None else k + 1
        is_float32 = self._table.codec == "float32"
        most = _MAX_SCORES_BYTES // 4 if is_float32 else _MAX_PRODUCTS
        at_once = max(1, most // max(1, len(self)))
        for start in range(0, len(queries), at_once):
            check_cancelled()
            part = slice(start, start + at_once)
            best = self._by_target if is_float32 else self._by_core
            best_index, best_score = best(queries[part], wanted)
            if exclude is None:
                index[part], score[part] = best_index, best_score
                continue
            kept = best_index != exclude[part, None]
            kept[kept.all(axis=1), -1] = False
            index[part] = best_index[kept].reshape(-1, k)
            score[part] = best_score[kept].reshape(-1, k)
        return index, score

    def filtered(self, queries: Float32, k: int, filters: Sequence[RowFilter]) -> list[Found]:
        """Return the best ``k`` rows that pass the filter of each query; fewer where fewer pass.

        Args:
            queries: float32 [n, dim], finite.
            k: at least 1.
            filters: one for each query.
        """
        found: dict[int, Found] = {}
        denied: list[int] = []
        for number, each in enumerate(filters):
            if each.allowed is not None:
                found[number] = self._best_of(queries[number : number + 1], k, each.allowed)
            elif len(each.denied) > _MOST_DENIED:
                left = np.ones(len(self), np.bool_)
                left[each.denied] = False
                found[number] = self._best_of(queries[number : number + 1], k, np.flatnonzero(left))
            else:
                denied.append(number)
        for part, most in ranked_together(filters, denied):
            ranked = self.top(queries[part], min(len(self), k + most))
            for number, index, score in zip(part, *ranked, strict=True):
                kept = ~filters[number].is_denied(index)
                found[number] = index[kept][:k], score[kept][:k]
        return [found[number] for number in range(len(filters))]

    def _best_of(self, query: Float32, k: int, allowed: Int64) -> Found:
        """Return the best of the rows ``allowed``, int64, ascending, for one query, float32 [1, dim]."""
        if self._lengths is not None:
            query = unit_rows(query)
        index, score = np.empty(0, np.int64), np.empty(0, np.float32)
        for start in range(0, len(allowed), _GATHERED_ROWS):
            check_cancelled()
            rows = allowed[start : start + _GATHERED_ROWS]
            feeds: dict[str, npt.NDArray[Any]] = {
                "queries": query,
                "rows": self._table.rows(rows),
                "length": np.ones(len(rows), np.float32) if self._lengths is None else self._lengths[rows],
                "k": np.array([min(k, len(rows))], np.int64),
            }
            best = self._program.run_built(feeds)
            index = np.concatenate([index, rows[best["index"][0]]])
            score = np.concatenate([score, best["score"][0]])
            order = np.argsort(-score, kind="stable")[:k]
            index, score = index[order], score[order]
        return index, score

    def _by_target(self, queries: Float32, k: int) -> tuple[npt.NDArray[np.int64], Float32]:
        feeds: dict[str, npt.NDArray[Any]] = {
            "queries": queries,
            "rows": self._table.block(0, len(self)),
            "length": self._divisors,
            "k": np.array([k], np.int64),
        }
        best = self._program.run_built(feeds)
        return best["index"], best["score"]

    @cached_property
    def _divisors(self) -> Float32:
        """Return what products with each row are divided by, float32 [rows]."""
        return np.ones(len(self), np.float32) if self._lengths is None else self._lengths

    def _by_core(self, queries: Float32, k: int) -> tuple[npt.NDArray[np.int64], Float32]:
        return self._table.best(queries, k, self._lengths)


def _lengths(table: StoredRows) -> Float32:
    """Return the length of each row, 1 for zero rows, which score 0 by it."""
    lengths = np.ones(len(table), np.float32)
    for start in range(0, len(table), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        lengths[part] = np.linalg.norm(table.block(part.start, part.stop), axis=1)
    lengths[lengths == 0] = 1
    return lengths
