"""LightGCN beside dense matrices in float64, and the closed forms beside their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from graphbox.models.gfcf import fit_gfcf
from graphbox.models.ials import fit_ials
from graphbox.models.lightgcn import LightGCN, MatrixFactorization, SmoothingMatrix
from graphbox.table import EmbeddingTable, TableEmbedding

QUERIES, TARGETS, DIM = 13, 17, 6


def answers(seed: int = 0, shape: tuple[int, int] = (QUERIES, TARGETS)) -> sp.csr_array:
    dense = np.random.default_rng(seed).random(shape) < 0.25
    dense[3] = False  # a query without answers
    return sp.csr_array(dense.astype(np.float32))


def rows(seed: int) -> TableEmbedding:
    return TableEmbedding(EmbeddingTable(DIM, "sgd", 1.0, seed=seed, threads=1))


def normalized(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    left, right = matrix.sum(axis=1), matrix.sum(axis=0)
    return np.asarray(matrix / np.sqrt(np.maximum(left, 1)[:, None] * np.maximum(right, 1)[None, :]))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_vectors_are_means_over_layers(layers: int) -> None:
    known = answers()
    model = LightGCN(rows(1), rows(2), known, layers)
    query, target = model.all_vectors()
    start = np.concatenate(
        [
            module.table.pull(np.arange(count)).astype(np.float64)
            for module, count in ((model.queries, QUERIES), (model.targets, TARGETS))
        ]
    )
    part = normalized(known.toarray().astype(np.float64))
    step = np.block([[np.zeros((QUERIES, QUERIES)), part], [part.T, np.zeros((TARGETS, TARGETS))]])
    powers = [np.linalg.matrix_power(step, power) @ start for power in range(layers + 1)]
    expected = np.mean(powers, axis=0)
    np.testing.assert_allclose(query.detach().numpy(), expected[:QUERIES], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(target.detach().numpy(), expected[QUERIES:], rtol=1e-5, atol=1e-7)


def test_one_type_shares_rows_and_goes_both_ways() -> None:
    known = answers(shape=(QUERIES, QUERIES))
    table = rows(1)
    query, target = LightGCN(table, table, known, 2).all_vectors()
    np.testing.assert_array_equal(query.detach().numpy(), target.detach().numpy())
    both = np.minimum(known.toarray() + known.toarray().T, 1.0).astype(np.float64)
    step, start = normalized(both), table.table.pull(np.arange(QUERIES)).astype(np.float64)
    expected = (start + step @ start + step @ step @ start) / 3
    np.testing.assert_allclose(query.detach().numpy(), expected, rtol=1e-5, atol=1e-7)


def test_gradients_are_those_of_the_dense_product() -> None:
    matrix = sp.csr_array(sp.random(9, 14, 0.3, format="csr", rng=np.random.default_rng(0), dtype=np.float32))
    vectors = torch.randn(14, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weight = torch.randn(9, 5, generator=torch.Generator().manual_seed(2))
    product = SmoothingMatrix(matrix) @ vectors
    (product * weight).sum().backward()  # type: ignore[no-untyped-call]
    dense = torch.from_numpy(matrix.toarray())
    np.testing.assert_allclose(product.detach().numpy(), (dense @ vectors).detach().numpy(), atol=1e-6)
    assert vectors.grad is not None
    np.testing.assert_allclose(vectors.grad.numpy(), (dense.T @ weight).numpy(), atol=1e-6)


def test_rows_take_gradients_through_the_graph() -> None:
    known = answers()
    model = LightGCN(rows(1), rows(2), known, 2)
    before = model.targets.table.pull(np.arange(TARGETS))
    query, positive = model(torch.tensor([0, 1]), torch.tensor([4, 5]))
    (query * positive).sum().backward()
    assert (model.targets.table.pull(np.arange(TARGETS)) != before).any(axis=1).sum() > 2


def test_factorization_gives_rows() -> None:
    model = MatrixFactorization(rows(1), rows(2), (QUERIES, TARGETS))
    query, target, other = model(torch.tensor([5, 0]), torch.tensor([2, 2, 9]), torch.tensor([1]))
    np.testing.assert_array_equal(other.detach().numpy(), model.targets.table.pull(np.array([1])))
    np.testing.assert_array_equal(query.detach().numpy(), model.queries.table.pull(np.array([5, 0])))
    np.testing.assert_array_equal(target.detach().numpy(), model.targets.table.pull(np.array([2, 2, 9])))
    of_one_type = MatrixFactorization(model.queries, model.queries, (QUERIES, QUERIES))
    query, target = of_one_type(torch.tensor([5, 0]), torch.tensor([2]))
    for found, of in ((query, [5, 0]), (target, [2])):
        np.testing.assert_array_equal(found.detach().numpy(), model.queries.table.pull(np.array(of)))


def test_gfcf_is_its_definition() -> None:
    known = answers(1)
    dense = known.toarray().astype(np.float64)
    part = normalized(dense)
    _, _, right = np.linalg.svd(part)
    low, root = right[:4], np.sqrt(np.maximum(dense.sum(axis=0), 1))
    expected = dense @ (part.T @ part) + 0.3 * (dense / root) @ low.T @ low * root
    score = fit_gfcf(known, components=4)(np.arange(QUERIES))
    np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-5)


def test_ials_solves_each_side_for_the_other() -> None:
    known = answers(2)
    queries, targets = fit_ials(known, dim=4, regularization=0.01, unobserved_weight=0.2, epochs=3)
    dense = known.toarray().astype(np.float64)
    for target in range(TARGETS):  # the side that was solved for last
        weight = 0.2 + dense[:, target]
        penalty = 0.01 * (dense[:, target].sum() + 0.2 * QUERIES)
        left = (queries.T * weight) @ queries + penalty * np.eye(4)
        expected = np.linalg.solve(left, queries.T @ dense[:, target])
        np.testing.assert_allclose(targets[target], expected, rtol=1e-3, atol=1e-4)
