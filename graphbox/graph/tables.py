"""The nodes of one type and the edges of one type, as a graph holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.graph import adjacency
from graphbox.graph.adjacency import build_csc, csr_of
from graphbox.graph.columns import Column, SegmentedColumn
from graphbox.graph.ids import Ids, NumberedIds
from graphbox.graph.schema import CSC, CSR, EdgeType, Int64Array

if TYPE_CHECKING:
    from graphbox.graph.snapshot import LiveLists

Value = TypeVar("Value")


class LazyMapping(Mapping[str, Value]):
    """A mapping whose values are made when they are first used.

    Args:
        names: its keys.
        load: makes the value of a key.
    """

    def __init__(self, names: Iterable[str], load: Callable[[str], Value]) -> None:
        self._names = dict.fromkeys(names)
        self._load = load
        self._loaded: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._loaded:
            if name not in self._names:
                raise KeyError(name)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


Direction: TypeAlias = Literal["in", "out"]
"""``in``: rows are targets and hold sources; ``out``: rows are sources and hold targets."""


@dataclass(frozen=True, eq=False)
class NodeTable:
    """The nodes of one type: their ids and features.

    Attributes:
        ids: the original ids.
        features: the features.
        removed: int64 [num_removed], ascending: the nodes that were removed. Their indices stay unused: they
            have no id, no edges, and features that are missing or zero.
        discovered: whether the nodes are those met at the ends of edges, and not the rows of a table.
        imported: what the import read, kept and skipped, by kind.
    """

    ids: Ids
    features: Mapping[str, Column]
    removed: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    discovered: bool = False
    imported: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Number of node indices, those of removed nodes among them."""
        return len(self.ids)

    def column(self, name: str) -> SegmentedColumn:
        """Return a feature, to be read in ranges of rows."""
        return SegmentedColumn([(0, self.features[name])])

    def template(self, name: str) -> Column:
        """Return a feature's column without its rows: its kind, dimension and categories."""
        return self.column(name).read(0, 0)


class Edges(ABC):
    """The edges of one type as a graph holds them.

    Every edge has an id from 0 to ``num_edge_ids - 1``; ids of removed edges stay unused until the graph is
    compacted.

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
    def num_edge_ids(self) -> int:
        """Number of edge ids."""

    @property
    @abstractmethod
    def csc(self) -> CSC:
        """The in-neighbours of the targets."""

    @property
    @abstractmethod
    def csr(self) -> CSR:
        """The out-neighbours of the sources."""

    @abstractmethod
    def lists(self, direction: Direction) -> CSC | CSR | LiveLists:
        """Return the neighbours of every row of one direction, as samplers read them."""

    @property
    @abstractmethod
    def features(self) -> Mapping[str, Column]:
        """Further columns, in the order of edge ids."""

    @abstractmethod
    def stable_ids(self, edge_ids: Int64Array) -> Int64Array:
        """Return the numbers that the edges keep through compaction, int64 [n]."""


class OwnEdges(Edges):
    """Edges that are held as they are, and not derived from those of another type.

    Attributes:
        imported: what the import and later changes read, kept and skipped, by kind.
    """

    imported: Mapping[str, Any]

    @property
    @abstractmethod
    def columns(self) -> tuple[Literal["weight", "timestamp"], ...]:
        """Columns that the edges have, of ``weight`` and ``timestamp``; nothing is read."""

    @property
    @abstractmethod
    def base_order(self) -> Int64Array:
        """The ids of the base's edges in the order of their sources, then targets: int64 [base's edges]."""

    @abstractmethod
    def lists(self, direction: Direction, *, reverse_ids: bool = False) -> CSC | CSR | LiveLists:
        """Return the neighbours of every row of one direction, as samplers read them.

        Args:
            direction: of the edges.
            reverse_ids: give edges their ids in the reverse edge type; only of lists with changes.
        """

    def column(self, name: str) -> SegmentedColumn:
        """Return a feature, to be read in ranges of edge ids."""
        return SegmentedColumn([(0, self.features[name])])

    def template(self, name: str) -> Column:
        """Return a feature's column without its rows: its kind, dimension and categories."""
        return self.column(name).read(0, 0)

    @abstractmethod
    def reversed_as(self, reverse: EdgeType) -> OwnEdges:
        """Return the same edges, which ``reverse`` holds backwards."""

    def without(self, edge_ids: Int64Array) -> EdgeTable:
        """Return the table without some edges."""
        csc = self.csc
        keep_id = np.ones(self.num_edge_ids, bool)
        keep_id[edge_ids] = False
        keep = keep_id if csc.edge_ids is None else keep_id[csc.edge_ids]
        kept = keep if csc.edge_ids is None else csc.edge_ids[keep]
        features = {name: column.take(kept) for name, column in self.features.items()}
        return EdgeTable(
            adjacency.without_edges(csc, keep), features, imported=self.imported, reverse=self.reverse
        )


