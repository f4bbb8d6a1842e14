"""Degrees, self-loops and repeated edges, counted in bounded memory by passes over the mapped arrays."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.errors import FormatError
from graphbox.graph.describe.histogram import DegreeHistogram
from graphbox.graph.overlay import MergedLists, merged_lists
from graphbox.graph.schema import EdgeType, IndexArray, edge_type_text
from graphbox.graph.snapshot import Direction, as_live
from graphbox.graph.tables import OwnEdges

if TYPE_CHECKING:
    from graphbox.graph.store import Graph

DEFAULT_MEMORY_BYTES = 1 << 28

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being counted, and how many of how many edges are done."""

_BLOCK_NODES = 1 << 20
_BLOCK_EDGES = 1 << 20
# A node of the range that is counted takes a counter, and a flag of whether it has an edge.
_BYTES_PER_NODE = 4 + 1
_HUBS = 3
_EXAMPLES = 3


@dataclass
class Side:
    """The degrees at one end of the edges of one type; ``hubs`` are (degree, -node index), largest first."""

    histogram: DegreeHistogram = field(default_factory=DegreeHistogram)
    hubs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, degrees: npt.NDArray[Any], first_node: int) -> None:
        """Count the nodes from ``first_node`` on."""
        self.histogram.add(degrees)
        for at in _largest(degrees):
            if degrees[at]:
                self.hubs.append((int(degrees[at]), -(first_node + at)))
        self.hubs = heapq.nlargest(_HUBS, self.hubs)


def _largest(degrees: npt.NDArray[Any]) -> list[int]:
    """Return the positions of the largest degrees; of equal ones the first."""
    least = np.partition(degrees, -_HUBS)[-_HUBS] if len(degrees) > _HUBS else -1
    above = np.flatnonzero(degrees > least).tolist()
    return [*above, *np.flatnonzero(degrees == least)[: _HUBS - len(above)].tolist()]


@dataclass
class EdgeCounts:
    """Counts of one edge type.

    Attributes:
        into: degrees of its targets.
        out_of: degrees of its sources.
        self_loops: edges from a node to itself.
        duplicate_edges: edges whose source and target an edge before has as well.
    """

    into: Side = field(default_factory=Side)
    out_of: Side = field(default_factory=Side)
    self_loops: int = 0
    duplicate_edges: int = 0


@dataclass
class NodeCounts:
    """Isolated nodes of one node type.

    Attributes:
        isolated: nodes without an edge.
        examples: indices of the first of them.
    """

    isolated: int = 0
    examples: list[int] = field(default_factory=list)

    def add(self, alone: npt.NDArray[np.bool_], first_node: int) -> None:
        """Count the nodes from ``first_node`` on; those without an edge are ``alone``."""
        self.isolated += int(alone.sum())
        if len(self.examples) < _EXAMPLES:
            found = np.flatnonzero(alone)[: _EXAMPLES - len(self.examples)]
            self.examples += (found + first_node).tolist()


