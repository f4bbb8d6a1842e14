"""Tables of nodes and edges as streams of usable rows: ids, features and columns, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import UsageError
from graphbox.graph.columns import FeatureValues, Lists
from graphbox.graph.convert import (
    CategoricalReader,
    Converted,
    FeatureReader,
    TimestampReader,
    check_list_separator,
    feature_reader,
    plain_integers,
    read_ids,
    read_weight,
)
from graphbox.graph.ingest.demand import categorical_columns
from graphbox.graph.ingest.skipped import Problem, SkippedRows
from graphbox.graph.schema import EdgeSource, IdType, Int64Array, NodeSource
from graphbox.graph.source import Batch, Table, open_table

_SHOWN_CHARACTERS = 120


class IdsAreStringsError(Exception):
    """Ids taken for integers so far are strings: the import begins again with that known."""

    def __init__(self, node_type: str, place: str) -> None:
        super().__init__(node_type)
        self.node_type = node_type
        self.place = place


class IdKinds:
    """Id types of the node types, as far as they are known.

    Ids in text without a given type are integers when all of them are plain decimal ones. They are assumed to
    be until one is not; then all rows read so far were read wrongly.

    Args:
        given: types known before reading, by node type.
    """

    def __init__(self, given: Mapping[str, IdType]) -> None:
        self._known: dict[str, IdType] = dict(given)
        self._assumed: set[str] = set()

    def __getitem__(self, node_type: str) -> IdType:
        return self._known[node_type]

    def __contains__(self, node_type: str) -> bool:
        return node_type in self._known

    def number(self, node_type: str) -> None:
        """Say that the rows of a node type have no ids and are numbered."""
        self._known[node_type] = "int64"

    def arrow_type(self, node_type: str) -> pa.DataType:
        """Return the Arrow type of the ids of a node type; int64 as long as none was seen."""
        return pa.large_string() if self._known.get(node_type) == "string" else pa.int64()

    def settle(self, node_type: str) -> None:
        """Say that all ids of a node type are there: those at ends of edges change nothing any more."""
        self._assumed.discard(node_type)

    def look_at(self, node_type: str, values: pa.Array, *, is_text: bool, place: Callable[[], str]) -> IdType:
        """Return what the ids of a node type are, after a look at some more of them.

        Raises:
            IdsAreStringsError: they were taken for integers, which these are not.
        """
        if node_type not in self._known:
            if is_text and plain_integers(values):
                self._assumed.add(node_type)
                self._known[node_type] = "int64"
            else:
                self._known[node_type] = "int64" if pa.types.is_integer(values.type) else "string"
        elif is_text and node_type in self._assumed and not plain_integers(values):
            raise IdsAreStringsError(node_type, place())
        return self._known[node_type]


def _shown(value: Any) -> str:
    """Return a cell's value for a message."""
    return "an empty cell" if value is None else repr(value)[:_SHOWN_CHARACTERS]


@dataclass(frozen=True, eq=False)
class _Rows(ABC):
    """Where usable rows stand in their table.

    Attributes:
        first_row: position in the table of the first row of the batch.
        kept: positions in the batch of the usable rows, or None when all are.
        read_bytes: bytes of input consumed so far.
    """

    first_row: int
    kept: Int64Array | None
    read_bytes: int

    def table_row(self, position: int) -> int:
        """Return the position in the table of the usable row number ``position``."""
        return self.first_row + (position if self.kept is None else int(self.kept[position]))

    @abstractmethod
    def __len__(self) -> int: ...

    def table_rows(self) -> Int64Array:
        """Return the positions in the table of all usable rows."""
        return self.first_row + (np.arange(len(self)) if self.kept is None else self.kept)


@dataclass(frozen=True, eq=False)
class NodeRows(_Rows):
    """Some consecutive usable rows of a node table.

    Attributes:
        ids: large_string or int64, without nulls.
        features: the values of each feature by name.
    """

    ids: pa.Array
    features: Mapping[str, FeatureValues]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class EdgeRows(_Rows):
    """Some consecutive usable rows of an edge table.

    Attributes:
        sources: ids of the sources, large_string or int64, without nulls.
        targets: ids of the targets.
        columns: what else an edge has, by array: ``weight``, ``timestamp``, ``feature-0``, ...
    """

    sources: pa.Array
    targets: pa.Array
    columns: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.sources)


def open_source(
    source: NodeSource | EdgeSource, what: str, threads: int | None = None, *, node_type: str | None = None
) -> Table:
    """Open the table of nodes or edges.

    Args:
        source: the source; its ``data`` is not None.
        what: names the table in messages if it is no file.
        threads: threads that parse.
        node_type: the node type the table is for; None: it is one of edges.

    Raises:
        NotFoundError, UsageError, DataError, BackendMissingError: see
            :func:`~graphbox.graph.source.open_table`.
    """
    if source.data is None:
        raise UsageError("expected a table, received none", where=what)
    table = open_table(
        source.data,
        format=source.format,
        has_header=source.has_header,
        names=source.names,
        node_type=node_type,
        where=what,
        threads=threads,
    )
    if source.list_separator is not None:
        check_list_separator(source.list_separator, table.column_separator, table.name)
    return table


