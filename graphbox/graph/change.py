"""Effects of appended rows and of removals, computed against the current graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.adjacency import index_dtype, sort_edges
from graphbox.graph.columns import Column, missing_row, stacked
from graphbox.graph.ids import Ids, IntegerIds, StringIds
from graphbox.graph.live_nodes import NodeChange
from graphbox.graph.schema import Float32Array, IdType, Int64Array
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable
from graphbox.graph.tables import NodeTable


@dataclass(frozen=True, eq=False)
class NodeRows:
    """Rows of a node table.

    Attributes:
        ids: large_string or int64 Arrow array without nulls, unique.
        features: their features.
        empty_values: number of empty values left out of slot lists, by feature.
    """

    ids: pa.Array
    features: Mapping[str, Column]
    empty_values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Rows of an edge table.

    Attributes:
        source_ids: large_string or int64 Arrow array, null where a cell is empty.
        target_ids: the same of the other end.
        weight: float32 [n] or None.
        timestamp: int64 [n] or None.
        features: further columns.
    """

    source_ids: pa.Array
    target_ids: pa.Array
    weight: Float32Array | None = None
    timestamp: Int64Array | None = None
    features: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True)
class AddedNodes:
    """Counts of the rows of a node table, by outcome.

    Attributes:
        rows: rows read, skipped ones among them.
        added: nodes added.
        updated: nodes that were there and had features set.
        skipped: rows that could not be used, by kind.
        examples: the first of them, by kind.
        empty_values: number of empty values left out of slot lists, by feature.
    """

    rows: int
    added: int
    updated: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    empty_values: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "rows": self.rows,
            "added": self.added,
            "updated": self.updated,
            "skipped": dict(self.skipped),
            "examples": {kind: list(examples) for kind, examples in self.examples.items()},
            "empty_values": dict(self.empty_values),
        }


# Nodes


