"""EASE against its closed form in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.models.ease import EaseGram, fit_ease


def answers(queries: int, targets: int, seed: int) -> sp.csr_array:
    drawn = np.random.default_rng(seed).random((queries, targets)) < 0.08
    return sp.csr_array(drawn.astype(np.float32))


def weights_by_definition(known: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
    """Each column by itself: the least squares of a target by all others, which is what the zero asks for."""
    targets = known.shape[1]
    found = np.zeros((targets, targets))
    for target in range(targets):
        others = np.delete(np.arange(targets), target)
        rest = known[:, others]
        found[others, target] = np.linalg.solve(
            rest.T @ rest + penalty * np.eye(len(others)), rest.T @ known[:, target]
        )
    return found


@pytest.mark.parametrize(("queries", "targets", "penalty"), [(60, 25, 3.0), (20, 40, 0.5), (700, 530, 40.0)])
def test_weights_are_those_of_least_squares(queries: int, targets: int, penalty: float) -> None:
    known = answers(queries, targets, targets)
    found = EaseGram(known).weights(penalty)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(np.diagonal(found), 0.0)
    dense = known.toarray().astype(np.float64)
    if targets < 100:
        expected = weights_by_definition(dense, penalty)
    else:
        inverse = np.linalg.inv(dense.T @ dense + penalty * np.eye(targets))
        expected = -inverse / np.diagonal(inverse)
        np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_one_gram_serves_all_penalties_and_scores_are_products() -> None:
    known = answers(50, 30, 1)
    gram = EaseGram(known)
    first = gram.weights(5.0)
    assert not np.allclose(gram.weights(50.0), first)
    np.testing.assert_array_equal(gram.weights(5.0), first)
    rows = np.array([3, 3, 41])
    np.testing.assert_allclose(fit_ease(known, 5.0)(rows), known.toarray()[rows] @ first, atol=1e-6)


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan")])
def test_a_penalty_that_is_not_positive_is_refused(penalty: float) -> None:
    with pytest.raises(UsageError, match="expected a positive penalty"):
        EaseGram(answers(5, 4, 0)).weights(penalty)
