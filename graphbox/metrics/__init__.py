"""How good predictions are: classification and full ranking, blocked, with known answers masked."""

from __future__ import annotations

from graphbox.metrics.classification import accuracy, classification_report, macro_f1
from graphbox.metrics.ranking import (
    POPULARITY_BUCKETS,
    PopularityBucket,
    RankingQueries,
    ScoreBlock,
    evaluate_ranking,
    top_k,
)

__all__ = [
    "POPULARITY_BUCKETS",
    "PopularityBucket",
    "RankingQueries",
    "ScoreBlock",
    "accuracy",
    "classification_report",
    "evaluate_ranking",
    "macro_f1",
    "top_k",
]