class ChangingNodes:
    """The nodes of one type while a change is worked out.

    Args:
        node_type: named in messages.
        table: the nodes as they are, or None for a new type.
        kind: what the ids are.
        discovered: whether ids met at the ends of edges become nodes.
    """

    def __init__(self, node_type: str, table: NodeTable | None, kind: IdType, *, discovered: bool) -> None:
        self.node_type = node_type
        self.kind = kind
        self.discovered = discovered
        self._table = table
        self._first = 0 if table is None else table.num_nodes
        self._new = pa.array([], pa.large_string() if kind == "string" else pa.int64())
        self._rows: list[Mapping[str, Column]] = []
        self._updated: Int64Array = np.zeros(0, np.int64)
        self._updates: Mapping[str, Column] = {}
        self._categories: dict[str, pa.Array] = {}

    @property
    def num_nodes(self) -> int:
        """Number of node indices, those of added nodes among them."""
        return self._first + len(self._new)

    @property
    def num_added(self) -> int:
        """Number of added nodes."""
        return len(self._new)

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id among the nodes there were and those added, -1 where it is none."""
        found = np.full(len(ids), -1, np.int64) if self._table is None else self._table.ids.find(ids)
        if len(self._new):
            added = pc.fill_null(pc.index_in(ids, value_set=self._new), -1).to_numpy(zero_copy_only=False)
            found = np.where((found < 0) & (added >= 0), added + self._first, found)
        return found.astype(np.int64, copy=False)

    def add_rows(self, rows: NodeRows, where: str) -> AddedNodes:
        """Take the rows of a node table: ids that are there have their features set, others are new nodes.

        Args:
            rows: the rows.
            where: named in messages.

        Raises:
            UsageError: a feature is none of the type's, of another kind or length, or one that new nodes
                need is missing.
        """
        self._check_features(rows.features, where)
        features = {name: self._recoded(name, column) for name, column in rows.features.items()}
        index = self.find(rows.ids)
        new = np.flatnonzero(index < 0)
        if len(new):
            if len(self._new):  # discovered nodes come after the rows of tables
                raise UsageError("expected node tables before edges", where=where)
            self._new = pa.concat_arrays([self._new, rows.ids.take(pa.array(new))])
            self._rows.append(self._complete({n: c.take(new) for n, c in features.items()}, len(new), where))
        known = np.flatnonzero(index >= 0)
        known = known[np.argsort(index[known])]
        if features and len(known):
            self._updated = index[known]
            self._updates = {name: column.take(known) for name, column in features.items()}
        return AddedNodes(len(rows.ids), len(new), len(self._updated), empty_values=dict(rows.empty_values))

    def meet(self, ids: pa.Array) -> None:
        """Add the ids that are no nodes yet, in the order of their first appearance.

        Raises:
            UsageError: the type has a feature that no node can do without.
        """
        ids = ids.drop_null()
        unknown = ids.filter(pa.array(self.find(ids) < 0)).unique()
        if len(unknown):
            self._new = pa.concat_arrays([self._new, unknown])
            self._rows.append(self._complete({}, len(unknown), f"node type `{self.node_type}`"))

    def change(self) -> NodeChange | None:
        """Return what was changed, or None when nothing was."""
        if not len(self._new) and not len(self._updated) and self._table is not None:
            return None
        names = dict.fromkeys(name for part in self._rows for name in part)
        return NodeChange(
            first=self._first,
            ids=_ids_of(self._new) if len(self._new) or self._table is None else None,
            features={name: stacked([part[name] for part in self._rows]) for name in names},
            updated=self._updated,
            updates=self._updates,
            categories=self._categories,
            discovered=self.discovered,
        )

    def _check_features(self, features: Mapping[str, Column], where: str) -> None:
        if self._table is None:
            return
        for name, column in features.items():
            if name not in self._table.features:
                raise UsageError(
                    f"expected features that nodes of type `{self.node_type}` have, received `{name}`",
                    where=where,
                    hint=did_you_mean(name, self._table.features)
                    or "import the graph again to add a feature",
                )
            check_kind(name, self._table.template(name), column, where)

    def _recoded(self, name: str, column: Column) -> Column:
        if column.categories is None:
            return column
        known = None if self._table is None else self._table.template(name).categories
        recoded, added = recode(column, known)
        if len(added) or known is None:
            self._categories[name] = added
        return recoded

    def _complete(self, features: Mapping[str, Column], count: int, where: str) -> dict[str, Column]:
        """Return the features of new nodes, with those that were not given missing."""
        if self._table is None:
            return dict(features)
        complete = {}
        for name in self._table.features:
            known = self._table.template(name)
            if name in features:
                complete[name] = features[name]
                continue
            if known.kind in ("integer", "boolean"):
                raise UsageError(
                    f"expected the feature `{name}` of every new node ({known.kind} has no missing value)",
                    where=where,
                    hint="give it, or append only nodes that are there",
                )
            row = missing_row(known.kind, known.values.shape[1:])
            complete[name] = row.take(np.zeros(count, np.int64))
        return complete


def _ids_of(values: pa.Array) -> Ids:
    return IntegerIds(values.to_numpy()) if pa.types.is_int64(values.type) else StringIds.of(values)


# Features


def check_kind(name: str, known: Column, given: Column, where: str) -> None:
    """Raise when a feature is of another kind, or its vectors of another length, than the graph has."""
    wanted, received = _kind_in_words(known), _kind_in_words(given)
    if wanted != received and len(given):
        raise UsageError(
            f"expected {wanted}, as the graph has, received {received}",
            where=f"{where}, feature `{name}`",
            hint="give the feature the kind it was imported with",
        )


def _kind_in_words(column: Column) -> str:
    return f"vector of {column.values.shape[1]}" if column.kind == "vector" else column.kind


def recode(column: Column, known: pa.Array | None) -> tuple[Column, pa.Array]:
    """Return a categorical column in the codes of a graph, and the categories that are new to it.

    The categories that are there keep their codes; new ones, of those that occur, follow in ascending order.

    Args:
        column: the column.
        known: the graph's categories; None: none, for a new feature.
    """
    categories = pa.array([], pa.large_string()) if column.categories is None else column.categories
    if known is None:
        known = pa.array([], pa.large_string())
    used = np.unique(column.values[column.values >= 0])
    code = np.full(len(categories) + 1, -1, np.int64)  # the last one is of -1, missing
    within = pc.fill_null(pc.index_in(categories, value_set=known), -1).to_numpy(zero_copy_only=False)
    code[:-1] = within
    added = used[within[used] < 0] if len(used) else used
    code[added] = len(known) + np.arange(len(added))
    values = code[column.values].astype(np.int32)
    return Column(column.kind, values, known), categories.take(pa.array(added))


# Edges


@dataclass(frozen=True, eq=False)
class AddedEdges:
    """Edges that a table adds, and rows that it does not.

    Attributes:
        change: the added edges.
        dangling: rows with an end that is missing or no node.
        duplicate: rows that repeat an edge, of the table or of the graph.
        self_loops: number of added edges from a node to itself.
    """

    change: EdgeChange
    dangling: Int64Array
    duplicate: Int64Array
    self_loops: int


def change_of_edges(
    table: LiveEdgeTable,
    rows: EdgeRows,
    sources: ChangingNodes,
    targets: ChangingNodes,
    *,
    is_new: bool,
    keep_duplicates: bool,
    where: str,
) -> AddedEdges:
    """Return what appending rows does to the edges of one type.

    Args:
        table: the edges as they are.
        rows: the rows.
        sources: the nodes of the source type; ids are added to them where the type discovers its nodes.
        targets: the same of the target type.
        is_new: whether the edge type is new to the graph.
        keep_duplicates: keep every edge of a repeated (source, target).
        where: named in messages.

    Raises:
        UsageError: a column is missing, or is none of the edge type's.
    """
    if not is_new:
        _check_edge_columns(table, rows, where)
    _meet_ends(rows, sources, targets)
    source, target = sources.find(rows.source_ids), targets.find(rows.target_ids)
    found = np.flatnonzero((source >= 0) & (target >= 0))
    order = sort_edges(source[found], target[found], sources.num_nodes, targets.num_nodes)
    kept = found[order]
    same = (source[kept[1:]] == source[kept[:-1]]) & (target[kept[1:]] == target[kept[:-1]])
    repeated = np.concatenate([np.zeros(min(len(kept), 1), bool), same])
    repeated |= table.contains(source[kept], target[kept])
    duplicate = np.sort(kept[repeated])
    if not keep_duplicates:
        kept = kept[~repeated]
    features, categories = {}, {}
    for name, column in rows.features.items():
        taken = column.take(kept)
        if taken.categories is not None:
            known = None if is_new else table.template(name).categories
            taken, added = recode(taken, known)
            if len(added) or known is None:
                categories[name] = added
        features[name] = taken
    change = EdgeChange(
        first=table.num_edge_ids,
        source=source[kept].astype(index_dtype(sources.num_nodes)),
        target=target[kept].astype(index_dtype(targets.num_nodes)),
        weight=None if rows.weight is None else rows.weight[kept],
        timestamp=None if rows.timestamp is None else rows.timestamp[kept],
        features=features,
        categories=categories,
    )
    loops = int((source[kept] == target[kept]).sum()) if sources is targets else 0
    return AddedEdges(change, np.flatnonzero((source < 0) | (target < 0)), duplicate, loops)


def _meet_ends(rows: EdgeRows, sources: ChangingNodes, targets: ChangingNodes) -> None:
    """Add the ends that are no nodes yet, of the types without a table, row by row, source before target."""
    whole = pc.and_(rows.source_ids.is_valid(), rows.target_ids.is_valid())
    ends = rows.source_ids.filter(whole), rows.target_ids.filter(whole)
    if sources is targets and sources.discovered:
        count = len(ends[0])
        turns = np.arange(2 * count).reshape(2, count).T.reshape(-1)
        sources.meet(pa.concat_arrays(ends).take(pa.array(turns)))
        return
    for nodes, ids in zip((sources, targets), ends, strict=True):
        if nodes.discovered:
            nodes.meet(ids)


def _check_edge_columns(table: LiveEdgeTable, rows: EdgeRows, where: str) -> None:
    for name, given in (("weight", rows.weight), ("timestamp", rows.timestamp)):
        if (name in table.columns) == (given is None):
            has, receives = ("no", "one") if given is not None else ("a", "none")
            raise UsageError(
                f"expected {has} {name} as the graph has, received {receives}",
                where=where,
                hint=f"give the edge type the same {name} that it was imported with",
            )
    features = list(table.features)
    missing, unknown = set(features) - set(rows.features), set(rows.features) - set(features)
    if missing or unknown:
        raise UsageError(
            f"expected the features {', '.join(features) or 'none'}, as the graph has, "
            f"received {', '.join(rows.features) or 'none'}",
            where=where,
            hint="give the edge type the same features that it was imported with",
        )
    for name, column in rows.features.items():
        check_kind(name, table.template(name), column, where)