class EdgeTable(OwnEdges):
    """Edges in arrays of their own, sorted by target; an edge's id is its position.

    Args:
        csc: the adjacency.
        features: further columns, in the order of edge ids.
        imported: what the import read, kept and skipped, by kind.
        reverse: the edge type that holds these edges backwards, or None.
        csr: the out-neighbours, where they are kept as well; else they are derived when first used.
        stable: int64 [num_edges], the stable id of each edge; None when they are the edge ids.
        num_stable: number of stable ids that were ever given; None: as many as there are edges.
    """

    def __init__(
        self,
        csc: CSC,
        features: Mapping[str, Column] | None = None,
        *,
        imported: Mapping[str, Any] | None = None,
        reverse: EdgeType | None = None,
        csr: CSR | None = None,
        stable: Int64Array | None = None,
        num_stable: int | None = None,
    ) -> None:
        self._csc = csc
        self._features = dict(features or {})
        self.imported = dict(imported or {})
        self.reverse = reverse
        self.stored_csr = csr
        self.stable = stable
        self.num_stable = csc.num_edges if num_stable is None else num_stable

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._csc.num_edges

    @property
    def num_edge_ids(self) -> int:
        """Number of edge ids."""
        return self._csc.num_edges

    @property
    def csc(self) -> CSC:
        """The in-neighbours of the targets."""
        return self._csc

    @property
    def columns(self) -> tuple[Literal["weight", "timestamp"], ...]:
        """Columns that the edges have, of ``weight`` and ``timestamp``."""
        return columns_of([self._csc])

    @cached_property
    def csr(self) -> CSR:
        """The out-neighbours of the sources, derived once unless they are kept."""
        if self.stored_csr is None:
            return csr_of(self._csc)
        if columns_of([self.stored_csr]) == self.columns:
            return self.stored_csr
        ids = self.stored_csr.edge_ids
        weight, timestamp = self._csc.weight, self._csc.timestamp
        return replace(
            self.stored_csr,
            weight=None if weight is None else weight[ids],
            timestamp=None if timestamp is None else timestamp[ids],
        )

    def lists(self, direction: Direction, *, reverse_ids: bool = False) -> CSC | CSR | LiveLists:
        """Return the neighbours of every row of one direction, as samplers read them."""
        del reverse_ids
        return self.csc if direction == "in" else self.csr

    @property
    def base_order(self) -> Int64Array:
        """The edge ids in the order of sources, then targets."""
        return self.csr.edge_ids if self.stored_csr is None else self.stored_csr.edge_ids

    @property
    def features(self) -> Mapping[str, Column]:
        """Further columns, in the order of edge ids."""
        return self._features

    def reversed_as(self, reverse: EdgeType) -> EdgeTable:
        """Return the same edges, which ``reverse`` holds backwards."""
        return EdgeTable(
            self._csc,
            self._features,
            imported=self.imported,
            reverse=reverse,
            csr=self.stored_csr,
            stable=self.stable,
            num_stable=self.num_stable,
        )

    def stable_ids(self, edge_ids: Int64Array) -> Int64Array:
        """Return the numbers that the edges keep through compaction."""
        return edge_ids if self.stable is None else self.stable[edge_ids]


