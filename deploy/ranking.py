"""Exact nearest rows by inner product or cosine, in blocks."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from graphbox.artifact import RowTable

__all__ = ["ExactRanking"]

_BLOCK_ROWS = 16_384
_BLOCK_QUERIES = 64


class ExactRanking:
    """Ranks all rows of a table for each query; ties go to the lower index.

    Args:
        table: the rows to rank, held decoded in memory as float32.
        score: ``cosine`` scales rows and queries to length 1 first; a zero row scores 0.
    """

    def __init__(self, table: RowTable, score: Literal["inner_product", "cosine"]) -> None:
        self._cosine = score == "cosine"
        self._rows = np.empty((len(table), table.dim), np.float32)
        for start in range(0, len(table), _BLOCK_ROWS):
            block = table.block(start, start + _BLOCK_ROWS)
            self._rows[start : start + _BLOCK_ROWS] = _unit(block) if self._cosine else block

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self._rows.nbytes

    def __len__(self) -> int:
        return len(self._rows)

    def top(
        self, queries: npt.NDArray[np.float32], k: int, exclude: npt.NDArray[np.int64] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the best ``k`` rows for each query, best first.

        Args:
            queries: float32 [n, dim], finite.
            k: at most the number of rows that are not excluded.
            exclude: int64 [n], one row for each query that is no candidate.

        Returns:
            Row indices int64 [n, k] and scores float32 [n, k].
        """
        index = np.empty((len(queries), k), np.int64)
        best = np.empty((len(queries), k), np.float32)
        if self._cosine:
            queries = _unit(queries)
        for start in range(0, len(queries), _BLOCK_QUERIES):
            scores = queries[start : start + _BLOCK_QUERIES] @ self._rows.T
            if exclude is not None:
                scores[np.arange(len(scores)), exclude[start : start + _BLOCK_QUERIES]] = -np.inf
            for offset, row in enumerate(scores):
                index[start + offset] = chosen = _best(row, k)
                best[start + offset] = row[chosen]
        return index, best


def _best(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """Return the indices of the ``k`` highest scores, highest first, ties by index."""
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > threshold)
    at = np.flatnonzero(scores == threshold)[: k - len(above)]
    chosen = np.concatenate([above, at])
    return chosen[np.lexsort((chosen, -scores[chosen]))]


def _unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: npt.NDArray[np.float32] = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    return unit
