"""Estimate of memory accesses: what a training reads, how often in an epoch, and how unevenly.

A sampler or a walk meets a node in proportion to its edges; a batch reads each of its nodes once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.placement import DataPart

KNOWN_BYTES = 20
"""HBM bytes of the index of a row of features that may be there: its place, its name and its uses."""

_SECTOR_BYTES = 32
"""Smallest read of a GPU."""
_POINTER_BYTES = 8
_SLOT_BYTES = 94
"""HBM bytes of a row beside itself: its key, its place in the hash (twice during a rehash), and marks."""
_STAGED_SHARE = 0.25
"""Buffers of pulls and prefetches: the most, as a share of all rows; of large tables less."""
_KNOWN_OF_LIST_BYTES = 20
"""HBM bytes of the index of each list where not all are there: where it begins, its place, its uses."""
_KNOWN_IN_TIERS_BYTES = 28
"""The same for lists on SSD: their place in pinned memory, too."""
_BLOCK_EDGES = 1 << 22

_STATE_NUMBERS = {"rowwise_adagrad": (0, 1), "adagrad": (1, 0), "adam": (2, 1)}
"""Numbers that an optimizer keeps for each number of a row, and for the row."""


@dataclass(frozen=True, eq=False)
class DegreeClasses:
    """Degree distribution of the nodes of a type.

    Attributes:
        nodes: int64 [classes], number of nodes of each class.
        degree: float64 [classes], the edges of each node, of both directions.
        known_by: source of the distribution, for people.
    """

    nodes: NDArray[np.int64]
    degree: NDArray[np.float64]
    known_by: str

    @classmethod
    def even(cls, nodes: int, edges: float) -> DegreeClasses:
        """Return those of a graph of which only the numbers of nodes and edges are known."""
        mean = np.array([edges / max(nodes, 1)])
        return cls(np.array([nodes]), mean, "not known: all alike, as the graph is not imported yet")

    @classmethod
    def of(cls, graph: Graph) -> dict[str, DegreeClasses]:
        """Return those of a graph by node type; all its edges are read once."""
        degrees = {name: np.zeros(graph.num_nodes(name), np.int64) for name in graph.node_types}
        for edge_type in graph.edge_types:
            if graph.is_reverse(edge_type):
                continue
            csc = graph.csc(edge_type)
            degrees[edge_type[2]] += np.diff(csc.indptr)
            sources = degrees[edge_type[0]]
            for start in range(0, len(csc.indices), _BLOCK_EDGES):
                sources += np.bincount(csc.indices[start : start + _BLOCK_EDGES], minlength=len(sources))
        found = {name: np.unique(each, return_counts=True) for name, each in degrees.items()}
        return {
            name: cls(nodes.astype(np.int64), degree.astype(np.float64), "degrees of the nodes")
            for name, (degree, nodes) in found.items()
        }

    @property
    def count(self) -> int:
        """Number of nodes."""
        return int(self.nodes.sum())

    def met(self, times: float, evenly: float = 0.0, most: float = math.inf) -> NDArray[np.float64]:
        """Return how often each node is met.

        Args:
            times: meetings of all nodes together, in proportion to their edges.
            evenly: meetings that all nodes have alike, together.
            most: of one node.
        """
        total = float(self.nodes @ self.degree)
        by_degree = self.degree / total if total else np.full(len(self.nodes), 1 / max(self.count, 1))
        return np.minimum(times * by_degree + evenly / max(self.count, 1), most)


@dataclass(frozen=True)
class DegreeModel:
    """Inputs for estimating the memory accesses of a training.

    Attributes:
        counts: sizes of the graph.
        degrees: by node type; nodes of types that are left out count as equal.
        in_tiers: whether the graph's lists are on SSD.
    """

    counts: GraphCounts
    degrees: Mapping[str, DegreeClasses]
    in_tiers: bool = False

    def classes(self, node_type: str) -> DegreeClasses:
        """Return the degrees of the nodes of a type."""
        if node_type in self.degrees:
            return self.degrees[node_type]
        nodes = self.counts.nodes.get(node_type, 0)
        edges = sum(
            count * ((each[0] == node_type) + (each[2] == node_type))
            for each, count in self.counts.edges.items()
        )
        return DegreeClasses.even(nodes, edges)

    def types(self, relations: Sequence[EdgeType]) -> list[str]:
        """Return the node types at the ends of some edge types, of all where none is named."""
        touched = {end for each in relations or self.counts.edges for end in (each[0], each[2])}
        return [name for name in self.counts.nodes if name in touched] or list(self.counts.nodes)

    def rows(
        self, name: str, node_type: str, dim: int, optimizer: str, accesses: NDArray[np.float64]
    ) -> DataPart:
        """Return the table rows of the nodes of a type.

        Args:
            name: what they are, for people.
            node_type: the type.
            dim: numbers of a row.
            optimizer: the table's.
            accesses: float64 [classes], accesses of a row in an epoch.
        """
        classes = self.classes(node_type)
        return table_rows(name, dim, optimizer, classes.nodes, accesses, classes.known_by)

    def lists(self, node_type: str, met: NDArray[np.float64], draws: float, relations: int = 1) -> DataPart:
        """Return the neighbour lists of the nodes of a type.

        Args:
            node_type: the type.
            met: float64 [classes], reads of the lists of a node in an epoch.
            draws: numbers of a read, of all lists of a node together.
            relations: lists of a node.
        """
        classes = self.classes(node_type)
        width = 4 if max(self.counts.nodes.values(), default=0) < 1 << 31 else 8
        offset_bytes = _POINTER_BYTES * (1 + 1 / max(classes.count, 1))  # and one more at the end of all
        known = _KNOWN_IN_TIERS_BYTES if self.in_tiers else _KNOWN_OF_LIST_BYTES
        return DataPart(
            f"neighbours of {node_type}",
            "topology",
            classes.nodes,
            offset_bytes * relations + width * classes.degree,
            met,
            _SECTOR_BYTES * (relations + draws),
            _SECTOR_BYTES,
            classes.known_by,
            known_bytes=known * relations,
        )


def table_rows(
    name: str,
    dim: int,
    optimizer: str,
    rows: NDArray[np.int64],
    accesses: NDArray[np.float64],
    known_by: str,
) -> DataPart:
    """Return the rows of a table with their optimizer's state: each access reads a row and writes it.

    Args:
        name: what they are, for people.
        dim: numbers of a row.
        optimizer: the table's.
        rows: int64 [classes], how many there are.
        accesses: float64 [classes], accesses of a row in an epoch.
        known_by: where the numbers of accesses are from, for people.
    """
    for_each, more = _STATE_NUMBERS[optimizer]
    row_bytes = 4 * ((1 + for_each) * dim + more)
    size = np.full(len(rows), (1 + _STAGED_SHARE) * row_bytes + _SLOT_BYTES)
    return DataPart(name, "tables", rows, size, accesses, 2.0 * row_bytes, row_bytes, known_by)
