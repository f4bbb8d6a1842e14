"""Graphs: opened from disk (memory-mapped) or built in memory, with typed nodes, edges, ids and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from graphbox.errors import UnsupportedError, UsageError, missing_extra
from graphbox.graph.array_file import ArrayFile
from graphbox.graph.arrays import feature_columns
from graphbox.graph.format import (
    FolderWriter,
    check_digests,
    manifest_of_this_version,
    open_snapshot,
    verify,
)
from graphbox.graph.layout import read_tables
from graphbox.graph.merge import write_edges, write_nodes
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.graph.tables import (
    OwnEdges,
    check_range,
    edge_table,
    index_array,
    numbered_nodes,
)
from graphbox.graph.typed_tables import TypedTables
from graphbox.words import counted

if TYPE_CHECKING:
    from graphbox.graph.describe import Description, Progress
    from graphbox.graph.tier import TierOptions
    from graphbox.graph.tiered_graph import TieredGraph

DEFAULT_NODE_TYPE = "node"
DEFAULT_EDGE_TYPE: EdgeType = ("node", "to", "node")


class Graph(TypedTables):
    """A heterogeneous graph that does not change: node types, and edge types as triples.

    Open one with :meth:`open`; build one in memory with :meth:`from_coo` or :meth:`from_pyg`. Arrays of an
    opened graph are read-only views of memory-mapped files; ``torch.from_numpy`` wants a copy of them.

    Args:
        name: name of the graph.
        nodes: node tables by type.
        edges: edge tables by type; those of reverse edge types are derived and not among them.
        path: the folder it was opened from.
        size_bytes: bytes on disk, when it was opened from one.
        folder: what was opened, when it was opened from a folder.
    """

    # Making graphs

    @classmethod
    def open(cls, path: str | Path, *, version: str | None = None, verify_digests: bool = False) -> Graph:
        """Open a graph folder.

        Only the manifest is read; arrays are memory-mapped. Changes after the import are seen as one with
        it. The open graph stays as it is when another process imports, changes or compacts it.

        Args:
            path: the folder.
            version: a version that is kept, see :mod:`graphbox.graph.versions`; None: the current one.
            verify_digests: read every file and compare it with its digest.

        Raises:
            NotFoundError: there is no graph, or the version is not kept.
            FormatError: a file is damaged, missing, or of another version.
        """
        folder = Path(path)
        snapshot = open_snapshot(folder, version)
        if verify_digests:
            check_digests(snapshot)
        with manifest_of_this_version(folder):
            nodes, edges = read_tables(snapshot)
            name = str(snapshot.manifest["name"])
            return cls(name, nodes, edges, path=folder, size_bytes=snapshot.size_bytes, folder=snapshot)

    @classmethod
    def from_coo(
        cls,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        *,
        num_nodes: int | None = None,
        weight: npt.ArrayLike | None = None,
        timestamp: npt.ArrayLike | None = None,
        node_features: Mapping[str, Any] | None = None,
        edge_features: Mapping[str, Any] | None = None,
        name: str = "graph",
    ) -> Graph:
        """Build a graph of one node type ``node`` and one edge type ``(node, to, node)`` in memory.

        Edges are kept as they are, repeated ones too; ids are the node indices. How an array becomes a
        feature says :func:`graphbox.graph.arrays.feature_column`.

        Args:
            source: integers [num_edges], in [0, num_nodes).
            target: integers [num_edges], in [0, num_nodes).
            num_nodes: number of nodes; by default one more than the largest index.
            weight: positive numbers [num_edges].
            timestamp: integers [num_edges].
            node_features: arrays with a row for each node, by name.
            edge_features: arrays with a row for each edge, in the order of ``source``, by name.
            name: name of the graph.

        Raises:
            UsageError: lengths differ, an index is out of range, a weight is not a positive number, a
                timestamp not an integer, or an array has no form as a feature.
        """
        sources, targets = index_array(source, "source"), index_array(target, "target")
        count = max(sources.max(initial=-1), targets.max(initial=-1)) + 1 if num_nodes is None else num_nodes
        nodes = numbered_nodes(int(count), feature_columns(node_features, int(count), "nodes"))
        edges = edge_table(
            sources,
            targets,
            int(count),
            int(count),
            weight=weight,
            timestamp=timestamp,
            features=feature_columns(edge_features, len(sources), "edges"),
        )
        return cls(name, {DEFAULT_NODE_TYPE: nodes}, {DEFAULT_EDGE_TYPE: edges})

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "graph") -> Graph:
        """Build a graph in memory from PyTorch Geometric's ``Data`` or ``HeteroData``.

        Taken are ``edge_index``, ``edge_weight``, ``edge_time`` or ``time`` of edges (the timestamp), ``ids``
        of nodes (else ids are the node indices), and every other tensor of nodes or edges as the feature of
        its name: how says :func:`graphbox.graph.arrays.feature_column`. Integers with a row of several for
        each node, or ``name`` with offsets in ``name_ptr``, become slots. Everything is copied. A warning
        names the attributes that are left out: of neither nodes nor edges, or no tensors.

        Raises:
            UsageError: the object has no edges, an index is out of range, or a tensor has no form as a
                feature.
        """
        from graphbox.graph.pyg.convert import graph_from_pyg

        return graph_from_pyg(data, name)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        weight: str | None = "weight",
        timestamp: str | None = None,
        node_features: Sequence[str] = (),
        edge_features: Sequence[str] = (),
        name: str = "graph",
    ) -> Graph:
        """Build a graph of one node type in memory from a NetworkX graph, directed or not, multi or not.

        An undirected edge becomes two, one in each direction (a self-loop one). The nodes, all strings or all
        64-bit integers, are the ids.

        Args:
            graph: a ``networkx.Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph``.
            weight: the edge attribute with positive weights, which all edges have or none; None: no weights.
            timestamp: the edge attribute with integer timestamps, likewise.
            node_features: attributes of all nodes to keep as features.
            edge_features: attributes of all edges to keep as features.
            name: name of the graph.

        Raises:
            UsageError: nodes are of another kind, or an attribute is not everywhere.
        """
        from graphbox.graph.networkx import graph_from_networkx

        return graph_from_networkx(
            graph,
            weight=weight,
            timestamp=timestamp,
            node_features=node_features,
            edge_features=edge_features,
            name=name,
        )

    def to_pyg(self, *, heterogeneous: bool | None = None) -> Any:
        """Return the graph as PyTorch Geometric's ``Data``, or ``HeteroData`` where it has several types.

        Everything is copied into memory; :meth:`pyg_stores` reads larger graphs piece by piece. Nodes have
        ``ids`` and their features by name, edges ``edge_index`` (in the order of edge ids), ``edge_weight``,
        ``edge_time`` and their features. Categories become their codes (int64), slots a tensor of values and
        their offsets under ``name_ptr``. Removed nodes are left out and those after them move up.

        Args:
            heterogeneous: True for ``HeteroData`` in any case, False to refuse a graph of several types.

        Raises:
            BackendMissingError: PyTorch Geometric is not installed.
            UsageError: ``heterogeneous`` is False and there are several types, or a feature of nodes and one
                of edges have the same name in ``Data``.
        """
        from graphbox.graph.pyg.convert import graph_to_pyg

        return graph_to_pyg(self, heterogeneous=heterogeneous)

    def pyg_stores(self) -> tuple[Any, Any]:
        """Return a ``FeatureStore`` and a ``GraphStore`` for PyTorch Geometric's loaders (``data=``).

        Raises:
            BackendMissingError: PyTorch Geometric is not installed.
        """
        try:
            from graphbox.graph.pyg.stores import PygFeatureStore, PygGraphStore
        except ImportError:
            raise missing_extra("torch-geometric", "train") from None
        return PygFeatureStore(self), PygGraphStore(self)

    def to_networkx(self) -> Any:
        """Return the graph as a ``networkx.MultiDiGraph``; what it holds is copied into memory.

        Nodes are the original ids, or (node type, id) where there are several node types, with their features
        and ``node_type`` as attributes; edges have their features, ``weight``, ``timestamp`` and
        ``relation``. Reverse edge types are left out.

        Raises:
            BackendMissingError: NetworkX is not installed.
        """
        from graphbox.graph.networkx import graph_to_networkx

        return graph_to_networkx(self)

    def save(self, path: str | Path, *, name: str | None = None) -> None:
        """Write the graph into a folder, in place of a graph that is there.

        A workspace knows the graphs in its folder ``graphs``: ``graph.save("workspace/graphs/shop")`` is the
        stored graph ``shop``.

        Args:
            path: the folder.
            name: name of the graph there; None: its own.

        Raises:
            TimeLimitError: another process is writing it.
            ConflictError: the path holds something else.
            DoesNotFitError: the disk has not enough room.
            UnsupportedError: edges have slots, which only nodes can have on disk.
        """
        for edge_type, table in self._forward().items():
            for feature, column in table.features.items():
                if column.offsets is not None:
                    raise UnsupportedError(
                        f"expected features of edges without slots, received `{feature}`: on disk only nodes "
                        "can have slots",
                        where=f"edges of type {edge_type_text(edge_type)}",
                    )
        with FolderWriter(Path(path)) as writer:
            nodes = [write_nodes(writer, name, table) for name, table in self._nodes.items()]
            edges = [write_edges(writer, edge_type, table) for edge_type, table in self._forward().items()]
            writer.commit({"name": name or self.name, "node_types": nodes, "edge_types": edges})

    # Views

    def without_edges(self, removed: Mapping[EdgeType, npt.ArrayLike]) -> Graph:
        """Return the graph without some edges; it shares everything else with this one.

        Reverse edge types follow: an edge taken out of an edge type is gone from its reverse as well. Edge
        ids of a changed edge type are positions in the new, shorter CSC.

        Args:
            removed: edge ids to leave out, by edge type.

        Raises:
            UsageError: an edge id is out of range, or the edge type is a reverse one.
        """
        changed = dict(self._forward())
        for given, edge_ids in removed.items():
            edge_type = self.edge_type(given)
            if self.is_reverse(edge_type):
                raise UsageError(
                    "expected an edge type with edges of its own, received a reverse one",
                    where=edge_type_text(edge_type),
                    hint=f"take them out of {edge_type_text(self._edges[edge_type].reverse or edge_type)}",
                )
            positions = index_array(edge_ids, "edge ids")
            check_range(positions, self.num_edge_ids(edge_type), f"edges of type {edge_type_text(edge_type)}")
            changed[edge_type] = changed[edge_type].without(positions)
        return Graph(self.name, self._nodes, changed, path=self.path)

    def with_reverse_edges(self, edge_types: Iterable[EdgeType] | None = None) -> Graph:
        """Return the graph with edge types added that hold the edges of others backwards.

        The reverse of ``(a, relation, b)`` is ``(b, "rev_" + relation, a)``, as PyTorch Geometric's
        ``ToUndirected(merge=False)`` calls it. Edge types that have a reverse already keep it.

        Args:
            edge_types: which; None for all.

        Raises:
            UsageError: an edge type of the new name is there already.
        """
        chosen = {self.edge_type(each) for each in edge_types} if edge_types is not None else set(self._edges)
        tables = {}
        for edge_type, table in self._forward().items():
            if edge_type in chosen and table.reverse is None:
                source, relation, target = edge_type
                reverse = (target, f"rev_{relation}", source)
                if reverse in self._edges:
                    raise UsageError(
                        f"expected no edge type {edge_type_text(reverse)} where reverse edges are added, "
                        "received one with edges of its own",
                        where=edge_type_text(edge_type),
                        hint="`reverse: false` of a model leaves them out; or rename the edge type",
                    )
                tables[edge_type] = table.reversed_as(reverse)
            else:
                tables[edge_type] = table
        return Graph(
            self.name,
            self._nodes,
            tables,
            path=self.path,
            size_bytes=self.size_bytes,
            folder=self._folder,
            edge_files=self._edge_files,
        )

    def with_edges(
        self,
        tables: Mapping[EdgeType, OwnEdges],
        files: Mapping[EdgeType, Mapping[str, ArrayFile]],
    ) -> Graph:
        """Return a graph with the nodes of this one and other edges, which are in files.

        Args:
            tables: the edges of each type, in place of all that there are.
            files: the files of each type, by the names of :meth:`array_file`.
        """
        return Graph(self.name, self._nodes, tables, path=self.path, folder=self._folder, edge_files=files)

    # Looking at it

    def describe(self, *, memory_bytes: int = 1 << 28, progress: Progress | None = None) -> Description:
        """Return counts, degrees and data problems; every array is read, in bounded memory.

        Args:
            memory_bytes: memory for counters of nodes; where they do not fit, edges are gone over again.
            progress: called with the edge type, and how many of how many edges are done.
        """
        from graphbox.graph.describe import describe

        return describe(self, memory_bytes=memory_bytes, progress=progress)

    def verify(self) -> None:
        """Read every file of an opened graph and compare it with its digest.

        Raises:
            FormatError: naming the files that are damaged.
            UsageError: the graph was built in memory.
        """
        if self.path is None:
            raise UsageError(
                "expected a graph opened from a folder, received one built in memory", where=self.name
            )
        verify(self.path)

    def tiered(
        self,
        *,
        topology_bytes: int = 0,
        feature_bytes: int = 0,
        pass_bytes: int | None = None,
        options: TierOptions | None = None,
    ) -> TieredGraph:
        """Return the graph for reading from disk in batches under budgets, see :class:`TieredGraph`.

        Args:
            topology_bytes: the most memory for edges; 0: every read is one of the disk.
            feature_bytes: the most memory for features of nodes.
            pass_bytes: the most memory for what loaders sample ahead in passes, and for whole lists that they
                choose edges in. None: 256 MiB.
            options: how files are read.

        Raises:
            UsageError: the graph was built in memory.
        """
        from graphbox.graph.tiered_graph import DEFAULT_PASS_BYTES, TieredGraph

        return TieredGraph(
            self,
            topology_bytes=topology_bytes,
            feature_bytes=feature_bytes,
            pass_bytes=DEFAULT_PASS_BYTES if pass_bytes is None else pass_bytes,
            options=options,
        )

    def __repr__(self) -> str:
        lines = [f"Graph({self.name!r}"]
        lines += [
            f"  {node_type}: {counted(table.num_nodes, 'node')}" for node_type, table in self._nodes.items()
        ]
        lines += [
            f"  {edge_type_text(each)}: {counted(self.num_edges(each), 'edge')}" for each in self._edges
        ]
        return "\n".join(lines) + "\n)"
