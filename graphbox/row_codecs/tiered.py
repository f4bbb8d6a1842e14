"""Codec ``tiered(hot,cold)``: rows that are read often in one codec, all others in another.

A bitmap marks the hot rows; each tier holds its rows in ascending order, so that a row costs the bytes of its
own codec and one bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import FormatError, UsageError
from graphbox.row_codecs.codec import (
    ArrayPart,
    Arrays,
    ArraySpec,
    RowCodec,
    RowSource,
    TableShape,
    open_rows,
)
from graphbox.rows import Float32, Int64, StoredRows

__all__ = ["TieredCodec"]

_IS_HOT_FILE = "is_hot.npy"
_HOT, _COLD = "hot.", "cold."


@dataclass(frozen=True, eq=False)
class TieredCodec:
    """Rows in two codecs.

    Attributes:
        hot: codec of the rows that are read most.
        cold: codec of the others.
        popularity: of the rows to encode, numbers [n], such as how often each is read; not needed to open.
        hot_share: of the rows, those of the largest popularity; of equal ones the first.

    Raises:
        UsageError: a tier is tiered itself, or ``hot_share`` is outside [0, 1].
    """

    hot: RowCodec
    cold: RowCodec
    popularity: npt.NDArray[Any] | None = None
    hot_share: float = 0.25

    def __post_init__(self) -> None:
        if isinstance(self.hot, TieredCodec) or isinstance(self.cold, TieredCodec):
            raise UsageError(f"expected tiers that are not tiered themselves, received {self.name}")
        if not 0 <= self.hot_share <= 1:
            raise UsageError(f"expected a share of hot rows in [0, 1], received {self.hot_share}")

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return f"tiered({self.hot.name},{self.cold.name})"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file; how many rows are hot is in the bitmap."""
        return {
            _IS_HOT_FILE: ArraySpec("|u1", (-(-rows // 8),)),
            **_with_any_rows(_HOT, self.hot, dim),
            **_with_any_rows(_COLD, self.cold, dim),
        }

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table of which ``hot_share`` is hot."""
        hot = self._hot_rows(rows)
        return -(-rows // 8) + self.hot.bytes_of(hot, dim) + self.cold.bytes_of(rows - hot, dim)

    def encode(self, source: RowSource) -> Arrays:
        """Return the bitmap and the arrays of both tiers.

        Raises:
            UsageError: ``popularity`` is missing, or is not of these rows.
        """
        is_hot = self._chosen(len(source))
        hot = self.hot.encode(_RowsAt(source, np.flatnonzero(is_hot)))
        cold = self.cold.encode(_RowsAt(source, np.flatnonzero(~is_hot)))
        return {
            _IS_HOT_FILE: np.packbits(is_hot, bitorder="little"),
            **_prefixed(_HOT, hot),
            **_prefixed(_COLD, cold),
        }

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays."""
        from graphbox import _core

        bitmap = np.ascontiguousarray(arrays[_IS_HOT_FILE])
        hot_rows = int(np.count_nonzero(np.unpackbits(bitmap)))
        rows = table.rows
        if rows % 8 and len(bitmap) and int(bitmap[-1]) >> rows % 8:
            raise FormatError(f"expected a bit for each of {rows} rows, received more", where=_IS_HOT_FILE)
        tiers = []
        for prefix, codec, count in ((_HOT, self.hot, hot_rows), (_COLD, self.cold, rows - hot_rows)):
            own = _of_tier(prefix, arrays)
            tiers.append(open_rows(codec, own, TableShape(count, table.dim, table.noun)).native)
        return StoredRows(_core.StoredRows.of_tiers(bitmap, *tiers), self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        was_hot = np.unpackbits(arrays[_IS_HOT_FILE], bitorder="little").view(bool)
        place = np.cumsum(was_hot) - was_hot
        is_hot = was_hot[rows]
        hot = self.hot.select(_of_tier(_HOT, arrays), place[rows[is_hot]])
        cold = self.cold.select(_of_tier(_COLD, arrays), rows[~is_hot] - place[rows[~is_hot]])
        return {
            _IS_HOT_FILE: ArrayPart(np.packbits(is_hot, bitorder="little")),
            **{f"{_HOT}{name}": part for name, part in hot.items()},
            **{f"{_COLD}{name}": part for name, part in cold.items()},
        }

    def _hot_rows(self, rows: int) -> int:
        return round(self.hot_share * rows)

    def _chosen(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return which rows are hot."""
        if self.popularity is None or np.shape(self.popularity) != (rows,):
            received = "none" if self.popularity is None else f"{list(np.shape(self.popularity))}"
            raise UsageError(
                f"expected the popularity of each of {rows} rows, received {received}",
                hint="pass the number of links of each node, for example",
            )
        is_hot = np.zeros(rows, bool)
        order = np.argsort(-np.asarray(self.popularity, np.float64), kind="stable")
        is_hot[order[: self._hot_rows(rows)]] = True
        return is_hot


class _RowsAt:
    """Some rows of a source, ascending, as a source."""

    def __init__(self, source: RowSource, rows: Int64) -> None:
        self.dim = source.dim
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def block(self, start: int, stop: int) -> Float32:
        """Return rows ``start`` to ``stop``, read in short runs of the source that hold them."""
        rows = self._rows[start:stop]
        found = np.empty((len(rows), self.dim), np.float32)
        done = 0
        while done < len(rows):
            first = int(rows[done])
            count = int(np.searchsorted(rows[done:], first + len(rows)))
            block = self._source.block(first, int(rows[done + count - 1]) + 1)
            found[done : done + count] = block[rows[done : done + count] - first]
            done += count
        return found


def _with_any_rows(prefix: str, codec: RowCodec, dim: int) -> dict[str, ArraySpec]:
    """Return the files of a tier of any number of rows."""
    found = {}
    one = codec.files(1, dim)
    for name, spec in codec.files(0, dim).items():
        sizes = zip(spec.shape, one[name].shape, strict=True)
        found[f"{prefix}{name}"] = ArraySpec(
            spec.dtype, tuple(size if size == other else None for size, other in sizes)
        )
    return found


def _prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _of_tier(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
