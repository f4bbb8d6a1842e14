"""What a model may see of a graph: everything but the answers of its task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.columns import Column
from graphbox.graph.edge_blocks import EdgeBlock, edge_blocks
from graphbox.graph.schema import CSC, CSR, EdgeType, FeatureSpec, edge_type_text
from graphbox.graph.snapshot import as_live
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.train.tasks import Fold, LinkSplit, RecommendSplit, Split

__all__ = ["GraphView"]


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
        self._graph = graph if split is None else split.visible_graph(graph, fold)
        self._lacks_edges = self._graph is not graph
        self._hidden_features = {} if split is None else split.hidden_features()
        self._hidden_types = set() if split is None else set(split.hidden_edge_types())

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return self._graph.node_types

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types, reverse ones included."""
        return [edge_type for edge_type in self._graph.edge_types if not self._is_hidden(edge_type)]

    def is_reverse(self, edge_type: EdgeType) -> bool:
        """Return whether the edge type is another one backwards."""
        return self._graph.is_reverse(edge_type)

    def with_reverse_edges(self) -> GraphView:
        """Return the view in which every edge type has a reverse one."""
        return self._with(self._graph.with_reverse_edges())

    def without_edges(self, removed: Mapping[EdgeType, NDArray[np.int64]]) -> GraphView:
        """Return the view without some edges, given by their ids; see ``Graph.without_edges``."""
        return self._with(self._graph.without_edges(removed), lacks_edges=True)

    def without_pairs(self, split: RecommendSplit | LinkSplit, pairs: NDArray[np.uint64]) -> GraphView:
        """Return the view without the edges between the nodes of some pairs of groups.

        Args:
            split: whose groups they are.
            pairs: uint64, ``split.pair_keys`` of the pairs.
        """
        return self._with(split.without_pairs(self._graph, pairs), lacks_edges=True)

    def tiered(
        self, *, topology_bytes: int, feature_bytes: int, pass_bytes: int | None = None
    ) -> TieredGraph:
        """Return the graph for sampling from disk, see :meth:`graphbox.graph.Graph.tiered`.

        It shows every feature, and every edge type: name those that may be seen.

        Raises:
            UsageError: edges are held out, so that the graph is not the one on disk.
        """
        if self._lacks_edges:
            raise UsageError(
                "expected a task that holds out no edges, received one that does: the graph that is trained "
                "on is not the one on disk",
                where="memory",
                hint="leave the budgets of topology and features out",
            )
        return self._graph.tiered(
            topology_bytes=topology_bytes, feature_bytes=feature_bytes, pass_bytes=pass_bytes
        )

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return self._graph.num_nodes(node_type)

    def removed_nodes(self, node_type: str) -> NDArray[np.int64]:
        """Return the indices of removed nodes of a type: int64, ascending; they are no candidates."""
        return self._graph.removed_nodes(node_type)

    def ids(self, node_type: str) -> NDArray[np.object_] | NDArray[np.int64]:
        """Return the original ids of a type's nodes."""
        return self._graph.ids(node_type)

    def arrow_ids(self, node_type: str) -> pa.Array:
        """Return the original ids of a type's nodes as an Arrow array, null of removed ones."""
        return self._graph.arrow_ids(node_type)

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
        degree = np.zeros(table.num_targets, np.int64)
        if table.base is not None:
            known = np.diff(table.base.csc.indptr)
            degree[: len(known)] = known
        added = table.touched("in").rows
        _, removed = table.ends(table.removed[table.removed < table.num_base_edges])
        degree += np.bincount(added, minlength=len(degree)) - np.bincount(removed, minlength=len(degree))
        return degree

    def edge_blocks(self, edge_type: EdgeType, block_edges: int) -> Iterator[EdgeBlock]:
        """Give the edges of a type block by block, in the order of their ids; no others are read.

        Args:
            edge_type: the edge type; those of a reverse one lead from its sources to its targets.
            block_edges: the most edges to give at a time.
        """
        is_reverse = self._graph.is_reverse(self._seen(edge_type))
        own = (self._graph.reverse_type(edge_type) if is_reverse else None) or edge_type
        for block in edge_blocks(as_live(self._graph.own_edges(own)), block_edges):
            yield EdgeBlock(block.target, block.source, block.weight) if is_reverse else block

    def features(self, node_type: str) -> dict[str, FeatureSpec]:
        """Return the features of a type that may be read."""
        features = self._graph.features(node_type)
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
        return np.asarray(self._graph.feature(node_type, name))

    def feature_rows(self, node_type: str, name: str, start: int, stop: int) -> Column:
        """Return a feature of the nodes ``start`` to ``stop - 1``, without reading that of the others.

        Raises:
            UsageError: the feature is the label of the task, or says what is held out.
            NotFoundError: there is no such feature.
        """
        self._check_seen(node_type, name)
        return self._graph.feature_rows(node_type, name, start, stop)

    def slot_lists(self, node_type: str, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offsets and values of the slots of all nodes; see ``Graph.slot_lists``."""
        return self._graph.slot_lists(node_type, name)

    def _check_seen(self, node_type: str, name: str) -> None:
        why = self._hidden_features.get((node_type, name))
        if why is not None:
            raise UsageError(
                f"expected a model that does not read what it {why}, received one that reads {name}",
                where=f"node type {node_type}",
                hint=f"take `{name}` out of the model's features, or give the model another task",
            )

    def _is_hidden(self, edge_type: EdgeType) -> bool:
        return edge_type in self._hidden_types or self._graph.reverse_type(edge_type) in self._hidden_types

    def _seen(self, edge_type: EdgeType) -> EdgeType:
        if self._hidden_types and self._is_hidden(edge_type):
            raise UsageError(
                f"expected an edge type that is not held out, received {edge_type_text(edge_type)}",
                where="the task's split",
                hint="models and metapaths follow the other edge types",
            )
        return edge_type

    def _with(self, graph: Graph, *, lacks_edges: bool = False) -> GraphView:
        view = object.__new__(GraphView)
        view._graph = graph
        view._lacks_edges = self._lacks_edges or lacks_edges
        view.fold = self.fold
        view._hidden_features = self._hidden_features
        view._hidden_types = self._hidden_types
        return view
