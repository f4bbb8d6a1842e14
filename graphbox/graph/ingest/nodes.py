"""Importing the nodes of one type: their ids are numbered, their features go to disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from graphbox.errors import DataError
from graphbox.graph.build import NodeIds
from graphbox.graph.format import FolderWriter
from graphbox.graph.ingest.budget import Shares
from graphbox.graph.ingest.features import FeatureFile, feature_file
from graphbox.graph.ingest.report import NodeTypeReport
from graphbox.graph.ingest.rows import EdgeRows, IdKinds, NodeReader, NodeRows
from graphbox.graph.ingest.skipped import SkippedRows
from graphbox.graph.schema import NodeSource
from graphbox.graph.source import Table
from graphbox.graph.source.read_ahead import read_ahead

OnRead: TypeAlias = Callable[[int], None]
"""Called with how many bytes of a table have been read."""

AHEAD = 2
"""Batches that are read and converted ahead of those that are built in."""


class NodeTypeImport:
    """The nodes of one type while they are imported.

    Args:
        node_type: the node type.
        source: says which columns are what.
        table: its table; None when the nodes are found at the ends of edges.
        kinds: what the ids of node types are.
        scratch: folder for temporary files.
        shares: tells what the ids may take.
        strict: refuse rows that cannot be used.
        threads: threads to work with.
    """

    def __init__(
        self,
        node_type: str,
        source: NodeSource,
        table: Table | None,
        kinds: IdKinds,
        *,
        scratch: Path,
        shares: Shares,
        strict: bool,
        threads: int | None,
    ) -> None:
        self.node_type = node_type
        self._source = source
        self._table = table
        self._kinds = kinds
        self._scratch = scratch
        self._shares = shares
        self._threads = threads
        self._skipped = SkippedRows(strict=strict)
        self._rows = 0
        self._empty_values: dict[str, int] = {}
        self._ids: NodeIds | None = None
        self._features: list[dict[str, Any]] = []

    @property
    def is_found(self) -> bool:
        """Whether the nodes have no table, so that they are found at the ends of edges."""
        return self._table is None

    @property
    def ids(self) -> NodeIds:
        """The ids, once it is known what they are."""
        if self._ids is None:
            self._ids = NodeIds(
                self._kinds[self.node_type],
                scratch=self._scratch,
                memory_bytes=self._shares.of_ids(self.node_type),
                threads=self._threads,
            )
        return self._ids

    def read(
        self, writer: FolderWriter, folder: str, *, batch_bytes: int, categories_bytes: int, on_read: OnRead
    ) -> None:
        """Read the table.

        Raises:
            DataError: the table is damaged, an id is there twice, no row can be used, or strict refuses one.
            IdsAreStringsError: ids that were taken for integers are none.
        """
        if self._table is None:
            return
        reader = self._reader(self._table, self._skipped, categories_bytes)
        with contextlib.ExitStack() as opened:
            files: dict[str, FeatureFile] = {}
            all_rows = opened.enter_context(
                contextlib.closing(read_ahead(reader.batches(batch_bytes=batch_bytes), AHEAD))
            )
            for rows in all_rows:
                if len(rows):
                    self.ids.add(rows.ids)
                for number, (name, values) in enumerate(rows.features.items()):
                    if name not in files:
                        file = feature_file(writer, f"{folder}/feature-{number}", reader.features[name])
                        opened.callback(file.discard)
                        files[name] = file
                    files[name].append(values)
                on_read(rows.read_bytes)
            self._check(reader, batch_bytes=batch_bytes, categories_bytes=categories_bytes)
            self._features = [
                {"name": name, "kind": reader.features[name].kind, **file.close()}
                for name, file in files.items()
            ]

    def _check(self, reader: NodeReader, *, batch_bytes: int, categories_bytes: int) -> None:
        """Check that there are nodes, each once."""
        self._rows = reader.rows
        self._empty_values = reader.empty_values
        if self._ids is None or not self.ids.num_nodes:
            self._skipped.refuse_all(self._rows, "nodes")
            raise DataError(
                "expected at least one node, received none",
                where=reader.table.name
                + ("" if self._source.id is None else f", column `{self._source.id}`"),
            )
        self.close()
        self._shares.settle(self.node_type, self.ids.held_bytes)
        self._kinds.settle(self.node_type)
        if self.ids.first_repeated is not None:
            raise self._repeated(
                reader,
                *self.ids.first_repeated,
                batch_bytes=batch_bytes,
                categories_bytes=categories_bytes,
            )

    def _reader(self, table: Table, skipped: SkippedRows, categories_bytes: int) -> NodeReader:
        return NodeReader(
            self.node_type, self._source, table, self._kinds, skipped, memory_bytes=categories_bytes
        )

    def _repeated(
        self, reader: NodeReader, row: int, again: int, value: Any, *, batch_bytes: int, categories_bytes: int
    ) -> DataError:
        """Return the error about an id that occurs twice, with both places."""
        table, column = reader.table, str(self._source.id)
        places: Sequence[int] | None = (row, again)
        if self._skipped.counts:
            # Rows were left out, so that positions among the usable rows are not those in the table.
            places = None
            if table.reiterable:
                second = self._reader(table, SkippedRows(strict=False), categories_bytes)
                places = table_rows(second.batches(batch_bytes=batch_bytes), (row, again))
        first, where = (table.where(each, column) for each in places) if places else ("", table.name)
        count = self.ids.num_repeated
        return DataError(
            f"expected each node id once, received {count:,} again: `{value}`"
            + (", ..." if count > 1 else "")
            + (f" (before: {first})" if first else ""),
            where=where,
            hint="one row per node; edges belong into a table of their own",
        )

    def close(self) -> None:
        """Say that all ids are there.

        Raises:
            DataError: nodes that have no table were found nowhere.
        """
        if self.is_found and self.node_type not in self._kinds:
            raise DataError(
                "expected at least one node, received none: no edge leads to or from one",
                where=f"nodes `{self.node_type}`",
                hint="check that the edge tables have rows",
            )
        self.ids.close()

    def finish(self, writer: FolderWriter, folder: str) -> tuple[dict[str, Any], NodeTypeReport]:
        """Write the ids, and return the entry of the node type in the manifest, and the report."""
        ids = self.ids
        report = NodeTypeReport(
            type=self.node_type,
            id_type=ids.kind,
            nodes=ids.num_nodes,
            isolated=ids.num_isolated,
            rows=self._rows,
            skipped=dict(self._skipped.counts),
            examples=self._skipped.examples,
            empty_values=self._empty_values,
        )
        entry = {
            "name": self.node_type,
            "num_nodes": ids.num_nodes,
            "discovered": self.is_found,
            "ids": ids.write(writer, folder),
            "features": self._features,
            "imported": report.imported(),
        }
        return entry, report


def table_rows(batches: Iterable[NodeRows | EdgeRows], usable: Sequence[int]) -> list[int] | None:
    """Return the positions in a table of rows that are counted among the usable ones.

    Args:
        batches: the usable rows of the whole table.
        usable: positions among them, ascending.

    Returns:
        Their positions among all rows; None when the table has become shorter in the meantime.
    """
    found: list[int] = []
    before = 0
    for rows in batches:
        while len(found) < len(usable) and usable[len(found)] < before + len(rows):
            found.append(rows.table_row(usable[len(found)] - before))
        if len(found) == len(usable):
            return found
        before += len(rows)
    return None