class ReverseEdgeTable(Edges):
    """The edges of another table turned around; arrays are derived from its own when first used.

    The ids of the base's edges are their positions in the order of this table; edges that were added to the
    base have the id that they have in the other table.

    Args:
        forward: the other table.
        forward_type: its edge type.
    """

    def __init__(self, forward: OwnEdges, forward_type: EdgeType) -> None:
        self._forward = forward
        self.reverse = forward_type

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._forward.num_edges

    @property
    def num_edge_ids(self) -> int:
        """Number of edge ids."""
        return self._forward.num_edge_ids

    @cached_property
    def _forward_id(self) -> Int64Array:
        """The forward table's id of each edge id of this one."""
        order = self._forward.base_order
        return np.concatenate([order, np.arange(len(order), self.num_edge_ids)])

    @cached_property
    def own_ids(self) -> Int64Array:
        """This table's id of each edge id of the forward one: int64 [num_edge_ids]."""
        ids = np.empty(self.num_edge_ids, np.int64)
        ids[self._forward_id] = np.arange(self.num_edge_ids)
        return ids

    @cached_property
    def csc(self) -> CSC:
        """The in-neighbours of the targets: the forward table's out-neighbours."""
        csr = self._forward.csr
        is_base = self.num_edges == self.num_edge_ids == len(self._forward.base_order)
        ids = None if is_base else self.own_ids[csr.edge_ids]
        return CSC(csr.indptr, csr.indices, csr.num_targets, csr.weight, csr.timestamp, ids)

    @cached_property
    def csr(self) -> CSR:
        """The out-neighbours of the sources: the forward table's in-neighbours."""
        csc = self._forward.csc
        ids = self.own_ids if csc.edge_ids is None else self.own_ids[csc.edge_ids]
        return CSR(csc.indptr, csc.indices, ids, csc.num_sources, csc.weight, csc.timestamp)

    def lists(self, direction: Direction) -> CSC | CSR | LiveLists:
        """Return the neighbours of every row of one direction, as samplers read them."""
        lists = self._forward.lists("out" if direction == "in" else "in", reverse_ids=True)
        if isinstance(lists, CSC | CSR):
            return self.csc if direction == "in" else self.csr
        return lists

    @cached_property
    def features(self) -> Mapping[str, Column]:
        """The forward table's features, in the order of this table's edge ids."""
        return {name: column.take(self._forward_id) for name, column in self._forward.features.items()}

    def stable_ids(self, edge_ids: Int64Array) -> Int64Array:
        """Return the numbers that the edges keep through compaction: the forward table's."""
        return self._forward.stable_ids(self._forward_id[edge_ids])


def columns_of(parts: Iterable[object]) -> tuple[Literal["weight", "timestamp"], ...]:
    """Return which of ``weight`` and ``timestamp`` all parts of the edges of a type have."""
    names: tuple[Literal["weight", "timestamp"], ...] = ("weight", "timestamp")
    known = list(parts)
    return tuple(name for name in names if known and all(getattr(each, name) is not None for each in known))


def numbered_nodes(num_nodes: int, features: Mapping[str, Column] | None = None) -> NodeTable:
    """Return nodes whose ids are 0 to ``num_nodes - 1``.

    Raises:
        UsageError: there is none.
    """
    if num_nodes < 1:
        raise UsageError(f"expected at least one node, received {num_nodes}")
    return NodeTable(NumberedIds(num_nodes), features or {})


def edge_table(
    source: Int64Array,
    target: Int64Array,
    num_sources: int,
    num_targets: int,
    *,
    weight: npt.ArrayLike | None = None,
    timestamp: npt.ArrayLike | None = None,
    features: Mapping[str, Column] | None = None,
) -> EdgeTable:
    """Return the edge table of a list of edges; weights, timestamps and features are in the list's order.

    Raises:
        UsageError: lengths differ, an index is out of range, a weight is not a positive number, or a
            timestamp not an integer.
    """
    if len(source) != len(target):
        raise UsageError(f"expected as many targets as the {len(source)} sources, received {len(target)}")
    check_range(source, num_sources, "source nodes")
    check_range(target, num_targets, "target nodes")
    csc, order = build_csc(source, target, num_sources, num_targets)
    weights = None if weight is None else _checked_weights(weight, len(source))[order]
    times = None if timestamp is None else index_array(timestamp, "timestamp")
    if times is not None and len(times) != len(source):
        raise UsageError(f"expected {len(source)} timestamps, received {len(times)}")
    return EdgeTable(
        CSC(csc.indptr, csc.indices, num_sources, weights, None if times is None else times[order]),
        {name: column.take(order) for name, column in (features or {}).items()},
    )


def _checked_weights(weight: npt.ArrayLike, num_edges: int) -> npt.NDArray[np.float32]:
    weights = np.asarray(weight, np.float32)
    if weights.shape != (num_edges,):
        raise UsageError(f"expected {num_edges} weights, received shape {list(weights.shape)}")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise UsageError("expected finite positive weights, received others")
    return weights


def added_up(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what several imports read, kept and skipped together: numbers are added, examples joined."""
    total: dict[str, Any] = {}
    for report in reports:
        for key, value in report.items():
            if isinstance(value, Mapping):
                total[key] = added_up([total.get(key, {}), value])
            elif isinstance(value, int):
                total[key] = total.get(key, 0) + value
            else:
                total[key] = [*total.get(key, []), *value]
    return total


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
