"""Baselines that train nothing: each reads the same graph as the models, without the held-out part."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.metrics import ScoreBlock, classification_report, evaluate_ranking
from graphbox.train.queries import adjacency, in_degree, ranking_queries
from graphbox.train.tasks import ClassifySplit, Fold, RecommendSplit
from graphbox.train.view import GraphView

__all__ = ["CLASSIFY_BASELINES", "RECOMMEND_BASELINES", "classify_baselines", "recommend_baselines"]

_RESTART = 0.15
_PAGERANK_STEPS = 10


# ----------------------------------------------------------------------------------- classify


def majority(view: GraphView, split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent known class for every node: int64 [num_nodes]."""
    counts = np.bincount(split.labels[known], minlength=len(split.classes))
    return np.full(view.num_nodes(split.node_type), counts.argmax(), dtype=np.int64)


def neighbors_vote(view: GraphView, split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent class among a node's neighbours of the same type whose class is known.

    A neighbour counts once for each edge type and direction that joins it; a node without such neighbours
    gets the majority class, which also decides ties.
    """
    num_nodes = view.num_nodes(split.node_type)
    counts = np.bincount(split.labels[known], minlength=len(split.classes))
    one_hot = sp.csr_array(
        (np.ones(len(known), np.float32), (known, split.labels[known])), shape=(num_nodes, len(counts))
    )
    votes = np.zeros((num_nodes, len(counts)), dtype=np.float32)
    for edge_type in view.edge_types:
        if edge_type[0] == edge_type[2] == split.node_type:
            incoming = adjacency(view.csc(edge_type))
            votes += (incoming @ one_hot + incoming.T @ one_hot).toarray()
    return np.asarray((votes + 0.5 * counts / counts.sum()).argmax(axis=1), dtype=np.int64)


CLASSIFY_BASELINES: dict[str, Callable[[GraphView, ClassifySplit, NDArray[np.int64]], NDArray[np.int64]]] = {
    "majority": majority,
    "neighbors_vote": neighbors_vote,
}


def classify_baselines(
    view: GraphView, split: ClassifySplit, task: ClassifyTaskConfig, fold: Fold = "test"
) -> dict[str, dict[str, float | int]]:
    """Return the metrics of the task's baselines on a fold, by name of the baseline."""
    known = split.nodes("train", "validation") if fold == "test" else split.nodes("train")
    nodes = split.nodes(fold)
    return {
        name: classification_report(split.labels[nodes], CLASSIFY_BASELINES[name](view, split, known)[nodes])
        for name in task.baselines
    }


# ---------------------------------------------------------------------------------- recommend


def popular(view: GraphView, split: RecommendSplit, _: str | None = None) -> ScoreBlock:
    """Score a candidate by its training in-degree."""
    scores = in_degree(view, split).astype(np.float32)
    return lambda queries: np.broadcast_to(scores, (len(queries), len(scores)))


def popular_within_category(
    view: GraphView, split: RecommendSplit, category: str | None = None
) -> ScoreBlock:
    """Score a candidate by how many queries of the query's category it answers, then by its in-degree.

    Args:
        view: the known graph.
        split: the split of the task.
        category: categorical feature of the nodes; a missing value is a category of its own.

    Raises:
        UsageError: there is no such categorical feature.
    """
    spec = view.features(split.node_type).get(category or "")
    if category is None or spec is None or spec.categories is None:
        raise UsageError(
            f"expected a categorical feature of {split.node_type} for the baseline "
            f"popular_within_category, received `{category}`",
            where="category",
            hint="name one in the task, or take the baseline out of its `baselines`",
        )
    code = view.feature(split.node_type, category).astype(np.int64) + 1
    member = sp.csr_array(
        (np.ones(len(code), np.float32), (code, np.arange(len(code)))),
        shape=(len(spec.categories) + 1, len(code)),
    )
    within = (member @ _answers(view, split)).toarray()
    total = in_degree(view, split).astype(np.float32)
    within += total / (total.max() + 1.0)
    return lambda queries: within[code[queries]]


def adamic_adar(view: GraphView, split: RecommendSplit, _: str | None = None) -> ScoreBlock:
    """Score a candidate by the sum of 1 / log(degree) over the neighbours it shares with the query.

    The graph is undirected and simple, of all relations between nodes of the type (Adamic and Adar,
    "Friends and neighbors on the web", 2003).
    """
    linked = _undirected(view, split)
    degree = np.diff(linked.indptr)
    weight = 1.0 / np.log(np.maximum(degree, 2))
    weighted = sp.csr_array(linked * weight.astype(np.float32))
    return lambda queries: (weighted[queries] @ linked).toarray()


def personalized_pagerank(view: GraphView, split: RecommendSplit, _: str | None = None) -> ScoreBlock:
    """Score a candidate by the probability that a random walk from the query is there.

    The walk returns to the query with probability 0.15 before each step, over the undirected simple graph of
    all relations between nodes of the type; ten steps of the power iteration (Haveliwala, 2002).
    """
    linked = _undirected(view, split)
    degree = np.maximum(np.diff(linked.indptr), 1)
    transition = sp.csr_array(linked * (1.0 / degree).astype(np.float32))

    def score(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        start = np.zeros((linked.shape[0], len(queries)), dtype=np.float32)
        start[queries, np.arange(len(queries))] = _RESTART
        mass = start / _RESTART
        for _step in range(_PAGERANK_STEPS):
            mass = (1.0 - _RESTART) * (transition @ mass) + start
        return np.asarray(mass.T, dtype=np.float32)

    return score


def user_knn(view: GraphView, split: RecommendSplit, _: str | None = None) -> ScoreBlock:
    """Score a candidate by the similarity to the query of the nodes that it answers.

    A node is the vector of its out-neighbours in all relations that the task names, each weighed by
    log(nodes / in-degree); a similarity is the squared cosine, so that near neighbours count more, and all
    nodes are neighbours (Breese et al., 1998, with inverse user frequency and case amplification).
    """
    node_type = split.node_type
    named = [*split.relations, *split.exclude_relations]
    out = _simple(view, split, [(node_type, relation, node_type) for relation in named])
    num_nodes = out.shape[0]
    frequency = np.maximum(np.bincount(out.indices, minlength=num_nodes), 1)
    profile = sp.csr_array(out * np.log(num_nodes / frequency).astype(np.float32))
    norm = np.sqrt(np.asarray(profile.multiply(profile).sum(axis=1)).ravel())
    profile = sp.csr_array(sp.diags_array(1.0 / np.where(norm > 0, norm, 1.0)) @ profile).astype(np.float32)
    transposed = sp.csr_array(profile.T)
    answers = _answers(view, split)

    def score(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        similarity = sp.csr_array(profile[queries] @ transposed)
        similarity.data **= 2
        return np.asarray((similarity @ answers).toarray(), dtype=np.float32)

    return score


RECOMMEND_BASELINES: dict[str, Callable[[GraphView, RecommendSplit, str | None], ScoreBlock]] = {
    "popular": popular,
    "popular_within_category": popular_within_category,
    "adamic_adar": adamic_adar,
    "personalized_pagerank": personalized_pagerank,
    "user_knn": user_knn,
}


def recommend_baselines(
    view: GraphView, split: RecommendSplit, task: RecommendTaskConfig, fold: Fold = "test"
) -> dict[str, dict[str, float | int]]:
    """Return the metrics of the task's baselines on a fold, by name of the baseline.

    Args:
        view: the graph as it is known when ``fold`` is predicted.
        split: the split of the task.
        task: the task's section of the run file.
        fold: validation or test.
    """
    queries = ranking_queries(view, split, fold)
    popularity = in_degree(view, split)
    return {
        name: evaluate_ranking(
            RECOMMEND_BASELINES[name](view, split, task.category), queries, popularity, k=task.k
        )
        for name in task.baselines
    }


def _answers(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    """Return the known answers, 0/1 float32 [queries, targets]."""
    node_type = split.node_type
    return _simple(view, split, [(node_type, relation, node_type) for relation in split.relations])


def _undirected(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    """Return the simple undirected graph of all relations between nodes of the type."""
    edge_types = [edge for edge in view.edge_types if edge[0] == edge[2] == split.node_type]
    linked = _simple(view, split, edge_types)
    both = sp.csr_array(linked + linked.T)
    both.data[:] = 1.0
    return both


def _simple(view: GraphView, split: RecommendSplit, edge_types: list[tuple[str, str, str]]) -> sp.csr_array:
    num_nodes = view.num_nodes(split.node_type)
    total = sp.csr_array((num_nodes, num_nodes), dtype=np.float32)
    for edge_type in edge_types:
        total = sp.csr_array(total + adjacency(view.csc(edge_type)))
    matrix = sp.csr_array(total.T)
    matrix.data[:] = 1.0
    return matrix
