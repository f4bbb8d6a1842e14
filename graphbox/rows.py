"""Rows of served tables, decoded by the native core as they are looked up.

A table stays as it is stored: float32, float16, or int8 with a scale and a bias for each row. Needs NumPy
and the native core, never torch; the core is loaded when the first table is opened, not on import.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.errors import InvalidRequestError, UsageError

__all__ = ["RowEncoding", "StoredRows"]

RowEncoding: TypeAlias = Literal["float32", "float16", "int8_rowwise"]
Indices: TypeAlias = npt.NDArray[np.integer] | list[int]
Float32: TypeAlias = npt.NDArray[np.float32]
Int64: TypeAlias = npt.NDArray[np.int64]

_ENCODINGS: dict[str, RowEncoding] = {"float32": "float32", "float16": "float16", "uint8": "int8_rowwise"}


class StoredRows:
    """Read-only table of ``n`` rows of length ``dim``, read as float32. Safe to use from several threads.

    Args:
        values: float32 or float16 [n, dim], or codes uint8 [n, dim]; row-major, may be memory-mapped.
        scale_bias: of codes, float16 [n, 2]: value = code * scale + bias, computed in float32.
        noun: name of a row's owner, for messages.

    Attributes:
        dim: length of a row.
        dtype: how rows are stored.
        nbytes: bytes of the stored rows.

    Raises:
        UsageError: arrays of other dtypes or shapes.
    """

    def __init__(
        self, values: npt.NDArray[Any], scale_bias: npt.NDArray[np.float16] | None = None, noun: str = "row"
    ) -> None:
        from graphbox import _core

        encoding = _ENCODINGS.get(values.dtype.name)
        if values.ndim != 2 or encoding is None or (encoding == "int8_rowwise") != (scale_bias is not None):
            raise UsageError(
                "expected float32 or float16 [n, dim], or uint8 [n, dim] with scale_bias, "
                f"received {values.dtype} {list(values.shape)}, scale_bias {scale_bias is not None}"
            )
        self.dtype: RowEncoding = encoding
        self.dim: int = values.shape[1]
        self.nbytes: int = values.nbytes
        self._noun = noun
        self._values = np.ascontiguousarray(values)
        if scale_bias is not None:
            self.nbytes += scale_bias.nbytes
            factors = np.ascontiguousarray(scale_bias, np.float16).view(np.uint16)
            self._native = _core.StoredRows(self._values, factors)
        elif encoding == "float16":
            self._native = _core.StoredRows(self._values.view(np.uint16))
        else:
            self._native = _core.StoredRows(self._values)

    def __len__(self) -> int:
        return len(self._values)

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
        outside = self._native.take(np.ascontiguousarray(given, np.int64), out, default)
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
        if self.dtype == "float32":
            return self._values[start:stop]
        count = max(0, min(stop, len(self)) - start)
        decoded = np.empty((count, self.dim), np.float32) if out is None else out[:count]
        if count:
            self._native.block(start, decoded)
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
        outside = self._native.sums(indices, offsets, weights, out)
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
        self._native.best(np.ascontiguousarray(queries, np.float32), lengths, index, scores)
        return index, scores

    def _outside(self, index: np.integer) -> InvalidRequestError:
        return InvalidRequestError(
            f"expected indices of a {self._noun} in [0, {len(self)}), received {index}"
        )
