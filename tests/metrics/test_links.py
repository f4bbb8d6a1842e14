"""Figures of predicted links against loops."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.errors import UsageError
from graphbox.metrics import link_ranks, link_report


def test_ranks_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(0)
    query, negative_query = generator.integers(0, 9, 60), generator.integers(3, 14, 200)
    positive = generator.integers(0, 6, 60).astype(np.float32)  # few values: many ties
    negative = generator.integers(0, 6, 200).astype(np.float32)
    ranks, count = link_ranks(positive, negative, query, negative_query)
    for row, (score, number) in enumerate(zip(positive, query, strict=True)):
        others = negative[negative_query == number]
        assert count[row] == len(others)
        assert ranks[row] == 1 + (others > score).sum() + (others == score).sum() / 2
    report = link_report(positive, negative, query, negative_query, hits=(1, 5, 1000))
    ranked = count > 0
    assert report["ranked"] == ranked.sum() < len(ranked)
    assert report["mrr"] == pytest.approx((1 / ranks[ranked]).mean())
    assert report["hits@5"] == pytest.approx((ranks[ranked] <= 5).mean())
    assert "hits@1000" not in report
    assert (report["positives"], report["negatives"]) == (60, 200)


def test_a_model_without_an_opinion_gains_nothing() -> None:
    query = np.arange(50)
    report = link_report(np.zeros(50), np.zeros(450), query, np.repeat(query, 9), hits=(1, 3))
    assert (report["auc"], report["average_precision"]) == (0.5, 0.1)
    assert report["mrr"] == pytest.approx(1 / 5.5)
    assert (report["hits@1"], report["hits@3"]) == (0.0, 0.0)


def test_without_negatives_of_their_own_links_have_no_rank() -> None:
    report = link_report(np.ones(3), np.zeros(2), np.arange(3), np.array([7, 8]))
    assert report["ranked"] == 0
    assert "mrr" not in report
    assert report["auc"] == 1.0


def test_wrong_shapes_are_said() -> None:
    with pytest.raises(UsageError, match="a query for each score"):
        link_report(np.ones(3), np.zeros(2), np.arange(2), np.arange(2))
