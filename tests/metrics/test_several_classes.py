"""F1 scores of nodes with several classes, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from graphbox.errors import UsageError
from graphbox.metrics import several_classes_report


@pytest.mark.parametrize("seed", range(6))
def test_equals_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    nodes, classes = int(generator.integers(1, 60)), int(generator.integers(2, 9))
    members = generator.random((nodes, classes)) < 0.3
    members[np.arange(nodes), generator.integers(0, classes - 1, nodes)] = True
    scores = generator.random((nodes, classes)).astype(np.float32).round(1)
    report = several_classes_report(members, scores, threshold=0.6)
    top = np.zeros_like(members)
    for node in range(nodes):
        best = sorted(range(classes), key=lambda each: (-scores[node, each], each))
        top[node, best[: members[node].sum()]] = True
    for prefix, predicted in (("", top), ("threshold_", scores >= np.float32(0.6))):
        occurring = np.flatnonzero(members.any(axis=0) | predicted.any(axis=0))
        expected = {
            average: f1_score(members, predicted, average=average, labels=occurring, zero_division=0.0)
            for average in ("micro", "macro")
        }
        for average, value in expected.items():
            assert report[f"{prefix}{average}_f1"] == pytest.approx(value, abs=1e-9)
    assert report["nodes"] == nodes


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected two arrays of one shape \[n, classes\]"):
        several_classes_report(np.ones((3, 2), bool), np.ones((3, 3), np.float32))
    with pytest.raises(UsageError, match="at least one node"):
        several_classes_report(np.ones((0, 2), bool), np.ones((0, 2), np.float32))
