"""The options that describe a table given to `graphbox import` instead of a run file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args

import typer

from graphbox.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from graphbox.config import GraphConfig
    from graphbox.graph.source import Table

DEFAULT_TYPE = "node,to,node"
PANEL = "A table of edges instead of a run file"

# The options that the commands have in common.

MemoryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="What the import may hold in memory, like 2GiB. (default: half of what is available)",
    ),
]
ThreadsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Threads. (default: all CPUs)", show_default=False)
]
TypeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE,RELATION,TARGET",
        help=f"Types of the nodes and name of the edges. (default: {DEFAULT_TYPE})",
        rich_help_panel=PANEL,
    ),
]
SourceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Where edges start. (default: `source`, or the first column)",
        rich_help_panel=PANEL,
    ),
]
TargetOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Where edges end. (default: `target`, or the second column)",
        rich_help_panel=PANEL,
    ),
]
WeightOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Weights of edges.", rich_help_panel=PANEL)
]
TimestampOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Times of edges.", rich_help_panel=PANEL)
]
FormatOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="How the table is written. (default: told by the suffix)", rich_help_panel=PANEL),
]
ColumnsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...",
        help="The file has no header line; these are its columns.",
        rich_help_panel=PANEL,
    ),
]
KeepDuplicatesOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--keep-duplicates",
        help="Keep every edge of a repeated source and target, not only the first.",
        rich_help_panel=PANEL,
    ),
]
_COMPRESSIONS = (".gz", ".zst", ".zstd")


def is_run_file(source: str) -> bool:
    """Return whether a source is a run file, which its suffix says, and not a table."""
    return source.lower().endswith((".yaml", ".yml"))


@dataclass(frozen=True)
class TableOptions:
    """Options that describe a table of edges; None where an option was not given."""

    name: str | None
    type: str | None
    source: str | None
    target: str | None
    weight: str | None
    timestamp: str | None
    format: str | None
    columns: str | None
    id_type: str | None
    keep_duplicates: bool | None = None

    def given(self) -> list[str]:
        """Return the options that were given."""
        return [f"--{key.replace('_', '-')}" for key, value in vars(self).items() if value is not None]

    def edge_type(self) -> tuple[str, str, str]:
        """Return the edge type.

        Raises:
            UsageError: it is not three names.
        """
        parts = [part.strip() for part in (self.type or DEFAULT_TYPE).split(",")]
        if len(parts) != 3:
            raise UsageError(
                f"expected `source type,relation,target type`, received `{self.type}`",
                where="--type",
                hint="for example `--type user,buys,item`",
            )
        return (parts[0], parts[1], parts[2])

    def graph(self, path: str, memory: int | None, *, strict: bool) -> tuple[GraphConfig, list[str]]:
        """Return the section ``graph`` that stands for the table at ``path``, and remarks for the user.

        Without ``--source`` and ``--target`` these are the columns so called, else the first two.

        Raises:
            UsageError: an option is wrong.
            NotFoundError: there is no such table.
            DataError: it is damaged, or has no such columns.
        """
        from pydantic import ValidationError

        from graphbox.config import GraphConfig
        from graphbox.config.graph import TableFormat

        edge_type = self.edge_type()
        formats = get_args(TableFormat)
        if self.format is not None and self.format not in formats:
            raise UsageError(
                f"expected one of {', '.join(formats)}, received `{self.format}`",
                where="--format",
                hint=did_you_mean(self.format, formats),
            )
        if self.id_type not in {None, "string", "int64"}:
            raise UsageError(f"expected `string` or `int64`, received `{self.id_type}`", where="--id-type")
        table = self._table(path)
        columns = table.column_names()
        source, target, remarks = self._ends(columns)
        if table.comment_lines:
            remarks.append(f"{table.comment_lines:,} lines of comment at the beginning passed over")
        document = {
            "name": self.name if self.name is not None else _name_of(path),
            "root": str(Path.cwd()),
            "nodes": {end: {"id_type": self.id_type} for end in (edge_type[0], edge_type[2])},
            "edges": (
                {
                    "type": edge_type,
                    "path": path,
                    "source": source,
                    "target": target,
                    "weight": self.weight,
                    "timestamp": self.timestamp,
                    "format": self.format or "auto",
                    "columns": self._names(),
                    "keep_duplicates": bool(self.keep_duplicates),
                },
            ),
            "strict": strict,
            "memory": memory,
        }
        try:
            config = GraphConfig.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            option = "--name" if first["loc"][:1] == ("name",) else "--type"
            received = first["input"]
            raise UsageError(
                "expected a name of letters, digits, `_` and `-`"
                + (f", received `{received}`" if isinstance(received, str) else ""),
                where=option,
                hint="--name says how the graph is called"
                if self.name is None and option == "--name"
                else None,
            ) from None
        unused = [name for name in columns if name not in {source, target, self.weight, self.timestamp}]
        if unused:
            shown = ", ".join(f"`{name}`" for name in unused[:5]) + (", ..." if len(unused) > 5 else "")
            remarks.append(
                f"not imported: {shown} (--weight, --timestamp; a run file takes any column as a feature)"
            )
        return config, remarks

    def _names(self) -> tuple[str, ...] | None:
        return None if self.columns is None else tuple(part.strip() for part in self.columns.split(","))

    def _table(self, path: str) -> Table:
        from graphbox.graph.source import open_table

        names = self._names()
        return open_table(path, format=self.format or "auto", has_header=names is None, names=names)

    def _ends(self, columns: Sequence[str]) -> tuple[str, str, list[str]]:
        for option in ("source", "target", "weight", "timestamp"):
            wanted = getattr(self, option)
            if wanted is not None and wanted not in columns:
                raise UsageError(
                    f"the table has no column `{wanted}`",
                    where=f"--{option}",
                    hint=did_you_mean(wanted, columns) or f"its columns: {', '.join(columns)}",
                )
        if self.source is not None and self.target is not None:
            return self.source, self.target, []
        if self.source is None and self.target is None:
            if "source" in columns and "target" in columns:
                return "source", "target", []
            if {"head", "relation", "tail"} <= {name.removesuffix("_id") for name in columns}:
                raise UsageError(
                    "expected a table of edges of one relation, received triples: "
                    + ", ".join(f"`{name}`" for name in columns),
                    hint="`graphbox init --template knowledge` writes a run file for triples; with --source "
                    "and --target all of them become edges of one relation",
                )
            if len(columns) < 2:
                raise UsageError(
                    f"expected a table of edges with two columns of ids, received {len(columns)}: "
                    f"{', '.join(columns)}",
                    hint="if it has comments first, or no header line: `--format edge_list`"
                    if columns[0].startswith(("#", "%"))
                    else "--format says how it is written when the suffix does not tell",
                )
            if all(_is_number(name) for name in columns[:2]):
                raise UsageError(
                    f"expected a header line with the names of the columns, received `{columns[0]}`, "
                    f"`{columns[1]}`",
                    hint=f"if the file has none, name them: `--columns {_names_for(len(columns))}`",
                )
            remark = f"edges go from column `{columns[0]}` to column `{columns[1]}` (--source, --target)"
            return columns[0], columns[1], [remark]
        missing = "--target" if self.target is None else "--source"
        raise UsageError(
            "expected both --source and --target, or neither", where=missing, hint=f"add {missing} COLUMN"
        )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _names_for(count: int) -> str:
    return ",".join(["source", "target", *(f"c{number}" for number in range(3, count + 1))])


def _name_of(path: str) -> str:
    """Return the name a graph gets from its table: the file's without suffixes."""
    name = path.rstrip("/").rpartition("/")[2]
    for suffix in _COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name.rpartition(".")[0] or name
