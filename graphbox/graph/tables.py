"""The nodes of one type and the edges of one type, as a graph holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.graph import adjacency
from graphbox.graph.adjacency import build_csc, csr_of
from graphbox.graph.columns import Column
from graphbox.graph.ids import Ids, IntegerIds
from graphbox.graph.schema import CSC, CSR, EdgeType, Int64Array

__all__ = [
    "EdgeTable",
    "NodeTable",
    "ReverseEdgeTable",
    "check_range",
    "edge_table",
    "index_array",
    "numbered_nodes",
]


@dataclass(frozen=True, eq=False)
class NodeTable:
    """The nodes of one type: their ids and features."""

    ids: Ids
    features: Mapping[str, Column]

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)


class Edges(ABC):
    """The edges of one type as a graph holds them.

    Attributes:
        reverse: the edge type that holds these edges backwards, or None.
    """

    reverse: EdgeType | None

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Number of edges."""

    @property
    @abstractmethod
    def csc(self) -> CSC:
        """The in-neighbours of the targets."""

    @property
    @abstractmethod
    def csr(self) -> CSR:
        """The out-neighbours of the sources."""

    @property
    @abstractmethod
    def features(self) -> Mapping[str, Column]:
        """Further columns, in the order of edge ids."""


class EdgeTable(Edges):
    """Edges with arrays of their own.

    Args:
        csc: the adjacency.
        features: further columns, in the order of edge ids.
        imported: what the import read, kept and skipped, by kind.
        reverse: the edge type that holds these edges backwards, or None.
    """

    def __init__(
        self,
        csc: CSC,
        features: Mapping[str, Column] | None = None,
        *,
        imported: Mapping[str, int] | None = None,
        reverse: EdgeType | None = None,
    ) -> None:
        self._csc = csc
        self._features = dict(features or {})
        self.imported = dict(imported or {})
        self.reverse = reverse

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._csc.num_edges

    @property
    def csc(self) -> CSC:
        """The in-neighbours of the targets."""
        return self._csc

    @cached_property
    def csr(self) -> CSR:
        """The out-neighbours of the sources, derived once."""
        return csr_of(self._csc)

    @property
    def features(self) -> Mapping[str, Column]:
        """Further columns, in the order of edge ids."""
        return self._features

    def without(self, edge_ids: Int64Array) -> EdgeTable:
        """Return the table without some edges."""
        keep = np.ones(self.num_edges, bool)
        keep[edge_ids] = False
        features = {name: column.take(keep) for name, column in self._features.items()}
        csc = adjacency.without_edges(self._csc, keep)
        return EdgeTable(csc, features, imported=self.imported, reverse=self.reverse)

    def reversed_as(self, reverse: EdgeType) -> EdgeTable:
        """Return the same edges, which ``reverse`` holds backwards."""
        return EdgeTable(self._csc, self._features, imported=self.imported, reverse=reverse)


class ReverseEdgeTable(Edges):
    """The edges of another table turned around; arrays are derived from its own when first used.

    Args:
        forward: the other table.
        forward_type: its edge type.
    """

    def __init__(self, forward: EdgeTable, forward_type: EdgeType) -> None:
        self._forward = forward
        self.reverse = forward_type

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._forward.num_edges

    @cached_property
    def _both(self) -> tuple[CSC, CSR]:
        return adjacency.reverse_of(self._forward.csc, self._forward.csr)

    @property
    def csc(self) -> CSC:
        """The in-neighbours of the targets: the forward table's out-neighbours."""
        return self._both[0]

    @property
    def csr(self) -> CSR:
        """The out-neighbours of the sources: the forward table's in-neighbours."""
        return self._both[1]

    @cached_property
    def features(self) -> Mapping[str, Column]:
        """The forward table's features, in the order of this table's edge ids."""
        edge_ids = self._forward.csr.edge_ids
        return {name: column.take(edge_ids) for name, column in self._forward.features.items()}


def numbered_nodes(num_nodes: int, features: Mapping[str, Column] | None = None) -> NodeTable:
    """Return nodes whose ids are 0 to ``num_nodes - 1``.

    Raises:
        UsageError: there is none.
    """
    if num_nodes < 1:
        raise UsageError(f"expected at least one node, received {num_nodes}")
    numbers = np.arange(num_nodes, dtype=np.int64)
    return NodeTable(IntegerIds(numbers, numbers), features or {})


def edge_table(
    source: Int64Array,
    target: Int64Array,
    num_sources: int,
    num_targets: int,
    *,
    weight: npt.ArrayLike | None = None,
) -> EdgeTable:
    """Return the edge table of a list of edges.

    Raises:
        UsageError: lengths differ, an index is out of range, or a weight is not a positive number.
    """
    if len(source) != len(target):
        raise UsageError(f"expected as many targets as the {len(source)} sources, received {len(target)}")
    check_range(source, num_sources, "source nodes")
    check_range(target, num_targets, "target nodes")
    csc, order = build_csc(source, target, num_sources, num_targets)
    if weight is None:
        return EdgeTable(csc)
    weights = np.asarray(weight, np.float32)
    if weights.shape != source.shape:
        raise UsageError(f"expected {len(source)} weights, received shape {list(weights.shape)}")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise UsageError("expected finite positive weights, received others")
    return EdgeTable(CSC(csc.indptr, csc.indices, num_sources, weights[order]))


def index_array(values: npt.ArrayLike, what: str) -> Int64Array:
    """Return integers [n] as int64.

    Raises:
        UsageError: they are of another type or shape.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise UsageError(f"expected integers [n], received {array.dtype} {list(array.shape)}", where=what)
    return array.astype(np.int64, copy=False)


def check_range(index: Int64Array, size: int, what: str) -> None:
    """Check that every index is in [0, size).

    Raises:
        UsageError: naming the first that is not.
    """
    if len(index) and (index.min() < 0 or index.max() >= size):
        wrong = index[(index < 0) | (index >= size)][0]
        raise UsageError(f"expected indices from 0 to {size - 1} ({what}), received {wrong}")
