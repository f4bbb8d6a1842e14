"""Smaller embedding rows: the codec of each precision, and the error that a codec makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.errors import UnsupportedError
from graphbox.row_codecs import (
    ClusteredCodec,
    ResidualCodec,
    RowCodec,
    RowSource,
    TieredCodec,
    row_codec,
)

__all__ = [
    "CODEC_OF_PRECISION",
    "PLAIN_PRECISIONS",
    "TIERED_PRECISIONS",
    "TRAINED_PRECISIONS",
    "TableError",
    "codec_of",
    "suited_precision",
    "table_error",
    "with_popularity",
    "worth_trying",
]

CODEC_OF_PRECISION: Final[Mapping[str, RowCodec]] = {
    "float32": row_codec("float32"),
    "float16": row_codec("float16"),
    "int8": row_codec("int8_rowwise"),
    "int4_clustered": row_codec("clustered(int4_rotated)"),
    "int4": row_codec("int4_rotated"),
    "int4_int3_tiers": row_codec("clustered(tiered(int4_rotated,int3_rotated))"),
    "int3_clustered": row_codec("clustered(int3_rotated)"),
    "int3": row_codec("int3_rotated"),
    "int3_int2_tiers": row_codec("clustered(tiered(int3_rotated,int2_rotated))"),
    "int2_clustered": row_codec("clustered(int2_rotated)"),
    "int2": row_codec("int2_rotated"),
    # A wider beam took twice the time and left the error as it was, on two tables of the demo's model.
    "residual16": ResidualCodec(16, beam=1),
    "int4_pruned": row_codec("tiered(int4_rotated,clustered(mean))"),
    "residual8": ResidualCodec(8, beam=1),
}
"""By precision, the largest rows first."""

TIERED_PRECISIONS: Final[tuple[str, ...]] = ("int4_int3_tiers", "int3_int2_tiers", "int4_pruned")
"""Those that need to know which rows are popular."""

TRAINED_PRECISIONS: Final[tuple[str, ...]] = ("residual16", "residual8")
"""Those whose codebooks faiss trains; codebooks take the same bytes for any number of rows."""

PLAIN_PRECISIONS: Final[tuple[str, ...]] = ("float32", "float16", "int8", "int4", "int3", "int2")
"""Those that are decoded in the fewest steps: without centroids, tiers or codebooks."""

_SMALLEST_UNTRAINED: Final = "int2"


def suited_precision(precision: str, rows: int, dim: int) -> str:
    """Return the precision of a table where one is wanted for all tables.

    A table whose codebooks would take more bytes than they save has the next more precise one, int2.

    Args:
        precision: that is wanted.
        rows: of the table.
        dim: elements of a row.
    """
    if precision not in TRAINED_PRECISIONS:
        return precision
    wanted, smallest = CODEC_OF_PRECISION[precision], CODEC_OF_PRECISION[_SMALLEST_UNTRAINED]
    is_smaller = wanted.bytes_of(rows, dim) < smallest.bytes_of(rows, dim)
    return precision if is_smaller else _SMALLEST_UNTRAINED


def worth_trying(
    precisions: Sequence[str],
    rows: int,
    dim: int,
    errors: Mapping[str, float],
    *,
    is_latency_limited: bool = False,
) -> tuple[str, ...]:
    """Return the precisions of a table that no other one beats in both bytes and error, in their order.

    With a limit of latency a plain precision is beaten by plain ones alone: others take longer to decode.

    Args:
        precisions: to choose from, the largest first; that one stays.
        rows: of the table.
        dim: elements of a row.
        errors: relative error of the table by precision; precisions without one stay.
        is_latency_limited: whether latency counts, too.
    """
    sizes = {each: CODEC_OF_PRECISION[each].bytes_of(rows, dim) for each in precisions}

    def is_beaten(precision: str) -> bool:
        return any(
            (sizes[other], errors[other]) != (sizes[precision], errors[precision])
            and sizes[other] <= sizes[precision]
            and errors[other] <= errors[precision]
            for other in precisions
            if other in errors
            and not (is_latency_limited and precision in PLAIN_PRECISIONS and other not in PLAIN_PRECISIONS)
        )

    kept = (each for each in precisions[1:] if each not in errors or not is_beaten(each))
    return (*precisions[:1], *kept)


def codec_of(precision: str, popularity: npt.NDArray[Any] | None) -> RowCodec:
    """Return the codec to encode a table with.

    Args:
        precision: as users name it.
        popularity: of the table's rows, [n]; None: not known.

    Raises:
        UnsupportedError: tiers are wanted of a table whose popular rows are not known.
    """
    codec = CODEC_OF_PRECISION[precision]
    if precision not in TIERED_PRECISIONS:
        return codec
    if popularity is None:
        raise UnsupportedError(
            f"expected a model that says which rows are read often for `{precision}`: links or lists of "
            "neighbours; this one has none",
            hint="choose another precision, such as int4_clustered",
        )
    return with_popularity(codec, popularity)


def with_popularity(codec: RowCodec, popularity: npt.NDArray[Any]) -> RowCodec:
    """Return a codec whose tiers are those of some rows."""
    if isinstance(codec, ClusteredCodec):
        return ClusteredCodec(with_popularity(codec.rest, popularity))
    return replace(codec, popularity=popularity) if isinstance(codec, TieredCodec) else codec


_BLOCK_ROWS: Final = 65_536


@dataclass(frozen=True)
class TableError:
    """Error of decoded rows against the original ones.

    Attributes:
        max_absolute: largest difference of an element.
        relative: root mean square difference over the root mean square of the rows.
    """

    max_absolute: float
    relative: float


def table_error(original: RowSource, decoded: RowSource) -> TableError:
    """Compare two tables of the same rows, block by block.

    Args:
        original: the rows before compression.
        decoded: the rows as they are served.
    """
    largest = squares = total = 0.0
    for start in range(0, len(original), _BLOCK_ROWS):
        rows = original.block(start, start + _BLOCK_ROWS)
        difference = decoded.block(start, start + _BLOCK_ROWS) - rows
        largest = max(largest, float(np.abs(difference).max(initial=0)))
        squares += float(np.square(difference, dtype=np.float64).sum())
        total += float(np.square(rows, dtype=np.float64).sum())
    return TableError(largest, float(np.sqrt(squares / total)) if total else 0.0)
