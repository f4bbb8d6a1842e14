"""Losses against loops in float64, value and, of the sampled softmax, gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.train.losses import (
    bpr,
    hinge,
    info_nce,
    nce,
    perturbed,
    self_adversarial,
    sigmoid,
    simgcl,
)


def loss_by_loop(
    logits: NDArray[np.float64],
    log_probability: NDArray[np.float64],
    negatives: list[list[int]],
    positives: list[tuple[int, int]],
) -> float:
    total = 0.0
    for query, answer in positives:
        corrected = logits[query] - log_probability
        among = [corrected[answer], *(corrected[node] for node in negatives[query])]
        total -= corrected[answer] - math.log(sum(math.exp(value) for value in among))
    return total / len(positives)


def softmax_of(
    logits: Tensor, log_probability: Tensor, excluded: Tensor, positive: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the loss of positives that are among the candidates, and are corrected as they are."""
    return info_nce(
        logits[positive] - log_probability[positive[1]],
        logits.masked_fill(excluded, -torch.inf),
        positive[0],
        log_probability=log_probability,
    )


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_definition(seed: int) -> None:
    generator = np.random.default_rng(seed)
    queries, candidates = 5, 14
    logits = generator.normal(0, 3, (queries, candidates))
    log_probability = np.log(generator.uniform(0.05, 1, candidates))
    excluded = generator.random((queries, candidates)) < 0.3
    positives = [
        (query, int(node))
        for query in range(queries)
        for node in generator.choice(candidates, 1 + query % 3, replace=False)
    ]
    for query, node in positives:
        excluded[query, node] = True
    negatives = [np.flatnonzero(~excluded[query]).tolist() for query in range(queries)]

    tensor = torch.tensor(logits, requires_grad=True)
    row, column = (torch.tensor(part) for part in zip(*positives, strict=True))
    loss = softmax_of(tensor, torch.tensor(log_probability), torch.tensor(excluded), (row, column))
    assert loss.item() == pytest.approx(loss_by_loop(logits, log_probability, negatives, positives))

    loss.backward()  # type: ignore[no-untyped-call]
    assert tensor.grad is not None
    step = 1e-6
    for query, node in [(0, 0), (1, 3), positives[0], positives[-1]]:
        moved = logits.copy()
        moved[query, node] += step
        slope = (
            loss_by_loop(moved, log_probability, negatives, positives)
            - loss_by_loop(logits, log_probability, negatives, positives)
        ) / step
        assert tensor.grad[query, node].item() == pytest.approx(slope, abs=1e-4)


def test_excluded_candidates_do_not_learn() -> None:
    logits = torch.zeros(1, 4, requires_grad=True)
    excluded = torch.tensor([[True, True, False, False]])
    positive = (torch.tensor([0]), torch.tensor([0]))
    softmax_of(logits, torch.zeros(4), excluded, positive).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-2 / 3, 0.0, 1 / 3, 1 / 3])


def test_without_negatives_there_is_nothing_to_learn() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    loss = softmax_of(
        logits, torch.zeros(2), torch.ones(1, 2, dtype=torch.bool), (torch.tensor([0]), torch.tensor([1]))
    )
    assert loss.item() == 0.0


def softplus(value: float) -> float:
    return math.log1p(math.exp(-abs(value))) + max(value, 0.0)


