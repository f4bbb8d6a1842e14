"""A quick look at the tables of a graph: how many rows, nodes and edges, and how wide, from a part of them.

Row counts are exact where files say them (Parquet) or the part is the whole. Of plain text, lines are counted
in blocks spread over the file; of compressed text the part at the beginning is taken for the rest.

Distinct ids and edges are counted exactly within the part, which is the first rows of every table, at an
eighth, a quarter, a half and all of it; how the growth slows down from one to the next gives the number in
the whole (`extrapolate`). This holds for tables in random order as for tables sorted by one of their ends.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphbox.graph.schema import EdgeSource, EdgeType, FeatureKind, GraphSource, IdType, NodeSource
from graphbox.graph.source import Table, TableLike, open_table
from graphbox.graph.source.location import InputFile, find_files

__all__ = ["EdgeSurvey", "Estimate", "GraphSurvey", "NodeSurvey", "extrapolate", "survey_graph"]

SAMPLE_ROWS = 1_000_000
"""Rows of each table that are looked at."""
_BATCH_BYTES = 4 << 20
_BLOCKS = 24
_BLOCK_BYTES = 256 << 10
_TEXT_SUFFIXES = (".csv", ".tsv", ".inter", ".item", ".user", ".kg", ".link", ".net")
_COMPRESSED_UNCERTAINTY = 0.1
_PARTS = (0.125, 0.25, 0.5, 1.0)
_SMALLEST_RATIO = 0.01
_DOUBT_PER_DOUBLING = 0.02


@dataclass(frozen=True)
class Estimate:
    """A number that may be known only about: at least ``low``, at most ``high``, probably ``likely``."""

    low: int
    likely: int
    high: int

    @classmethod
    def exactly(cls, number: int) -> Estimate:
        """Return a number that is known."""
        return cls(number, number, number)

    def at_most(self, other: Estimate) -> Estimate:
        """Return this estimate with no bound above the other's."""
        return Estimate(min(self.low, other.low), min(self.likely, other.likely), min(self.high, other.high))

    @property
    def exact(self) -> bool:
        """Whether the number is known."""
        return self.low == self.high


