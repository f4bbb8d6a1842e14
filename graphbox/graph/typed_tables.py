"""Contents of a graph by node type and edge type: counts, adjacency, ids, features, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import NotFoundError, UsageError, did_you_mean
from graphbox.graph.array_file import ArrayFile
from graphbox.graph.columns import Column
from graphbox.graph.format import Snapshot, check_digests
from graphbox.graph.ids import IdsLike
from graphbox.graph.layout import array_names
from graphbox.graph.schema import CSC, CSR, EdgeType, FeatureSpec, IdType, Int64Array, edge_type_text
from graphbox.graph.snapshot import LiveLists, as_live
from graphbox.graph.tables import (
    Direction,
    Edges,
    NodeTable,
    OwnEdges,
    ReverseEdgeTable,
    check_range,
    index_array,
)


class TypedTables:
    """Node tables and edge tables by type.

    Args:
        name: name of the graph.
        nodes: node tables by type.
        edges: edge tables by type; those of reverse edge types are derived and not among them.
        path: the folder it was opened from.
        size_bytes: bytes on disk, when it was opened from one.
        folder: what was opened, when it was opened from a folder.
        edge_files: of edge types whose edges are in files elsewhere, these by the names of
            :meth:`array_file`.
    """

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, NodeTable],
        edges: Mapping[EdgeType, OwnEdges],
        *,
        path: Path | None = None,
        size_bytes: int | None = None,
        folder: Snapshot | None = None,
        edge_files: Mapping[EdgeType, Mapping[str, ArrayFile]] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.size_bytes = size_bytes
        self._folder = folder
        self._edge_files = {} if edge_files is None else edge_files
        self._nodes = dict(nodes)
        self._edges: dict[EdgeType, Edges] = {}
        for edge_type, table in edges.items():
            self._add_edge_type(edge_type, table)

    def _add_edge_type(self, edge_type: EdgeType, table: OwnEdges) -> None:
        added: dict[EdgeType, Edges] = {edge_type: table}
        if table.reverse is not None:
            added[table.reverse] = ReverseEdgeTable(table, edge_type)
        for each, edges in added.items():
            if each in self._edges:
                raise UsageError(
                    "expected each edge type once, received it twice", where=edge_type_text(each)
                )
            self._edges[each] = edges

    # Types and counts

    @property
    def node_types(self) -> list[str]:
        """The node types."""
        return list(self._nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types, each followed by its reverse where it has one."""
        return list(self._edges)

    def edge_type(self, edge_type: EdgeType | str | None = None) -> EdgeType:
        """Return the edge type a caller means.

        Args:
            edge_type: the triple, ``source__relation__target``, a relation that only one edge type has, or
                None for the only edge type.

        Raises:
            NotFoundError: there is none.
            UsageError: there are several.
        """
        if edge_type is None:
            found = list(self._edges)
        elif isinstance(edge_type, str):
            found = [known for known in self._edges if edge_type in (known[1], edge_type_text(known))]
        else:
            found = [known for known in self._edges if known == tuple(edge_type)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(
                f"expected which of the {len(found)} edge types is meant, received {edge_type!r}",
                hint=f"name one of {', '.join(map(edge_type_text, found))}",
            )
        known = [edge_type_text(each) for each in self._edges]
        received = edge_type if isinstance(edge_type, str) else edge_type_text(edge_type or ("", "", ""))
        raise NotFoundError(
            f"there is no edge type `{received}` in the graph `{self.name}`",
            hint=did_you_mean(received, [*known, *(each[1] for each in self._edges)])
            or f"there are {', '.join(known) or 'none'}",
        )

    def num_nodes(self, node_type: str | None = None) -> int:
        """Return the number of node indices of a type (None: the only type), see :meth:`removed_nodes`."""
        return self._node_table(node_type).num_nodes

    def num_edges(self, edge_type: EdgeType | str | None = None) -> int:
        """Return the number of edges of a type (None: the only type)."""
        return self._edge_table(edge_type).num_edges

    def num_removed(self, node_type: str | None = None) -> int:
        """Return how many of the node indices of a type are those of removed nodes."""
        return len(self._node_table(node_type).removed)

    def removed_nodes(self, node_type: str | None = None) -> Int64Array:
        """Return the node indices of removed nodes: int64, ascending.

        An index is never used again. It has no edges; its id reads "" or 0 (null in Arrow), its features as
        missing: NaN, -1, zero, no slots.
        """
        return self._node_table(node_type).removed

    def num_edge_ids(self, edge_type: EdgeType | str | None = None) -> int:
        """Return how many edge ids there are: more than edges when a change removed some."""
        return self._edge_table(edge_type).num_edge_ids

    def reverse_type(self, edge_type: EdgeType | str) -> EdgeType | None:
        """Return the edge type that holds the same edges backwards, or None."""
        return self._edge_table(edge_type).reverse

    def is_reverse(self, edge_type: EdgeType | str) -> bool:
        """Return whether the edge type is derived from another one by turning its edges around."""
        return isinstance(self._edge_table(edge_type), ReverseEdgeTable)

    def imported(self, edge_type: EdgeType | str) -> dict[str, Any]:
        """Return what the import and later changes read, kept and skipped, by kind.

        Empty for a reverse edge type and for a graph built in memory.
        """
        table = self._edge_table(edge_type)
        return dict(table.imported) if isinstance(table, OwnEdges) else {}

    # Edges

    def csc(self, edge_type: EdgeType | str | None = None) -> CSC:
        """Return the in-neighbours of the target nodes (None: of the only edge type)."""
        return self._edge_table(edge_type).csc

    def csr(self, edge_type: EdgeType | str | None = None) -> CSR:
        """Return the out-neighbours of the source nodes; derived from the CSC and kept."""
        return self._edge_table(edge_type).csr

    def lists(self, edge_type: EdgeType | str | None, direction: Direction) -> CSC | CSR | LiveLists:
        """Return the neighbours of all nodes as samplers read them.

        Of a graph with changes these are the base's arrays with new lists of the touched nodes, in memory in
        proportion to the changes, where :meth:`csc` and :meth:`csr` merge all edges.

        Args:
            edge_type: None: the only one.
            direction: ``in`` for the in-neighbours of the targets, ``out`` for the out-neighbours of the
                sources.
        """
        return self._edge_table(edge_type).lists(direction)

    def edge_features(self, edge_type: EdgeType | str | None = None) -> dict[str, FeatureSpec]:
        """Return the features of an edge type by name."""
        return {name: column.spec for name, column in self._edge_table(edge_type).features.items()}

    def edge_feature(self, edge_type: EdgeType | str | None, name: str) -> npt.NDArray[Any]:
        """Return one feature of the edges, in the order of edge ids; see ``edge_ids`` of :class:`CSC`.

        Raises:
            NotFoundError: there is no such feature.
        """
        resolved = self.edge_type(edge_type)
        return _feature(self._edges[resolved].features, name, edge_type_text(resolved)).values

    def stable_edge_ids(self, edge_type: EdgeType | str | None, edge_ids: npt.ArrayLike) -> Int64Array:
        """Return the numbers that edges keep through compaction, which renumbers edge ids.

        Args:
            edge_type: the edge type; both directions of an edge have the same number.
            edge_ids: integers [n].

        Raises:
            UsageError: an edge id is out of range.
        """
        table = self._edge_table(edge_type)
        positions = index_array(edge_ids, "edge ids")
        check_range(positions, table.num_edge_ids, "edge ids")
        return table.stable_ids(positions)

    # Nodes

    def ids(self, node_type: str, index: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return original ids.

        Args:
            node_type: the node type.
            index: node indices; None for all.

        Returns:
            An object array of str, or int64.

        Raises:
            UsageError: an index is out of range.
        """
        table = self._node_table(node_type)
        if index is None:
            return table.ids.take(np.arange(table.num_nodes))
        indices = index_array(index, "index")
        check_range(indices, table.num_nodes, f"nodes of type `{node_type}`")
        return table.ids.take(indices)

    def index(self, node_type: str, ids: IdsLike, missing: Literal["raise", -1] = "raise") -> Int64Array:
        """Return the node index of each original id.

        Args:
            node_type: the node type.
            ids: a list or array of strings or integers, as the type's ids are.
            missing: ``"raise"``, or -1 to give -1 for an id that is not there.

        Returns:
            int64 [len(ids)].

        Raises:
            NotFoundError: ids are not there; the message has the first of them.
            UsageError: the ids are of another kind.
        """
        return self._node_table(node_type).ids.index(ids, node_type=node_type, missing=missing)

    def arrow_ids(self, node_type: str) -> pa.Array:
        """Return all original ids as an Arrow array of type large_string or int64."""
        return self._node_table(node_type).ids.values

    def features(self, node_type: str) -> dict[str, FeatureSpec]:
        """Return the features of a node type by name."""
        return {name: column.spec for name, column in self._node_table(node_type).features.items()}

    def feature(self, node_type: str, name: str) -> npt.NDArray[Any]:
        """Return one feature of all nodes of a type; its :class:`FeatureSpec` says what the array holds.

        Of slots these are the values of all nodes, one after the other; :meth:`slot_lists` has their places.

        Raises:
            NotFoundError: there is no such feature.
        """
        return _feature(self._node_table(node_type).features, name, node_type).values

    def feature_rows(self, node_type: str, name: str, start: int, stop: int) -> Column:
        """Return a feature of the nodes ``start`` to ``stop - 1``, without reading that of the others.

        Raises:
            NotFoundError: there is no such feature.
        """
        table = self._node_table(node_type)
        if name not in table.features:
            raise _no_feature(table.features, name, node_type)
        return table.column(name).read(start, stop)

    def slot_lists(self, node_type: str, name: str) -> tuple[Int64Array, Int64Array]:
        """Return the slots of all nodes of a type.

        Returns:
            Offsets int64 [num_nodes + 1] and values int64: node ``i`` has
            ``values[offsets[i]:offsets[i + 1]]``.

        Raises:
            NotFoundError: there is no such feature.
            UsageError: it is a feature of another kind.
        """
        column = _feature(self._node_table(node_type).features, name, node_type)
        if column.offsets is None:
            raise UsageError(
                f"expected a feature of the kind `slots`, received one of the kind `{column.kind}`",
                where=f"node type `{node_type}`, feature `{name}`",
                hint="`Graph.feature` returns it",
            )
        return column.offsets, column.values

    def id_type(self, node_type: str) -> IdType:
        """Return what the original ids of a node type are: ``string`` or ``int64``."""
        return self._node_table(node_type).ids.kind

    def node_columns(self, node_type: str) -> dict[str, Column]:
        """Return the features of a node type with their arrays, by name."""
        return dict(self._node_table(node_type).features)

    def edge_columns(self, edge_type: EdgeType | str) -> dict[str, Column]:
        """Return the features of an edge type with their arrays, by name."""
        return dict(self._edge_table(edge_type).features)

    # Tables

    def node_table(self, node_type: str) -> NodeTable:
        """Return the nodes of a type as they are held, for what reads their features piece by piece."""
        return self._node_table(node_type)

    def own_edges(self, edge_type: EdgeType) -> OwnEdges:
        """Return the edges of a type as they are held, for what reads a changed graph without merging it.

        Raises:
            UsageError: the edge type is a reverse one, whose edges are those of the other.
        """
        edges = self._edge_table(edge_type)
        if not isinstance(edges, OwnEdges):
            raise UsageError(
                "expected an edge type with edges of its own, received a reverse one",
                where=edge_type_text(edge_type),
            )
        return edges

    # Files

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Manifest of the folder as of its opening (docs/formats/graph.md).

        Raises:
            UsageError: the graph was built in memory.
        """
        return self._opened().manifest

    @property
    def version(self) -> str:
        """Version of the folder that was opened: the checksum of its manifest.

        Raises:
            UsageError: the graph was built in memory.
        """
        return self._opened().version

    def check_digests(self) -> None:
        """Read every file that was opened and compare it with its digest.

        Raises:
            FormatError: naming the files that are damaged.
            UsageError: the graph was built in memory.
        """
        check_digests(self._opened())

    def array_file(self, of: str | EdgeType, array: str) -> ArrayFile:
        """Return where an array of the base lies on disk, for readers that do their own input and output.

        Args:
            of: a node type, or an edge type with edges of its own.
            array: of a node type ``ids`` (int64), ``ids-offsets``, ``ids-text`` (string) or ``ids-index``;
                of an edge type ``indptr``, ``indices``, ``weight``, ``timestamp``, ``edge-ids``,
                ``csr-indptr``, ``csr-indices`` or ``csr-edge-ids``.

        Raises:
            NotFoundError: there is no such array.
            UsageError: the graph was built in memory.
        """
        if of in self._edge_files:
            files = self._edge_files[self.edge_type(of)]
            if array not in files:
                raise NotFoundError(f"there is no array `{array}`", where=_text_of(of))
            return files[array]
        return self._opened().file_of(array_names(self._entry(of)), array, _text_of(of))

    def is_on_disk(self, edge_type: EdgeType) -> bool:
        """Return whether the in-neighbours of an edge type can be read from files.

        Those of a reverse one are the other type's edges by source, which an import keeps if it is asked to.
        """
        if self._folder is None:
            return False
        forward = self.reverse_type(edge_type) if self.is_reverse(edge_type) else None
        table = as_live(self.own_edges(forward or edge_type))
        return forward is None or table.is_new or table.base.stored_csr is not None

    def feature_file(
        self, of: str | EdgeType, name: str, part: Literal["values", "offsets"] = "values"
    ) -> ArrayFile:
        """Return where a feature's array of the base lies on disk; see :meth:`array_file`.

        Args:
            of: a node type, or an edge type with edges of its own.
            name: the feature.
            part: its values, or the offsets of slots.

        Raises:
            NotFoundError: there is no such array.
            UsageError: the graph was built in memory.
        """
        features = {feature["name"]: feature for feature in self._entry(of)["features"]}
        names = {each: feature[part] for each, feature in features.items() if part in feature}
        return self._opened().file_of(names, name, f"{_text_of(of)}, {part} of features")

    # Inside

    def _opened(self) -> Snapshot:
        if self._folder is None:
            raise UsageError(
                "expected a graph opened from a folder, received one built in memory", where=self.name
            )
        return self._folder

    def _entry(self, of: str | EdgeType) -> Mapping[str, Any]:
        """Return what the manifest says of a node type or edge type."""
        manifest = self._opened().manifest
        if isinstance(of, str) and of in self._nodes:
            return next(entry for entry in manifest["node_types"] if entry["name"] == of)
        edge_type = list(self.edge_type(of))
        for entry in manifest["edge_types"]:
            if entry["type"] == edge_type:
                return dict(entry)
        raise NotFoundError("a reverse edge type has no files", where=edge_type_text(self.edge_type(of)))

    def _forward(self) -> dict[EdgeType, OwnEdges]:
        return {each: table for each, table in self._edges.items() if isinstance(table, OwnEdges)}

    def _edge_table(self, edge_type: EdgeType | str | None) -> Edges:
        return self._edges[self.edge_type(edge_type)]

    def _node_table(self, node_type: str | None) -> NodeTable:
        if node_type is None and len(self._nodes) == 1:
            return next(iter(self._nodes.values()))
        if node_type in self._nodes:
            return self._nodes[node_type]
        known = ", ".join(self._nodes)
        if node_type is None:
            raise UsageError(f"expected which of the node types {known} is meant, received none")
        raise NotFoundError(
            f"there is no node type `{node_type}` in the graph `{self.name}`",
            hint=did_you_mean(node_type, self._nodes) or f"there are {known}",
        )


def _text_of(of: str | EdgeType) -> str:
    return of if isinstance(of, str) else edge_type_text(of)


def _feature(columns: Mapping[str, Column], name: str, where: str) -> Column:
    if name in columns:
        return columns[name]
    raise _no_feature(columns, name, where)


def _no_feature(columns: Mapping[str, Column], name: str, where: str) -> NotFoundError:
    return NotFoundError(
        f"there is no feature `{name}` of `{where}`",
        hint=did_you_mean(name, columns) or f"there are {', '.join(columns) or 'none'}",
    )
