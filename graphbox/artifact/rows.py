"""Tables of rows, memory-mapped: float32, or int8 row-wise with a float16 scale and bias."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox.artifact.ids import Ids
from graphbox.errors import InvalidRequestError

ROWS_FILE = "rows.npy"
CODES_FILE = "codes.npy"
SCALE_BIAS_FILE = "scale_bias.npy"

Indices = npt.NDArray[np.integer] | list[int]


@runtime_checkable
class RowTable(Protocol):
    """A read-only table of ``n`` rows of length ``dim``, read as float32 whatever they are stored as."""

    ids: Ids
    dim: int
    dtype: str
    nbytes: int

    def __len__(self) -> int: ...

    def rows(self, indices: Indices, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """Return the rows at ``indices`` as float32 [len(indices), dim], written into ``out`` when given.

        Raises:
            InvalidRequestError: when an index is outside ``[0, n)``; negative indices do not wrap.
        """
        ...

    def block(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Return rows ``start`` to ``stop`` as float32, without a copy where they are stored so."""
        ...


class Float32Rows:
    """Rows stored as float32 [n, dim]."""

    dtype = "float32"

    def __init__(self, values: npt.NDArray[np.float32], ids: Ids) -> None:
        self._values = values
        self.ids = ids
        self.dim = values.shape[1]
        self.nbytes = values.nbytes

    def __len__(self) -> int:
        return len(self._values)

    def rows(self, indices: Indices, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """Return the rows at ``indices``; see `RowTable.rows`."""
        indices = _checked(indices, len(self), self.ids.node_type)
        # `mode` other than "raise" lets numpy write into `out` directly; the range is checked above.
        return np.take(self._values, indices, axis=0, out=out, mode="clip")

    def block(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Return rows ``start`` to ``stop``; see `RowTable.block`."""
        return self._values[start:stop]


class Int8Rows:
    """Rows stored as ``code * scale + bias``: codes uint8 [n, dim], (scale, bias) float16 [n, 2] a row."""

    dtype = "int8_rowwise"

    def __init__(self, codes: npt.NDArray[np.uint8], scale_bias: npt.NDArray[np.float16], ids: Ids) -> None:
        self._codes = codes
        self._scale_bias = scale_bias.astype(np.float32)
        self.ids = ids
        self.dim = codes.shape[1]
        self.nbytes = codes.nbytes + scale_bias.nbytes

    def __len__(self) -> int:
        return len(self._codes)

    def rows(self, indices: Indices, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """Return the decoded rows at ``indices``; see `RowTable.rows`."""
        indices = _checked(indices, len(self), self.ids.node_type)
        codes = np.take(self._codes, indices, axis=0, mode="clip")
        return _decode(codes, np.take(self._scale_bias, indices, axis=0, mode="clip"), out)

    def block(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Return the decoded rows ``start`` to ``stop``; see `RowTable.block`."""
        return _decode(self._codes[start:stop], self._scale_bias[start:stop], None)


def _decode(
    codes: npt.NDArray[np.uint8],
    scale_bias: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32] | None,
) -> npt.NDArray[np.float32]:
    values = np.empty(codes.shape, np.float32) if out is None else out
    values[...] = codes
    values *= scale_bias[:, :1]
    values += scale_bias[:, 1:]
    return values


def _checked(indices: Indices, length: int, node_type: str) -> npt.NDArray[np.integer]:
    indices = np.asarray(indices)
    if indices.size == 0:
        return indices.astype(np.int64)
    if not np.issubdtype(indices.dtype, np.integer) or indices.ndim != 1:
        raise InvalidRequestError(
            f"expected integer indices [n], received {indices.dtype} {list(indices.shape)}"
        )
    lowest, highest = indices.min(), indices.max()
    if lowest < 0 or highest >= length:
        wrong = lowest if lowest < 0 else highest
        raise InvalidRequestError(f"expected indices of a {node_type} in [0, {length}), received {wrong}")
    return indices
