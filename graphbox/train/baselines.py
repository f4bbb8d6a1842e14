"""Baselines of tasks of kind `recommend`; each reads what models read, without the held-out part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.graph.live_rows import LiveRows
from graphbox.metrics import (
    Check,
    Measure,
    RankingQueries,
    ScoreBlock,
    Watch,
    evaluate_ranking,
)
from graphbox.train.closed_forms import ease, gfcf, ials
from graphbox.train.recommendation.queries import adjacency, in_degree, known_answers, ranking_queries
from graphbox.train.tasks import Fold, RecommendSplit
from graphbox.train.view import GraphView

_RESTART = 0.15
_PAGERANK_STEPS = 10
_KNN_ROWS = 8
_PAGERANK_ROWS = 16
"""Queries scored between two checks: a second of work on a graph of millions of edges, in the CPU's cache."""


def popular(view: GraphView, split: RecommendSplit, _category: str | None, _check: Check) -> ScoreBlock:
    """Score a candidate by its training in-degree."""
    scores = in_degree(view, split).astype(np.float32)
    return lambda queries: np.broadcast_to(scores, (len(queries), len(scores)))


def popular_within_category(
    view: GraphView, split: RecommendSplit, category: str | None, _check: Check
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
    within = (member @ known_answers(view, split)).toarray()
    total = in_degree(view, split).astype(np.float32)
    within += total / (total.max() + 1.0)
    return lambda queries: within[code[queries]]


def adamic_adar(view: GraphView, split: RecommendSplit, _category: str | None, check: Check) -> ScoreBlock:
    """Score a candidate by the sum of 1 / log(degree) over the neighbours it shares with the query.

    The graph is undirected and simple, of all relations between nodes of the type (Adamic and Adar,
    "Friends and neighbors on the web", 2003).

    Raises:
        UsageError: candidates are of another type: they share no neighbours with queries.
    """
    if not split.within_one_type:
        raise UsageError(
            f"expected a task within one node type for the baseline adamic_adar, received one from "
            f"{split.node_type} to {split.target_type}",
            where="baselines",
            hint="user_knn counts what two queries share",
        )
    linked = _undirected(view, split)
    degree = np.diff(linked.indptr)
    weight = 1.0 / np.log(np.maximum(degree, 2))
    weighted = sp.csr_array(linked * weight.astype(np.float32))
    return _in_pieces(lambda queries: (weighted[queries] @ linked).toarray(), _KNN_ROWS, check)


def personalized_pagerank(
    view: GraphView, split: RecommendSplit, _category: str | None, check: Check
) -> ScoreBlock:
    """Score a candidate by the probability that a random walk from the query is there.

    The walk returns to the query with probability 0.15 before each step, over the undirected simple graph of
    all relations between nodes of the type, or between queries and candidates; ten steps of the power
    iteration (Haveliwala, 2002).
    """
    linked = _undirected(view, split)
    first = 0 if split.within_one_type else view.num_nodes(split.node_type)
    degree = np.maximum(np.diff(linked.indptr), 1)
    transition = sp.csr_array(linked * (1.0 / degree).astype(np.float32))

    def score(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        start = np.zeros((linked.shape[0], len(queries)), dtype=np.float32)
        start[queries, np.arange(len(queries))] = _RESTART
        mass = start / _RESTART
        for _ in range(_PAGERANK_STEPS):
            check()
            mass = (1.0 - _RESTART) * (transition @ mass) + start
        return np.asarray(mass[first:].T, dtype=np.float32)

    return _in_pieces(score, _PAGERANK_ROWS, check)


def user_knn(view: GraphView, split: RecommendSplit, _category: str | None, check: Check) -> ScoreBlock:
    """Score a candidate by the similarity to the query of the nodes that it answers.

    A node is the vector of its out-neighbours in all relations that the task names, each weighed by
    log(nodes / in-degree); a similarity is the squared cosine, so that near neighbours count more, and all
    nodes are neighbours (Breese et al., 1998, with inverse user frequency and case amplification).
    """
    answers = known_answers(view, split)
    out = answers
    for relation in split.exclude_relations:
        out = sp.csr_array(out + adjacency(view.csc((split.node_type, relation, split.target_type))).T)
    out.data[:] = 1.0
    frequency = np.maximum(np.bincount(out.indices, minlength=out.shape[1]), 1)
    nodes = len(LiveRows.of_graph(view, split.node_type))
    profile = sp.csr_array(out * np.log(nodes / frequency).astype(np.float32))
    norm = np.sqrt(np.asarray(profile.multiply(profile).sum(axis=1)).ravel())
    profile = sp.csr_array(sp.diags_array(1.0 / np.where(norm > 0, norm, 1.0)) @ profile).astype(np.float32)
    transposed = sp.csr_array(profile.T)

    def score(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        similarity = sp.csr_array(profile[queries] @ transposed)
        similarity.data **= 2
        return np.asarray((similarity @ answers).toarray(), dtype=np.float32)

    return _in_pieces(score, _KNN_ROWS, check)


RECOMMEND_BASELINES: dict[str, Callable[[GraphView, RecommendSplit, str | None, Check], ScoreBlock]] = {
    "popular": popular,
    "popular_within_category": popular_within_category,
    "adamic_adar": adamic_adar,
    "personalized_pagerank": personalized_pagerank,
    "user_knn": user_knn,
    "gfcf": gfcf,
    "ials": ials,
    "ease": ease,
}


def baselines_of(split: RecommendSplit, task: RecommendTaskConfig) -> tuple[str, ...]:
    """Return the baselines to run: those that the task names, or all that need no setting it lacks."""
    if task.baselines is not None:
        return task.baselines
    names = list(RECOMMEND_BASELINES)
    if task.category is None:
        names.remove("popular_within_category")
    if not split.within_one_type:
        names.remove("adamic_adar")
    return tuple(names)


def recommend_baselines(
    view: GraphView, split: RecommendSplit, task: RecommendTaskConfig, fold: Fold, seed: int
) -> dict[str, Measure]:
    """Return the measurements of the task's baselines on a fold, by name of the baseline.

    Args:
        view: the graph as it is known when ``fold`` is predicted.
        split: the split of the task.
        task: the task's section of the run file.
        fold: validation or test.
        seed: draws the sample of queries where there are more than ``task.baseline_queries``.
    """
    every = ranking_queries(view, split, fold)
    queries, groups = _bounded(every, split.edges_by_relation(fold), task.baseline_queries, seed)
    popularity = in_degree(view, split)
    total = None if queries is every else len(every.queries)

    def measure(name: str, watch: Watch) -> dict[str, float | int]:
        score = RECOMMEND_BASELINES[name](view, split, task.category, watch.check)
        return evaluate_ranking(
            score, queries, popularity, k=task.k, positive_groups=groups, watch=watch, sampled_from=total
        )

    return {name: partial(measure, name) for name in baselines_of(split, task)}


def _bounded(
    queries: RankingQueries, groups: Mapping[str, NDArray[np.bool_]], most: int | Literal["all"], seed: int
) -> tuple[RankingQueries, Mapping[str, NDArray[np.bool_]]]:
    """Return a uniform sample of at most ``most`` queries, and the groups of their positives."""
    if most == "all" or len(queries.queries) <= most:
        return queries, groups
    rows = queries.sampled_rows(most, seed)
    kept = np.zeros(len(queries.queries), dtype=bool)
    kept[rows] = True
    of_positives = np.repeat(kept, np.diff(queries.positive_indptr))
    return queries.take(rows), {name: inside[of_positives] for name, inside in groups.items()}


def _in_pieces(score: ScoreBlock, rows: int, check: Check) -> ScoreBlock:
    """Return ``score`` for ``rows`` queries at a time, with a check before each; results are the same."""

    def score_pieces(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        pieces = []
        for start in range(0, len(queries), rows):
            check()
            pieces.append(score(queries[start : start + rows]))
        return np.concatenate(pieces)

    return score_pieces


def _undirected(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    """Return the simple undirected graph between nodes of the type, or of queries, then candidates."""
    if split.within_one_type:
        nodes = view.num_nodes(split.node_type)
        total = sp.csr_array((nodes, nodes), dtype=np.float32)
        for edge_type in view.edge_types:
            if edge_type[0] == edge_type[2] == split.node_type:
                total = sp.csr_array(total + adjacency(view.csc(edge_type)))
    else:
        answers = known_answers(view, split)
        total = sp.block_array([[None, answers], [sp.csr_array(answers.shape[::-1]), None]], format="csr")
    both = sp.csr_array(total + total.T)
    both.data[:] = 1.0
    return both
