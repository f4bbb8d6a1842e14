"""A graph read from disk under budgets in bytes: neighbours, feature rows and slots, changes included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import DoesNotFitError, NotFoundError, UsageError
from graphbox.graph.array_file import ArrayFile
from graphbox.graph.columns import SegmentedColumn
from graphbox.graph.live_nodes import LiveNodeTable
from graphbox.graph.schema import EdgeType, Int64Array, edge_type_text
from graphbox.graph.snapshot import Direction, LiveEdgeTable
from graphbox.graph.tables import OwnEdges
from graphbox.graph.tier import (
    ListFiles,
    Lists,
    Rows,
    TierOptions,
    TierStats,
    open_lists,
)
from graphbox.graph.tiered_edges import EdgeOverlay, TieredEdges, interleaved
from graphbox.native import integer_array
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    from graphbox.graph.store import Graph

Array = npt.NDArray[Any]
DEFAULT_PASS_BYTES = 256 << 20
_PAGE_BYTES = 4096
_HUGE_PAGE_BYTES = 2 << 20


class TieredGraph:
    """A graph on disk that is read in batches, under budgets in bytes; made by :meth:`Graph.tiered`.

    Opening takes no time: tiers fill as they are used. Of a changed graph the lists of the nodes that changes
    touched are held in memory from their first use; ``topology_bytes`` has room set aside for them, and the
    features that changes set are read from their memory-mapped files. Safe for several Python threads.

    Args:
        graph: a graph opened from a folder.
        topology_bytes: the most memory for edges of all types together.
        feature_bytes: the most memory for features of nodes; each gets its share by its size on disk, and
            none more than all of it.
        pass_bytes: the most memory for what loaders sample ahead in passes, and for whole lists that they
            choose edges in.
        options: how files are read.

    Raises:
        UsageError: the graph was built in memory, or a budget is negative.
        DoesNotFitError: ``topology_bytes`` is too little for the lists that changes touched.
        NotFoundError: its files are gone: the folder was written anew after the graph was opened.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        topology_bytes: int = 0,
        feature_bytes: int = 0,
        pass_bytes: int = DEFAULT_PASS_BYTES,
        options: TierOptions | None = None,
    ) -> None:
        _check_budgets(topology_bytes=topology_bytes, feature_bytes=feature_bytes, pass_bytes=pass_bytes)
        self._options = options or TierOptions()
        self._open_edges(graph, topology_bytes)
        self._feature_bytes = feature_bytes
        self._pass_bytes = pass_bytes
        self._rows: dict[tuple[str, str], Rows] = {}
        self._uncached_rows: dict[tuple[str, str], Rows] = {}
        self._slots: dict[tuple[str, str], Lists] = {}
        self._open_features(feature_bytes)

    def _open_edges(self, graph: Graph, topology_bytes: int) -> None:
        self._graph = graph
        files: dict[tuple[EdgeType, Direction], ListFiles] = {}
        overlay_bytes = 0
        for edge_type in graph.edge_types:
            if not graph.is_reverse(edge_type):
                adjacency = _adjacency_files(graph, edge_type)
                overlay_bytes += _overlay_bytes(graph.own_edges(edge_type), [each for _, each in adjacency])
                files |= adjacency
        if overlay_bytes > topology_bytes:
            raise DoesNotFitError(
                f"expected topology_bytes of {counted_bytes(overlay_bytes)} or more, which the lists that "
                f"changes touched take in memory, received {counted_bytes(topology_bytes)}",
                where=f"graph `{graph.name}`",
                hint="give more, or make the changes part of the base with `graphbox compact`",
            )
        self._overlay_bytes = overlay_bytes
        self._topology_bytes = topology_bytes
        self._lists = open_lists(files, budget_bytes=topology_bytes - overlay_bytes, options=self._options)
        self._overlays: dict[tuple[EdgeType, Direction], EdgeOverlay | None] = {}

    def _open_features(self, feature_bytes: int) -> None:
        files = {
            (node_type, name): _feature_files(self._graph, node_type, name)
            for node_type in self._graph.node_types
            for name in self._graph.node_table(node_type).features
        }
        present = {key: each for key, each in files.items() if each is not None}
        budgets = _shares(feature_bytes, {key: _bytes_of(each) for key, each in present.items()})
        for key, each in present.items():
            if isinstance(each, ListFiles):
                opened = open_lists({key: each}, budget_bytes=budgets[key], options=self._options)
                self._slots[key] = opened[key]
            else:
                self._rows[key] = Rows(each, budget_bytes=budgets[key], options=self._options)
                self._uncached_rows[key] = Rows(each, options=self._options)

    @property
    def graph(self) -> Graph:
        """The graph: its types, counts and ids."""
        return self._graph

    def with_topology_bytes(self, cache_bytes: int) -> TieredGraph:
        """Return the same edges with other memory for lists, and without any for features.

        Args:
            cache_bytes: beside the lists that changes touched.
        """
        return TieredGraph(
            self._graph,
            topology_bytes=self._overlay_bytes + cache_bytes,
            pass_bytes=self._pass_bytes,
            options=self._options,
        )

    def with_edges_of(self, graph: Graph, topology_bytes: int) -> TieredGraph:
        """Return the features of this graph, and what memory has of them, with the edges of another one.

        Args:
            graph: a graph of the same nodes.
            topology_bytes: the most memory for its edges.

        Raises:
            UsageError, DoesNotFitError, NotFoundError: as the constructor does.
        """
        found = copy(self)
        found._open_edges(graph, topology_bytes)
        return found

    @property
    def list_bytes(self) -> int:
        """The most memory for neighbour lists, beside those that changes touched."""
        return self._topology_bytes - self._overlay_bytes

    @property
    def feature_bytes(self) -> int:
        """The most memory for features of nodes."""
        return self._feature_bytes

    @property
    def pass_bytes(self) -> int:
        """The most memory for what loaders sample ahead in passes."""
        return self._pass_bytes

    def feature_kind(self, node_type: str, name: str) -> str:
        """Return the kind of a feature, without reading it.

        Raises:
            NotFoundError: there is no such feature.
        """
        changed = self._changed(node_type, name)
        return self._graph.node_table(node_type).features[name].kind if changed is None else changed.kind

    # Edges

    def edges(self, edge_type: EdgeType | str, direction: Direction = "in") -> TieredEdges:
        """Return the neighbours of an edge type, to be read edge by edge, as samplers do.

        Args:
            edge_type: the edge type; for its in-neighbours a reverse one if the CSR of the other is kept on
                disk.
            direction: ``in`` or ``out``; the latter if the CSR is kept on disk, and not of a reverse one.

        Raises:
            NotFoundError: no such edge type, or the CSR that it takes is not on disk.
            UsageError: out-neighbours of a reverse edge type.
        """
        edge_type = self._graph.edge_type(edge_type)
        backwards = self._graph.is_reverse(edge_type)
        if backwards:
            forward = self._graph.reverse_type(edge_type) or edge_type
            if direction == "out":
                raise UsageError(
                    "expected an edge type with edges of its own, received a reverse one",
                    where=edge_type_text(edge_type),
                    hint=f"the in-neighbours of {edge_type_text(forward)} are the same edges",
                )
            edge_type, direction = forward, "out"
        table = self._graph.own_edges(edge_type)
        lists = self._lists.get((edge_type, direction))
        if lists is None and direction == "out" and _has_base(table):
            raise NotFoundError(
                "there are no out-neighbours on disk",
                where=edge_type_text(edge_type),
                hint="import the graph with `csr: true` of this edge type",
            )
        overlay = self._overlay(edge_type, direction, table)
        by_id = self._lists.get((edge_type, "in")) if backwards else None
        return TieredEdges(lists, by_id, overlay, backwards)

    def _overlay(self, edge_type: EdgeType, direction: Direction, table: OwnEdges) -> EdgeOverlay | None:
        key = (edge_type, direction)
        if key not in self._overlays:
            changed = isinstance(table, LiveEdgeTable)
            self._overlays[key] = EdgeOverlay(table, direction) if changed else None
        return self._overlays[key]

    # Features

    def feature_rows(
        self, node_type: str, name: str, nodes: npt.ArrayLike, out: Array | None = None
    ) -> Array:
        """Return rows of a feature, as :meth:`Graph.feature` has them.

        Args:
            node_type: the node type.
            name: a feature of any kind but slots.
            nodes: node indices [n], repeated ones too.
            out: where to put them: a C-contiguous array [n, ...] of the feature's dtype.

        Raises:
            NotFoundError: there is no such feature.
            UsageError: a node index is out of range, ``out`` does not match, or the feature is slots.
            FormatError: a file was truncated meanwhile.
            DataError: the disk does not give the bytes.
        """
        return self._feature_rows(node_type, name, integer_array(nodes, "nodes"), out)

    def read_feature_rows(
        self, node_type: str, name: str, nodes: Int64Array, out: Array, places: Int64Array | None = None
    ) -> Array:
        """Read rows of a feature past the tier's memory: for callers that keep what they want themselves.

        Args:
            node_type: the node type.
            name: a feature of any kind but slots.
            nodes: int64 node indices [n].
            out: where to put them: a C-contiguous array [any, ...] of the feature's dtype.
            places: int64 [n], which row of ``out`` each becomes; None: in their order, ``out`` is [n, ...].

        Raises:
            NotFoundError, UsageError, FormatError, DataError: as :meth:`feature_rows` does.
        """
        rows = self._uncached_rows.get((node_type, name))
        changed = self._changed(node_type, name)
        if rows is None or changed is not None:
            values = self._feature_rows(node_type, name, nodes, None, rows=rows)
            out[slice(None) if places is None else places] = values
            return out
        return rows.read(nodes, out, places=places, whole_pass=True)

    def _feature_rows(
        self,
        node_type: str,
        name: str,
        index: Int64Array,
        out: Array | None,
        rows: Rows | None = None,
    ) -> Array:
        changed = self._changed(node_type, name)
        if (node_type, name) in self._slots or (changed is not None and changed.kind == "slots"):
            raise UsageError(
                "expected a feature with one row for each node, received slots",
                where=f"{node_type}, feature `{name}`",
                hint="read it with slot_lists",
            )
        rows = rows or self._rows.get((node_type, name))
        if changed is None and rows is not None:
            return rows.read(index, out)
        _check_range(index, self._graph.num_nodes(node_type), node_type)
        column = _required(changed, node_type, name)
        touched = np.ones(len(index), bool) if rows is None else column.is_changed(index)
        if rows is None:
            values = column.take(index).values
        else:
            values = rows.read(np.where(touched, 0, index), out)
            if touched.any():
                values[touched] = column.take(index[touched]).values
        if out is None:
            return values
        if values is not out:
            out[...] = values
        return out

    def slot_lists(self, node_type: str, name: str, nodes: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
        """Return the slots of nodes: (offsets int64 [n + 1], values int64).

        Args:
            node_type: the node type.
            name: a feature of kind slots.
            nodes: node indices [n], repeated ones too.

        Raises:
            NotFoundError: there is no such feature.
            UsageError: a node index is out of range, or the feature is of another kind.
            FormatError: a file was truncated meanwhile or is damaged.
            DataError: the disk does not give the bytes.
        """
        changed = self._changed(node_type, name)
        index = integer_array(nodes, "nodes")
        if (node_type, name) in self._rows or (changed is not None and changed.kind != "slots"):
            raise UsageError(
                "expected slots, received a feature with one row for each node",
                where=f"{node_type}, feature `{name}`",
                hint="read it with feature_rows",
            )
        lists = self._slots.get((node_type, name))
        if changed is None and lists is not None:
            return lists.lists(index)
        _check_range(index, self._graph.num_nodes(node_type), node_type)
        column = _required(changed, node_type, name)
        touched = np.ones(len(index), bool) if lists is None else column.is_changed(index)
        new = column.take(index[touched])
        new_offsets = np.zeros(1, np.int64) if new.offsets is None else new.offsets
        if lists is None:
            return new_offsets, new.values
        base_offsets, base_values = lists.lists(index[~touched])
        return interleaved(touched, new_offsets, base_offsets, [(new.values, base_values)])

    def _changed(self, node_type: str, name: str) -> SegmentedColumn | None:
        table = self._graph.node_table(node_type)
        if name not in table.features:
            self._graph.feature(node_type, name)  # says what there is
        return table.column(name) if isinstance(table, LiveNodeTable) else None

    # What it does

    @property
    def stats(self) -> dict[str, TierStats]:
        """Requests and memory of each tier: ``topology``, and features as ``node type/feature``."""
        stats = {}
        if self._lists:
            kept = next(iter(self._lists.values())).stats
            overlays = sum(each.size_bytes for each in self._overlays.values() if each is not None)
            stats["topology"] = replace(
                kept,
                resident_bytes=kept.resident_bytes + overlays,
                budget_bytes=kept.budget_bytes + self._overlay_bytes,
            )
        for key, rows in self._rows.items():
            stats["/".join(key)] = _added(rows.stats, self._uncached_rows[key].stats)
        for key, lists in self._slots.items():
            stats["/".join(key)] = lists.stats
        return stats

    @cached_property
    def backend(self) -> str:
        """Backend in use: ``io_uring, O_DIRECT``, or another and why not io_uring."""
        tiers: list[Rows | Lists] = [*self._lists.values(), *self._rows.values(), *self._slots.values()]
        return tiers[0].backend if tiers else "nothing is on disk"


# Files


def _adjacency_files(graph: Graph, edge_type: EdgeType) -> dict[tuple[EdgeType, Direction], ListFiles]:
    table = graph.own_edges(edge_type)
    if not _has_base(table):
        return {}

    def files(offsets: str, names: Mapping[str, str]) -> ListFiles | None:
        found = {}
        for name, array in names.items():
            try:
                found[name] = graph.array_file(edge_type, array)
            except NotFoundError:
                if name == "indices":
                    return None
        return ListFiles(graph.array_file(edge_type, offsets), found)

    both = {
        "in": files("indptr", {name: name for name in ("indices", "weight", "timestamp")}),
        "out": files("csr-indptr", {"indices": "csr-indices", "edge_ids": "csr-edge-ids"}),
    }
    directions: tuple[Direction, ...] = ("in", "out")
    return {(edge_type, each): found for each in directions if (found := both[each]) is not None}


def _added(kept: TierStats, uncached: TierStats) -> TierStats:
    """Return what a tier and reads past its memory did together."""
    return replace(
        kept,
        requests=kept.requests + uncached.requests,
        misses=kept.misses + uncached.misses,
        read_bytes=kept.read_bytes + uncached.read_bytes,
        read_requests=kept.read_requests + uncached.read_requests,
    )


def _check_budgets(**budgets: int) -> None:
    for name, budget_bytes in budgets.items():
        if budget_bytes < 0:
            raise UsageError(f"expected 0 bytes or more, received {budget_bytes}", where=name)


def _overlay_bytes(table: OwnEdges, directions: Sequence[Direction]) -> int:
    """Return the most memory that the lists which changes touched take, where they can be read."""
    if not isinstance(table, LiveEdgeTable):
        return 0
    return table.overlay_bytes(directions if _has_base(table) else ("in", "out"))


def _has_base(table: OwnEdges) -> bool:
    return not isinstance(table, LiveEdgeTable) or not table.is_new


def _feature_files(graph: Graph, node_type: str, name: str) -> ArrayFile | ListFiles | None:
    """Return where a feature of the base lies; None when a change added the node type."""
    table = graph.node_table(node_type)
    if isinstance(table, LiveNodeTable) and table.base is None:
        return None
    values = graph.feature_file(node_type, name)
    try:
        return ListFiles(graph.feature_file(node_type, name, "offsets"), {"values": values})
    except NotFoundError:
        return values


def _bytes_of(files: ArrayFile | ListFiles) -> int:
    if isinstance(files, ListFiles):
        return files.offsets.data_bytes + sum(each.data_bytes for each in files.items.values())
    return files.data_bytes


def _shares(budget_bytes: int, sizes: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Split a budget by size, smallest first, so that what needs less leaves it to the others."""
    shares = {}
    left, rest = budget_bytes, sum(sizes.values())
    for key, size in sorted(sizes.items(), key=lambda item: item[1]):
        # What keeping all of it takes: its blocks, one byte for each, both in whole huge pages.
        whole = size + size // _PAGE_BYTES + 2 * _HUGE_PAGE_BYTES + 4 * _PAGE_BYTES
        shares[key] = min(whole, left * size // max(rest, 1))
        left, rest = left - shares[key], rest - size
    return shares


def _required(column: SegmentedColumn | None, node_type: str, name: str) -> SegmentedColumn:
    if column is None:
        raise NotFoundError(f"there is no feature `{name}` of `{node_type}` on disk")
    return column


def _check_range(index: Int64Array, size: int, node_type: str) -> None:
    wrong = (index < 0) | (index >= size)
    if wrong.any():
        position = int(np.argmax(wrong))
        raise UsageError(
            f"expected node indices from 0 to {size - 1}, received {index[position]} at position {position}",
            where=f"nodes of type `{node_type}`",
        )
