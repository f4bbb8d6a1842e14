"""A quick look at the tables of a graph: how many rows, nodes and edges, and how wide, from a part of them.

Row counts are exact where files say them (Parquet) or the part is the whole. Of plain text, lines are counted
in blocks spread over the file; of compressed text the part at the beginning is taken for the rest.

Distinct ids and edges are counted in all rows where these can be read in a moment, else estimated from blocks
of rows all over the tables, or where a table cannot be read from its middle on from its beginning
(`graphbox.graph.survey_ends`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphbox.graph.columns import Lists
from graphbox.graph.convert.features import feature_reader
from graphbox.graph.convert.text import SLOT_SEPARATOR
from graphbox.graph.distinct import Estimate, from_blocks, hash_ids
from graphbox.graph.ingest.rows import open_source
from graphbox.graph.schema import (
    EdgeSource,
    EdgeType,
    FeatureKind,
    GraphSource,
    IdType,
    NodeSource,
    edge_type_text,
)
from graphbox.graph.source import Table, TableLike
from graphbox.graph.source.location import InputFile, find_files
from graphbox.graph.source.text_file import TEXT_COMPRESSIONS
from graphbox.graph.survey_ends import (
    BLOCK_BYTES,
    SCAN_BYTES,
    Counted,
    EdgeEnds,
    EndCounts,
    Looked,
    count_ends,
)

__all__ = ["EdgeSurvey", "Estimate", "GraphSurvey", "NodeSurvey", "survey_graph"]

SAMPLE_ROWS = 1_000_000
"""Rows of each table that are looked at."""
_BATCH_BYTES = 4 << 20
_BLOCKS = 24
_BLOCK_BYTES = 256 << 10
_TEXT_SUFFIXES = (".csv", ".tsv", ".inter", ".item", ".user", ".kg", ".link", ".net")
_COMPRESSED_UNCERTAINTY = 0.1


@dataclass(frozen=True)
class TableSurvey:
    """A part of a table, and how much there is of it.

    Attributes:
        rows: rows of the whole table.
        input_bytes: size of its files; None when unknown.
        sample: the first rows of the wanted columns.
        seconds_per_row: time of reading one row, measured on the part.
        row_bytes: bytes of memory that a row of the wanted columns takes while it is read.
        batch_bytes: the same of the largest batch that was read.
        is_whole: whether the sample is all of it.
        is_text: whether all columns are text, in which plain integers are integers.
    """

    rows: Estimate
    input_bytes: int | None
    sample: pa.Table
    seconds_per_row: float
    row_bytes: float
    batch_bytes: int
    is_whole: bool
    is_text: bool


@dataclass(frozen=True)
class NodeSurvey:
    """A node type.

    Attributes:
        nodes: number of nodes.
        id_kind: what the ids are.
        id_bytes: mean bytes of an id's text; 0 of integers.
        feature_bytes: bytes that the features of a node take on disk.
        fixed_bytes: bytes that they take apart from the number of nodes (categories).
        table: its table; None without one.
        values: how many different categories or slots there are, about, by feature.
        looked: where the rows were read that the number is from.
    """

    nodes: Estimate
    id_kind: IdType
    id_bytes: float
    feature_bytes: float
    fixed_bytes: int
    table: TableSurvey | None
    looked: Looked = "everywhere"
    values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeSurvey:
    """An edge type.

    Attributes:
        edges: number of edges that are kept, repeated ones dropped unless they are wanted.
        payload_bytes: bytes of weight, timestamp and features of an edge.
        table: its table.
        hub_share: the share of them that lead to the target with most of them.
        looked: where the rows were read that the number is from.
        vector_dims: length of the vectors of each feature that has them.
    """

    edges: Estimate
    payload_bytes: float
    table: TableSurvey
    hub_share: float
    looked: Looked = "everywhere"
    vector_dims: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphSurvey:
    """All types of a graph; see `survey_graph`."""

    nodes: Mapping[str, NodeSurvey]
    edges: Mapping[EdgeType, EdgeSurvey]


def survey_graph(
    source: GraphSource,
    *,
    batch_bytes: int = _BATCH_BYTES,
    sample_rows: int = SAMPLE_ROWS,
    scan_bytes: int = SCAN_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> GraphSurvey:
    """Look at the tables of a graph.

    Args:
        source: the graph.
        batch_bytes: size of the batches that an import would read.
        sample_rows: rows at the beginning of each table to look at closely.
        scan_bytes: bytes of all tables up to which nodes and edges are counted in all rows.
        block_bytes: bytes of each block where they are estimated from blocks.

    Raises:
        NotFoundError: a file is missing.
        UsageError: a format is unknown.
        DataError: a table is damaged, or lacks a column.
    """
    node_tables = {}
    for name, nodes in source.nodes.items():
        if nodes.data is not None:
            table = open_source(nodes, f"nodes `{name}`", node_type=name)
            node_tables[name] = _look(nodes, table, _columns(nodes), sample_rows, batch_bytes=batch_bytes)
    edge_tables, opened = {}, {}
    for edges in source.edges:
        optional = [column for column in (edges.weight, edges.timestamp) if column is not None]
        columns = [edges.source, edges.target, *optional, *edges.features]
        opened[edges.type] = open_source(edges, f"edges {edge_type_text(edges.type)}")
        edge_tables[edges.type] = _look(
            edges, opened[edges.type], columns, sample_rows, batch_bytes=batch_bytes
        )
    kinds = {
        name: _discovered_kind(name, nodes, source.edges, edge_tables)
        for name, nodes in source.nodes.items()
        if name not in node_tables
    }
    counts = count_ends(
        _countable(source, opened, edge_tables), scan_bytes=scan_bytes, block_bytes=block_bytes
    )
    for edge_type, rows in counts.rows.items():
        edge_tables[edge_type] = replace(edge_tables[edge_type], rows=Estimate.exactly(rows))
    return GraphSurvey(
        nodes={
            name: _with_table(nodes, node_tables[name])
            if name in node_tables
            else _discovered(kinds[name], counts.nodes.get(name))
            for name, nodes in source.nodes.items()
        },
        edges={edges.type: _edges(edges, edge_tables[edges.type], counts) for edges in source.edges},
    )


def _countable(
    source: GraphSource, opened: Mapping[EdgeType, Table], looked: Mapping[EdgeType, TableSurvey]
) -> list[EdgeEnds]:
    """Return the tables of edges whose ends or pairs are to be counted: those that have rows."""
    with_rows = [each for each in source.edges if looked[each.type].sample.num_rows]
    as_text = {
        name: not all(
            pa.types.is_integer(looked[each.type].sample.column(column).type)
            for each in with_rows
            for column, end in ((each.source, each.type[0]), (each.target, each.type[2]))
            if end == name
        )
        for name in source.nodes
    }
    return [
        EdgeEnds(
            type=each.type,
            table=opened[each.type],
            columns=(each.source, each.target),
            as_text=(as_text[each.type[0]], as_text[each.type[2]]),
            rows=looked[each.type].rows,
            beginning=looked[each.type].sample.select(list(dict.fromkeys((each.source, each.target)))),
            is_whole=looked[each.type].is_whole,
            compressed=_is_compressed(_files(each.data)),
        )
        for each in with_rows
        # Nothing is left to count where nodes have tables and every edge is kept.
        if not each.keep_duplicates or any(source.nodes[end].data is None for end in each.type[::2])
    ]


# Tables


def _look(
    source: NodeSource | EdgeSource,
    table: Table,
    columns: Sequence[str],
    sample_rows: int,
    *,
    batch_bytes: int,
) -> TableSurvey:
    parts: list[Mapping[str, pa.Array]] = []
    rows = read_bytes = largest = 0
    finished = True
    started = time.perf_counter()
    batches = table.batches(columns, batch_bytes=batch_bytes)
    for batch in batches:
        if batch.num_rows:
            parts.append(batch.columns)
            largest = max(largest, sum(column.nbytes for column in batch.columns.values()))
        rows, read_bytes = rows + batch.num_rows, batch.read_bytes
        if rows >= sample_rows:
            finished = False
            break
    seconds = time.perf_counter() - started
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    unique = list(dict.fromkeys(columns))
    sample = pa.table(
        {name: pa.chunked_array([part[name] for part in parts]) for name in unique} if parts else {}
    )
    count = Estimate.exactly(rows) if finished else _row_count(source, table, rows, read_bytes)
    return TableSurvey(
        rows=count,
        input_bytes=table.size_bytes,
        sample=sample,
        seconds_per_row=seconds / max(rows, 1),
        row_bytes=sample.nbytes / max(rows, 1),
        batch_bytes=largest,
        is_whole=finished,
        is_text=table.is_text,
    )


def _row_count(source: NodeSource | EdgeSource, table: Table, rows: int, read_bytes: int) -> Estimate:
    files = _files(source.data)
    if files and all(file.file_name.lower().endswith((".parquet", ".pq")) for file in files):
        return Estimate.exactly(sum(_parquet_rows(file) for file in files))
    is_plain = source.format in {"csv", "tsv", "recbole"} or all(
        file.file_name.lower().endswith(_TEXT_SUFFIXES) for file in files
    )
    if files and is_plain and not _is_compressed(files):
        return _line_count(files, headers=len(files) if source.has_header else 0)
    if table.size_bytes is None or not read_bytes:
        return Estimate(rows, rows, 2**62)
    likely = table.size_bytes * rows / read_bytes
    return Estimate(
        max(rows, int(likely * (1 - _COMPRESSED_UNCERTAINTY))),
        max(rows, int(likely)),
        int(likely * (1 + _COMPRESSED_UNCERTAINTY)),
    )


def _files(data: TableLike | None) -> tuple[InputFile, ...]:
    return find_files(data, ()) if isinstance(data, str | Path) else ()


def _is_compressed(files: Sequence[InputFile]) -> bool:
    return any(file.file_name.lower().endswith(tuple(TEXT_COMPRESSIONS)) for file in files)


def _parquet_rows(file: InputFile) -> int:
    try:
        with file.open() as opened:
            return int(pq.read_metadata(opened).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise file.unreadable(error, "a Parquet file") from error


def _line_count(files: Sequence[InputFile], headers: int) -> Estimate:
    """Return the number of lines, counted in blocks spread evenly over all bytes of the files."""
    sizes = [file.size_bytes or 0 for file in files]
    total = sum(sizes)
    ends = np.cumsum(sizes)
    densities = []
    for position in np.linspace(0, max(total - _BLOCK_BYTES, 0), _BLOCKS).astype(np.int64).tolist():
        index = int(np.searchsorted(ends, position, side="right"))
        with files[index].open() as opened:
            opened.seek(position - (int(ends[index]) - sizes[index]))
            block = opened.read(_BLOCK_BYTES)
        densities.append(block.count(b"\n") / max(len(block), 1))
    mean = float(np.mean(densities))
    error = 2 * float(np.std(densities)) / math.sqrt(_BLOCKS) + mean * 0.001
    return Estimate(
        max(0, int(total * (mean - error)) - headers),
        max(0, int(total * mean) - headers),
        int(total * (mean + error)),
    )


# Nodes


def _columns(nodes: NodeSource) -> list[str]:
    return [*([] if nodes.id is None else [nodes.id]), *nodes.features]


def _with_table(nodes: NodeSource, table: TableSurvey) -> NodeSurvey:
    ids = table.sample.column(nodes.id) if nodes.id in table.sample.column_names else _no_rows()
    kind: IdType = "int64" if nodes.id is None else nodes.id_type or _id_kind(ids, table)
    widths = [
        _width(table.sample, name, feature, nodes.list_separator) for name, feature in nodes.features.items()
    ]
    return NodeSurvey(
        nodes=table.rows,
        id_kind=kind,
        id_bytes=_text_bytes(ids) if kind == "string" else 0.0,
        feature_bytes=sum(width for width, _ in widths),
        fixed_bytes=sum(fixed for _, fixed in widths),
        table=table,
        values={
            name: _distinct_values(table, name, feature, nodes.list_separator)
            for name, feature in nodes.features.items()
            if feature in {"categorical", "slots"} and name in table.sample.column_names
        },
    )


def _discovered_kind(
    name: str, nodes: NodeSource, edges: Sequence[EdgeSource], tables: Mapping[EdgeType, TableSurvey]
) -> IdType:
    if nodes.id_type is not None:
        return nodes.id_type
    kinds = [
        _id_kind(tables[each.type].sample.column(column), tables[each.type])
        for each in edges
        for column, end in ((each.source, each.type[0]), (each.target, each.type[2]))
        if end == name and tables[each.type].sample.num_rows
    ]
    return "int64" if kinds and all(each == "int64" for each in kinds) else "string"


def _discovered(kind: IdType, counted: Counted | None) -> NodeSurvey:
    if counted is None:
        return NodeSurvey(Estimate.exactly(0), kind, 0.0, 0.0, 0, None)
    text = counted.text_bytes if kind == "string" else 0.0
    return NodeSurvey(counted.distinct, kind, text, 0.0, 0, None, counted.looked)


def _id_kind(ids: pa.ChunkedArray, table: TableSurvey) -> IdType:
    if pa.types.is_integer(ids.type):
        return "int64"
    if not table.is_text:
        return "string"
    plain = pc.match_substring_regex(ids.drop_null(), r"^(?:0|-?[1-9][0-9]{0,18})$")
    return "int64" if pc.all(plain).as_py() else "string"


def _text_bytes(ids: pa.ChunkedArray) -> float:
    texts = ids if pa.types.is_large_string(ids.type) else ids.cast(pa.large_string())
    return float(pc.mean(pc.binary_length(texts)).as_py() or 0.0)


def _no_rows() -> pa.ChunkedArray:
    return pa.chunked_array([], pa.large_string())


# Features and edges


def _width(sample: pa.Table, column: str, kind: FeatureKind, list_separator: str | None) -> tuple[float, int]:
    """Return the bytes of a feature for each row, and those that do not grow with the rows."""
    if column not in sample.column_names:
        return 0.0, 0
    values = sample.column(column)
    if kind == "categorical":
        categories = pc.unique(values).drop_null().cast(pa.large_string())
        return 4.0, int(pc.sum(pc.binary_length(categories)).as_py() or 0) + 8 * (len(categories) + 1)
    if kind == "vector":
        return 4.0 * _vector_dim(values, list_separator), 0
    if kind == "slots":
        in_all = float(pc.sum(_lengths(values, list_separator)).as_py() or 0)
        return 8.0 + 8.0 * in_all / max(len(values), 1), 8
    widths: dict[str, float] = {"number": 4.0, "integer": 8.0, "boolean": 1.0}
    return widths[kind], 0


def _vector_dim(values: pa.ChunkedArray, list_separator: str | None) -> int:
    """Return the length of the vectors of a column."""
    return int(pc.max(_lengths(values, list_separator)).as_py() or 0)


def _lengths(values: pa.ChunkedArray, list_separator: str | None) -> pa.ChunkedArray:
    """Return how many values each cell of lists has; cells of text have separators between them."""
    cells = values.drop_null()
    if pa.types.is_nested(cells.type):
        return pc.list_value_length(cells)
    texts = cells.cast(pa.large_string())
    texts = texts.filter(pc.not_equal(texts, ""))
    return pc.add(pc.count_substring(texts, list_separator or SLOT_SEPARATOR), 1)


def _distinct_values(table: TableSurvey, column: str, kind: FeatureKind, list_separator: str | None) -> int:
    """Return how many different categories, or slots of all lists, a column has in the whole table, about."""
    sample = table.sample.column(column)
    if not len(sample):
        return 0
    size = -(-len(sample) // _BLOCKS)
    blocks = []
    for start in range(0, len(sample), size):
        part = pa.concat_arrays(sample.slice(start, size).chunks)
        if kind == "slots":
            reader = feature_reader(
                kind,
                is_text=table.is_text,
                place=column,
                memory_bytes=_BATCH_BYTES,
                list_separator=list_separator,
            )
            lists = reader.read(part).values
            blocks.append(lists.values.view(np.uint64) if isinstance(lists, Lists) else lists)
        else:
            blocks.append(hash_ids(part.drop_null(), as_text=True))
    return from_blocks(blocks, min(1.0, len(sample) / max(table.rows.likely, 1))).likely


def _edges(edges: EdgeSource, table: TableSurvey, counts: EndCounts) -> EdgeSurvey:
    payload = (4.0 if edges.weight is not None else 0.0) + (8.0 if edges.timestamp is not None else 0.0)
    payload += sum(
        _width(table.sample, name, kind, edges.list_separator)[0] for name, kind in edges.features.items()
    )
    dims = {
        name: _vector_dim(table.sample.column(name), edges.list_separator)
        for name, kind in edges.features.items()
        if kind == "vector" and name in table.sample.column_names
    }
    hub_rows = 0
    if table.sample.num_rows:
        hub_rows = pc.max(table.sample.column(edges.target).value_counts().field("counts")).as_py()
    hub_share = hub_rows / max(table.sample.num_rows, 1)
    if edges.keep_duplicates or edges.type not in counts.pairs:
        return EdgeSurvey(table.rows, payload, table, hub_share, vector_dims=dims)
    counted = counts.pairs[edges.type]
    return EdgeSurvey(counted.distinct.at_most(table.rows), payload, table, hub_share, counted.looked, dims)
