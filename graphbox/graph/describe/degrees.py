"""Degrees, self-loops and repeated edges, counted in bounded memory by passes over the mapped arrays."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.graph.describe.histogram import DegreeHistogram
from graphbox.graph.schema import CSC, EdgeType, IndexArray, Int64Array, edge_type_text

if TYPE_CHECKING:
    from graphbox.graph.store import Graph

__all__ = ["DEFAULT_MEMORY_BYTES", "EdgeCounts", "NodeCounts", "Progress", "count_edges", "edge_blocks"]

DEFAULT_MEMORY_BYTES = 1 << 28

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being counted, and how many of how many edges are done."""

_BLOCK_EDGES = 1 << 20
_BLOCK_NODES = 1 << 20
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
        for low in range(0, len(degrees), _BLOCK_NODES):
            block = degrees[low : low + _BLOCK_NODES]
            self.histogram.add(block)
            for at in _largest(block):
                found = (int(block[at]), -(first_node + low + at))
                if found[0]:
                    self.hubs.append(found)
            self.hubs = heapq.nlargest(_HUBS, self.hubs)


def _largest(degrees: npt.NDArray[Any]) -> list[int]:
    """Return the positions of the largest degrees; of equal ones the first."""
    least = np.partition(degrees, -_HUBS)[-_HUBS] if len(degrees) > _HUBS else -1
    above = np.flatnonzero(degrees > least).tolist()
    return [*above, *np.flatnonzero(degrees == least)[: _HUBS - len(above)].tolist()]


