"""The section `graph` of the run file: the tables of nodes and edges, and how they are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.byte_size import ByteSize
from graphbox.config.files import matching_files
from graphbox.config.section import EdgeTypeList, ListSeparator, Name, Section, TypeName
from graphbox.errors import ConfigError

FeatureKind = Literal["number", "integer", "categorical", "boolean", "vector", "slots"]
TableFormat = Literal[
    "auto", "csv", "tsv", "edge_list", "parquet", "arrow", "npz", "npy", "recbole", "pglbox"
]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|://)")


class NodesConfig(Section):
    """One node type: a table with a row for each node, or the ids that are met at the ends of edges."""

    path: str | None = None
    """Table with a row for each node: a file, a folder or pattern (`users/*.parquet`) of parts, or a URL,
    relative to `graph.root`. Without it the nodes are the distinct ids met at the ends of edges, in order of
    first appearance."""
    format: TableFormat = "auto"
    """File format of the table; without it the file's suffix decides."""
    # Not strict: what went through _empty_section is a list of Python, which strictness takes for no tuple.
    columns: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] | None = None
    """Names of the columns of a text file that has no header line."""
    id: str | None = "id"
    """Column that holds the original id (string or 64-bit integer), unique within the node type. `null`: the
    rows have none, as those of a log, and are numbered from 0."""
    id_type: Literal["string", "int64"] | None = None
    """Type of the ids; without it the column decides (in CSV and TSV: int64 when all are plain integers)."""
    features: dict[str, FeatureKind] = Field(default_factory=dict)
    """Columns to import as node features, and how each is read."""
    list_separator: ListSeparator | None = None
    """Character between the values in a cell of text, in features of the kinds `slots` and `vector`;
    `|` when absent."""

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if self.path is None:
            for key in ("features", "columns", "format", "id", "list_separator"):
                # A run file with all defaults written out, as each run keeps one, describes none by them.
                if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                    raise PydanticCustomError(
                        "no_table",
                        "`{key}` describes a table, but this node type has none (no `path`)",
                        {"key": key, "hint": "give its `path`, or leave the other keys out"},
                    )
        if self.id is None and (self.id_type is not None or not self.features):
            raise PydanticCustomError(
                "no_ids",
                "rows without ids (`id: null`) {what}",
                {
                    "what": "are numbered: `id_type` has no meaning" if self.features else "need `features`",
                    "hint": "name the columns to import under `features`, and leave `id_type` out",
                },
            )
        return self


class EdgesConfig(Section):
    """One edge type: a table with a row for each edge."""

    type: EdgeTypeList
    """Edge type as `[source type, relation, target type]`."""
    path: str
    """Table with a row for each edge: a file, a folder or pattern (`edges/*.parquet`) of parts, or a URL,
    relative to `graph.root`."""
    format: TableFormat = "auto"
    """File format of the table; without it the file's suffix decides."""
    columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the columns of a text file that has no header line."""
    source: str = "source"
    """Column that holds the id of the edge's source."""
    target: str = "target"
    """Column that holds the id of the edge's target."""
    weight: str | None = None
    """Column that holds the edge's weight, a positive number; without it all edges weigh 1."""
    timestamp: str | None = None
    """Column that holds when the edge came to be: integers of any unit, or timestamps."""
    features: dict[str, FeatureKind] = Field(default_factory=dict)
    """Columns to import as edge features, and how each is read."""
    list_separator: ListSeparator | None = None
    """Character between the values in a cell of text, in features of the kinds `slots` and `vector`;
    `|` when absent."""
    reverse: TypeName | None = None
    """Also add every edge backwards, as the edge type `[target type, reverse, source type]`."""
    keep_duplicates: bool = False
    """Keep every edge of a repeated pair of source and target, instead of the first."""
    csr: bool = False
    """Also keep the out-neighbours on disk; without it they are derived in memory when first asked for."""


def _empty_section(value: Any) -> Any:
    # `user:` with nothing after it is how YAML writes an empty section.
    return {} if value is None else value


class GraphConfig(Section):
    """Where the graph comes from: tables, or the workspace, which has a graph of this name already."""

    name: Name
    """Name of the graph in the workspace. Without `nodes` and `edges` it is that of a stored graph, which is
    taken as it is."""
    root: str = "."
    """Folder or URL of the files below, relative to the run file; `package://graphbox.demo` is the bundled
    data."""
    nodes: dict[TypeName, Annotated[NodesConfig, BeforeValidator(_empty_section)]] = Field(
        default_factory=dict
    )
    """Node types by name; `user: {}` is one without a table."""
    edges: tuple[EdgesConfig, ...] = ()
    """Edge types."""
    strict: bool = False
    """Refuse the import at the first malformed line, edge whose end is no node, or repeated edge, instead of
    counting and skipping it."""
    memory: ByteSize | None = None
    """Memory budget of the import, like `2GiB`. It includes 192 MiB for the program itself, but nothing else
    that the process held before; half of the memory that is available when absent."""

    @model_validator(mode="after")
    def _check_stored(self) -> Self:
        for key in ("strict", "memory") if self.is_stored else ():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise PydanticCustomError(
                    "not_together",
                    "`{key}` is a setting of an import, but `{name}` names a stored graph",
                    {
                        "key": key,
                        "name": self.name,
                        "hint": "list the tables under `nodes` and `edges`, or leave the key out",
                    },
                )
        return self

    @property
    def is_stored(self) -> bool:
        """Whether the section only names a graph that is stored in the workspace."""
        return not self.nodes and not self.edges

    PACKAGE_SCHEME: ClassVar[str] = "package://"
    _PACKAGES: ClassVar[tuple[str, ...]] = ("graphbox.demo",)

    @staticmethod
    def is_url(path: str) -> bool:
        """Return whether ``path`` is a URL (``s3://bucket/edges.parquet``) and not a local path."""
        return _URL.match(path) is not None

    @staticmethod
    def folder(root: str, base: Path = Path()) -> Path:
        """Return the folder that ``root``, which is no URL, names: relative to ``base`` unless absolute.

        Raises:
            ConfigError: ``root`` names a package that carries no data.
        """
        if not root.startswith(GraphConfig.PACKAGE_SCHEME):
            return base / root
        package = root.removeprefix(GraphConfig.PACKAGE_SCHEME)
        if package not in GraphConfig._PACKAGES:
            raise ConfigError(
                f"expected `{GraphConfig.PACKAGE_SCHEME}{GraphConfig._PACKAGES[0]}`, received `{root}`",
                where="graph.root",
                hint="name a folder instead",
            )
        return Path(__file__).parent.parent.joinpath(*package.split(".")[1:])

    @staticmethod
    def is_remote(root: str) -> bool:
        """Return whether ``root`` is a URL of files elsewhere."""
        return GraphConfig.is_url(root) and not root.startswith(GraphConfig.PACKAGE_SCHEME)

    def locate(self, path: str) -> str | Path:
        """Return where the table ``path`` is: a local path (which can be a pattern), or a URL."""
        if self.is_url(path):
            return path
        if self.is_remote(self.root):
            return f"{self.root.rstrip('/')}/{path}"
        return self.folder(self.root) / path

    def files(self, path: str) -> list[str | Path]:
        """Return the files that the table ``path`` consists of now; a URL, or a file not there, as it is."""
        location = self.locate(path)
        if isinstance(location, str):
            return [location]
        return [*matching_files(self.folder(self.root), path)] or [location]
