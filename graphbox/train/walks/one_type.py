"""A graph whose nodes and edges of all types are of one: what DeepWalk, node2vec and LINE walk on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.node_keys import NodeKeys
from graphbox.sample.walk_plan import WalkOptions, WalkPlan, plan_walk
from graphbox.train.view import GraphView

if TYPE_CHECKING:
    from graphbox.sample.tiered_walk import TieredWalker


@dataclass(frozen=True, eq=False)
class OneTypeGraph:
    """Compressed rows over keys, each pair of nodes that has an edge once in both rows.

    Attributes:
        keys: the numbering of the nodes.
        types: node types at the ends of the edges.
        indptr: int64 [keys + 1].
        indices: int32 [edges], ascending in each row.
        weight: float32 [edges], the sum of the weights of all edges of the pair, or None.
    """

    keys: NodeKeys
    types: tuple[str, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    weight: NDArray[np.float32] | None

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of each node's neighbours: int64 [keys]."""
        return np.diff(self.indptr)

    def planned(
        self, length: int, p: float, q: float, threads: int | None
    ) -> tuple[WalkPlan, TieredWalker | None]:
        """Return the plan of walks, which the native core makes."""
        no_nodes = np.zeros(0, np.int64)
        weighted = self.weight is not None
        return plan_walk(self, no_nodes, length, WalkOptions(p, q, weighted=weighted), threads), None

    def degree(self) -> NDArray[np.float64]:
        """Return the number of each node's edges, or the sum of their weights: float64 [keys]."""
        if self.weight is None:
            return np.diff(self.indptr).astype(np.float64)
        sums = np.concatenate([[0.0], np.cumsum(self.weight, dtype=np.float64)])
        return np.diff(sums[self.indptr])


def one_type_graph(
    view: GraphView, edge_types: Sequence[EdgeType], *, weighted: bool, keys: NodeKeys | None = None
) -> OneTypeGraph:
    """Return the graph of some edge types, taken for one.

    Args:
        view: the graph as training sees it.
        edge_types: what to follow; none: all.
        weighted: add up weights, instead of taking each pair for one edge.
        keys: the numbering of the nodes; None: type after type.

    Raises:
        UsageError: an edge type that is not there, or has no weights where they are wanted.
        DataError: there are no edges.
    """
    chosen = followed_types(view, edge_types)
    keys = keys or NodeKeys({name: view.num_nodes(name) for name in view.node_types})
    sources, targets, weights = [], [], []
    for edge_type in chosen:
        csc = view.csc(edge_type)
        source, target = csc.coo()
        source, target = keys.of(edge_type[0], source), keys.of(edge_type[2], target)
        apart = source != target  # no walk learns from a node beside itself
        sources += [source[apart], target[apart]]
        targets += [target[apart], source[apart]]
        if weighted:
            if csc.weight is None:
                raise no_weights(edge_type)
            weights += [csc.weight[apart]] * 2
    both = Graph.from_coo(
        np.concatenate(sources),
        np.concatenate(targets),
        num_nodes=keys.total,
        weight=np.concatenate(weights) if weighted else None,
    )
    csr = both.csr(both.edge_types[0])
    if not csr.num_edges:
        raise no_edges(chosen)
    return _without_repeats(keys, ends_of(chosen), csr.indptr, csr.indices, csr.weight if weighted else None)


def no_weights(edge_type: EdgeType) -> UsageError:
    """Return the error of an edge type without the weights that a model asks for."""
    return UsageError(
        "expected edges with weights, received some without",
        where=edge_type_text(edge_type),
        hint="import them with a weight column, or take `weighted` out of the model",
    )


def no_edges(edge_types: Sequence[EdgeType]) -> DataError:
    """Return the error of edge types without an edge that a walk can follow."""
    return DataError(
        "expected edges to walk along, received none",
        where=", ".join(map(edge_type_text, edge_types)),
        hint="name edge types that join different nodes",
    )


def ends_of(edge_types: Sequence[EdgeType]) -> tuple[str, ...]:
    """Return the node types at the ends of edge types, each once."""
    return tuple(dict.fromkeys(edge[end] for edge in edge_types for end in (0, 2)))


def followed_types(view: GraphView, edge_types: Sequence[EdgeType]) -> list[EdgeType]:
    """Return the edge types that are followed; of none that are named all, but for reverse ones.

    Raises:
        UsageError: the graph has no such edge type.
    """
    known = view.edge_types
    for edge_type in edge_types:
        if tuple(edge_type) not in known:
            names = [edge_type_text(each) for each in known]
            name = edge_type_text(edge_type)
            raise UsageError(
                f"the graph has no edge type `{name}`, but: {', '.join(names)}",
                where="edge_types",
                hint=did_you_mean(name, names),
            )
    # A reverse edge type holds the same edges again.
    return list(edge_types) or [each for each in known if not view.is_reverse(each)]


def _without_repeats(
    keys: NodeKeys,
    types: tuple[str, ...],
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    weight: NDArray[np.float32] | None,
) -> OneTypeGraph:
    """Take each of the equal neighbours of a row, which stand side by side, for one."""
    is_first = np.ones(len(indices), dtype=bool)
    is_first[1:] = indices[1:] != indices[:-1]
    starts = indptr[:-1][np.diff(indptr) > 0]
    is_first[starts] = True
    before = np.concatenate([[0], np.cumsum(is_first)])
    if weight is not None:
        weight = np.add.reduceat(weight.astype(np.float64), np.flatnonzero(is_first)).astype(np.float32)
    return OneTypeGraph(keys, types, before[indptr].astype(np.int64), indices[is_first], weight)
