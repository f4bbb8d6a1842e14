"""The ranking queries of a recommend task: what is to be found, and who is no candidate."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.graph.schema import CSC
from graphbox.metrics import RankingQueries
from graphbox.train.compressed import CompressedRows
from graphbox.train.tasks import Fold, LinkSplit, RecommendSplit, distinct_keys, pair_keys
from graphbox.train.view import GraphView

_BLOCK_LINKS = 1 << 18
"""Links that are looked at together."""

VALIDATION_QUERIES = 4096
"""Queries of the validation part that are ranked for after some epochs, at most."""


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
    links = _targets_of(view, split, np.arange(shape[0]), relations=split.relations)
    return sp.csr_array((np.ones(len(links.values), np.float32), links.values, links.offsets), shape=shape)


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
    return _masked(_unmasked_queries(view, split, fold), view, split)


def validation_queries(view: GraphView, split: RecommendSplit, seed: int) -> RankingQueries:
    """Return at most 4,096 queries of the validation part, drawn with a seed; see :func:`ranking_queries`."""
    queries = _unmasked_queries(view, split, "validation").sample(VALIDATION_QUERIES, seed)
    return _masked(queries, view, split)


def _unmasked_queries(view: GraphView, split: RecommendSplit, fold: Fold) -> RankingQueries:
    """Return the queries of a fold, of which all live nodes are candidates yet."""
    edges = split.edges(fold)
    queries, row = np.unique(edges[:, 0], return_inverse=True)
    # Edges are ascending by query, then target: their targets are already the rows of a CSR.
    return RankingQueries(
        queries=queries,
        positive_indptr=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(queries)))]),
        positives=edges[:, 1].copy(),
        masked_indptr=np.zeros(len(queries) + 1, np.int64),
        masked=np.zeros(0, np.int64),
        excluded=view.removed_nodes(split.target_type),
    )


def _masked(found: RankingQueries, view: GraphView, split: RecommendSplit) -> RankingQueries:
    """Return queries with the nodes that are no candidates of each."""
    links = _targets_of(view, split, found.queries, both_ways=split.within_one_type)
    if split.within_one_type:
        queries, targets = found.queries, view.num_nodes(split.target_type)
        ones, shape = np.ones(len(links.values), np.float32), (len(queries), targets)
        masked = sp.csr_array((ones, links.values, links.offsets), shape=shape)
        nodes = view.num_nodes(split.node_type)
        member = sp.csr_array(
            (np.ones(nodes, np.float32), (np.arange(nodes), split.group)),
            shape=(nodes, int(split.group.max()) + 1),
        )
        masked = sp.csr_array(masked + member[queries] @ member.T)
        links = CompressedRows(masked.indptr.astype(np.int64), masked.indices.astype(np.int64))
    return replace(found, masked_indptr=links.offsets, masked=links.values)


def known_links(view: GraphView, split: RecommendSplit) -> CompressedRows:
    """Return the candidates that an edge of any relation joins to each query, in either direction."""
    queries = np.arange(view.num_nodes(split.node_type))
    return _targets_of(view, split, queries, both_ways=split.within_one_type)


def _targets_of(
    view: GraphView,
    split: RecommendSplit,
    sources: NDArray[np.int64],
    *,
    relations: Collection[str] | None = None,
    both_ways: bool = False,
) -> CompressedRows:
    """Return the targets that known links join to some sources: ascending, each once.

    Links are read in blocks; those of other sources are not kept.

    Args:
        view: the graph.
        split: the split of the task.
        sources: int64 [n], distinct; row i of the result is that of the i-th.
        relations: see :func:`link_blocks`.
        both_ways: a link joins its target to its source as well.
    """
    place = np.full(view.num_nodes(split.node_type), -1, np.int64)
    place[sources] = np.arange(len(sources))
    keys = [np.empty(0, np.uint64)]
    for links in link_blocks(view, split, _BLOCK_LINKS, relations):
        for ends in (links, links[:, ::-1]) if both_ways else (links,):
            row = place[ends[:, 0]]
            wanted = row >= 0
            keys.append(pair_keys(row[wanted], ends[wanted, 1], ordered=True))
    found = distinct_keys(np.concatenate(keys))
    offsets = np.searchsorted(found, np.arange(len(sources) + 1, dtype=np.uint64) << np.uint64(32))
    return CompressedRows(offsets.astype(np.int64), (found & np.uint64(0xFFFFFFFF)).astype(np.int64))


def link_blocks(
    view: GraphView,
    split: RecommendSplit | LinkSplit,
    most: int,
    relations: Collection[str] | None = None,
) -> Iterator[NDArray[np.int64]]:
    """Yield source and target of the links that are known in a view, some of them repeatedly: int64 [n, 2].

    Of a recommend task edges of the view are among them.

    Args:
        view: the graph.
        split: the split of the task.
        most: the most links to yield at a time.
        relations: take edges of these from sources to targets alone; None: of any relation between the two
            types, in either direction.
    """
    yield from split.known_blocks(view.fold, most)
    if isinstance(split, LinkSplit):
        return
    ends = split.node_type, split.target_type
    for edge_type in view.edge_types:
        if relations is not None:
            if (edge_type[0], edge_type[2]) != ends or edge_type[1] not in relations:
                continue
        # The edges of a reverse type are those of the other, which is there as well.
        elif view.is_reverse(edge_type) or (edge_type[0], edge_type[2]) not in {ends, ends[::-1]}:
            continue
        is_forward = edge_type[0] == split.node_type
        for block in view.edge_blocks(edge_type, most):
            both = (block.source, block.target) if is_forward else (block.target, block.source)
            yield np.stack(both, axis=1)
