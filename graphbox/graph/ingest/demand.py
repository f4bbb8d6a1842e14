"""Sizes of a source that determine the least memory of its import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.convert.text import SLOT_SEPARATOR
from graphbox.graph.schema import EdgeSource, FeatureKind, GraphSource
from graphbox.graph.source import Table

_PEEK_BYTES = 1 << 18
_WIDTHS: Mapping[FeatureKind, int] = {"number": 4, "integer": 8, "boolean": 1, "categorical": 4}
_WEIGHT_BYTES, _TIMESTAMP_BYTES, _COMPONENT_BYTES = 4, 8, 4


@dataclass(frozen=True)
class Demand:
    """Sizes of a source that are known before its rows are read.

    Attributes:
        node_types: how many node types there are.
        table_columns: columns that are read of the table of which most are.
        categorical_columns: columns of categories that are held at one time, at most.
        edge_columns: weight, timestamp and features of the edge type that has most of them.
        edge_row_bytes: bytes of these of one edge, of the edge type where they are most.
        edge_input_bytes: size of the largest table of edges; 0 when it is not known.
    """

    node_types: int
    table_columns: int = 2
    categorical_columns: int = 0
    edge_columns: int = 0
    edge_row_bytes: int = 0
    edge_input_bytes: int = 0

    @classmethod
    def of(cls, source: GraphSource, edge_tables: Sequence[Table]) -> Self:
        """Return the demand of a source.

        The first rows of tables of edges with vectors are read, where they can be read again.

        Args:
            source: the source.
            edge_tables: the tables of its edge types, in their order.

        Raises:
            DataError: a table is damaged, or lacks a column.
        """
        nodes = [len(each.features) + 1 for each in source.nodes.values()]
        along = [_columns_along(edges) for edges in source.edges]
        of_nodes = max((categorical_columns(each.features) for each in source.nodes.values()), default=0)
        of_edges = sum(categorical_columns(each.features) for each in source.edges)
        row_bytes = (_row_bytes(edges, table) for edges, table in zip(source.edges, edge_tables, strict=True))
        return cls(
            node_types=len(source.nodes),
            table_columns=max([*nodes, *(2 + count for count in along)]),
            categorical_columns=max(of_nodes, of_edges),
            edge_columns=max(along, default=0),
            edge_row_bytes=max(row_bytes, default=0),
            edge_input_bytes=max((table.size_bytes or 0 for table in edge_tables), default=0),
        )


def categorical_columns(features: Mapping[str, FeatureKind]) -> int:
    """Return how many features are categories."""
    return sum(kind == "categorical" for kind in features.values())


def _columns_along(edges: EdgeSource) -> int:
    return (edges.weight is not None) + (edges.timestamp is not None) + len(edges.features)


def _row_bytes(edges: EdgeSource, table: Table) -> int:
    """Return the bytes that go along with an edge; vectors that cannot be looked at count as empty."""
    vectors = [name for name, kind in edges.features.items() if kind == "vector"]
    fixed = _WEIGHT_BYTES * (edges.weight is not None) + _TIMESTAMP_BYTES * (edges.timestamp is not None)
    fixed += sum(_WIDTHS[kind] for kind in edges.features.values() if kind != "vector")
    if not vectors or not table.reiterable:
        return fixed
    batches = table.batches(vectors, batch_bytes=_PEEK_BYTES)
    first = next((batch for batch in batches if batch.num_rows), None)
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    separator = edges.list_separator or SLOT_SEPARATOR
    columns = [] if first is None else first.columns.values()
    return fixed + _COMPONENT_BYTES * sum(_length(vectors, separator) for vectors in columns)


def _length(vectors: pa.Array, separator: str) -> int:
    """Return the length of the longest of some vectors."""
    if pa.types.is_nested(vectors.type):
        lengths: Iterable[int | None] = (pc.max(pc.list_value_length(vectors)).as_py(),)
    elif pa.types.is_large_string(vectors.type):
        lengths = (pc.max(pc.add(pc.count_substring(vectors, separator), 1)).as_py(),)
    else:
        lengths = ()
    return max((length or 0 for length in lengths), default=0)
