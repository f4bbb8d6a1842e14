"""RecBole's atomic files: tab-separated text whose header says of each column what it holds.

``token`` is one discrete value, ``token_seq`` several separated by spaces, ``float`` a number, ``float_seq``
several separated by spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.errors import DataError, did_you_mean
from graphbox.graph.source.table import Batch
from graphbox.graph.source.text import TextTable

RECBOLE_SUFFIXES = (".inter", ".user", ".item", ".kg", ".link", ".net")

_TYPES = ("token", "token_seq", "float", "float_seq")
_SEPARATOR = " "
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class RecBoleTable(TextTable):
    """One atomic file.

    Columns are called as in the header, without the type. ``token`` and ``float`` are text cells as in TSV;
    ``token_seq`` is a list of texts, empty where the cell is; ``float_seq`` is a list of numbers, null where
    the cell is empty or one of its parts is no number.
    """

    delimiter = "\t"

    def names_of_header(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the columns without their types.

        Raises:
            DataError: a cell of the header is no ``name:type``.
        """
        return tuple(self._name_and_type(cell)[0] for cell in cells)

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        types = dict(self._name_and_type(cell) for cell in self._read_header().cells)
        batches = super().batches(columns, batch_bytes=batch_bytes)
        return (
            replace(
                batch,
                columns={name: _typed(values, types[name]) for name, values in batch.columns.items()},
            )
            for batch in batches
        )

    def _name_and_type(self, cell: str) -> tuple[str, str]:
        name, _, kind = cell.strip().rpartition(":")
        if name and kind in _TYPES:
            return name, kind
        raise DataError(
            f"expected `name:type` in the header, received `{cell}`",
            where=f"{self.name}:{self._read_header().line}",
            hint=did_you_mean(kind, _TYPES) or f"types: {', '.join(_TYPES)}; columns are separated by tabs",
        )


def _typed(values: pa.Array, kind: str) -> pa.Array:
    if not kind.endswith("_seq"):
        return values
    trimmed = pc.utf8_trim(pc.fill_null(values, ""), _SEPARATOR)
    parts = pc.split_pattern_regex(trimmed, f"{_SEPARATOR}+")
    texts = parts.flatten()
    written = pc.greater(pc.binary_length(texts), 0)  # of an empty cell there is one empty part
    row_of = pc.list_parent_indices(parts).filter(written).to_numpy()
    texts = texts.filter(written)
    counts = np.bincount(row_of, minlength=len(values))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if kind == "token_seq":
        return pa.LargeListArray.from_arrays(offsets, texts)
    is_number = pc.match_substring_regex(texts, _NUMBER)
    missing = counts == 0
    missing[row_of[~is_number.to_numpy(zero_copy_only=False)]] = True
    kept = ~missing[row_of]
    counts[missing] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = texts.filter(pa.array(kept)).cast(pa.float64())
    # A null offset makes a null list.
    return pa.LargeListArray.from_arrays(pa.array(offsets, mask=np.append(missing, False)), numbers)
