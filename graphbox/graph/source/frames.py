"""Data frames by node type and edge type as the source of an import: columns say what is read, and how."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from graphbox.errors import DataError, UsageError
from graphbox.graph.schema import EdgeSource, EdgeType, FeatureKind, GraphSource, NodeSource, edge_type_text
from graphbox.graph.source import ArrowStream
from graphbox.graph.source.memory import arrow_table

Frame: TypeAlias = "ArrowStream | Mapping[str, Any]"
"""A data frame of pandas or Polars, a table or stream of Arrow or DuckDB, or arrays by column name."""

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_ID, _SOURCE, _TARGET, _WEIGHT, _TIMESTAMP = "id", "source", "target", "weight", "timestamp"


def source_of_frames(frames: Mapping[str | EdgeType, Frame], name: str) -> GraphSource:
    """Return data frames as what :func:`graphbox.graph.ingest.import_graph` reads.

    A key that is a name is a node type: its frame has a column ``id``, and every other column is a feature. A
    key of three names is an edge type: its frame has the columns ``source`` and ``target``, else its first
    two are these; columns ``weight`` and ``timestamp`` are what they are called, and every other column is a
    feature. Node types without a frame are the ids at the ends of edges.

    The type of a column decides the kind of its feature: floats are numbers, integers integers, booleans
    booleans, text and dictionaries categories, lists of floats vectors, other lists slots. A warning names
    columns that have no kind, such as timestamps of nodes and lists of integers of edges.

    Args:
        frames: the frames.
        name: name of the graph.

    Raises:
        UsageError: a key is no type, or a value no frame.
        DataError: a frame lacks the columns of ids, or cannot be read.
    """
    nodes: dict[str, NodeSource] = {}
    edges: list[EdgeSource] = []
    left_out: list[str] = []
    for key, frame in frames.items():
        if isinstance(key, str):
            nodes[key] = _nodes(key, frame, left_out)
        else:
            edges.append(_edges(_edge_type(key), frame, left_out))
    for edge in edges:
        for end in (edge.type[0], edge.type[2]):
            nodes.setdefault(end, NodeSource())
    if left_out:
        warnings.warn(
            f"not in the graph, as their types are those of no feature: {', '.join(left_out)}", stacklevel=5
        )
    return GraphSource(name, nodes, tuple(edges))


def _edge_type(key: Any) -> EdgeType:
    if isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key):
        return key
    raise UsageError(
        f"expected a node type, or an edge type of three names, received {key!r}",
        where="graph",
        hint='for example {"user": users, ("user", "buys", "item"): purchases}',
    )


def _nodes(node_type: str, frame: Frame, left_out: list[str]) -> NodeSource:
    where = f"node type `{node_type}`"
    data, schema = _opened(frame, where)
    if _ID not in schema.names:
        raise DataError(
            f"expected a column `{_ID}`, received {_shown(schema.names)}",
            where=where,
            hint="rename the column of the ids; or `GraphSource(..., nodes={"
            f"{node_type!r}: NodeSource(frame, id=...)}})` names it",
        )
    return NodeSource(data, id=_ID, features=_features(schema, {_ID}, where, left_out))


def _edges(edge_type: EdgeType, frame: Frame, left_out: list[str]) -> EdgeSource:
    where = f"edge type `{edge_type_text(edge_type)}`"
    data, schema = _opened(frame, where)
    names = schema.names
    if len(names) < 2:
        raise DataError(f"expected two columns of ids, received {_shown(names)}", where=where)
    source, target = (_SOURCE, _TARGET) if {_SOURCE, _TARGET} <= set(names) else (names[0], names[1])
    further = [name for name in names if name not in (source, target)]
    return EdgeSource(
        edge_type,
        data,
        source=source,
        target=target,
        weight=_WEIGHT if _WEIGHT in further else None,
        timestamp=_TIMESTAMP if _TIMESTAMP in further else None,
        features=_features(schema, {source, target, _WEIGHT, _TIMESTAMP}, where, left_out, {"slots"}),
    )


def _opened(frame: Any, where: str) -> tuple[Any, pa.Schema]:
    """Return what an import reads of a frame, and its schema, which takes nothing from a stream."""
    if isinstance(frame, Mapping):
        table = arrow_table(frame, where)
        return table, table.schema
    if not isinstance(frame, ArrowStream):
        raise UsageError(
            f"expected a data frame, an Arrow table or a mapping of arrays, received {type(frame).__name__}",
            where=where,
            hint="tables in files go into the section `graph` of the run file, or into a `GraphSource`",
        )
    try:
        reader = pa.RecordBatchReader.from_stream(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise DataError(f"expected a frame that Arrow can read, received: {reason}", where=where) from error
    # A stream gives its rows once: then it is the opened one that is read.
    return (frame if hasattr(frame, "__len__") else reader), reader.schema


def _features(
    schema: pa.Schema, taken: set[str], where: str, left_out: list[str], without: Collection[str] = ()
) -> dict[str, FeatureKind]:
    features: dict[str, FeatureKind] = {}
    for field in schema:
        if _UNNAMED_INDEX.fullmatch(field.name):
            continue  # of pandas, of which a part of a frame keeps its row numbers
        kind = None if field.name in taken else _kind(field.type)
        if kind is not None and kind not in without:
            features[field.name] = kind
        elif field.name not in taken:
            left_out.append(f"`{field.name}` ({field.type}) of {where}")
    return features


def _kind(kind: pa.DataType) -> FeatureKind | None:  # noqa: PLR0911 (a table of types)
    types = pa.types
    if types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_integer(kind):
        return "integer"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_dictionary(kind) or _is_text(kind):
        return "categorical"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = kind.value_type
        if types.is_floating(value):
            return "vector"
        return "slots" if types.is_integer(value) or _is_text(value) else None
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _shown(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:20]) or "none"
