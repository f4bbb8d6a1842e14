"""Check of the headers and schemas of tables: missing columns, and columns of another type."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from graphbox.config import EdgesConfig, GraphConfig, NodesConfig
from graphbox.config.graph import FeatureKind
from graphbox.errors import DataError, UsageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from graphbox.graph.schema import IdType
    from graphbox.graph.source import Table

_Key: TypeAlias = tuple[str | int, ...]
_Mistake: TypeAlias = tuple[_Key, str, str | None]
_Reading: TypeAlias = "Callable[[pa.Array, str], object]"
_SHOWN_COLUMNS = 20


@dataclass(frozen=True)
class _Wanted:
    """A column that a section names.

    Attributes:
        key: below the section.
        column: its name.
        read: reads values of it, to see whether their type can be; None: any can.
    """

    key: tuple[str, ...]
    column: str
    read: _Reading | None


def table_mistakes(config: GraphConfig) -> Iterator[_Mistake]:
    """Yield key, message and hint of each mistake in the section ``graph`` that the tables' headers show.

    Reads the header line of text and the metadata of other files, of the first part where there are several;
    no rows, and nothing from URLs.

    Raises:
        DataError: a file is damaged, or not of the format it is called by.
    """
    id_types: dict[str, IdType] = {
        name: nodes.id_type for name, nodes in config.nodes.items() if nodes.id_type is not None
    }
    for name, nodes in config.nodes.items():
        if nodes.path is not None:
            key: _Key = ("graph", "nodes", name)
            table = yield from _opened(config, key, nodes, nodes.path)
            if table is not None:
                wanted = _features(nodes.features)
                if nodes.id is not None:
                    wanted.insert(0, _Wanted(("id",), nodes.id, _ids(id_types.get(name))))
                yield from _mistakes(config, key, nodes, table, wanted)
                _note_id_type(id_types, name, table, nodes.id)
    for position, edges in enumerate(config.edges):
        key = ("graph", "edges", position)
        if edges.source == edges.target:
            given = next((each for each in ("target", "source") if each in edges.model_fields_set), "source")
            yield (
                (*key, given),
                f"the column `{edges.source}` is named for both ends of the edges",
                "every edge would be a self-loop; name the column of the other end",
            )
        table = yield from _opened(config, key, edges, edges.path)
        if table is not None:
            yield from _mistakes(config, key, edges, table, _wanted_of_edges(edges, id_types))


def _wanted_of_edges(edges: EdgesConfig, id_types: Mapping[str, IdType]) -> list[_Wanted]:
    wanted = [
        _Wanted(("source",), edges.source, _ids(id_types.get(edges.type[0]))),
        _Wanted(("target",), edges.target, _ids(id_types.get(edges.type[2]))),
    ]
    if edges.weight is not None:
        wanted.append(_Wanted(("weight",), edges.weight, _weight))
    if edges.timestamp is not None:
        wanted.append(_Wanted(("timestamp",), edges.timestamp, _timestamp))
    return [*wanted, *_features(edges.features)]


def _features(features: Mapping[str, FeatureKind]) -> list[_Wanted]:
    return [_Wanted(("features", name), name, _feature(kind)) for name, kind in features.items()]


def _note_id_type(id_types: dict[str, IdType], name: str, table: Table, column: str | None) -> None:
    """Note what the ids of a node type are, where its table says it: the ends of edges must be the same."""
    import pyarrow as pa

    from graphbox.graph.source.table import plain_type

    kind = pa.int64() if column is None else table.column_types().get(column)
    if kind is not None and name not in id_types:
        id_types[name] = "int64" if pa.types.is_integer(plain_type(kind)) else "string"


def _opened(
    config: GraphConfig, key: _Key, section: NodesConfig | EdgesConfig, path: str
) -> Generator[_Mistake, None, Table | None]:
    """Open a table and return it; None where that is for the import alone, or where it cannot be."""
    location = config.locate(path)
    if isinstance(location, str):
        return None
    from graphbox.graph.source import open_table

    try:
        table = open_table(
            location,
            format=section.format,
            has_header=section.columns is None,
            names=section.columns,
            node_type=str(key[-1]) if isinstance(section, NodesConfig) else None,
        )
        table.column_names()
    except UsageError as error:
        yield (*key, "path"), f"{error.where}: {error.message}" if error.where else error.message, error.hint
        return None
    return table


def _mistakes(
    config: GraphConfig,
    key: _Key,
    section: NodesConfig | EdgesConfig,
    table: Table,
    wanted: Sequence[_Wanted],
) -> Iterator[_Mistake]:
    location = config.locate(section.path or "")
    if section.list_separator is not None:
        yield from _separator_mistakes(key, section.list_separator, table)
    present, types = table.column_names(), table.column_types()
    for each in wanted:
        column, below = each.column, each.key
        given = below[0] in section.model_fields_set
        place = (*key, *(below if given else ()))
        times = present.count(column)
        if times > 1 or not table.has_column(column):
            shown = ", ".join(f"`{name}`" for name in present[:_SHOWN_COLUMNS])
            message = f"{location} has {f'the column `{column}` twice' if times else f'no column `{column}`'}"
            hint = did_you_mean(column, present) or f"its columns: {shown or 'none'}"
            yield place, message, hint if given else f"{hint}; `{below[0]}:` says which one it is"
        elif column in types and each.read is not None:
            error = _type_error(each.read, types[column], f"{location}, column `{column}`")
            if error is not None:
                yield place, f"{error.where}: {error.message}", error.hint


def _separator_mistakes(key: _Key, separator: str, table: Table) -> Iterator[_Mistake]:
    from graphbox.graph.convert import check_list_separator

    try:
        check_list_separator(separator, table.column_separator, table.name)
    except UsageError as error:
        yield (*key, "list_separator"), f"{table.name}: {error.message}", error.hint


def _type_error(read: _Reading, kind: pa.DataType, place: str) -> DataError | None:
    """Return what reading a column of a type ends with, None when it can be read."""
    import pyarrow as pa

    from graphbox.graph.source.table import plain_type

    try:
        read(pa.array([], plain_type(kind)), place)
    except DataError as error:
        return error
    return None


# What reads columns; the native core is loaded with it.


def _ids(id_type: IdType | None) -> _Reading:
    def read(values: pa.Array, place: str) -> object:
        import pyarrow as pa

        from graphbox.graph.convert import read_ids

        told: IdType = "int64" if pa.types.is_integer(values.type) else "string"
        return read_ids(values, id_type or told, is_text=False, place=place)

    return read


def _feature(kind: FeatureKind) -> _Reading:
    def read(values: pa.Array, place: str) -> object:
        from graphbox.graph.convert import feature_reader

        return feature_reader(kind, is_text=False, place=place, memory_bytes=1 << 20).read(values)

    return read


def _weight(values: pa.Array, place: str) -> object:
    from graphbox.graph.convert import read_weight

    return read_weight(values, is_text=False, place=place)


def _timestamp(values: pa.Array, place: str) -> object:
    from graphbox.graph.convert import TimestampReader

    return TimestampReader(is_text=False, place=place).read(values)
