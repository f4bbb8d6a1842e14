"""Graph index over the rows of a table, by faiss (extra ``ann``).

Hierarchical navigable small worlds: Y. Malkov and D. Yashunin, Efficient and robust approximate nearest
neighbor search using Hierarchical Navigable Small World graphs, IEEE TPAMI 42(4), 2020. A search follows
links towards the query and keeps the ``width`` best rows that it met (`ef` there, `efSearch` in faiss): a
larger width finds more of the nearest rows and takes longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import RowTable
from graphbox.artifact.manifest import RowScore as Score
from graphbox.errors import BackendMissingError, FormatError

__all__ = ["BUILD_SETTINGS", "BuildStoppedError", "GraphIndex", "Score", "faiss_library", "unit_rows"]

Float32: TypeAlias = npt.NDArray[np.float32]
Int64: TypeAlias = npt.NDArray[np.int64]

_LINKS: Final = 16
_BUILD_WIDTH: Final = 200
BUILD_SETTINGS: Final = {"format": 1, "links": _LINKS, "build_width": _BUILD_WIDTH}
"""Settings that an index file depends on, besides the rows, the score and the library."""
# Rows added between two looks at whether the build is still wanted: 0.1 to 0.3 s.
_BLOCK_ROWS = 2_048


class BuildStoppedError(Exception):
    """The model was closed while its index was built."""


def faiss_library() -> Any:
    """Return the module faiss.

    Raises:
        BackendMissingError: it cannot be imported.
    """
    try:
        import faiss
    except ImportError as error:
        raise BackendMissingError(
            f"expected the package `faiss-cpu`, which is not there ({error})",
            hint="`pip install 'graphbox[ann]'`, or rank exactly: `--nearest exact`",
        ) from error
    return faiss


def unit_rows(rows: Float32) -> Float32:
    """Return rows [n, dim] divided by their lengths; zero rows stay zero."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Float32 = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    return unit


class GraphIndex:
    """A loaded index. Safe to search from several threads; a search releases the GIL.

    The file is mapped into memory: processes that load the same one share its pages.

    Args:
        path: a file that `build` wrote.
        table: the rows that it was built of.
        score: that it was built for.

    Raises:
        BackendMissingError: faiss is not installed.
        FormatError: the file is of another table.
    """

    def __init__(self, path: Path, table: RowTable, score: Score) -> None:
        self._faiss = faiss_library()
        self._rows = len(table)
        self._is_cosine = score == "cosine"
        try:
            self._index = self._faiss.read_index(str(path), self._faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise FormatError(f"expected an index of faiss, received another file: {error}") from error
        if (self._index.ntotal, self._index.d) != (len(table), table.dim):
            raise FormatError(
                f"expected an index of {len(table)} rows of length {table.dim}, received one of "
                f"{self._index.ntotal} of length {self._index.d}",
                where=str(path),
            )

    @classmethod
    def build(
        cls,
        table: RowTable,
        score: Score,
        path: Path,
        is_wanted: Callable[[], bool],
        threads: int | None = None,
    ) -> None:
        """Write an index of a table's rows, decoded a block at a time.

        Args:
            table: at least one row.
            score: that searches rank by; ``cosine`` indexes rows of length 1.
            path: of the new file.
            is_wanted: False ends the build.
            threads: number of threads; None: one for each CPU.

        Raises:
            BackendMissingError: faiss is not installed.
            BuildStoppedError: ``is_wanted`` returned False.
        """
        faiss = faiss_library()
        faiss.omp_set_num_threads(
            threads or os.cpu_count() or 1
        )  # of parallel regions that this thread starts
        index = faiss.IndexHNSWFlat(table.dim, _LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _BUILD_WIDTH
        for start in range(0, len(table), _BLOCK_ROWS):
            if not is_wanted():
                raise BuildStoppedError
            rows = table.block(start, start + _BLOCK_ROWS)
            index.add(unit_rows(rows) if score == "cosine" else np.ascontiguousarray(rows))
        faiss.write_index(index, str(path))

    def search(
        self, queries: Float32, k: int, width: int, allowed: Int64 | None = None
    ) -> tuple[Int64, Float32]:
        """Return about the ``k`` best rows for each query, best first.

        Args:
            queries: float32 [n, dim], finite; of any length for ``cosine``.
            k: at least 1.
            width: at least ``k``.
            allowed: int64 row indices; None: all rows.

        Returns:
            Row indices int64 [n, k], -1 where fewer were found, and scores float32 [n, k].
        """
        faiss = self._faiss
        selector = None
        if allowed is not None:
            is_allowed = np.zeros(self._rows, np.bool_)
            is_allowed[allowed] = True
            selector = faiss.IDSelectorBitmap(np.packbits(is_allowed, bitorder="little"))
        if len(queries) > 1:
            # Callers have threads of their own. The setting is that of the calling thread.
            faiss.omp_set_num_threads(1)
        parameters = faiss.SearchParametersHNSW(efSearch=width, sel=selector)
        wanted = unit_rows(queries) if self._is_cosine else np.ascontiguousarray(queries)
        scores, index = self._index.search(wanted, k, params=parameters)
        return index, scores

    def __len__(self) -> int:
        return self._rows
