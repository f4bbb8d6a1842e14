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


def adjacency(csc: CSC) -> sp.csr_array:
    """Return a 0/1 matrix float32 [targets, sources] of an edge type, repeated edges counted once."""
    ones = np.ones(csc.num_edges, dtype=np.float32)
    # A copy: repeated edges are summed in place, and the graph's arrays may be mapped read-only.
    shape = (csc.num_targets, csc.num_sources)
    matrix = sp.csr_array((ones, csc.indices, csc.indptr), shape=shape, copy=True)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def known_answers(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    """Return the answers that are known in ``view``: 0/1 float32 [queries, targets].

    A pair joined by several of the relations counts once.
    """
    shape = (view.num_nodes(split.node_type), view.num_nodes(split.target_type))
    edges = split.known(view.fold)
    known = sp.csr_array((np.ones(len(edges), np.float32), (edges[:, 0], edges[:, 1])), shape=shape)
    for relation in split.relations:
        if relation not in split.held_out_relations:
            known = known + adjacency(view.csc((split.node_type, relation, split.target_type))).T
    known = sp.csr_array(known)
    known.sum_duplicates()
    known.data[:] = 1.0
    return known


def in_degree(view: GraphView, split: RecommendSplit) -> NDArray[np.int64]:
    """Return how often each candidate is the target of a known answer: int64 [candidates].

    A pair joined by several of the relations counts once.
    """
    known = known_answers(view, split)
    return np.bincount(known.indices, minlength=known.shape[1]).astype(np.int64)


def ranking_queries(view: GraphView, split: RecommendSplit, fold: Fold) -> RankingQueries:
    """Return the queries of a fold.

    No candidate is a node that an edge of any relation joins to the query in ``view``, in either direction;
    that includes the known answers. Where queries are candidates as well, the query itself and the nodes of
    its own group are none either; removed nodes are candidates of no query.

    Args:
        view: the graph as it is known when ``fold`` is predicted.
        split: the split of the task.
        fold: validation or test.
    """
    edges = split.edges(fold)
    queries, row = np.unique(edges[:, 0], return_inverse=True)
    masked = sp.csr_array(_linked(view, split)[queries])
    if split.within_one_type:
        nodes = view.num_nodes(split.node_type)
        member = sp.csr_array(
            (np.ones(nodes, np.float32), (np.arange(nodes), split.group)),
            shape=(nodes, int(split.group.max()) + 1),
        )
        masked = sp.csr_array(masked + member[queries] @ member.T)
    # Edges are ascending by query, then target: their targets are already the rows of a CSR.
    return RankingQueries(
        queries=queries,
        positive_indptr=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(queries)))]),
        positives=edges[:, 1].copy(),
        masked_indptr=masked.indptr.astype(np.int64),
        masked=masked.indices.astype(np.int64),
        excluded=view.removed_nodes(split.target_type),
    )


def known_links(view: GraphView, split: RecommendSplit) -> CompressedRows:
    """Return the candidates that an edge of any relation joins to each query, in either direction."""
    linked = _linked(view, split)
    return CompressedRows(linked.indptr.astype(np.int64), linked.indices.astype(np.int64))


def _linked(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    linked = known_answers(view, split)
    if split.within_one_type:  # answers of relations held out as a whole are no edges of the view
        linked = sp.csr_array(linked + linked.T)
    for edge_type in view.edge_types:
        if (edge_type[0], edge_type[2]) == (split.node_type, split.target_type):
            linked = sp.csr_array(linked + adjacency(view.csc(edge_type)).T)
        if (edge_type[2], edge_type[0]) == (split.node_type, split.target_type):
            linked = sp.csr_array(linked + adjacency(view.csc(edge_type)))
    return linked
