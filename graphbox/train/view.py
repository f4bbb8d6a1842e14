"""View of a graph for models: everything but the answers of a task."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.columns import Column
from graphbox.graph.edge_blocks import EdgeBlock, edge_blocks
from graphbox.graph.edges_on_disk import with_edges_on_disk, with_merged_edges_on_disk
from graphbox.graph.schema import CSC, CSR, EdgeType, FeatureSpec, edge_type_text
from graphbox.graph.snapshot import as_live
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.train.tasks import Fold, LinkSplit, RecommendSplit, Split

_EDGE_COLUMNS: Mapping[str, FeatureSpec] = {
    "weight": FeatureSpec("number"),
    "timestamp": FeatureSpec("integer"),
}
_NO_EDGES: NDArray[np.int64] = np.zeros(0, np.int64)


class GraphView:
    """A graph without what a task holds out; models and baselines get this, never the graph itself.

    Of a classify task the label is hidden: asking for it is an error. Of a recommend task every edge between
    the nodes of a held-out pair of groups is removed from every edge type, whatever its relation and
    direction, so that no reverse or parallel edge can bring it back; and edge types that are held out as a
    whole are not there, nor are their reverse ones. Of a predict_links task the same holds of pairs, and the
    edge types of negatives are not there either; of events that join a pair again later the event itself is
    not there, nor its reverse edge.

    Args:
        graph: the whole graph.
        split: the split of the model's task; None: nothing is held out.
        fold: what is predicted: with ``test`` the validation edges are known.

    Attributes:
        fold: what is predicted.
    """

    def __init__(self, graph: Graph, split: Split | None, fold: Fold = "train") -> None:
        self.fold = fold
        self._forward: GraphView | None = None
        self._stored = graph
        self._removed = {} if split is None else split.hidden_edges(graph, fold)
        self._hidden_features = {} if split is None else split.hidden_features()
        self._hidden_types = set() if split is None else set(split.hidden_edge_types())

    @cached_property
    def _graph(self) -> Graph:
        """The graph without what is removed: in memory, from its first use on."""
        if not self._removed:
            return self._stored
        if self._forward is not None:  # whose edges are then there once
            return self._forward._graph.with_reverse_edges()
        return self._stored.without_edges(self._removed)

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self._stored.name

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return self._stored.node_types

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types, reverse ones included."""
        return [edge_type for edge_type in self._stored.edge_types if not self._is_hidden(edge_type)]

    def is_reverse(self, edge_type: EdgeType) -> bool:
        """Return whether the edge type is another one backwards."""
        return self._stored.is_reverse(edge_type)

    def own_type(self, edge_type: EdgeType) -> EdgeType:
        """Return the type whose edges a type has: itself, or the one that it holds backwards."""
        if not self._stored.is_reverse(self._seen(edge_type)):
            return edge_type
        return self._stored.reverse_type(edge_type) or edge_type

    def with_reverse_edges(self) -> GraphView:
        """Return the view in which every edge type has a reverse one."""
        view = self._with(self._stored.with_reverse_edges(), self._removed)
        view._forward = self
        return view

    def without_edges(self, removed: Mapping[EdgeType, NDArray[np.int64]]) -> GraphView:
        """Return the view without some edges, given by their ids; see ``Graph.without_edges``."""
        if not removed:
            return self
        return self._with(self._graph, {each: np.unique(ids) for each, ids in removed.items()})

    def without_pairs(self, split: RecommendSplit | LinkSplit, pairs: NDArray[np.uint64]) -> GraphView:
        """Return the view without the edges between the nodes of some pairs of groups.

        Args:
            split: whose groups they are.
            pairs: uint64, ascending ``split.pair_keys`` of the pairs.
        """
        removed = dict(self._removed)
        for edge_type, ids in split.edges_of_pairs(self._stored, pairs).items():
            removed[edge_type] = np.union1d(removed.get(edge_type, ids[:0]), ids)
        return self._with(self._stored, removed)

    # On disk

    def is_on_disk(self, edge_types: Collection[EdgeType]) -> bool:
        """Return whether the in-neighbours of edge types, as they are seen here, can be read from disk."""
        if self._removed:
            return False
        return all(self._stored.is_on_disk(self._seen(edge_type)) for edge_type in edge_types)

    def on_disk(self, folder: Path, memory_bytes: int) -> GraphView:
        """Return the view with all edges that it shows in files, by target and by source.

        Args:
            folder: where to; it is removed when the view, and what was made of it, is gone.
            memory_bytes: memory for sorting; see :func:`graphbox.graph.edges_on_disk.with_edges_on_disk`.
        """
        seen = [each for each in self._stored.edge_types if not self._is_hidden(each)]
        return self._with(with_edges_on_disk(self._stored, seen, self.edge_blocks, folder, memory_bytes), {})

    def merged_on_disk(
        self,
        members: Mapping[EdgeType, Sequence[EdgeType]],
        folder: Path,
        memory_bytes: int,
        *,
        weighted: bool,
    ) -> GraphView:
        """Return a view whose edge types are some of this one's taken together, in files.

        Args:
            members: for each edge type those it consists of.
            folder: where to; it is removed when the view, and what was made of it, is gone.
            memory_bytes: memory for sorting.
            weighted: the edges have weights; see
                :func:`graphbox.graph.edges_on_disk.with_merged_edges_on_disk`.
        """
        merged = with_merged_edges_on_disk(
            self._stored, members, self.edge_blocks, folder, memory_bytes, weighted=weighted
        )
        return self._with(merged, {})

    def tiered(
        self, *, topology_bytes: int, feature_bytes: int, pass_bytes: int | None = None
    ) -> TieredGraph:
        """Return the graph for sampling from disk, see :meth:`graphbox.graph.Graph.tiered`.

        It shows every feature, and every edge type: name those that may be seen.

        Raises:
            UsageError: the view lacks edges that the files have; see :meth:`on_disk`.
        """
        self._check_complete()
        return self._stored.tiered(
            topology_bytes=topology_bytes, feature_bytes=feature_bytes, pass_bytes=pass_bytes
        )

    def tiered_edges(self, features: TieredGraph, topology_bytes: int) -> TieredGraph:
        """Return a graph for sampling from disk with the features of another one and the edges of this view.

        Raises:
            UsageError: the view lacks edges that the files have; see :meth:`on_disk`.
        """
        self._check_complete()
        return features.with_edges_of(self._stored, topology_bytes)

    def _check_complete(self) -> None:
        if self._removed:
            raise UsageError(
                "expected edges that are all in files, received a view without some of them",
                where="GraphView.tiered",
                hint="write those that are seen with GraphView.on_disk",
            )

    # Nodes and edges

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return self._stored.num_nodes(node_type)

    def removed_nodes(self, node_type: str) -> NDArray[np.int64]:
        """Return the indices of removed nodes of a type: int64, ascending; they are no candidates."""
        return self._stored.removed_nodes(node_type)

    def ids(self, node_type: str) -> NDArray[np.object_] | NDArray[np.int64]:
        """Return the original ids of a type's nodes."""
        return self._stored.ids(node_type)

    def arrow_ids(self, node_type: str) -> pa.Array:
        """Return the original ids of a type's nodes as an Arrow array, null of removed ones."""
        return self._stored.arrow_ids(node_type)

    def has_weights(self, edge_type: EdgeType) -> bool:
        """Return whether the edges of a type have weights; nothing is read."""
        return "weight" in as_live(self._stored.own_edges(self.own_type(edge_type))).columns

    def csc(self, edge_type: EdgeType) -> CSC:
        """Return the in-neighbours of every target."""
        return self._graph.csc(self._seen(edge_type))

    def csr(self, edge_type: EdgeType) -> CSR:
        """Return the out-neighbours of every source."""
        return self._graph.csr(self._seen(edge_type))

    def contains(
        self, edge_type: EdgeType, source: NDArray[np.int64], target: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return whether an edge joins each source to its target: bool [n]; no other edges are read."""
        return as_live(self._graph.own_edges(self._seen(edge_type))).contains(source, target)

    def in_degree(self, edge_type: EdgeType) -> NDArray[np.int64]:
        """Return the number of edges into each target: int64 [targets]; no merging of base and changes."""
        table = as_live(self._graph.own_edges(self._seen(edge_type)))
        return table.degrees("in", 0, table.num_targets)

    def edge_blocks(self, edge_type: EdgeType, block_edges: int) -> Iterator[EdgeBlock]:
        """Give the edges of a type block by block, in the order of their ids; no others are read.

        Args:
            edge_type: the edge type; those of a reverse one lead from its sources to its targets.
            block_edges: the most edges to give at a time.
        """
        own = self.own_type(edge_type)
        table, removed = as_live(self._stored.own_edges(own)), self._removed.get(own, _NO_EDGES)
        for block in edge_blocks(table, block_edges, removed):
            yield block if own == edge_type else block.reversed()

    def features(self, node_type: str) -> dict[str, FeatureSpec]:
        """Return the features of a type that may be read."""
        features = self._stored.features(node_type)
        return {
            name: spec for name, spec in features.items() if (node_type, name) not in self._hidden_features
        }

    def feature(self, node_type: str, name: str) -> NDArray[np.generic]:
        """Return a feature's array.

        Raises:
            UsageError: the feature is the label of the task, or says what is held out.
            NotFoundError: there is no such feature.
        """
        self._check_seen(node_type, name)
        return np.asarray(self._stored.feature(node_type, name))

    def feature_rows(self, node_type: str, name: str, start: int, stop: int) -> Column:
        """Return a feature of the nodes ``start`` to ``stop - 1``, without reading that of the others.

        Raises:
            UsageError: the feature is the label of the task, or says what is held out.
            NotFoundError: there is no such feature.
        """
        self._check_seen(node_type, name)
        return self._stored.feature_rows(node_type, name, start, stop)

    def edge_features(self, edge_type: EdgeType) -> dict[str, FeatureSpec]:
        """Return the features of the edges of a type; their weight and timestamp are among them."""
        own = self.own_type(edge_type)
        columns = as_live(self._stored.own_edges(own)).columns
        features = self._stored.edge_features(own)
        features.update((name, _EDGE_COLUMNS[name]) for name in columns)
        return features

    def has_own_feature(self, edge_type: EdgeType, name: str) -> bool:
        """Return whether edges of a type were imported with a feature of this name."""
        return name in self._stored.edge_features(self.own_type(edge_type))

    def edge_feature(self, edge_type: EdgeType, name: str) -> NDArray[np.generic]:
        """Return a feature of all edges that the view shows, in the order of :meth:`csc`.

        Args:
            edge_type: the edge type.
            name: a key of :meth:`edge_features`.

        Raises:
            NotFoundError: there is no such feature.
        """
        csc = self.csc(edge_type)
        own = {"weight": csc.weight, "timestamp": csc.timestamp}.get(name)
        if own is not None:
            return own
        values = np.asarray(self._graph.edge_feature(self._seen(edge_type), name))
        return values if csc.edge_ids is None else values[csc.edge_ids]

    def slot_lists(self, node_type: str, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offsets and values of the slots of all nodes; see ``Graph.slot_lists``."""
        return self._stored.slot_lists(node_type, name)

    def _check_seen(self, node_type: str, name: str) -> None:
        why = self._hidden_features.get((node_type, name))
        if why is not None:
            raise UsageError(
                f"expected a model that does not read what it {why}, received one that reads {name}",
                where=f"node type {node_type}",
                hint=f"take `{name}` out of the model's features, or give the model another task",
            )

    def _is_hidden(self, edge_type: EdgeType) -> bool:
        return edge_type in self._hidden_types or self._stored.reverse_type(edge_type) in self._hidden_types

    def _seen(self, edge_type: EdgeType) -> EdgeType:
        if self._hidden_types and self._is_hidden(edge_type):
            raise UsageError(
                f"expected an edge type that is not held out, received {edge_type_text(edge_type)}",
                where="the task's split",
                hint="models and metapaths follow the other edge types",
            )
        return edge_type

    def _with(self, stored: Graph, removed: dict[EdgeType, NDArray[np.int64]]) -> GraphView:
        view = object.__new__(GraphView)
        view._forward = None
        view._stored = stored
        view._removed = removed
        view.fold = self.fold
        view._hidden_features = self._hidden_features
        view._hidden_types = self._hidden_types
        return view
