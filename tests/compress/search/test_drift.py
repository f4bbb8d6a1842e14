"""The metric by popularity of the targets, of the original and of the chosen model."""

from __future__ import annotations

from graphbox.compress.search.report import popularity_drift


def test_each_group_of_popularity_has_both_figures() -> None:
    original = {
        "recall@20": 0.5,
        "recall@20_in_degree_over_50": 0.9,
        "positives_in_degree_over_50": 30.0,
        "recall@20_in_degree_0": 0.1,
        "positives_in_degree_0": 4.0,
        "recall@20_recommends": 0.3,
        "ndcg@20_in_degree_0": 0.2,
    }
    chosen = {**original, "recall@20_in_degree_0": 0.05}
    assert popularity_drift(original, chosen, "recall@20") == [
        {"group": "in_degree_over_50", "positives": 30, "original": 0.9, "chosen": 0.9},
        {"group": "in_degree_0", "positives": 4, "original": 0.1, "chosen": 0.05},
    ]
    assert popularity_drift({"agreement": 1.0}, {"agreement": 0.9}, "agreement") == []