def count_edges(
    graph: Graph, *, memory_bytes: int = DEFAULT_MEMORY_BYTES, progress: Progress | None = None
) -> tuple[dict[str, NodeCounts], dict[EdgeType, EdgeCounts]]:
    """Count degrees, isolated nodes, self-loops and repeated edges.

    Where out-neighbours are not kept, out-degrees need a counter for each source node. When those of all
    nodes do not fit ``memory_bytes``, they are counted for one range of nodes after the other, each time with
    a pass over the edges.

    Args:
        graph: the graph.
        memory_bytes: memory for counters.
        progress: called as it goes on.

    Returns:
        The counts by node type, and by edge type without the reverse ones.
    """
    nodes = {node_type: NodeCounts() for node_type in graph.node_types}
    edges = {
        each: _Counting(each, graph.own_edges(each))
        for each in graph.edge_types
        if not graph.is_reverse(each)
    }
    range_nodes = max(_BLOCK_NODES, memory_bytes // _BYTES_PER_NODE)
    passes = {name: -(-graph.num_nodes(name) // range_nodes) for name in graph.node_types}
    steps = _Steps(sum(each.num_edges(passes[each.type[0]]) for each in edges.values()), progress)
    for node_type in graph.node_types:
        num_nodes, removed = graph.num_nodes(node_type), graph.removed_nodes(node_type)
        for low in range(0, num_nodes, range_nodes):
            high = min(low + range_nodes, num_nodes)
            alone = np.ones(high - low, np.bool_)
            alone[removed[slice(*np.searchsorted(removed, [low, high]))] - low] = False
            for counting in edges.values():
                if counting.type[2] == node_type:
                    counting.count_into(low, high, alone)
                if counting.type[0] == node_type:
                    counting.count_out_of(low, high, alone, steps)
            for start in range(0, len(alone), _BLOCK_NODES):
                nodes[node_type].add(alone[start : start + _BLOCK_NODES], low + start)
        for counting in edges.values():
            if counting.type[2] == node_type:
                counting.counts.into.histogram.remove_zeros(len(removed))
            if counting.type[0] == node_type:
                counting.counts.out_of.histogram.remove_zeros(len(removed))
    return nodes, {edge_type: counting.counts for edge_type, counting in edges.items()}


class _Counting:
    """The edges of one type while they are counted."""

    def __init__(self, edge_type: EdgeType, edges: OwnEdges) -> None:
        self.type = edge_type
        self.counts = EdgeCounts()
        self._table = as_live(edges)
        self._keeps_out = self._table.base.stored_csr is not None

    def num_edges(self, passes: int) -> int:
        """Return how many edges are gone over, where counters take so many passes."""
        return self._table.num_edges * (1 if self._keeps_out else passes)

    def count_into(self, low: int, high: int, alone: npt.NDArray[np.bool_]) -> None:
        """Count the degrees of targets ``low`` to ``high - 1``."""
        self._count_lists("in", self.counts.into, low, high, alone)

    def count_out_of(self, low: int, high: int, alone: npt.NDArray[np.bool_], steps: _Steps) -> None:
        """Count the degrees of sources ``low`` to ``high - 1``; with the first ones also all edges."""
        steps.stage = edge_type_text(self.type)
        if self._keeps_out:
            self._count_lists("out", self.counts.out_of, low, high, alone)
            if low:
                return
        degrees = None
        if not self._keeps_out:
            degrees = np.zeros(high - low, np.int32 if self._table.num_edges < 2**31 else np.int64)
        for lists in self._in_lists():
            if degrees is not None:
                _count_entries(lists.indices, low, degrees)
            if low == 0:
                self._count_pairs(lists)
            steps.add(len(lists.indices))
        if degrees is None:
            return
        for start in range(0, high - low, _BLOCK_NODES):
            part = degrees[start : start + _BLOCK_NODES]
            self.counts.out_of.add(part, low + start)
            alone[start : start + _BLOCK_NODES] &= part == 0

    def _count_pairs(self, lists: MergedLists) -> None:
        """Count the edges of some lists that repeat the one before them, or lead from a node to itself."""
        same_as_before = lists.indices[1:] == lists.indices[:-1]
        starts = np.cumsum(lists.lengths[:-1])
        same_as_before[starts[(starts > 0) & (starts < len(lists.indices))] - 1] = False
        self.counts.duplicate_edges += int(same_as_before.sum())
        if self.type[0] == self.type[2]:
            rows = np.arange(lists.first_row, lists.first_row + len(lists.lengths), dtype=lists.indices.dtype)
            self.counts.self_loops += int((np.repeat(rows, lists.lengths) == lists.indices).sum())

    def _count_lists(
        self, direction: Direction, side: Side, low: int, high: int, alone: npt.NDArray[np.bool_]
    ) -> None:
        for start in range(low, high, _BLOCK_NODES):
            stop = min(start + _BLOCK_NODES, high)
            degrees = self._table.degrees(direction, start, stop)
            if (degrees < 0).any():
                raise self._damaged("rising offsets")
            side.add(degrees, start)
            alone[start - low : stop - low] &= degrees == 0

    def _in_lists(self) -> Iterator[MergedLists]:
        """Go through the in-neighbours of all targets."""
        last = self._table.num_sources - 1
        try:
            for lists in merged_lists(self._table, "in", _BLOCK_EDGES):
                if len(lists.indices) and (lists.indices.min() < 0 or lists.indices.max() > last):
                    raise self._damaged(f"nodes from 0 to {last}")
                yield lists
        except FormatError as error:
            error.where = edge_type_text(self.type)
            raise

    def _damaged(self, expected: str) -> FormatError:
        return FormatError(
            f"expected {expected}, received others: a file is damaged",
            where=edge_type_text(self.type),
            hint="`graphbox describe NAME --verify` tells which; import the graph again",
        )


def _count_entries(entries: IndexArray, low: int, degrees: npt.NDArray[Any]) -> None:
    """Count the entries from ``low`` on that there are counters for."""
    for start in range(0, len(entries), _BLOCK_EDGES):  # a hub's list is longer than a block
        position = entries[start : start + _BLOCK_EDGES].astype(np.intp)
        if low or len(degrees) <= int(position.max(initial=-1)):
            position -= low
            position = position[(position >= 0) & (position < len(degrees))]
        # Exactly these types: NumPy counts them thirty times faster than those it has to convert.
        np.add.at(degrees, position, degrees.dtype.type(1))


class _Steps:
    """Counts the edges that were gone over, for the progress."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.stage = ""
        self._total = total
        self._done = 0
        self._progress = progress

    def add(self, edges: int) -> None:
        """Count edges that were gone over."""
        self._done += edges
        if self._progress is not None:
            self._progress(self.stage, self._done, self._total)
