"""Classification metrics against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from graphbox.errors import UsageError
from graphbox.metrics import accuracy, classification_report, macro_f1


@pytest.mark.parametrize("seed", range(10))
def test_equals_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Classes that never occur, that are never predicted, and that are predicted only.
    expected = generator.choice([0, 2, 3, 7], 60)
    predicted = np.where(generator.random(60) < 0.5, expected, generator.choice([0, 3, 5], 60))
    report = classification_report(expected, predicted)
    assert report["accuracy"] == pytest.approx(accuracy_score(expected, predicted))
    assert report["macro_f1"] == pytest.approx(f1_score(expected, predicted, average="macro"))
    assert report["nodes"] == 60


def test_all_right_and_all_wrong() -> None:
    classes = np.array([0, 1, 1])
    assert accuracy(classes, classes) == macro_f1(classes, classes) == 1.0
    assert accuracy(classes, classes + 2) == macro_f1(classes, classes + 2) == 0.0


def test_wrong_input_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one node"):
        accuracy(np.array([], np.int64), np.array([], np.int64))
    with pytest.raises(UsageError, match=r"\(2,\) and \(3,\)"):
        macro_f1(np.zeros(2, np.int64), np.zeros(3, np.int64))
