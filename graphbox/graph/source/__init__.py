"""Reading tables of every format as streams of bounded batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from graphbox.errors import UsageError
from graphbox.graph.source.arrow_file import ArrowFileTable
from graphbox.graph.source.edge_list import EDGE_LIST_SUFFIXES, EdgeListTable
from graphbox.graph.source.formats import (
    FORMATS,
    FileOptions,
    TableFormat,
    add_format,
    format_of,
    part_suffixes,
)
from graphbox.graph.source.location import find_files, shown_name
from graphbox.graph.source.memory import StreamTable, arrow_table
from graphbox.graph.source.numpy_file import NpyTable, NpzTable
from graphbox.graph.source.parquet import ParquetTable
from graphbox.graph.source.parts import PartsTable
from graphbox.graph.source.pglbox import open_pglbox_file, open_pglbox_parts
from graphbox.graph.source.recbole import RECBOLE_SUFFIXES, RecBoleTable
from graphbox.graph.source.table import STORED_AGAIN, Batch, MalformedLine, Table
from graphbox.graph.source.text import CsvTable, TsvTable
from graphbox.graph.source.text_file import TEXT_COMPRESSIONS
from graphbox.native import thread_count

__all__ = [
    "FORMATS",
    "STORED_AGAIN",
    "ArrowStream",
    "Batch",
    "MalformedLine",
    "Table",
    "TableFormat",
    "TableLike",
    "add_format",
    "open_table",
]


@runtime_checkable
class ArrowStream(Protocol):
    """Exporter of a stream of Arrow record batches: Polars, DuckDB, pandas, PyArrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with the stream."""
        ...


TableLike: TypeAlias = str | Path | ArrowStream | Mapping[str, Any]
"""A file, folder or glob of part files, or URL; an object with ``__arrow_c_stream__``; arrays by name."""


def _text_suffixes(suffix: str) -> tuple[str, ...]:
    return (suffix, *(suffix + compression for compression in TEXT_COMPRESSIONS))


for _table_format in (
    TableFormat("parquet", (".parquet", ".pq"), ParquetTable),
    TableFormat("arrow", (".arrow", ".feather", ".ipc", ".arrows"), ArrowFileTable),
    TableFormat("npz", (".npz",), NpzTable),
    TableFormat("npy", (".npy",), NpyTable, takes_names=True),
    TableFormat("csv", _text_suffixes(".csv"), CsvTable, takes_names=True),
    TableFormat("tsv", _text_suffixes(".tsv"), TsvTable, takes_names=True),
    TableFormat(
        "edge_list",
        tuple(each for suffix in EDGE_LIST_SUFFIXES for each in _text_suffixes(suffix)),
        EdgeListTable,
        takes_names=True,
        marks_parts=False,
    ),
    TableFormat("recbole", RECBOLE_SUFFIXES, RecBoleTable),
    TableFormat("pglbox", (), open_pglbox_file, open_parts=open_pglbox_parts),
):
    add_format(_table_format)


def open_table(
    data: TableLike,
    *,
    format: str = "auto",  # noqa: A002 - what the run file calls it
    has_header: bool = True,
    names: Iterable[str] | None = None,
    node_type: str | None = None,
    where: str = "",
    threads: int | None = None,
) -> Table:
    """Open a table: what can be told without reading it is checked here.

    Args:
        data: a path, folder or glob of part files (read in the order of their names, as one table) or URL
            that fsspec opens; an object with ``__arrow_c_stream__``; or a mapping of names to arrays.
        format: name of the format of the files (a key of :data:`FORMATS`); ``auto``: told by the suffix.
        has_header: whether text files begin with a line that names the columns.
        names: the names of the columns where ``has_header`` is false.
        node_type: the node type the table is for; files that hold several types give the lines of this one.
        where: what the table is for, for the messages about tables without a file name.
        threads: threads that parse; None: as many as :func:`~graphbox.native.thread_count` says.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the format is unknown, or has no use for ``names``, or ``data`` is nothing of the above.
        DataError: a server does not answer, the object gives no stream, or arrays differ in length.
        BackendMissingError: a package that this kind of URL needs is not installed.
    """
    given = None if names is None else tuple(names)
    if not has_header and not given:
        raise UsageError(
            "expected the names of the columns of a file without a header line",
            where=where or shown_name(data),
        )
    if has_header and given is not None:
        raise UsageError(
            "expected no names of columns, received some: the header line names them",
            where=where or shown_name(data),
            hint="say that the file has no header line, or leave the names out",
        )
    if isinstance(data, str | Path):
        return _open_files(data, format, FileOptions(given, thread_count(threads), node_type))
    if given is not None or format != "auto":
        raise UsageError(
            "expected a file where a format or names are given", where=where or type(data).__name__
        )
    if isinstance(data, Mapping):
        return StreamTable(arrow_table(data, where or "arrays"), where or "arrays")
    if isinstance(data, ArrowStream):
        return StreamTable(data, where or type(data).__name__)
    raise UsageError(
        "expected a path, an object with `__arrow_c_stream__` or a mapping of arrays, "
        f"received {type(data).__name__}",
        where=where or None,
    )


def _open_files(data: str | Path, format_name: str, options: FileOptions) -> Table:
    suffixes = FORMATS[format_name].suffixes if format_name in FORMATS else part_suffixes()
    files = find_files(data, suffixes)
    joined = FORMATS[format_name].open_parts if format_name in FORMATS else None
    if joined is not None and len(files) > 1:
        return joined(shown_name(data), files, options)
    tables: list[Table] = []
    for file in files:
        table_format = format_of(file, format_name)
        if options.names is not None and not table_format.takes_names:
            raise UsageError(
                f"expected no names of columns: files of the format {table_format.name} name them",
                where=file.name,
            )
        tables.append(table_format.open(file, options))
    return tables[0] if len(tables) == 1 else PartsTable(shown_name(data), tables)
