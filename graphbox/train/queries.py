"""The ranking queries of a recommend task: what is to be found, and who is no candidate."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.graph.schema import CSC
from graphbox.metrics import RankingQueries
from graphbox.train.compressed import CompressedRows
from graphbox.train.tasks import Fold, RecommendSplit
from graphbox.train.view import GraphView

__all__ = ["adjacency", "in_degree", "known_links", "ranking_queries"]


def adjacency(csc: CSC) -> sp.csr_array:
    """Return a 0/1 matrix float32 [targets, sources] of an edge type, repeated edges counted once."""
    ones = np.ones(csc.num_edges, dtype=np.float32)
    matrix = sp.csr_array((ones, csc.indices, csc.indptr), shape=(csc.num_targets, csc.num_sources))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def in_degree(view: GraphView, split: RecommendSplit) -> NDArray[np.int64]:
    """Return how often each node is the target of a known edge of the task's relations: int64 [n].

    A pair joined by several of the relations counts once.
    """
    node_type = split.node_type
    num_nodes = view.num_nodes(node_type)
    known: sp.csr_array = sp.csr_array((num_nodes, num_nodes), dtype=np.float32)
    for relation in split.relations:
        known = known + adjacency(view.csc((node_type, relation, node_type)))
    return np.asarray(np.diff(known.tocsr().indptr), dtype=np.int64)


def ranking_queries(view: GraphView, split: RecommendSplit, fold: Fold) -> RankingQueries:
    """Return the queries of a fold.

    No candidates are the query itself, the nodes of its own group, and every node that an edge of any
    relation joins to it in ``view``, in either direction; that includes the known answers.

    Args:
        view: the graph as it is known when ``fold`` is predicted.
        split: the split of the task.
        fold: validation or test.
    """
    num_nodes = view.num_nodes(split.node_type)
    edges = split.edges(fold)
    queries, row = np.unique(edges[:, 0], return_inverse=True)
    groups = int(split.group.max()) + 1
    member = sp.csr_array(
        (np.ones(num_nodes, np.float32), (np.arange(num_nodes), split.group)), shape=(num_nodes, groups)
    )
    masked = sp.csr_array(_linked(view, split)[queries] + member[queries] @ member.T)
    # Edges are ascending by query, then target: their targets are already the rows of a CSR.
    return RankingQueries(
        queries=queries,
        positive_indptr=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(queries)))]),
        positives=edges[:, 1].copy(),
        masked_indptr=masked.indptr.astype(np.int64),
        masked=masked.indices.astype(np.int64),
    )


def known_links(view: GraphView, split: RecommendSplit) -> CompressedRows:
    """Return the nodes that an edge of any relation joins to each node, in either direction."""
    linked = _linked(view, split)
    return CompressedRows(linked.indptr.astype(np.int64), linked.indices.astype(np.int64))


def _linked(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    num_nodes = view.num_nodes(split.node_type)
    linked = sp.csr_array((num_nodes, num_nodes), dtype=np.float32)
    for edge_type in view.edge_types:
        if edge_type[0] == edge_type[2] == split.node_type:
            linked = sp.csr_array(linked + adjacency(view.csc(edge_type)))
    return sp.csr_array(linked + linked.T)