@dataclass(frozen=True)
class TableSurvey:
    """A part of a table, and how much there is of it.

    Attributes:
        rows: rows of the whole table.
        input_bytes: size of its files; None when unknown.
        sample: the first rows of the wanted columns.
        seconds_per_row: time of reading one row, measured on the part.
        row_bytes: bytes of memory that a row of the wanted columns takes while it is read.
        is_text: whether all columns are text, in which plain integers are integers.
    """

    rows: Estimate
    input_bytes: int | None
    sample: pa.Table
    seconds_per_row: float
    row_bytes: float
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
    """

    nodes: Estimate
    id_kind: IdType
    id_bytes: float
    feature_bytes: float
    fixed_bytes: int
    table: TableSurvey | None


@dataclass(frozen=True)
class EdgeSurvey:
    """An edge type.

    Attributes:
        edges: number of edges that are kept, repeated ones dropped unless they are wanted.
        payload_bytes: bytes of weight, timestamp and features of an edge.
        table: its table.
    """

    edges: Estimate
    payload_bytes: float
    table: TableSurvey


@dataclass(frozen=True)
class GraphSurvey:
    """All types of a graph; see `survey_graph`."""

    nodes: Mapping[str, NodeSurvey]
    edges: Mapping[EdgeType, EdgeSurvey]


def survey_graph(source: GraphSource, *, sample_rows: int = SAMPLE_ROWS) -> GraphSurvey:
    """Look at the tables of a graph.

    Args:
        source: the graph.
        sample_rows: rows of each table to look at.

    Raises:
        NotFoundError: a file is missing.
        UsageError: a format is unknown.
        DataError: a table is damaged, or lacks a column.
    """
    node_tables = {
        name: _look(nodes, [nodes.id, *nodes.features], sample_rows, node_type=name)
        for name, nodes in source.nodes.items()
        if nodes.data is not None
    }
    edge_tables = {}
    for edges in source.edges:
        optional = [column for column in (edges.weight, edges.timestamp) if column is not None]
        columns = [edges.source, edges.target, *optional, *edges.features]
        edge_tables[edges.type] = _look(edges, columns, sample_rows)
    return GraphSurvey(
        nodes={
            name: _with_table(nodes, node_tables[name])
            if name in node_tables
            else _discovered(name, nodes, source.edges, edge_tables)
            for name, nodes in source.nodes.items()
        },
        edges={edges.type: _edges(edges, edge_tables[edges.type]) for edges in source.edges},
    )


def extrapolate(counts: Sequence[int], factor: float) -> Estimate:
    """Return how many distinct values there are in ``factor`` times as many rows.

    With each doubling of the rows the number of distinct values grows by a factor of 2^b. When values are
    drawn alike from a bounded set, b falls by a ratio that about squares with each doubling; when their
    frequencies follow a power law, b falls by about the same ratio each time, if at all (Heaps' law). The two
    frame the estimate; between them the power to which the ratio was raised within the part decides.

    Args:
        counts: distinct values in an eighth, a quarter, a half and all of the part.
        factor: rows of the whole by rows of the part.
    """
    whole = counts[-1]
    if factor <= 1 or counts[0] <= 0:
        return Estimate.exactly(whole)
    exponents = [math.log2(after / before) for before, after in itertools.pairwise(counts)]
    # How far chance moves an exponent, by the number of new values it comes from.
    noise = [1 / max(after - before, 1) for before, after in itertools.pairwise(counts)]
    ratios = []
    for position, (before, after) in enumerate(itertools.pairwise(exponents)):
        ratio = min(max(after / before, _SMALLEST_RATIO), 1.0) if before > 0 else _SMALLEST_RATIO
        chance = 2 * math.sqrt(noise[position] + noise[position + 1])
        ratios.append(1.0 if 1 - ratio < chance else ratio)
    power = 1.0
    if ratios[0] < 1 and ratios[1] < 1:
        power = min(max(math.log(ratios[1]) / math.log(ratios[0]), 1.0), 2.0)
    doublings = math.log2(factor)

    def grown(power: float) -> float:
        exponent, ratio, left, total = exponents[-1], ratios[-1], doublings, 0.0
        while left > 0:
            ratio = ratio**power
            exponent *= ratio
            total += exponent * min(1.0, left)
            left -= 1
        return float(whole * 2.0**total)

    likely = grown(power)
    # Beyond what the two laws leave open, each doubling adds a little doubt; and where later rows are about
    # other things than the first ones, as in a sorted table, growth may not slow down at all.
    doubt = 1 + _DOUBT_PER_DOUBLING * doublings
    unslowed = whole * 2.0 ** (exponents[-1] * doublings)
    return Estimate(
        max(whole, int(min(grown(2.0), likely / doubt))),
        int(likely),
        math.ceil(max(unslowed, likely * doubt)),
    )


# Tables


def _look(
    source: NodeSource | EdgeSource, columns: Sequence[str], sample_rows: int, node_type: str | None = None
) -> TableSurvey:
    data = source.data if source.data is not None else {}
    table = open_table(
        data,
        format=source.format,
        has_header=source.has_header,
        names=source.names,
        node_type=node_type,
    )
    parts: list[Mapping[str, pa.Array]] = []
    rows = read_bytes = 0
    finished = True
    started = time.perf_counter()
    batches = table.batches(columns, batch_bytes=_BATCH_BYTES)
    for batch in batches:
        if batch.num_rows:
            parts.append(batch.columns)
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
        is_text=table.is_text,
    )


def _row_count(source: NodeSource | EdgeSource, table: Table, rows: int, read_bytes: int) -> Estimate:
    files = _files(source.data)
    if files and all(file.file_name.lower().endswith((".parquet", ".pq")) for file in files):
        return Estimate.exactly(sum(_parquet_rows(file) for file in files))
    is_plain = source.format in {"csv", "tsv", "recbole"} or all(
        file.file_name.lower().endswith(_TEXT_SUFFIXES) for file in files
    )
    compressed = any(file.file_name.lower().endswith((".gz", ".zst", ".zstd")) for file in files)
    if files and is_plain and not compressed:
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


def _with_table(nodes: NodeSource, table: TableSurvey) -> NodeSurvey:
    ids = table.sample.column(nodes.id) if nodes.id in table.sample.column_names else _no_rows()
    kind = nodes.id_type or _id_kind(ids, table)
    widths = [_width(table.sample, name, feature) for name, feature in nodes.features.items()]
    return NodeSurvey(
        nodes=table.rows,
        id_kind=kind,
        id_bytes=_text_bytes(ids) if kind == "string" else 0.0,
        feature_bytes=sum(width for width, _ in widths),
        fixed_bytes=sum(fixed for _, fixed in widths),
        table=table,
    )


def _discovered(
    name: str, nodes: NodeSource, edges: Sequence[EdgeSource], tables: Mapping[EdgeType, TableSurvey]
) -> NodeSurvey:
    ends = [
        (tables[each.type], column)
        for each in edges
        for column, end in ((each.source, each.type[0]), (each.target, each.type[2]))
        if end == name and tables[each.type].sample.num_rows
    ]
    if not ends:
        return NodeSurvey(Estimate.exactly(0), nodes.id_type or "string", 0.0, 0.0, 0, None)
    kinds = [_id_kind(table.sample.column(column), table) for table, column in ends]
    kind = nodes.id_type or ("int64" if all(each == "int64" for each in kinds) else "string")
    # The same share of every table, so that the parts are parts of the whole.
    share = min(1.0, *(table.sample.num_rows / max(table.rows.likely, 1) for table, _ in ends))
    counts, values = [], _no_rows().combine_chunks()
    for part in _PARTS:
        columns = [
            table.sample.column(column).slice(0, round(share * part * table.rows.likely))
            for table, column in ends
        ]
        chunks = [chunk.cast(pa.large_string()) for column in columns for chunk in column.chunks]
        if kind == "int64" and all(pa.types.is_integer(c.type) for column in columns for c in column.chunks):
            chunks = [chunk.cast(pa.int64()) for column in columns for chunk in column.chunks]
        values = pc.unique(
            pa.chunked_array(chunks, chunks[0].type if chunks else pa.large_string())
        ).drop_null()
        counts.append(len(values))
    return NodeSurvey(
        nodes=extrapolate(counts, 1 / share),
        id_kind=kind,
        id_bytes=_text_bytes(pa.chunked_array([values])) if kind == "string" else 0.0,
        feature_bytes=0.0,
        fixed_bytes=0,
        table=None,
    )


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


def _width(sample: pa.Table, column: str, kind: FeatureKind) -> tuple[float, int]:
    """Return the bytes of a feature for each row, and those that do not grow with the rows."""
    if column not in sample.column_names:
        return 0.0, 0
    values = sample.column(column)
    if kind == "categorical":
        categories = pc.unique(values).drop_null().cast(pa.large_string())
        return 4.0, int(pc.sum(pc.binary_length(categories)).as_py() or 0) + 8 * (len(categories) + 1)
    if kind == "vector":
        lengths = pc.list_value_length(values.drop_null()) if pa.types.is_nested(values.type) else None
        return 4.0 * float(pc.max(lengths).as_py() or 0 if lengths is not None else 0), 0
    if kind == "slots":
        if pa.types.is_nested(values.type):
            return 8.0 + 8.0 * float(pc.mean(pc.list_value_length(values)).as_py() or 0), 8
        return 16.0, 8
    widths: dict[str, float] = {"number": 4.0, "integer": 8.0, "boolean": 1.0}
    return widths[kind], 0


def _edges(edges: EdgeSource, table: TableSurvey) -> EdgeSurvey:
    payload = (4.0 if edges.weight is not None else 0.0) + (8.0 if edges.timestamp is not None else 0.0)
    payload += sum(_width(table.sample, name, kind)[0] for name, kind in edges.features.items())
    kept = table.rows
    if not edges.keep_duplicates and table.sample.num_rows:
        counts = _distinct_pairs(table.sample, edges)
        kept = extrapolate(counts, table.rows.likely / table.sample.num_rows)
        kept = Estimate(
            min(kept.low, table.rows.low),
            min(kept.likely, table.rows.likely),
            min(kept.high, table.rows.high),
        )
    return EdgeSurvey(kept, payload, table)


def _distinct_pairs(sample: pa.Table, edges: EdgeSource) -> list[int]:
    source, target = (
        pc.dictionary_encode(sample.column(column).combine_chunks()).indices
        for column in (edges.source, edges.target)
    )
    present = pc.and_(source.is_valid(), target.is_valid())
    keys = source.filter(present).to_numpy().astype(np.uint64) << np.uint64(32)
    keys |= target.filter(present).to_numpy().astype(np.uint64)
    return [len(np.unique(keys[: round(part * len(keys))])) for part in _PARTS]
