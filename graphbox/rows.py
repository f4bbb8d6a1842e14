"""Rows of served tables, decoded by the native core as they are looked up.

A table stays as its codec stored it (`graphbox.row_codecs`). Needs NumPy and the native core, never torch;
the core is loaded when the first table is opened, not on import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.errors import InvalidRequestError, UsageError

if TYPE_CHECKING:
    from graphbox import _core

__all__ = ["StoredRows"]

Indices: TypeAlias = npt.NDArray[np.integer] | list[int]
Float32: TypeAlias = npt.NDArray[np.float32]
Int64: TypeAlias = npt.NDArray[np.int64]


class StoredRows:
    """Read-only table of ``n`` rows of length ``dim``, read as float32. Safe to use from several threads.

    Made by `graphbox.row_codecs.open_rows`, or of a float32 array by `StoredRows.of_float32`.

    Args:
        native: the table in the core.
        codec: name of the codec.
        noun: name of a row's owner, for messages.
        float32: the array of rows that are stored as float32.

    Attributes:
        native: the table in the core.
        dim: length of a row.
        codec: name of the codec.
        nbytes: bytes of the stored rows, and of what finds them.
    """

    def __init__(
        self, native: _core.StoredRows, codec: str, noun: str = "row", float32: Float32 | None = None
    ) -> None:
        self.native = native
        self.codec = codec
        self.dim: int = native.dim
        self.nbytes: int = native.nbytes
        self._noun = noun
        self._count: int = native.rows
        self._float32 = float32

    @classmethod
    def of_float32(cls, values: Float32, noun: str = "row") -> StoredRows:
        """Return rows that lie in memory as float32.

        Args:
            values: float32 [n, dim]; copied unless it is row-major; may be memory-mapped.
            noun: name of a row's owner, for messages.

        Raises:
            UsageError: an array of another type or number of dimensions.
        """
        from graphbox import _core

        if values.ndim != 2 or values.dtype != np.float32:
            raise UsageError(f"expected float32 [n, dim], received {values.dtype} {list(values.shape)}")
        contiguous = np.ascontiguousarray(values)
        return StoredRows(_core.StoredRows.of_float32(contiguous), "float32", noun, contiguous)

    def __len__(self) -> int:
        return self._count

    def rows(
        self, indices: Indices, out: Float32 | None = None, default_row: Float32 | None = None
    ) -> Float32:
        """Return the rows at ``indices`` as float32 [len(indices), dim].

        Args:
            indices: integers [len(indices)], repeats allowed.
            out: float32 [len(indices), dim] to write into; its rows must be contiguous.
            default_row: float32 [dim] for an index of -1; None: that index is outside.

        Raises:
            InvalidRequestError: an index is outside ``[0, n)``; negative indices do not wrap.
            UsageError: ``out`` or ``default_row`` is of another shape.
        """
        given = np.asarray(indices)
        if given.size == 0:
            given = given.astype(np.int64).ravel()
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise InvalidRequestError(
                f"expected integer indices [n], received {given.dtype} {list(given.shape)}"
            )
        if out is None:
            out = np.empty((len(given), self.dim), np.float32)
        default = None if default_row is None else np.ascontiguousarray(default_row, np.float32)
        outside = self.native.take(np.ascontiguousarray(given, np.int64), out, default)
        if outside >= 0:
            raise self._outside(given[outside])
        return out

    def block(self, start: int, stop: int, out: Float32 | None = None) -> Float32:
        """Return rows ``start`` to ``stop`` (cut off at ``n``) as float32.

        Args:
            start: first row, from 0.
            stop: row after the last.
            out: float32 [at least stop - start, dim], contiguous, whose first rows are written; ignored
                where rows are stored as float32, which are returned without a copy.
        """
        if self._float32 is not None:
            return self._float32[start:stop]
        count = max(0, min(stop, len(self)) - start)
        decoded = np.empty((count, self.dim), np.float32) if out is None else out[:count]
        if count:
            self.native.block(start, decoded)
        return decoded

    def sums(self, indices: Int64, offsets: Int64, weights: Float32) -> Float32:
        """Return the weighted sum of the rows of each bag, float32 [bags, dim], added in order from 0.

        Args:
            indices: int64 [m]; -1 adds nothing.
            offsets: int64 [bags + 1]: bag ``b`` has the entries from ``offsets[b]`` to ``offsets[b + 1]``.
            weights: float32 [m].

        Raises:
            InvalidRequestError: an index is outside ``[-1, n)``.
            UsageError: offsets that do not ascend from 0 to m, or another number of weights.
        """
        out = np.empty((max(0, len(offsets) - 1), self.dim), np.float32)
        outside = self.native.sums(indices, offsets, weights, out)
        if outside >= 0:
            raise self._outside(indices[outside])
        return out

    def best(self, queries: Float32, k: int, lengths: Float32 | None = None) -> tuple[Int64, Float32]:
        """Return the ``k`` rows with the largest inner products with each query, largest first.

        Rows are decoded a few at a time, never the table as a whole. Ties go to the lower row; a product
        that is NaN counts as -infinity.

        Args:
            queries: float32 [q, dim].
            k: from 0 to n.
            lengths: float32 [n], by which each row's products are divided; None: they are not.

        Returns:
            Row indices int64 [q, k] and scores float32 [q, k].

        Raises:
            UsageError: arrays of other shapes, or ``k`` is out of range.
        """
        if k < 0:
            raise UsageError(f"expected k from 0 to {len(self)}, received {k}")
        index = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)
        self.native.best(np.ascontiguousarray(queries, np.float32), lengths, index, scores)
        return index, scores

    def _outside(self, index: np.integer) -> InvalidRequestError:
        return InvalidRequestError(
            f"expected indices of a {self._noun} in [0, {len(self)}), received {index}"
        )
