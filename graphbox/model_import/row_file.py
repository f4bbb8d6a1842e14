"""Rows of a file and their ids, to update those of a model version with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from graphbox.errors import DataError, NotFoundError, UnsupportedError, UsageError, did_you_mean
from graphbox.model_import.add import EmbeddingOptions, row_blocks_of
from graphbox.model_import.formats import format_of
from graphbox.model_import.row_blocks import RowBlock, RowStream, lines_of_ids

__all__ = ["read_row_file"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ID_COLUMN = "id"


def read_row_file(
    path: Path, options: EmbeddingOptions, file_format: str | None = None
) -> tuple[pa.Array, npt.NDArray[np.float32]]:
    """Return the ids (int64 or large_string [n]) and rows (float32 [n, dim]) of a file.

    Args:
        path: of the file: those that `graphbox models add` reads rows from, and CSV and TSV with a column of
            ids and one for each dimension.
        options: columns, tensor and ids, where they do not follow from the file.
        file_format: one of `graphbox.model_import.FORMATS`, ``csv`` or ``tsv``; None: by the file's name.

    Raises:
        NotFoundError: there is no such file.
        UnsupportedError: it is an ONNX file or a pickle.
        UsageError: a column or tensor is not there, or several may be meant.
        DataError: it is damaged, a number is not finite, or ids repeat.
    """
    suffix = f".{file_format}" if file_format is not None else path.suffix
    given = None if options.ids is None else lines_of_ids(options.ids)
    if suffix in _SEPARATORS:
        if not path.is_file():
            raise NotFoundError("expected a file, found none", where=str(path))
        blocks = _csv_blocks(path, options.id_column, _SEPARATORS[suffix])
    else:
        found = format_of(path, file_format)
        if found == "onnx":
            raise UnsupportedError("expected a file of rows, received an ONNX file", where=str(path))
        blocks = row_blocks_of(path, found, options)
    stream = RowStream(blocks if given is not None else _with_ids(blocks, path), str(path), given)
    rows = np.concatenate([block.astype(np.float32) for block in stream.rows()])
    return stream.ids(), rows


def _with_ids(blocks: Iterator[RowBlock], path: Path) -> Iterator[RowBlock]:
    for block in blocks:
        if block.ids is None:
            raise UsageError(
                "expected ids of the rows, the file has none",
                where=str(path),
                hint="give a file with an id a line: --ids FILE",
            )
        yield block


def _csv_blocks(path: Path, id_column: str | None, separator: str) -> Iterator[RowBlock]:
    parse = pa_csv.ParseOptions(delimiter=separator)
    try:
        with pa_csv.open_csv(path, parse_options=parse) as header:
            names = header.schema.names
        wanted = id_column or _ID_COLUMN
        if wanted not in names or len(names) < 2:
            raise UsageError(
                f"expected a column `{wanted}` of ids and a column for each dimension, received {names[:20]}",
                where=str(path),
                hint=did_you_mean(wanted, names) or "name the one with the ids: --id-column NAME",
            )
        columns = [name for name in names if name != wanted]
        types = {wanted: pa.large_string(), **dict.fromkeys(columns, pa.float64())}
        convert = pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False, null_values=[])
        with pa_csv.open_csv(path, parse_options=parse, convert_options=convert) as reader:
            for batch in reader:
                rows = np.stack([batch.column(name).to_numpy() for name in columns], axis=1)
                yield RowBlock(rows, batch.column(wanted))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"expected a table of text, could not read one ({error})", where=str(path)) from error
