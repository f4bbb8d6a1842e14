"""What a model may see of a graph: everything but the answers of its task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, CSR, EdgeType, FeatureSpec
from graphbox.train.tasks import ClassifySplit, Fold, Split, pair_keys

__all__ = ["GraphView"]


class GraphView:
    """A graph without what a task holds out; models and baselines get this, never the graph itself.

    Of a classify task the label is hidden: asking for it is an error. Of a recommend task every edge between
    the nodes of a held-out pair of groups is removed from every edge type, whatever its relation and
    direction, so that no reverse or parallel edge can bring it back.

    Args:
        graph: the whole graph.
        split: the split of the model's task; None: nothing is held out.
        fold: what is predicted: with ``test`` the validation edges are known.
    """

    def __init__(self, graph: Graph, split: Split | None, fold: Fold = "train") -> None:
        self._hidden_feature: tuple[str, str] | None = None
        self._graph = graph
        if isinstance(split, ClassifySplit):
            self._hidden_feature = (split.node_type, split.label)
        elif split is not None:
            hidden = split.hidden_pairs(fold)
            self._graph = _without_pairs(graph, split.node_type, split.group, hidden)

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return self._graph.node_types

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types, reverse ones included."""
        return self._graph.edge_types

    def with_reverse_edges(self) -> GraphView:
        """Return the view in which every edge type has a reverse one."""
        return self._with(self._graph.with_reverse_edges())

    def without_pairs(self, node_type: str, group: NDArray[np.int64], pairs: NDArray[np.uint64]) -> GraphView:
        """Return the view without the edges between the nodes of some pairs of groups.

        Args:
            node_type: type of the nodes.
            group: int64 [num_nodes], the group of each node.
            pairs: uint64, :func:`graphbox.train.tasks.pair_keys` of the groups.
        """
        return self._with(_without_pairs(self._graph, node_type, group, pairs))

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return self._graph.num_nodes(node_type)

    def ids(self, node_type: str) -> NDArray[np.object_] | NDArray[np.int64]:
        """Return the original ids of a type's nodes."""
        return self._graph.ids(node_type)

    def csc(self, edge_type: EdgeType) -> CSC:
        """Return the in-neighbours of every target."""
        return self._graph.csc(edge_type)

    def csr(self, edge_type: EdgeType) -> CSR:
        """Return the out-neighbours of every source."""
        return self._graph.csr(edge_type)

    def features(self, node_type: str) -> dict[str, FeatureSpec]:
        """Return the features of a type that may be read."""
        features = self._graph.features(node_type)
        return {name: spec for name, spec in features.items() if (node_type, name) != self._hidden_feature}

    def feature(self, node_type: str, name: str) -> NDArray[np.generic]:
        """Return a feature's array.

        Raises:
            UsageError: the feature is the label of the task.
            NotFoundError: there is no such feature.
        """
        if (node_type, name) == self._hidden_feature:
            raise UsageError(
                f"expected a model that does not read what it is to predict, received one that reads {name}",
                where=f"node type {node_type}",
                hint=f"take `{name}` out of the model's features, or give the model another task",
            )
        return np.asarray(self._graph.feature(node_type, name))

    def _with(self, graph: Graph) -> GraphView:
        view = object.__new__(GraphView)
        view._graph = graph
        view._hidden_feature = self._hidden_feature
        return view


def _without_pairs(
    graph: Graph, node_type: str, group: NDArray[np.int64], pairs: NDArray[np.uint64]
) -> Graph:
    """Return the graph without the edges that join a pair; edge types that have none stay as they are."""
    removed: dict[EdgeType, NDArray[np.int64]] = {}
    for edge_type in graph.edge_types:
        if edge_type[0] == edge_type[2] == node_type and not graph.is_reverse(edge_type):
            csc = graph.csc(edge_type)
            source, target = csc.coo()
            joining = np.flatnonzero(np.isin(pair_keys(group[source], group[target]), pairs))
            if len(joining):
                removed[edge_type] = csc.ids_at(joining)
    return graph.without_edges(removed) if removed else graph
