"""Reading the tables that a change is given: whole, since a change takes memory in proportion to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from graphbox.errors import DataError
from graphbox.graph.change import EdgeRows, NodeRows
from graphbox.graph.columns import Column, FeatureValues
from graphbox.graph.convert import FeatureReader
from graphbox.graph.ids import make_ids
from graphbox.graph.ingest.rows import EdgeReader, IdKinds, IdsAreStringsError, NodeReader, open_source
from graphbox.graph.ingest.skipped import SkippedRows
from graphbox.graph.schema import EdgeSource, IdType, NodeSource

_BATCH_BYTES = 1 << 26
_CATEGORIES_BYTES = 1 << 40


def read_node_rows(
    node_type: str,
    nodes: NodeSource,
    id_type: IdType | None,
    where: str,
    skipped: SkippedRows,
    *,
    first_id: int = 0,
) -> NodeRows:
    """Return the usable rows of a node table.

    Args:
        node_type: the node type.
        nodes: the table.
        id_type: what the ids are; None: told from the table.
        where: what the table is for, for messages.
        skipped: counts the rows that cannot be used.
        first_id: number of the first row, where rows have no ids.

    Raises:
        DataError: the table is damaged or empty, a column missing or of the wrong type, an id there twice, or
            ``skipped`` refuses a row.
    """
    kinds = IdKinds({} if (known := id_type or nodes.id_type) is None else {where: known})
    table = open_source(nodes, where, node_type=node_type)
    reader = NodeReader(
        where, nodes, table, kinds, skipped, memory_bytes=_CATEGORIES_BYTES, first_id=first_id
    )
    try:
        batches = [batch for batch in reader.batches(batch_bytes=_BATCH_BYTES) if len(batch)]
    except IdsAreStringsError:
        return read_node_rows(node_type, nodes, "string", where, skipped)
    column = nodes.id
    place = reader.table.name if column is None else f"{reader.table.name}, column `{column}`"
    if not batches:
        skipped.refuse_all(reader.rows, "nodes")
        raise DataError("expected at least one node, received none", where=place)
    ids = pa.concat_arrays([batch.ids for batch in batches])
    rows = np.concatenate([batch.table_rows() for batch in batches])
    if column is not None:
        make_ids(ids, place, lambda row: reader.table.where(int(rows[row]), column))
    columns = _columns(reader.features, [batch.features for batch in batches])
    return NodeRows(ids, columns, reader.empty_values)


def read_edge_rows(
    edges: EdgeSource, id_types: Sequence[IdType | None], where: str, skipped: SkippedRows
) -> EdgeRows:
    """Return the usable rows of an edge table.

    Args:
        edges: the table.
        id_types: what the ids of the source and the target type are; None: told from the table.
        where: what the table is for, for messages.
        skipped: counts the rows that cannot be used.

    Raises:
        DataError: the table is damaged, a column missing or of the wrong type, or ``skipped`` refuses a row.
    """
    ends = (edges.type[0], edges.type[2])
    kinds = IdKinds({end: known for end, known in zip(ends, id_types, strict=True) if known is not None})
    reader = EdgeReader(edges, open_source(edges, where), kinds, skipped, memory_bytes=_CATEGORIES_BYTES)
    try:
        batches = [batch for batch in reader.batches(batch_bytes=_BATCH_BYTES) if len(batch)]
    except IdsAreStringsError as found:
        known = [
            "string" if end == found.node_type else kind for end, kind in zip(ends, id_types, strict=True)
        ]
        return read_edge_rows(edges, known, where, skipped)
    columns = {
        name: np.concatenate([np.zeros((0, *shape), dtype), *(batch.columns[name] for batch in batches)])
        for name, (dtype, shape) in reader.columns.items()
    }
    features = [
        {name: batch.columns[f"feature-{number}"] for number, name in enumerate(reader.features)}
        for batch in batches
    ]
    ids = [
        pa.concat_arrays([pa.array([], kinds.arrow_type(end)), *parts])
        for end, parts in zip(
            ends, ([each.sources for each in batches], [each.targets for each in batches]), strict=True
        )
    ]
    return EdgeRows(
        ids[0], ids[1], columns.get("weight"), columns.get("timestamp"), _columns(reader.features, features)
    )


def _columns(
    readers: Mapping[str, FeatureReader], batches: Sequence[Mapping[str, FeatureValues]]
) -> dict[str, Column]:
    return {name: reader.column([batch[name] for batch in batches]) for name, reader in readers.items()}
