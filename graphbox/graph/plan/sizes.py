"""Bytes in memory and on disk of an import, by type: held, spilled and written.

The memory is divided by the code that the import uses. Ids or edges of a type that are larger than their part
are counted as spilled to disk in whole, although the import keeps a part of them in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from graphbox.graph.build import ids_bytes
from graphbox.graph.distinct import Estimate
from graphbox.graph.ingest.budget import Budget, Shares
from graphbox.graph.schema import EdgeSource, EdgeType, GraphSource
from graphbox.graph.survey import GraphSurvey, NodeSurvey

Scenario: TypeAlias = Literal["low", "likely", "high"]
"""Bound of the estimates to compute with."""

_HEADER_BYTES = 128
_MANIFEST_BYTES = 4096
_SLACK_BYTES = 20 << 20
"""Stacks of threads, what allocators hold beside what is asked of them, and what the command that imports
loads before it begins and a plan does not: the database of runs takes 3 MiB, making one 15."""
_BATCHES_AHEAD = 13
"""Batches that stand at once, of the size they have: twelve as in `graphbox.graph.ingest.budget`, and the one
that is being decoded. The allocators were measured to keep as much until the end."""
_NUMBER_BYTES = 8
_KEY_BYTES, _ROW_BYTES = 8, 4
"""Both ends of an edge that is sorted, and its row in the columns."""
_SORTING_BYTES, _COLUMN_BYTES = 16 << 20, 2 << 20
"""Memory of sorting edges: fixed, and for each of their columns."""
_SORTED_AT_ONCE = 1 << 20
_LEAST_KEPT_BYTES = 28 << 20
"""Least memory that is counted for the edges of a type that wait in memory."""
_NODES_PER_PARTITION = 1 << 16
_MOST_NARROW_NODES = 1 << 31


@dataclass(frozen=True)
class IdsHeld:
    """The ids of one node type.

    Attributes:
        spilled: whether they do not fit and are joined on the disk.
        held_bytes: held at most.
    """

    spilled: bool
    held_bytes: int


@dataclass(frozen=True)
class EdgesHeld:
    """The edges of one type.

    Attributes:
        held_bytes: held at most.
        kept_bytes: kept in memory while other edges are read.
        runs_bytes: sorted runs on the disk.
        by_source_bytes: the same while they are sorted by source.
        deferred_bytes: what is on the disk of rows that wait, beside the ids at their ends.
        waits: whether they wait until all nodes are found.
    """

    held_bytes: int
    kept_bytes: int
    runs_bytes: int
    by_source_bytes: int
    deferred_bytes: int
    waits: bool

    @property
    def scratch_bytes(self) -> int:
        """All that is spilled, but for ids."""
        return self.runs_bytes + self.by_source_bytes + self.deferred_bytes


class ImportSizes:
    """Goes through the types as the import does, and notes what each may hold, holds and spills.

    Args:
        source: the graph.
        survey: what its tables are like.
        budget: the memory, divided as the import does.
        scenario: which of the estimates to count with.
    """

    def __init__(
        self, source: GraphSource, survey: GraphSurvey, budget: Budget, scenario: Scenario = "likely"
    ) -> None:
        self._source = source
        self._survey = survey
        self._budget = budget
        self._scenario = scenario
        self.ids: dict[str, IdsHeld] = {}
        self.edges: dict[EdgeType, EdgesHeld] = {}
        shares = Shares(budget, {name: self._input_bytes(name) for name in source.nodes})
        for name, nodes in source.nodes.items():
            if nodes.data is not None:
                self.ids[name] = self._ids_held(name, shares.of_ids(name))
                shares.settle(name, self.ids[name].held_bytes)
        for number, edges in enumerate(source.edges, 1):
            for name in (edges.type[0], edges.type[2]):
                if name not in self.ids:
                    self.ids[name] = self._ids_held(name, shares.of_ids(name))
            is_last = number == len(source.edges)
            most_kept = None if is_last else shares.most_kept_edges()
            held = self._edges_held(edges, shares.of_edges(), most_kept)
            self.edges[edges.type] = held
            shares.keep_edges(held.kept_bytes)

    def _of(self, estimate: Estimate) -> int:
        return int(getattr(estimate, self._scenario))

    def _nodes(self, name: str) -> int:
        return self._of(self._survey.nodes[name].nodes)

    def _rows(self, edges: EdgeSource) -> int:
        return self._of(self._survey.edges[edges.type].table.rows)

    def _input_bytes(self, name: str) -> int | None:
        """Return the bytes of input that the ids of a node type come from."""
        node = self._survey.nodes[name]
        if node.table is not None:
            return node.table.input_bytes
        sizes = [
            self._survey.edges[edges.type].table.input_bytes
            for edges in self._source.edges
            if name in (edges.type[0], edges.type[2])
        ]
        return None if None in sizes else sum(size or 0 for size in sizes)

    # Ids

    def _ids_held(self, name: str, memory_bytes: int) -> IdsHeld:
        count = self._nodes(name)
        total_bytes = int(count * _text_bytes(self._survey.nodes[name]))
        if ids_bytes(count, total_bytes, tight=True) > memory_bytes:
            return IdsHeld(True, memory_bytes)
        return IdsHeld(False, min(ids_bytes(count, total_bytes), memory_bytes) + count // 8)

    def ids_scratch_bytes(self, name: str) -> int:
        """Return what the ids of a node type have on the disk beside their arrays, when they do not fit.

        These are the known ids with their numbers, those met at ends of edges with their partitions, and the
        numbers that were found for them.
        """
        node, count = self._survey.nodes[name], self._nodes(name)
        if not self.ids[name].spilled:
            return 0
        id_bytes = _NUMBER_BYTES if node.id_kind == "int64" else 4 + _text_bytes(node)
        met = sum(self._rows(edges) * edges.type[::2].count(name) for edges in self._source.edges)
        rows = 0 if node.table is None else count
        return round(
            count * (_NUMBER_BYTES + id_bytes)
            + (met + rows) * (id_bytes + 1)
            + (met + (rows or met)) * _NUMBER_BYTES
        )

    # Edges

    def _edges_held(self, edges: EdgeSource, memory_bytes: int, most_kept: int | None) -> EdgesHeld:
        """Return what becomes of the edges of a type.

        Args:
            edges: where they come from.
            memory_bytes: what they may hold.
            most_kept: what they may keep while others are read; None: no others are read after them.
        """
        edge, rows = self._survey.edges[edges.type], self._rows(edges)
        columns = (edges.weight is not None) + (edges.timestamp is not None) + len(edges.features)
        held = _sorted_bytes(rows, columns, edge.payload_bytes, edge.hub_share)
        unknown = [self.ids[name].spilled for name in edges.type[::2]]
        # Edges that find nodes wait until all are found, on the disk where they are too many to be kept.
        waits = any(self._source.nodes[name].data is None for name in edges.type[::2])
        spills = held > memory_bytes
        kept = 0
        if waits and most_kept is not None and not any(unknown) and not spills:
            kept = max(_LEAST_KEPT_BYTES, held)
            spills = kept > most_kept
        by_source, by_source_bytes = self._of(edge.edges), 0
        if edges.csr:
            held_by_source = _sorted_bytes(by_source, 1, _NUMBER_BYTES, edge.hub_share)
            by_source_bytes = by_source * (_KEY_BYTES + _NUMBER_BYTES) * (held_by_source > memory_bytes)
            held = max(held, held_by_source)
        numbered_ends = _NUMBER_BYTES * unknown.count(False) if edges.type[0] != edges.type[2] else 0
        return EdgesHeld(
            held_bytes=min(held, memory_bytes),
            kept_bytes=0 if spills else kept,
            runs_bytes=round(rows * (_KEY_BYTES + edge.payload_bytes)) if spills else 0,
            by_source_bytes=by_source_bytes,
            deferred_bytes=round(rows * (edge.payload_bytes + numbered_ends)) if any(unknown) else 0,
            waits=waits,
        )

    # Memory

    def peak_bytes(self, resident_bytes: int) -> int:
        """Return the most that the process holds.

        Args:
            resident_bytes: what the budget counts of what the process has before it begins.
        """
        kept = most = 0
        for each in self.edges.values():
            most = max(most, kept + each.held_bytes)
            kept += each.kept_bytes
        ids = sum(each.held_bytes for each in self.ids.values())
        beside = resident_bytes + _SLACK_BYTES + self._batches_bytes()
        return min(self._budget.total_bytes, beside + ids + max(most, kept))

    def _batches_bytes(self) -> int:
        """Batches of the largest table, read and converted ahead of those that are built in."""
        tables = [node.table for node in self._survey.nodes.values() if node.table is not None]
        tables += [edge.table for edge in self._survey.edges.values()]
        held = (
            min(table.rows.likely * table.row_bytes, _BATCHES_AHEAD * table.batch_bytes) for table in tables
        )
        return int(max(held, default=0.0))

    # Disk

    @cached_property
    def scratch_bytes(self) -> int:
        """All that is written to temporary files."""
        edges = sum(each.scratch_bytes for each in self.edges.values())
        return edges + sum(self.ids_scratch_bytes(name) for name in self.ids)

    @cached_property
    def peak_scratch_bytes(self) -> int:
        """The most there is of temporary files at one time: of all edges that wait, or of others."""
        waiting = sum(each.runs_bytes + each.deferred_bytes for each in self.edges.values() if each.waits)
        waiting += sum(self.ids_scratch_bytes(name) for name in self.ids)
        others = [each.runs_bytes + each.deferred_bytes for each in self.edges.values() if not each.waits]
        by_source = [each.by_source_bytes for each in self.edges.values()]
        return max([waiting + max(others, default=0), *by_source])

    @cached_property
    def size_bytes(self) -> int:
        """The graph."""
        nodes = sum(self.nodes_size_bytes(name) for name in self._source.nodes)
        return nodes + sum(map(self.edges_size_bytes, self._source.edges)) + _MANIFEST_BYTES

    def nodes_size_bytes(self, name: str) -> int:
        """Return the size of a node type on disk."""
        node, count = self._survey.nodes[name], self._nodes(name)
        features = round(count * node.feature_bytes) + node.fixed_bytes
        return ids_size_bytes(node, count) + features + _HEADER_BYTES * len(self._source.nodes[name].features)

    def edges_size_bytes(self, edges: EdgeSource) -> int:
        """Return the size of an edge type on disk."""
        edge = self._survey.edges[edges.type]
        count = self._of(edge.edges)
        sources, targets = self._nodes(edges.type[0]), self._nodes(edges.type[2])
        size = 8 * (targets + 1) + count * (_index_width(sources) + edge.payload_bytes)
        arrays = 2 + (edges.weight is not None) + (edges.timestamp is not None) + len(edges.features)
        if edges.csr:
            size += 8 * (sources + 1) + count * (_index_width(targets) + 8)
            arrays += 3
        return round(size) + arrays * _HEADER_BYTES


def ids_size_bytes(node: NodeSurvey, count: int) -> int:
    """Return the size of the ids of a node type with their index on disk."""
    size = 8 * count + _index_slots(count) * _index_width(count) + 2 * _HEADER_BYTES
    if node.id_kind == "string":
        size += 8 + round(count * node.id_bytes) + _HEADER_BYTES
    return size


def _text_bytes(node: NodeSurvey) -> float:
    return node.id_bytes if node.id_kind == "string" else 0.0


def _index_slots(count: int) -> int:
    """Return the slots of the hash index of ids: see docs/formats/graph.md, Ids."""
    bits = 0
    while count >> bits > _NODES_PER_PARTITION:
        bits += 1
    partitions = 1 << bits
    return 2 * max(1, -(-count // partitions)) * partitions


def _index_width(count: int) -> int:
    """Return the bytes of a node index, or of an entry of the hash index."""
    return 8 if count > _MOST_NARROW_NODES else 4


def _sorted_bytes(count: int, columns: int, payload_bytes: float, hub_share: float) -> int:
    """Return what edges hold until they are sorted, part by part; those of one target are in one part."""
    record_bytes = _KEY_BYTES + (_ROW_BYTES if columns else 0)
    part = max(min(count, _SORTED_AT_ONCE), round(count * hub_share))
    held = count * (record_bytes + payload_bytes) + 2 * part * record_bytes
    return round(_SORTING_BYTES + columns * _COLUMN_BYTES + held)
