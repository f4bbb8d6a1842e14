"""Propagated features and labels against dense matrices."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.models.propagation import normalized_adjacency, propagated_features, propagated_labels

NODES = 40


def links(seed: int) -> NDArray[np.float64]:
    """A symmetric 0/1 matrix; the last node has no links."""
    drawn = np.random.default_rng(seed).random((NODES, NODES)) < 0.1
    drawn[-1] = drawn[:, -1] = False
    return (drawn | drawn.T).astype(np.float64)


def normalized(dense: NDArray[np.float64]) -> NDArray[np.float64]:
    degree = dense.sum(axis=1)
    scale = np.zeros(len(dense))
    scale[degree > 0] = degree[degree > 0] ** -0.5
    return scale[:, None] * dense * scale


def sparse(dense: NDArray[np.float64]) -> sp.csr_array:
    return sp.csr_array(dense.astype(np.float32))


def test_adjacency_is_normalized_on_both_sides() -> None:
    dense = links(0)
    found = normalized_adjacency(sparse(dense), self_loops=False)
    np.testing.assert_allclose(found.toarray(), normalized(dense), atol=1e-6)
    with_loops = np.maximum(dense, np.eye(NODES))
    found = normalized_adjacency(sparse(dense), self_loops=True)
    np.testing.assert_allclose(found.toarray(), normalized(with_loops), atol=1e-6)
    assert found.dtype == np.float32


def test_features_are_averaged_as_often_as_asked() -> None:
    dense = links(1)
    features = np.random.default_rng(2).normal(size=(NODES, 7)) * (np.arange(7) > 2)
    smooth = normalized(np.maximum(dense, np.eye(NODES)))
    for steps in (0, 1, 2, 3):
        found = propagated_features(sparse(dense), sparse(features), steps)
        expected = np.linalg.matrix_power(smooth, steps) @ features
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-5)


def test_labels_reach_the_fixed_point() -> None:
    dense, classes = links(3), 3
    labels = np.zeros((NODES, classes), np.float32)
    labels[np.arange(9), np.arange(9) % classes] = 1.0
    for spread in (0.5, 0.9):
        exact = (1 - spread) * np.linalg.solve(np.eye(NODES) - spread * normalized(dense), labels)
        found = propagated_labels(sparse(dense), labels, spread=spread, steps=200)
        np.testing.assert_allclose(found, exact, atol=1e-5)
    assert not propagated_labels(sparse(dense), labels)[-1].any(), "a node without links stays unlabelled"