class TestByLoop:
    """Each loss beside a loop over its definition, in float64."""

    @pytest.fixture
    def logits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return logits of seven positives and of their five negatives each."""
        generator = np.random.default_rng(3)
        return generator.normal(0, 2, 7), generator.normal(0, 2, (7, 5))

    @pytest.mark.parametrize("temperature", [1.0, 0.3])
    def test_info_nce(self, temperature: float) -> None:
        generator = np.random.default_rng(1)
        positive, negatives = generator.normal(size=6), generator.normal(size=(3, 8))
        negatives[1, 2:4] = -np.inf
        query, chance = np.array([0, 0, 1, 1, 1, 2]), np.log(generator.uniform(0.1, 1, 8))
        total = 0.0
        for number, row in enumerate(query.tolist()):
            drawn = sum(math.exp(x / temperature - c) for x, c in zip(negatives[row], chance, strict=True))
            right = math.exp(positive[number] / temperature)
            total -= math.log(right / (right + drawn))
        loss = info_nce(
            torch.tensor(positive),
            torch.tensor(negatives),
            torch.tensor(query),
            log_probability=torch.tensor(chance),
            temperature=temperature,
        )
        assert loss.item() == pytest.approx(total / 6)

    def test_info_nce_without_negatives_has_no_gradient(self) -> None:
        positive = torch.zeros(1, requires_grad=True)
        negatives = torch.full((1, 3), -torch.inf, requires_grad=True)
        loss = info_nce(positive, negatives, torch.tensor([0]))
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == 0.0
        assert positive.grad is not None
        assert negatives.grad is not None
        assert positive.grad.tolist() == [0.0]
        assert negatives.grad.tolist() == [[0.0, 0.0, 0.0]]

    def test_bpr(self, logits: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        positive, negatives = logits
        terms = [softplus(x - p) for p, row in zip(positive, negatives, strict=True) for x in row]
        assert bpr(torch.tensor(positive), torch.tensor(negatives)).item() == pytest.approx(np.mean(terms))

    def test_hinge(self, logits: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        positive, negatives = logits
        terms = [max(0.0, 0.7 - p + x) for p, row in zip(positive, negatives, strict=True) for x in row]
        loss = hinge(torch.tensor(positive), torch.tensor(negatives), margin=0.7)
        assert loss.item() == pytest.approx(np.mean(terms))

    def test_sigmoid(self, logits: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        positive, negatives = logits
        terms = [
            softplus(-p) + 0.4 * sum(softplus(x) for x in row)
            for p, row in zip(positive, negatives, strict=True)
        ]
        loss = sigmoid(torch.tensor(positive), torch.tensor(negatives), negative_weight=0.4)
        assert loss.item() == pytest.approx(np.mean(terms))

    def test_nce(self, logits: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        positive, negatives = logits
        generator = np.random.default_rng(4)
        noise, drawn = np.log(generator.uniform(size=7)), np.log(generator.uniform(size=(7, 5)))
        total = 0.0
        for number in range(7):
            odds = math.exp(positive[number]) / (5 * math.exp(noise[number]))
            total -= math.log(odds / (1 + odds))
            for place in range(5):
                odds = math.exp(negatives[number, place]) / (5 * math.exp(drawn[number, place]))
                total -= math.log(1 / (1 + odds))
        tensors = (torch.tensor(each) for each in (positive, negatives, noise, drawn))
        assert nce(*tensors).item() == pytest.approx(total / 7)

    def test_simgcl(self) -> None:
        generator = np.random.default_rng(5)
        first, second = generator.normal(size=(6, 4)), generator.normal(size=(6, 4))
        total = 0.0
        for one in range(6):
            cosines = [
                math.exp(first[one] @ other / np.linalg.norm(first[one]) / np.linalg.norm(other) / 0.5)
                for other in second
            ]
            total -= math.log(cosines[one] / sum(cosines))
        loss = simgcl(torch.tensor(first), torch.tensor(second), temperature=0.5)
        assert loss.item() == pytest.approx(total / 6)
        views = torch.tensor(first), torch.tensor(second)
        parts = [simgcl(views[0][start:stop], views[1], 0.5, start=start) for start, stop in ((0, 2), (2, 6))]
        assert parts[0].item() * 2 + parts[1].item() * 4 == pytest.approx(total)

    def test_perturbed_moves_by_the_magnitude_within_the_orthant(self) -> None:
        vectors = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
        moved = perturbed(vectors, 0.1, torch.rand(20, 8, generator=torch.Generator().manual_seed(1)))
        np.testing.assert_allclose((moved - vectors).norm(dim=1).numpy(), 0.1, rtol=1e-4)
        assert (moved.sign() == vectors.sign()).all()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_self_adversarial_equals_a_loop(temperature: float) -> None:
    generator = np.random.default_rng(2)
    positive, negatives = generator.normal(0, 2, 4), generator.normal(0, 2, (3, 6))
    excluded = generator.random((3, 6)) < 0.3
    query = [0, 0, 2, 1]
    total = 0.0
    for number, row in enumerate(query):
        told = negatives[row][~excluded[row]]
        weight = np.exp(temperature * told) / np.exp(temperature * told).sum()
        against = sum(w * math.log1p(math.exp(value)) for w, value in zip(weight, told, strict=True))
        total += (math.log1p(math.exp(-positive[number])) + against) / 2
    masked = torch.tensor(np.where(excluded, -np.inf, negatives), requires_grad=True)
    loss = self_adversarial(torch.tensor(positive), masked, torch.tensor(query), temperature)
    assert loss.item() == pytest.approx(total / len(query))
    loss.backward()  # type: ignore[no-untyped-call]
    assert masked.grad is not None
    assert torch.isfinite(masked.grad).all()
    # Nothing is learnt through the weights.
    row = 1
    told = negatives[row][~excluded[row]]
    weight = np.exp(temperature * told) / np.exp(temperature * told).sum()
    expected = weight / (1 + np.exp(-told)) / 2 / len(query)
    np.testing.assert_allclose(masked.grad[row][~torch.tensor(excluded[row])].numpy(), expected, rtol=1e-9)


def test_self_adversarial_without_any_negative() -> None:
    negatives = torch.full((1, 3), -torch.inf, requires_grad=True)
    loss = self_adversarial(torch.zeros(1), negatives, torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log(2) / 2)
