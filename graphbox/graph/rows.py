"""Reading the tables that a change is given: whole, since a change takes memory in proportion to itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from graphbox.errors import DataError, UsageError
from graphbox.graph.change import EdgeRows, NodeRows
from graphbox.graph.columns import check_ids, read_feature, read_ids, read_timestamp, read_weight
from graphbox.graph.ids import make_ids
from graphbox.graph.schema import EdgeSource, IdType, NodeSource
from graphbox.graph.source import SourceTable, Table, open_table

__all__ = ["read_edge_rows", "read_node_rows"]

_BATCH_BYTES = 1 << 26


@dataclass(frozen=True)
class _WholeTable(SourceTable):
    """A table read to its end."""

    source: Table

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell for a message."""
        return self.source.where(row, column)


def read_node_rows(nodes: NodeSource, id_type: IdType | None, where: str) -> NodeRows:
    """Return the rows of a node table.

    Args:
        nodes: the table.
        id_type: what the ids are; None: told from the table.
        where: what the table is for, for messages.

    Raises:
        DataError: the table is malformed or empty, a column missing or of the wrong type, or an id missing
            or there twice.
    """
    table = _whole(open_of(nodes, where), [nodes.id, *nodes.features])
    ids = read_ids(table, nodes.id, id_type or nodes.id_type)
    check_ids(table, nodes.id, ids)
    make_ids(ids, f"{table.path}, column `{nodes.id}`", lambda row: table.where(row, nodes.id))
    return NodeRows(ids, {name: read_feature(table, name, kind) for name, kind in nodes.features.items()})


def read_edge_rows(edges: EdgeSource, id_types: Sequence[IdType | None], where: str) -> EdgeRows:
    """Return the rows of an edge table.

    Args:
        edges: the table.
        id_types: what the ids of the source and the target type are; None: told from the table.
        where: what the table is for, for messages.

    Raises:
        DataError: the table is malformed, or a column missing or of the wrong type.
    """
    optional = [column for column in (edges.weight, edges.timestamp) if column is not None]
    table = _whole(open_of(edges, where), [edges.source, edges.target, *optional, *edges.features])
    return EdgeRows(
        read_ids(table, edges.source, id_types[0]),
        read_ids(table, edges.target, id_types[1]),
        None if edges.weight is None else read_weight(table, edges.weight),
        None if edges.timestamp is None else read_timestamp(table, edges.timestamp),
        {name: read_feature(table, name, kind) for name, kind in edges.features.items()},
    )


def open_of(source: NodeSource | EdgeSource, where: str) -> Table:
    """Open the table of a source; what it is for is named in messages."""
    if source.data is None:
        raise UsageError("expected a table, received none", where=where)
    return open_table(
        source.data, format=source.format, has_header=source.has_header, names=source.names, where=where
    )


def _whole(table: Table, columns: Sequence[str]) -> _WholeTable:
    batches = []
    for batch in table.batches(columns, batch_bytes=_BATCH_BYTES):
        for malformed in batch.malformed:
            raise DataError(
                f"expected a row of the table, received a line with another problem: {malformed.kind}",
                where=malformed.place,
                hint=f"correct the line: {malformed.text}",
            )
        batches.append(pa.table(dict(batch.columns)))
    return _WholeTable(Path(table.name), table.is_text, pa.concat_tables(batches), table)
