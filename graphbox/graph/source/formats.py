"""Registry of table readers: formats by name and by suffix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.table import Table


@dataclass(frozen=True)
class FileOptions:
    """Options of reading that a file's format leaves open.

    Attributes:
        names: names of the columns of a file without a header line; None: the file names them.
        threads: threads that parse.
        node_type: the node type the table is for, where a file holds the nodes of several; None: edges.
    """

    names: tuple[str, ...] | None
    threads: int
    node_type: str | None = None


@dataclass(frozen=True)
class TableFormat:
    """A format of table files.

    Attributes:
        name: what ``format:`` calls it.
        suffixes: endings of file names that mean this format, in lower case with the dot.
        open: makes the table of one file; part files are opened one by one and joined.
        open_parts: makes the table of several part files, where the others must be known to read one.
        takes_names: whether :attr:`FileOptions.names` has a meaning (text that may lack a header line).
        marks_parts: whether its suffixes tell the parts in a folder from other files; `.txt` does not, as
            a `README.txt` may lie beside them.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[InputFile, FileOptions], Table]
    takes_names: bool = False
    open_parts: Callable[[str, Sequence[InputFile], FileOptions], Table] | None = None
    marks_parts: bool = True


FORMATS: dict[str, TableFormat] = {}
"""The formats by name; a further one is added by :func:`add_format`."""


def add_format(table_format: TableFormat) -> None:
    """Let :func:`~graphbox.graph.source.open_table` read a format."""
    FORMATS[table_format.name] = table_format


def part_suffixes() -> tuple[str, ...]:
    """Return all endings of file names that tell the parts in a folder from other files."""
    return tuple(suffix for each in FORMATS.values() if each.marks_parts for suffix in each.suffixes)


def format_of(file: InputFile, name: str) -> TableFormat:
    """Return the format of a file: the named one, or with ``auto`` the one its suffix means.

    Raises:
        UsageError: there is no such format, or the suffix means none.
    """
    if name != "auto":
        if name not in FORMATS:
            raise UsageError(
                f"expected the format auto, {', '.join(FORMATS)}, received `{name}`",
                where=file.name,
                hint=did_you_mean(name, FORMATS),
            )
        return FORMATS[name]
    matches = [
        (len(suffix), table_format)
        for table_format in FORMATS.values()
        for suffix in table_format.suffixes
        if file.file_name.lower().endswith(suffix)
    ]
    if not matches:
        raise UsageError(
            f"expected a file whose ending tells its format, received `{file.file_name}`",
            where=file.name,
            hint="name the format (`format: csv`, `--format csv`): " + ", ".join(FORMATS) + "; edge_list is "
            "text without a header line",
        )
    return max(matches, key=lambda match: match[0])[1]
