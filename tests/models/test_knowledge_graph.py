"""Scores of triples against their formulas in NumPy's complex numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.models.bilinear import ComplEx, DistMult
from graphbox.models.knowledge_graph import KnowledgeGraphModel, TripleScore
from graphbox.models.translation import RotatE, TransE
from graphbox.table import EmbeddingTable, TableEmbedding

Array = NDArray[np.float64]
DIM = 6


def numbers(row: Array) -> NDArray[np.complex128]:
    real, imaginary = np.split(row, 2)
    return np.asarray(real + 1j * imaginary)


def distmult(head: Array, relation: Array, tail: Array) -> float:
    return float(sum(h * r * t for h, r, t in zip(head, relation, tail, strict=True)))


def complex_score(head: Array, relation: Array, tail: Array) -> float:
    return float((numbers(head) * numbers(relation) * numbers(tail).conj()).sum().real)


def distance(difference: NDArray[np.generic], kind: str) -> float:
    sizes = np.abs(difference)
    return float({"sum": sizes.sum(), "squared": (sizes**2).sum()}.get(kind, np.sqrt((sizes**2).sum())))


def transe(kind: str) -> Callable[[Array, Array, Array], float]:
    return lambda head, relation, tail: 3.0 - distance(head + relation - tail, kind)


def rotate(kind: str) -> Callable[[Array, Array, Array], float]:
    return lambda head, relation, tail: (
        3.0 - distance(numbers(head) * np.exp(1j * relation) - numbers(tail), kind)
    )


SCORES: list[tuple[TripleScore, Callable[[Array, Array, Array], float]]] = [
    (DistMult(DIM), distmult),
    (ComplEx(DIM), complex_score),
    *((TransE(DIM, kind, 3.0), transe(kind)) for kind in ("sum", "euclidean", "squared")),
    *((RotatE(DIM, kind, 3.0), rotate(kind)) for kind in ("sum", "euclidean", "squared")),
]


@pytest.mark.parametrize(("score", "formula"), SCORES)
def test_equals_the_formula_from_both_sides(
    score: TripleScore, formula: Callable[[Array, Array, Array], float]
) -> None:
    generator = np.random.default_rng(0)
    heads, tails = generator.normal(size=(2, 4, DIM))
    relation = generator.normal(size=score.relation_dim)
    expected = [[formula(head, relation, tail) for tail in tails] for head in heads]
    rows = torch.tensor(relation).expand(4, -1)
    to_tails = score(score.tail_queries(torch.tensor(heads), rows), torch.tensor(tails))
    np.testing.assert_allclose(to_tails.numpy(), expected, rtol=1e-9, atol=1e-9)
    to_heads = score(score.head_queries(torch.tensor(tails), rows), torch.tensor(heads))
    np.testing.assert_allclose(to_heads.numpy().T, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunk", [1, 4, 20])
def test_sums_of_moduli_come_in_chunks(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(count, DIM, generator=generator, dtype=torch.float64) for count in (3, 20)]
    weight = torch.randn(3, 20, generator=generator, dtype=torch.float64)
    monkeypatch.setattr("graphbox.models.translation._CHUNK_NUMBERS", chunk * rows[0].numel())
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        found = with_gradients(RotatE(DIM), rows, weight)
    assert sum(kept) == sum(each.numel() for each in rows)  # no differences

    def plain(queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        difference = queries[:, None] - candidates[None]
        return -torch.complex(*difference.chunk(2, dim=2)).abs().sum(dim=2)

    for one, other in zip(found, with_gradients(plain, rows, weight), strict=True):
        torch.testing.assert_close(one, other)


def with_gradients(
    score: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    rows: list[torch.Tensor],
    weight: torch.Tensor,
) -> list[torch.Tensor]:
    """Return the scores, and the gradients of rows when scores count by their weights."""
    leaves = [each.clone().requires_grad_() for each in rows]
    scores = score(*leaves)
    return [scores.detach(), *torch.autograd.grad(scores, leaves, weight)]


@pytest.mark.parametrize("score", [score for score, _ in SCORES])
def test_equal_rows_have_gradients_that_are_numbers(score: TripleScore) -> None:
    rows = torch.zeros(2, DIM, requires_grad=True)
    relations = torch.zeros(2, score.relation_dim, requires_grad=True)
    loss = score(score.tail_queries(rows, relations), rows).sum() + score.sizes(rows).pow(3).sum()
    loss.backward()
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()


@pytest.mark.parametrize("reciprocal", [False, True])
def test_directions(reciprocal: bool) -> None:
    entities, relations = (
        TableEmbedding(EmbeddingTable(DIM, "adagrad", 0.1, init_scale=1.0, seed=seed)) for seed in (1, 2)
    )
    model = KnowledgeGraphModel(entities, relations, ComplEx(DIM), 3, reciprocal=reciprocal)
    nodes = torch.tensor([4, 4, 5])
    queries, rows, relation_rows, others = model(nodes, torch.tensor([1, 1 + 3, 2]), torch.tensor([7, 5]))
    score = model.score
    for found, of in ((rows, [4, 4, 5]), (others, [7, 5])):
        np.testing.assert_array_equal(found.detach().numpy(), entities.table.pull(np.array(of)))
    torch.testing.assert_close(queries[0], score.tail_queries(rows[:1], relation_rows[:1])[0])
    if reciprocal:
        assert not torch.equal(relation_rows[0], relation_rows[1])
        torch.testing.assert_close(queries[1], score.tail_queries(rows[1:2], relation_rows[1:2])[0])
    else:
        assert torch.equal(relation_rows[0], relation_rows[1])
        torch.testing.assert_close(queries[1], score.head_queries(rows[1:2], relation_rows[1:2])[0])
