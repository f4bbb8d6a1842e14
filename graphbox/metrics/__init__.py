"""Metrics of predictions: classes, labels, links, clicks, and full rankings with known answers masked."""

from __future__ import annotations

from graphbox.metrics.binary import (
    binary_report,
    calibration_bins,
    click_report,
    grouped_roc_auc,
)
from graphbox.metrics.blocks import UNWATCHED, Check, Measure, Watch
from graphbox.metrics.classification import (
    accuracy,
    classification_report,
    macro_f1,
    several_classes_report,
)
from graphbox.metrics.filtered import FilteredQueries, filtered_ranks, rank_report
from graphbox.metrics.links import link_ranks, link_report
from graphbox.metrics.ranking import (
    POPULARITY_BUCKETS,
    DeviceScores,
    PopularityBucket,
    RankingQueries,
    ScoreBlock,
    evaluate_ranking,
    top_k,
)

__all__ = [
    "POPULARITY_BUCKETS",
    "UNWATCHED",
    "Check",
    "DeviceScores",
    "FilteredQueries",
    "Measure",
    "PopularityBucket",
    "RankingQueries",
    "ScoreBlock",
    "Watch",
    "accuracy",
    "binary_report",
    "calibration_bins",
    "classification_report",
    "click_report",
    "evaluate_ranking",
    "filtered_ranks",
    "grouped_roc_auc",
    "link_ranks",
    "link_report",
    "macro_f1",
    "rank_report",
    "several_classes_report",
    "top_k",
]
