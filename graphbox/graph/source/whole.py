"""Reading the tables an import is given: Parquet, CSV and TSV, with the place of every wrong value."""

from __future__ import annotations

import contextlib
import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from graphbox.errors import DataError, NotFoundError, UsageError, did_you_mean

__all__ = ["SourceTable", "read_table"]

_DELIMITERS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_SUFFIXES = (".parquet", *_DELIMITERS)
_ARROW_ROW = re.compile(r"Row #(\d+)")


@dataclass(frozen=True)
class SourceTable:
    """The columns read from one file.

    Attributes:
        path: the file.
        is_text: whether it is CSV or TSV: then all columns are strings, and an empty cell is null.
        table: the columns.
    """

    path: Path
    is_text: bool
    table: pa.Table

    def column(self, name: str) -> pa.Array:
        """Return one column as a single array; text is large_string, dictionaries are decoded."""
        column = self.table.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_string_view(kind):
            kind = pa.large_string()
        return pa.concat_arrays(column.cast(kind).chunks or [pa.array([], kind)])

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell for a message: ``file:line, column`` or ``file, row, column``."""
        if self.is_text:
            return f"{self.path}:{_line_of_record(self.path, row + 1)}, column `{column}`"
        return f"{self.path}, row {row + 1:,}, column `{column}`"


def read_table(path: Path, columns: Sequence[str]) -> SourceTable:
    """Read some columns of a Parquet, CSV or TSV file (the last two also gzipped), told by its suffix.

    CSV and TSV are UTF-8, have a header line, and quote with ``"`` as RFC 4180 says.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the suffix is another one.
        DataError: a column is missing or twice there, or the file is malformed.
    """
    if not path.is_file():
        raise NotFoundError(
            "expected a file, received a folder" if path.is_dir() else "there is no such file",
            where=str(path),
            hint=_closest_file(path),
        )
    wanted = list(dict.fromkeys(columns))
    name = path.name.lower()
    if name.endswith(".parquet"):
        return SourceTable(path, False, _read_parquet(path, wanted))
    if any(name.endswith(suffix) for suffix in _DELIMITERS):
        return SourceTable(path, True, _read_text(path, wanted))
    raise UsageError(
        f"expected a file ending in {', '.join(_SUFFIXES)}, received `{path.name}`", where=str(path)
    )


def _closest_file(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    return did_you_mean(path.name, [entry.name for entry in path.parent.iterdir() if entry.is_file()])


def _check_columns(path: Path, wanted: Sequence[str], present: Sequence[str]) -> None:
    for name in wanted:
        if present.count(name) == 1:
            continue
        if name in present:
            raise DataError(f"expected one column `{name}`, received {present.count(name)}", where=str(path))
        shown = ", ".join(f"`{column}`" for column in present[:20])
        raise DataError(
            f"expected a column `{name}`, received {shown or 'none'}",
            where=str(path),
            hint=did_you_mean(name, present)
            or "rename it in the table, or name one of the table's own columns instead",
        )


def _read_parquet(path: Path, wanted: Sequence[str]) -> pa.Table:
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            _check_columns(path, wanted, file.schema_arrow.names)
            return file.read(columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"expected a Parquet file, received a damaged or another one ({_first_line(error)})",
            where=str(path),
            hint="write the file again; text belongs into a file that ends in .csv or .tsv",
        ) from error


# CSV and TSV


def _delimiter(path: Path) -> str:
    return next(delimiter for suffix, delimiter in _DELIMITERS.items() if path.name.lower().endswith(suffix))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open a CSV or TSV file as text, byte-order mark and gzip removed; used off the fast path."""
    with contextlib.ExitStack() as files:
        opener = gzip.open if path.name.lower().endswith(".gz") else open
        yield files.enter_context(opener(path, "rt", encoding="utf-8-sig", errors="replace", newline=""))


def _line_of_record(path: Path, record: int) -> int:
    """Return the line (from 1) on which a record starts; the header is record 0, empty lines are none."""
    with _opened(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(path))
        before = 0
        with contextlib.suppress(csv.Error):  # a huge field: the line it starts on is known
            for row in reader:
                if row and (record := record - 1) < 0:
                    return before + 1
                before = reader.line_num
    return before + 1


def _header(path: Path) -> list[str]:
    try:
        with _opened(path) as file:
            return next((row for row in csv.reader(file, delimiter=_delimiter(path)) if row), [])
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(
            f"expected {_kind(path)}, received something else ({_first_line(error)})", where=str(path)
        ) from error


def _read_text(path: Path, wanted: Sequence[str]) -> pa.Table:
    header = _header(path)
    if not header:
        raise DataError(
            "expected a header line, received an empty file",
            where=str(path),
            hint="the first line names the columns",
        )
    _check_columns(path, wanted, header)
    try:
        return _parse(path, wanted, use_threads=True)
    except pa.ArrowInvalid:
        # Arrow knows the row of a malformed line only when it reads with one thread.
        return _parse_naming_row(path, wanted)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _unreadable(path, error) from error


def _parse_naming_row(path: Path, wanted: Sequence[str]) -> pa.Table:
    try:
        return _parse(path, wanted, use_threads=False)
    except (pa.ArrowException, OSError, EOFError) as error:
        row = _ARROW_ROW.search(str(error))
        if row is None:
            raise _unreadable(path, error) from error
        reason = str(error)[row.end() :].lstrip(": ").splitlines()[0][:200]
        raise DataError(
            f"expected a line of {_kind(path)} like the header, received a malformed one ({reason})",
            where=f"{path}:{_line_of_record(path, int(row[1]) - 1)}",
            hint="correct the line; a cell that holds the delimiter or a quote is put in double quotes",
        ) from error


def _parse(path: Path, wanted: Sequence[str], *, use_threads: bool) -> pa.Table:
    compression = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=compression) as stream:
        return arrow_csv.read_csv(
            stream,
            read_options=arrow_csv.ReadOptions(use_threads=use_threads),
            parse_options=arrow_csv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(wanted),
                column_types=dict.fromkeys(wanted, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"expected {_kind(path)}, received something else ({_first_line(error)})", where=str(path)
    )


def _kind(path: Path) -> str:
    return "TSV" if _delimiter(path) == "\t" else "CSV"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