@dataclass
class EdgeCounts:
    """What was counted of one edge type.

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
    """What was counted of one node type.

    Attributes:
        isolated: nodes without an edge.
        examples: indices of the first of them.
    """

    isolated: int = 0
    examples: list[int] = field(default_factory=list)


def count_edges(
    graph: Graph,
    removed: Mapping[str, Int64Array],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    progress: Progress | None = None,
) -> tuple[dict[str, NodeCounts], dict[EdgeType, EdgeCounts]]:
    """Count degrees, isolated nodes, self-loops and repeated edges.

    Out-degrees need a counter for each source node. Where those of all nodes do not fit ``memory_bytes``,
    they are counted for one range of nodes after the other, each time with a pass over the edges.

    Args:
        graph: the graph.
        removed: indices of the removed nodes, ascending, by node type.
        memory_bytes: memory for counters.
        progress: called as it goes on.

    Returns:
        The counts by node type, and by edge type without the reverse ones.
    """
    cscs = {each: graph.csc(each) for each in graph.edge_types if not graph.is_reverse(each)}
    range_nodes = max(_BLOCK_NODES, memory_bytes // _BYTES_PER_NODE)
    steps = _Steps(
        cscs, {name: -(-graph.num_nodes(name) // range_nodes) for name in graph.node_types}, progress
    )
    nodes = {node_type: NodeCounts() for node_type in graph.node_types}
    edges = {edge_type: EdgeCounts() for edge_type in cscs}
    for node_type in graph.node_types:
        num_nodes = graph.num_nodes(node_type)
        gone = removed.get(node_type, np.empty(0, np.int64))
        for low in range(0, num_nodes, range_nodes):
            high = min(low + range_nodes, num_nodes)
            alone = np.ones(high - low, np.bool_)
            alone[gone[slice(*np.searchsorted(gone, [low, high]))] - low] = False
            for edge_type, csc in cscs.items():
                counts = edges[edge_type]
                if edge_type[2] == node_type:
                    _add_in_degrees(csc, low, high, counts.into, alone)
                if edge_type[0] == node_type:
                    steps.begin(edge_type)
                    out_degree = _out_degrees(csc, low, high, counts if low == 0 else None, edge_type, steps)
                    counts.out_of.add(out_degree, low)
                    alone[out_degree > 0] = False
            _add_isolated(nodes[node_type], alone, low)
        for edge_type, counts in edges.items():
            if edge_type[2] == node_type:
                counts.into.histogram.remove_zeros(len(gone))
            if edge_type[0] == node_type:
                counts.out_of.histogram.remove_zeros(len(gone))
    return nodes, edges


def _add_in_degrees(csc: CSC, low: int, high: int, side: Side, alone: npt.NDArray[np.bool_]) -> None:
    for start in range(low, high, _BLOCK_NODES):
        stop = min(start + _BLOCK_NODES, high)
        degrees = np.diff(csc.indptr[start : stop + 1])
        side.add(degrees, start)
        alone[start - low : stop - low] &= degrees == 0


def _out_degrees(
    csc: CSC, low: int, high: int, counts: EdgeCounts | None, edge_type: EdgeType, steps: _Steps
) -> npt.NDArray[Any]:
    """Return the out-degrees of the sources ``low`` to ``high - 1``, and count the rest where asked to."""
    degrees = np.zeros(high - low, np.int32 if csc.num_edges < 2**31 else np.int64)
    everything = low == 0 and high == csc.num_sources
    same_type = edge_type[0] == edge_type[2]
    for first_target, lengths, sources, before in edge_blocks(csc.indptr, csc.indices):
        inside = sources if everything else sources[(sources >= low) & (sources < high)] - low
        np.add.at(degrees, inside, 1)
        if counts is not None:
            counts.duplicate_edges += _repeated(sources, lengths, before)
            if same_type:
                targets = np.arange(first_target, first_target + len(lengths), dtype=sources.dtype)
                counts.self_loops += int((np.repeat(targets, lengths) == sources).sum())
        steps.done(len(sources))
    return degrees


def _repeated(sources: IndexArray, lengths: Int64Array, before: int | None) -> int:
    """Return how many entries equal the one before them in their row."""
    same_as_before = sources[1:] == sources[:-1]
    starts = np.cumsum(lengths[:-1])
    starts = starts[(starts > 0) & (starts < len(sources))]
    same_as_before[starts - 1] = False
    return int(same_as_before.sum()) + (before is not None and int(sources[0]) == before)


def edge_blocks(
    indptr: Int64Array,
    indices: IndexArray,
    *,
    block_nodes: int = _BLOCK_NODES,
    block_edges: int = _BLOCK_EDGES,
) -> Iterator[tuple[int, Int64Array, IndexArray, int | None]]:
    """Go through compressed adjacency in blocks of bounded size, none of them empty.

    Yields:
        The first row of the block, how many entries of the block each of its rows has (int64 [rows]), the
        entries, and the last entry before the block where its first row began before, else None.
    """
    for first in range(0, len(indptr) - 1, block_nodes):
        starts = np.asarray(indptr[first : first + block_nodes + 1])
        for low in range(int(starts[0]), int(starts[-1]), block_edges):
            high = min(low + block_edges, int(starts[-1]))
            top = int(np.searchsorted(starts, low, "right")) - 1
            bottom = int(np.searchsorted(starts, high, "left"))
            bounds = np.clip(starts[top : bottom + 1], low, high)
            lengths = bounds[1:] - bounds[:-1]
            before = int(indices[low - 1]) if starts[top] < low else None
            yield first + top, lengths, np.asarray(indices[low:high]), before


def _add_isolated(counts: NodeCounts, alone: npt.NDArray[np.bool_], low: int) -> None:
    counts.isolated += int(alone.sum())
    missing = _EXAMPLES - len(counts.examples)
    for start in range(0, len(alone), _BLOCK_NODES):
        if missing <= 0:
            return
        found = np.flatnonzero(alone[start : start + _BLOCK_NODES])[:missing]
        counts.examples += (found + low + start).tolist()
        missing -= len(found)


class _Steps:
    """Counts the edges that passes have gone over, for the progress."""

    def __init__(
        self, cscs: Mapping[EdgeType, CSC], passes: Mapping[str, int], progress: Progress | None
    ) -> None:
        self._total = sum(csc.num_edges * passes[edge_type[0]] for edge_type, csc in cscs.items())
        self._done = 0
        self._stage = ""
        self._progress = progress

    def begin(self, edge_type: EdgeType) -> None:
        self._stage = edge_type_text(edge_type)

    def done(self, edges: int) -> None:
        self._done += edges
        if self._progress is not None:
            self._progress(self._stage, self._done, self._total)