class _Reader:
    """Base class of the readers of node and edge tables."""

    def __init__(self, table: Table, skipped: SkippedRows) -> None:
        self.table = table
        self.skipped = skipped
        self.rows = 0
        """Rows read, usable or not, malformed lines among them."""

    def _place(self, column: str) -> str:
        return f"{self.table.name}, column `{column}`"

    def _readers(self, source: NodeSource | EdgeSource, memory_bytes: int) -> dict[str, FeatureReader]:
        features = source.features
        return {
            name: feature_reader(
                kind,
                is_text=self.table.is_text,
                place=self._place(name),
                memory_bytes=memory_bytes // max(categorical_columns(features), 1),
                list_separator=source.list_separator,
            )
            for name, kind in features.items()
        }

    def _batches(self, columns: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
        for batch in self.table.batches(columns, batch_bytes=batch_bytes):
            self.skipped.add_malformed(batch)
            self.rows += batch.num_rows + sum(batch.malformed_counts.values())
            yield batch

    def _kept(self, batch: Batch, converted: Sequence[tuple[str, Converted[Any]]]) -> Int64Array | None:
        """Return the positions of the usable rows, None when all are; count the others by kind.

        Args:
            batch: the rows.
            converted: columns and what they became; the first one with something wrong gives a row's kind.
        """
        if not any(each.wrong for _, each in converted):
            return None
        unusable = np.zeros(batch.num_rows, bool)
        for column, each in converted:
            for wrong in each.wrong:
                problems = _describe(self.table, batch, column, wrong.expected)
                self.skipped.add(wrong.kind, np.flatnonzero(wrong.rows & ~unusable), problems)
                unusable |= wrong.rows
        return np.flatnonzero(~unusable)


def _describe(table: Table, batch: Batch, column: str, expected: str) -> Callable[[int], Problem]:
    def problem(row: int) -> Problem:
        place = table.where(batch.first_row + row, column)
        return Problem(place, expected, _shown(batch.columns[column][row].as_py()))

    return problem


class NodeReader(_Reader):
    """Reads the table of one node type.

    Args:
        node_type: the node type.
        source: says which columns are what.
        table: the table, opened.
        kinds: what the ids of node types are.
        skipped: counts the rows that cannot be used.
        memory_bytes: what may be held between batches.
        first_id: number of the first usable row, where rows have no ids.

    Attributes:
        table: the table.
        features: the reader of each feature by name.
        rows: rows read, usable or not.
    """

    def __init__(
        self,
        node_type: str,
        source: NodeSource,
        table: Table,
        kinds: IdKinds,
        skipped: SkippedRows,
        *,
        memory_bytes: int,
        first_id: int = 0,
    ) -> None:
        super().__init__(table, skipped)
        self._node_type = node_type
        self._next_id = first_id
        self._source = source
        self._kinds = kinds
        self.features = self._readers(source, memory_bytes)
        self.empty_values: dict[str, int] = {}
        """Number of empty values left out of the lists of usable rows, by column."""

    def batches(self, *, batch_bytes: int) -> Iterator[NodeRows]:
        """Yield the usable rows in order; the last batch may have none.

        Raises:
            DataError: a column is missing or of the wrong type, or strict mode refuses a row.
            IdsAreStringsError: ids that were taken for integers are none.
        """
        column = self._source.id
        columns = [*([] if column is None else [column]), *self._source.features]
        for batch in self._batches(columns, batch_bytes):
            if not batch.num_rows:
                yield NodeRows(batch.first_row, None, batch.read_bytes, pa.nulls(0), {})
                continue
            features = {name: reader.read(batch.columns[name]) for name, reader in self.features.items()}
            if column is None:
                kept = self._kept(batch, list(features.items()))
                ids = self._numbers(batch.num_rows if kept is None else len(kept))
            else:
                read = _read_end(self, batch, column, self._node_type, self._kinds)
                kept = self._kept(batch, [(column, read), *features.items()])
                ids = _take_array(read.values, kept)
            self._count_empty_values(features, kept)
            yield NodeRows(
                batch.first_row,
                kept,
                batch.read_bytes,
                ids,
                {name: _take_values(each.values, kept) for name, each in features.items()},
            )

    def _count_empty_values(
        self, features: Mapping[str, Converted[FeatureValues]], kept: Int64Array | None
    ) -> None:
        for name, each in features.items():
            if each.left_out is None:
                continue
            count = int((each.left_out if kept is None else each.left_out[kept]).sum())
            if count:
                self.empty_values[name] = self.empty_values.get(name, 0) + count

    def _numbers(self, count: int) -> pa.Array:
        """Return the ids of the next usable rows, which have none of their own."""
        self._kinds.number(self._node_type)
        first, self._next_id = self._next_id, self._next_id + count
        return pa.array(np.arange(first, self._next_id))


class EdgeReader(_Reader):
    """Reads the table of one edge type.

    Args:
        source: says which columns are what.
        table: the table, opened.
        kinds: what the ids of node types are.
        skipped: counts the rows that cannot be used.
        memory_bytes: what may be held between batches.

    Attributes:
        table: the table.
        features: the reader of each feature by name.
        rows: rows read, usable or not.
    """

    def __init__(
        self,
        source: EdgeSource,
        table: Table,
        kinds: IdKinds,
        skipped: SkippedRows,
        *,
        memory_bytes: int,
    ) -> None:
        super().__init__(table, skipped)
        self._source = source
        self._kinds = kinds
        self._timestamps = TimestampReader(
            is_text=table.is_text, place=self._place(source.timestamp or "timestamp")
        )
        self.features = self._readers(source, memory_bytes)

    @property
    def columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of a row of each column of :class:`EdgeRows`; known once a batch has rows."""
        columns: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        if self._source.weight is not None:
            columns["weight"] = (np.dtype(np.float32), ())
        if self._source.timestamp is not None:
            columns["timestamp"] = (np.dtype(np.int64), ())
        for number, reader in enumerate(self.features.values()):
            columns[f"feature-{number}"] = (np.dtype(reader.dtype), reader.row_shape or ())
        return columns

    def recode(self) -> dict[str, npt.NDArray[np.int32]]:
        """Return the final code of each provisional one, for each column of categories that was read."""
        return {
            f"feature-{number}": reader.final()[1]
            for number, reader in enumerate(self.features.values())
            if isinstance(reader, CategoricalReader)
        }

    def batches(self, *, batch_bytes: int) -> Iterator[EdgeRows]:
        """Yield the usable rows in order; the last batch may have none.

        Raises:
            DataError: a column is missing or of the wrong type, or strict mode refuses a row.
            IdsAreStringsError: ids that were taken for integers are none.
        """
        edges = self._source
        optional = [column for column in (edges.weight, edges.timestamp) if column is not None]
        wanted = [edges.source, edges.target, *optional, *edges.features]
        for batch in self._batches(wanted, batch_bytes):
            if not batch.num_rows:
                yield EdgeRows(batch.first_row, None, batch.read_bytes, pa.nulls(0), pa.nulls(0), {})
                continue
            yield self._edge_rows(batch)

    def _edge_rows(self, batch: Batch) -> EdgeRows:
        edges = self._source
        sources = _read_end(self, batch, edges.source, edges.type[0], self._kinds)
        targets = _read_end(self, batch, edges.target, edges.type[2], self._kinds)
        checked: list[tuple[str, Converted[Any]]] = [(edges.source, sources), (edges.target, targets)]
        columns: dict[str, Converted[Any]] = {}
        text = self.table.is_text
        if edges.weight is not None:
            place = self._place(edges.weight)
            columns["weight"] = read_weight(batch.columns[edges.weight], is_text=text, place=place)
            checked.append((edges.weight, columns["weight"]))
        if edges.timestamp is not None:
            columns["timestamp"] = self._timestamps.read(batch.columns[edges.timestamp])
            checked.append((edges.timestamp, columns["timestamp"]))
        for number, (name, reader) in enumerate(self.features.items()):
            columns[f"feature-{number}"] = reader.read(batch.columns[name])
            checked.append((name, columns[f"feature-{number}"]))
        kept = self._kept(batch, checked)
        return EdgeRows(
            batch.first_row,
            kept,
            batch.read_bytes,
            _take_array(sources.values, kept),
            _take_array(targets.values, kept),
            {name: each.values if kept is None else each.values[kept] for name, each in columns.items()},
        )


def _read_end(
    reader: _Reader, batch: Batch, column: str, node_type: str, kinds: IdKinds
) -> Converted[pa.Array]:
    values = batch.columns[column]
    is_text = reader.table.is_text
    id_type = kinds.look_at(
        node_type, values, is_text=is_text, place=lambda: reader.table.where(batch.first_row, column)
    )
    return read_ids(values, id_type, is_text=is_text, place=reader._place(column))


def _take_array(values: pa.Array, kept: Int64Array | None) -> pa.Array:
    return values if kept is None else values.take(pa.array(kept))


def _take_values(values: FeatureValues, kept: Int64Array | None) -> FeatureValues:
    if kept is None:
        return values
    return values.take(kept) if isinstance(values, Lists) else values[kept]
