"""Whole lists of neighbours of the nodes that choosing their edges takes, read from disk part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import DataError, DoesNotFitError
from graphbox.native import Int64Array
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.relations import EdgeLists, sampled_relation
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    from graphbox.graph.tiered_edges import TieredEdges
    from graphbox.graph.tiered_graph import TieredGraph

_POSITION_BYTES = 8
_COLUMN_BYTES: dict[EdgeColumnName, int] = {"weight": 4, "timestamp": 8}
_ALIAS_BYTES = 8
_TIME_ORDER_BYTES = 12
_SUM_BYTES = 8
_LIST_BYTES = 40
"""Of each list its row, bounds and offsets."""
_ROWS_OF_BITMAP_BYTE = 7
"""The bitmap of rows that have lists takes 64 bytes for 448 rows."""


class FetchedLists:
    """Lists of some nodes in memory: as changes give new lists, here over a base without any.

    The ids of their edges are positions in the graph's files.

    Args:
        rows: int64 [n], ascending.
        lengths: int64 [n].
        positions: int64 [edges].
        columns: ``indices`` and what else was read, [edges] each.
        num_rows: number of nodes of the target type.
    """

    base = None

    def __init__(
        self,
        rows: Int64Array,
        lengths: Int64Array,
        positions: Int64Array,
        columns: dict[str, npt.NDArray[Any]],
        num_rows: int,
    ) -> None:
        self.indptr = np.zeros(1, np.int64)
        self.indices = columns["indices"][:0]
        self.overlay_indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.overlay = _core.Overlay(rows, self.overlay_indptr, columns["indices"], positions, num_rows)
        self._columns = columns

    @property
    def items(self) -> npt.NDArray[Any]:
        """The neighbours in all lists."""
        return self._columns["indices"]

    def overlay_column(self, name: EdgeColumnName) -> npt.NDArray[Any] | None:
        """Return the weight or timestamp of each edge, None where it was not read."""
        return self._columns.get(name)


@dataclass(slots=True)
class ListBudget:
    """The memory for lists that are chosen from.

    Attributes:
        part_bytes: the most that lists read together should take.
        most_bytes: the most that one list may take.
        peak_bytes: what the largest part has taken.
    """

    part_bytes: int
    most_bytes: int
    peak_bytes: int = 0

    @classmethod
    def of(cls, graph: TieredGraph) -> ListBudget:
        """Return that of a graph: a quarter of its ``pass_bytes`` for a part, half of it for one list."""
        return cls(graph.pass_bytes // 4, graph.pass_bytes // 2)

    def parts(
        self, rows: Int64Array, lengths: Int64Array, edge_bytes: int, num_rows: int, name: str
    ) -> Iterator[slice]:
        """Give parts of some lists that fit, one after the other.

        Args:
            rows: int64 [n], whose lists.
            lengths: int64 [n], how many edges each has.
            edge_bytes: what an edge takes.
            num_rows: of all rows there are.
            name: of the edge type, for messages.

        Raises:
            DoesNotFitError: one list takes more than ``most_bytes``.
        """
        ends = np.cumsum(lengths * edge_bytes + _LIST_BYTES)
        begin = done = 0
        while begin < len(rows):
            end = max(int(np.searchsorted(ends, done + self.part_bytes, side="right")), begin + 1)
            part_bytes = int(ends[end - 1]) - done
            if part_bytes > self.most_bytes:
                raise _list_does_not_fit(name, int(rows[begin]), int(lengths[begin]), part_bytes, self)
            self.peak_bytes = max(self.peak_bytes, part_bytes + num_rows // _ROWS_OF_BITMAP_BYTE)
            yield slice(begin, end)
            begin, done = end, int(ends[end - 1])


@dataclass(frozen=True)
class ListDrawing:
    """The nodes whose lists must be in memory as a whole, and how edges are chosen there.

    Attributes:
        weighted: draw in proportion to weights.
        temporal: only edges not later than a time.
        excluded_rows: int64, ascending: the nodes with edges that must not be sampled.
    """

    weighted: bool
    temporal: bool
    excluded_rows: Int64Array

    def wants(
        self, nodes: Int64Array, bounds: Int64Array, wanted: int, *, replace: bool
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the nodes whose whole lists must be read; of others positions are enough.

        Args:
            nodes: int64 [n].
            bounds: int64 [n, 2], where their lists begin and end.
            wanted: edges of each, -1: all.
            replace: draw with replacement.
        """
        degree = bounds[:, 1] - bounds[:, 0]
        if self.temporal:
            return degree > 0
        chosen = np.zeros(len(nodes), bool)
        if self.weighted and wanted >= 0:
            # A node with one edge, or with no more than are wanted, has no choice.
            chosen = degree > (1 if replace else wanted)
        if len(self.excluded_rows):
            chosen |= np.isin(nodes, self.excluded_rows) & (degree > 0)
        return chosen

    @property
    def columns(self) -> tuple[EdgeColumnName, ...]:
        """Columns to read of the edges besides their neighbours."""
        names: list[EdgeColumnName] = ["weight"] if self.weighted else []
        return tuple([*names, "timestamp"] if self.temporal else names)

    def edge_bytes(self, edges: TieredEdges) -> int:
        """Return the most bytes an edge takes while it is chosen from."""
        read = edges.index_bytes + sum(_COLUMN_BYTES[name] for name in self.columns)
        tables = _TIME_ORDER_BYTES if self.temporal else 0
        if self.weighted:
            tables += _SUM_BYTES if self.temporal else _ALIAS_BYTES
        merging = read if edges.overlay is not None else 0
        return 2 * _POSITION_BYTES + read + max(tables, merging)

    def relations(
        self,
        edges: TieredEdges,
        edge_type: EdgeType,
        types: tuple[int, int],
        num_rows: int,
        nodes: Int64Array,
        bounds: Int64Array,
        budget: ListBudget,
        threads: int,
    ) -> Iterator[_core.Relation]:
        """Read the lists of nodes, in the order of the disk, each once, part by part.

        Args:
            edges: of the edge type.
            edge_type: the edge type.
            types: numbers of its source and target type.
            num_rows: number of nodes of the target type.
            nodes: int64 [n], repeated ones too; each has edges.
            bounds: int64 [n, 2], where their lists begin and end.
            budget: for a part.
            threads: for tables.

        Yields:
            Relations whose overlays have the lists of a part of the nodes.

        Raises:
            DoesNotFitError: one list takes more than the budget.
            DataError: a weight is not a positive number.
        """
        rows, first = np.unique(nodes, return_index=True)
        bounds = bounds[first]
        lengths = bounds[:, 1] - bounds[:, 0]
        name = edge_type_name(edge_type)
        for part in budget.parts(rows, lengths, self.edge_bytes(edges), num_rows, name):
            # Nothing of it is kept here while the next part is read.
            read = edges.lists_between(rows[part], bounds[part], self.columns)
            if self.weighted:
                _check_weights(rows[part], lengths[part], *read, name)
            yield self._relation(
                FetchedLists(rows[part], lengths[part], *read, num_rows), name, types, threads
            )
            del read

    def _relation(
        self, lists: FetchedLists, name: str, types: tuple[int, int], threads: int
    ) -> _core.Relation:
        return sampled_relation(
            EdgeLists.of(lists, name),
            types,
            [],
            weighted=self.weighted,
            timed=self.temporal,
            threads=threads,
        )


def _check_weights(
    rows: Int64Array,
    lengths: Int64Array,
    positions: Int64Array,
    columns: dict[str, npt.NDArray[Any]],
    name: str,
) -> None:
    """Raise for weights that cannot be drawn by; tables of parts would name edges by their places there."""
    weight = columns["weight"]
    sound = (weight > 0) & np.isfinite(weight)
    if not sound.all():
        place = int(np.argmin(sound))
        row = rows[np.searchsorted(np.cumsum(lengths), place, side="right")]
        raise DataError(
            f"weights must be positive finite numbers; edge {positions[place]} of node {row} has "
            f"{weight[place]}",
            where=name,
            hint="the graph is damaged: import it again",
        )


def _list_does_not_fit(name: str, node: int, edges: int, needed: int, budget: ListBudget) -> DoesNotFitError:
    return DoesNotFitError(
        f"expected lists of neighbours that take at most {counted_bytes(budget.most_bytes)} to choose from, "
        f"half of pass_bytes; that of node {node} with {edges:,} edges takes {counted_bytes(needed)}",
        where=name,
        hint=f"give Graph.tiered pass_bytes of {counted_bytes(2 * needed)} or more; uniform neighbours "
        "without excluded edges, and negatives that may be positives, take no whole lists",
    )
