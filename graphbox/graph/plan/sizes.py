"""Bytes in memory and on disk of an import, by type: what is held, what is spilled, what is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from graphbox.graph.build_rules import (
    LEAST_KEPT_BYTES,
    ROWS_AT_ONCE,
    EdgeRow,
    SortedEdges,
    ids_held_bytes,
    index_slots,
    index_width,
    most_ids,
)
from graphbox.graph.distinct import Estimate
from graphbox.graph.ingest.budget import Budget, Shares
from graphbox.graph.schema import EdgeSource, EdgeType, GraphSource
from graphbox.graph.survey import GraphSurvey, NodeSurvey

Scenario: TypeAlias = Literal["low", "likely", "high"]
"""Which of the estimates to count with."""

_HEADER_BYTES = 128
_MANIFEST_BYTES = 4096
_SLACK_BYTES = 20 << 20
"""Stacks of threads, what allocators hold beside what is asked of them, and what the command that imports
loads before it begins and a plan does not: the database of runs takes 3 MiB, making one 15."""
_BATCHES_AHEAD = 13
"""Batches that stand at once, of the size they have: twelve as in `graphbox.graph.ingest.budget`, and the one
that is being decoded. So much was measured to stay with the allocators until the end, too."""
_NUMBER_BYTES = 8
_BY_SOURCE = EdgeRow(1, 8.0)
"""Edges that are sorted once more by source have their place among the others along."""


@dataclass(frozen=True)
class IdsHeld:
    """The ids of one node type.

    Attributes:
        spilled: whether they do not fit and are joined on the disk.
        held_bytes: held at most.
        spilled_after: of spilled ids, the share of the ends of edges at which nodes are found, or of the rows
            of their table, that come before.
    """

    spilled: bool
    held_bytes: int
    spilled_after: float = 1.0


@dataclass(frozen=True)
class EdgesHeld:
    """The edges of one type.

    Attributes:
        held_bytes: held at most.
        kept_bytes: kept in memory while other edges are read.
        runs_bytes: sorted runs on the disk.
        by_source_bytes: the same while they are sorted by source.
        deferred_bytes: what is on the disk of rows that wait, beside the ids at their ends.
        logged: ends on the disk, by node type.
        waits: whether they wait until all nodes are found.
    """

    held_bytes: int
    kept_bytes: int
    runs_bytes: int
    by_source_bytes: int
    deferred_bytes: int
    logged: dict[str, int]
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
        scenario: which of the estimates to count with. With ``low`` ids that may or may not fit do.
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
        node, count = self._survey.nodes[name], self._nodes(name)
        wanted = count + self._rows_at_once(name)
        text_bytes = _text_bytes(node)
        most = most_ids(memory_bytes, text_bytes)
        if wanted <= most:
            return IdsHeld(False, ids_held_bytes(count, memory_bytes, text_bytes))
        known = max(0, most - (wanted - count)) / max(count, 1)
        before = known if node.table is not None else _share_of_ends(node, known, self._ends(name))
        return IdsHeld(True, memory_bytes, before)

    def _rows_at_once(self, name: str) -> int:
        """Return for how many more ids there must be room though no more come."""
        if self._scenario == "low" or self._survey.nodes[name].table is not None:
            return 0
        ends = []
        for edges in self._source.edges:
            table = self._survey.edges[edges.type].table
            rows = min(table.rows.likely, ROWS_AT_ONCE, int(table.batch_bytes / max(table.row_bytes, 1)))
            ends.append(rows * edges.type[::2].count(name))
        return max(ends, default=0)

    def _ends(self, name: str) -> int:
        return sum(self._rows(edges) * edges.type[::2].count(name) for edges in self._source.edges)

    def ids_scratch_bytes(self, name: str) -> int:
        """Return what the ids of a node type have on the disk beside their arrays, when they do not fit.

        These are the known ids with their numbers, those met since with their partitions, and the numbers
        that were found for them.
        """
        ids, node = self.ids[name], self._survey.nodes[name]
        if not ids.spilled:
            return 0
        met_bytes = _NUMBER_BYTES if node.id_kind == "int64" else 4 + _text_bytes(node)
        logged = sum(edges.logged.get(name, 0) for edges in self.edges.values())
        numbered = logged
        if node.table is not None:
            numbered = round((1 - ids.spilled_after) * self._nodes(name))
        known = self._nodes(name) * (_NUMBER_BYTES + met_bytes)
        rows = numbered if node.table is not None else 0
        return round(known + (logged + rows) * (met_bytes + 1) + (logged + numbered) * _NUMBER_BYTES)

    # Edges

    def _edges_held(self, edges: EdgeSource, memory_bytes: int, most_kept: int | None) -> EdgesHeld:
        """Return what becomes of the edges of a type.

        Args:
            edges: where they come from.
            memory_bytes: what they may hold.
            most_kept: what they may keep while others are read; None: no others are read after them.
        """
        edge, rows = self._survey.edges[edges.type], self._rows(edges)
        targets = self._nodes(edges.type[2])
        read = SortedEdges(rows, _row_of(edges, edge.payload_bytes), edge.largest_share, targets)
        logged_rows = {name: self._logged_rows(edges, name) for name in edges.type[::2]}
        deferred = max(logged_rows.values())
        # Edges that find nodes wait until all are found, on the disk where they are too many to be kept.
        waits = any(self._source.nodes[name].data is None for name in edges.type[::2])
        spills = not read.fit(memory_bytes, replaying=deferred > 0) or 0 < deferred < rows
        kept = 0
        if waits and most_kept is not None and not deferred and not spills:
            kept = max(LEAST_KEPT_BYTES, read.held_bytes(memory_bytes))
            spills = kept > most_kept
        by_source = SortedEdges(
            self._of(edge.edges), _BY_SOURCE, edge.largest_share, self._nodes(edges.type[0])
        )
        held = read.held_bytes(memory_bytes)
        if edges.csr:
            held = max(held, by_source.held_bytes(memory_bytes))
        by_source_spills = edges.csr and not by_source.fit(memory_bytes)
        one_type = edges.type[0] == edges.type[2]
        in_memory = [deferred - each for each in logged_rows.values()] if not one_type else []
        return EdgesHeld(
            held_bytes=min(held, memory_bytes),
            kept_bytes=0 if spills else kept,
            runs_bytes=round(rows * read.row.spilled_bytes) if spills else 0,
            by_source_bytes=round(by_source.count * _BY_SOURCE.spilled_bytes) if by_source_spills else 0,
            deferred_bytes=round(deferred * edge.payload_bytes) + _NUMBER_BYTES * sum(in_memory),
            logged={name: each * edges.type[::2].count(name) for name, each in logged_rows.items()},
            waits=waits,
        )

    def _logged_rows(self, edges: EdgeSource, name: str) -> int:
        """Return in how many rows an end of a node type is kept on the disk until its number is known."""
        ids, rows = self.ids[name], self._rows(edges)
        if not ids.spilled:
            return 0
        if self._source.nodes[name].data is not None:
            return rows
        before, total = 0, self._ends(name)
        for each in self._source.edges:
            if each.type == edges.type:
                break
            before += self._rows(each) * each.type[::2].count(name)
        here = rows * edges.type[::2].count(name)
        met = (ids.spilled_after * total - before) / max(here, 1)
        return round(rows * (1 - min(max(met, 0.0), 1.0)))

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
        size = 8 * (targets + 1) + count * (index_width(sources) + edge.payload_bytes)
        arrays = 2 + (edges.weight is not None) + (edges.timestamp is not None) + len(edges.features)
        if edges.csr:
            size += 8 * (sources + 1) + count * (index_width(targets) + 8)
            arrays += 3
        return round(size) + arrays * _HEADER_BYTES


def ids_size_bytes(node: NodeSurvey, count: int) -> int:
    """Return the size of the ids of a node type with their index on disk."""
    size = 8 * count + index_slots(count) * index_width(count) + 2 * _HEADER_BYTES
    if node.id_kind == "string":
        size += 8 + round(count * node.id_bytes) + _HEADER_BYTES
    return size


def _text_bytes(node: NodeSurvey) -> float:
    return node.id_bytes if node.id_kind == "string" else 0.0


def _row_of(edges: EdgeSource, payload_bytes: float) -> EdgeRow:
    columns = (edges.weight is not None) + (edges.timestamp is not None) + len(edges.features)
    return EdgeRow(columns, payload_bytes)


def _share_of_ends(node: NodeSurvey, known: float, ends: int) -> float:
    """Return the share of the ends of edges at which a share of the nodes has been met."""
    if node.growth:
        return float(np.interp(known, np.linspace(0, 1, len(node.growth)), node.growth))
    # Drawn alike from all nodes, a share of 1 - exp(-x * rate) of them is met in a share x of the ends.
    share, low, high = node.nodes.likely / max(ends, 1), 1e-9, 1e9
    while high / low > 1.001:
        rate = math.sqrt(low * high)
        if -math.expm1(-rate) / rate > share:
            low = rate
        else:
            high = rate
    return min(1.0, -math.log1p(known * math.expm1(-low)) / low) if known < 1 else 1.0
