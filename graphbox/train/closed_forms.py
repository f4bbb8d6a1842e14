"""Closed forms that rank, as baselines: GF-CF, iALS and EASE over the known answers of a task."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.graph.live_rows import LiveRows
from graphbox.metrics import Check, RankingQueries, ScoreBlock, evaluate_ranking
from graphbox.models.ease import EaseGram, scores_of_weights
from graphbox.models.gfcf import fit_gfcf
from graphbox.models.ials import fit_ials
from graphbox.train.recommendation.queries import known_answers
from graphbox.train.tasks import RecommendSplit
from graphbox.train.view import GraphView

EASE_PENALTIES = (30.0, 100.0, 300.0, 1000.0)
"""Strengths of the penalty of EASE, of which the validation part chooses one."""
_EASE_PENALTY = 100.0
"""Where the validation part is predicted itself, so that it can choose nothing."""
_CHOOSING_QUERIES = 1_000
_CHOOSING_K = 20


def gfcf(view: GraphView, split: RecommendSplit, _category: str | None, _check: Check) -> ScoreBlock:
    """Score by graph-filter collaborative filtering: :func:`graphbox.models.gfcf.fit_gfcf`."""
    queries, targets = _live_ends(view, split)
    score = fit_gfcf(_live_answers(view, split))
    return lambda rows: targets.spread(score(queries.rows(rows)), fill=-np.inf, axis=1)


def ials(view: GraphView, split: RecommendSplit, _category: str | None, _check: Check) -> ScoreBlock:
    """Score by implicit alternating least squares: :func:`graphbox.models.ials.fit_ials`."""
    of_queries, of_targets = fit_ials(_live_answers(view, split))
    queries, targets = _live_ends(view, split)

    def score(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        found = np.asarray(of_queries[queries.rows(rows)] @ of_targets.T, dtype=np.float32)
        return targets.spread(found, fill=-np.inf, axis=1)

    return score


def ease(view: GraphView, split: RecommendSplit, _category: str | None, check: Check) -> ScoreBlock:
    """Score by EASE: :func:`graphbox.models.ease.fit_ease`.

    The strength of the penalty is the one of :data:`EASE_PENALTIES` with the best recall@20 on at most 1,000
    queries of the validation part, learnt from the training part; then all that is known is learnt.
    """
    queries, targets = _live_ends(view, split)
    answers = _live_answers(view, split)
    penalty = _EASE_PENALTY
    if view.fold == "test":
        validation = split.edges("validation")
        penalty = _best_penalty(
            answers, queries.rows(validation[:, 0]), targets.rows(validation[:, 1]), check
        )
    check()
    score = scores_of_weights(answers, EaseGram(answers).weights(penalty))
    return lambda rows: targets.spread(score(queries.rows(rows)), fill=-np.inf, axis=1)


def _best_penalty(
    answers: sp.csr_array, query: NDArray[np.int64], target: NDArray[np.int64], check: Check
) -> float:
    """Return the penalty that finds the validation part best, given all else that is known."""
    held_out = sp.csr_array((np.ones(len(query), np.float32), (query, target)), shape=answers.shape)
    held_out.data[:] = 1.0
    train = sp.csr_array(answers - held_out.multiply(answers))
    train.eliminate_zeros()
    asked = np.flatnonzero(np.diff(held_out.indptr))
    if len(asked) > _CHOOSING_QUERIES:
        asked = asked[np.linspace(0, len(asked) - 1, _CHOOSING_QUERIES).astype(np.int64)]
    positives, masked = (sp.csr_array(each[asked]) for each in (held_out, train))
    wanted = RankingQueries(
        queries=asked,
        positive_indptr=positives.indptr.astype(np.int64),
        positives=positives.indices.astype(np.int64),
        masked_indptr=masked.indptr.astype(np.int64),
        masked=masked.indices.astype(np.int64),
    )
    gram, no_degrees = EaseGram(train), np.zeros(answers.shape[1], np.int64)
    recall: dict[float, float] = {}
    for penalty in EASE_PENALTIES:
        check()
        score = scores_of_weights(train, gram.weights(penalty))
        report = evaluate_ranking(score, wanted, no_degrees, k=_CHOOSING_K, buckets=())
        recall[penalty] = report[f"recall@{_CHOOSING_K}"]
    return max(EASE_PENALTIES, key=recall.__getitem__)


def _live_ends(view: GraphView, split: RecommendSplit) -> tuple[LiveRows, LiveRows]:
    return LiveRows.of_graph(view, split.node_type), LiveRows.of_graph(view, split.target_type)


def _live_answers(view: GraphView, split: RecommendSplit) -> sp.csr_array:
    """Return the known answers among live nodes: 0/1 float32 [live queries, live targets]."""
    queries, targets = (live.nodes(np.arange(len(live))) for live in _live_ends(view, split))
    return sp.csr_array(known_answers(view, split)[queries][:, targets])
