"""How good predictions are: classes, labels, links, clicks, and full rankings with known answers masked."""

from __future__ import annotations

from graphbox.metrics.binary import (
    CalibrationBin,
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
    multilabel_report,
)
from graphbox.metrics.filtered import FilteredQueries, evaluate_filtered, filtered_ranks, rank_report
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
    "CalibrationBin",
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
    "evaluate_filtered",
    "evaluate_ranking",
    "filtered_ranks",
    "grouped_roc_auc",
    "link_ranks",
    "link_report",
    "macro_f1",
    "multilabel_report",
    "rank_report",
    "top_k",
]
