"""Codec ``clustered(rest)``: a row is the centroid of its cluster and what is left, in another codec.

Rows of embeddings lie in clusters: what is left of a row without the centroid of one of 256 clusters is
much shorter than the row, so that the same few levels are finer for it. It costs a byte a row and the
centroids. Residuals are quantized behind a coarse quantizer in Jégou, Douze, Schmid, "Product Quantization
for Nearest Neighbor Search", PAMI 33(1), 2011, section IV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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
    check_range,
    open_rows,
    row_blocks,
)
from graphbox.rows import Float32, Int64, StoredRows

__all__ = ["ClusteredCodec"]

_CLUSTERS_FILE, _CENTROIDS_FILE = "clusters.npy", "centroids.npy"
_REST = "rest."
_MOST_CLUSTERS: Final = 256
_ROWS_OF_CLUSTER: Final = 16
"""Fewest rows for each centroid on average: fewer would cost more than they save."""
_MOST_TRAINED: Final = 16_384
_ITERATIONS: Final = 8
_COMPARED_TOGETHER: Final = 4_096
_SEED: Final = 1_234

UInt8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ClusteredCodec:
    """Rows as centroids, and the rest in another codec.

    Attributes:
        rest: codec of what is left.

    Raises:
        UsageError: ``rest`` is clustered itself.
    """

    rest: RowCodec

    def __post_init__(self) -> None:
        if self.rest.name.startswith("clustered("):
            raise UsageError(f"expected a codec without clusters of its own, received {self.name}")

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return f"clustered({self.rest.name})"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file; how many centroids there are is in theirs."""
        return {
            _CLUSTERS_FILE: ArraySpec("|u1", (rows,)),
            _CENTROIDS_FILE: ArraySpec("<f2", (None, dim)),
            **{f"{_REST}{name}": spec for name, spec in self.rest.files(rows, dim).items()},
        }

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table."""
        return rows + 2 * _clusters_of(rows) * dim + self.rest.bytes_of(rows, dim)

    def encode(self, source: RowSource) -> Arrays:
        """Return clusters, centroids, and the arrays of what is left.

        Raises:
            DataError: an element is beyond float16, or ``rest`` cannot hold what is left.
        """
        centroids = _trained(source)
        clusters = np.empty(len(source), np.uint8)
        for place, block in row_blocks(source):
            check_range(block)
            clusters[place] = _nearest(block, centroids)
        rest = self.rest.encode(_Rest(source, clusters, centroids))
        return {
            _CLUSTERS_FILE: clusters,
            _CENTROIDS_FILE: centroids.astype(np.float16),
            **{f"{_REST}{name}": array for name, array in rest.items()},
        }

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays.

        Raises:
            FormatError: a centroid is not finite, or a cluster has none.
        """
        from graphbox import _core

        clusters = np.ascontiguousarray(arrays[_CLUSTERS_FILE])
        centroids = np.ascontiguousarray(arrays[_CENTROIDS_FILE], np.float32)
        if len(centroids) > _MOST_CLUSTERS:
            raise FormatError(
                f"expected at most {_MOST_CLUSTERS} centroids, received {len(centroids)}",
                where=_CENTROIDS_FILE,
            )
        if not np.isfinite(centroids).all():
            raise FormatError("expected finite centroids, received infinity or NaN", where=_CENTROIDS_FILE)
        if len(clusters) and int(clusters.max()) >= len(centroids):
            raise FormatError(
                f"expected clusters below {len(centroids)}, the number of centroids, "
                f"received {clusters.max()}",
                where=_CLUSTERS_FILE,
            )
        rest = open_rows(self.rest, _of_rest(arrays), table)
        native = _core.StoredRows.of_clusters(clusters, centroids, rest.native)
        return StoredRows(native, self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        rest = self.rest.select(_of_rest(arrays), rows)
        return {
            _CLUSTERS_FILE: ArrayPart(arrays[_CLUSTERS_FILE], rows),
            _CENTROIDS_FILE: ArrayPart(arrays[_CENTROIDS_FILE]),
            **{f"{_REST}{name}": part for name, part in rest.items()},
        }


class _Rest:
    """Rows of a source minus their centroids, as a source."""

    def __init__(self, source: RowSource, clusters: UInt8, centroids: Float32) -> None:
        self.dim = source.dim
        self._source = source
        self._clusters = clusters
        self._centroids = centroids

    def __len__(self) -> int:
        return len(self._source)

    def block(self, start: int, stop: int) -> Float32:
        """Return what is left of rows ``start`` to ``stop``."""
        left: Float32 = self._source.block(start, stop) - self._centroids[self._clusters[start:stop]]
        return left


def _clusters_of(rows: int) -> int:
    return max(1, min(_MOST_CLUSTERS, rows // _ROWS_OF_CLUSTER)) if rows else 0


def _trained(source: RowSource) -> Float32:
    """Return centroids, float32 [k, dim], rounded to float16: Lloyd's algorithm from random rows."""
    count = _clusters_of(len(source))
    if not count:
        return np.zeros((0, source.dim), np.float32)
    sample = _sample(source)
    generator = np.random.Generator(np.random.Philox(_SEED))
    centroids = sample[np.sort(generator.choice(len(sample), count, replace=False))]
    for _ in range(_ITERATIONS):
        cluster = _nearest(sample, centroids)
        members = np.bincount(cluster, minlength=count)
        sums = np.stack([np.bincount(cluster, column, count) for column in sample.T], axis=1)
        is_used = members > 0
        centroids[is_used] = sums[is_used] / members[is_used, None]
    return centroids.astype(np.float16).astype(np.float32)


def _sample(source: RowSource) -> Float32:
    """Return rows to train on: all, or evenly spread ones."""
    step = -(-len(source) // _MOST_TRAINED)
    parts = []
    for place, block in row_blocks(source):
        check_range(block)
        parts.append(block[-place.start % step :: step])
    return np.ascontiguousarray(np.concatenate(parts), np.float32)


def _nearest(rows: Float32, centroids: Float32) -> UInt8:
    """Return the nearest centroid of each row."""
    found = np.empty(len(rows), np.uint8)
    half_square = np.einsum("ij,ij->i", centroids, centroids) / 2
    for start in range(0, len(rows), _COMPARED_TOGETHER):
        part = rows[start : start + _COMPARED_TOGETHER]
        found[start : start + len(part)] = (part @ centroids.T - half_square).argmax(axis=1)
    return found


def _of_rest(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    return {name.removeprefix(_REST): array for name, array in arrays.items() if name.startswith(_REST)}
