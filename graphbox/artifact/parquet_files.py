"""Parquet files of a model version, in the encodings that are smallest for what they hold.

Ids that ascend share their beginnings or have small differences; of links, which are written in the order of
their targets, targets have small differences, and bytes of sources of the same place are alike. A reader of
Parquet needs to know none of that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.artifact.links import COLUMNS as LINK_COLUMNS

__all__ = ["ROWS_OF_ANY_FILE", "write_columns", "write_ids", "write_links"]

ROWS_OF_ANY_FILE: Final = 1 << 24
"""Rows that a file of any size may have: equal rows take next to no bytes, but memory."""

_LEVEL: Final = 9
_DELTAS, _DELTAS_OF_TEXT, _BYTES = "DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"


def write_ids(path: Path, ids: pa.Array) -> None:
    """Write ids, strings or int64, as the column ``id``."""
    is_text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
    _write(path, pa.table({"id": ids}), {"id": _DELTAS_OF_TEXT if is_text else _DELTAS})


def write_links(path: Path, links: pa.Table) -> None:
    """Write links; see `graphbox.artifact.links.links_table`."""
    _write(path, links, {LINK_COLUMNS[3]: _BYTES, LINK_COLUMNS[4]: _DELTAS}, LINK_COLUMNS[:3])


def write_columns(path: Path, columns: npt.NDArray[Any]) -> None:
    """Write the columns of an integer array [n, k], named ``0`` to ``k - 1``."""
    names = [str(number) for number in range(columns.shape[1])]
    table = pa.table([pa.array(np.ascontiguousarray(column)) for column in columns.T], names)
    if columns.dtype.itemsize == np.dtype(np.uint16).itemsize:  # few values: dictionaries, and their runs
        _write(path, table, {}, names)
    else:
        _write(path, table, dict.fromkeys(names, _BYTES))


def _write(
    path: Path, table: pa.Table, encodings: dict[str, str], dictionaries: list[str] | tuple[str, ...] = ()
) -> None:
    # A reader allows few rows for each byte of a large file: there the encodings must not be as dense.
    is_small = table.num_rows <= ROWS_OF_ANY_FILE
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=_LEVEL if is_small else None,
        use_dictionary=list(dictionaries) if is_small else True,
        column_encoding=encodings or None if is_small else None,
    )
