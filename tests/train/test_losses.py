"""The sampled softmax against loops in float64, value and gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.train.losses import sampled_softmax


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
    loss = sampled_softmax(tensor, torch.tensor(log_probability), torch.tensor(excluded), (row, column))
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
    sampled_softmax(logits, torch.zeros(4), excluded, positive).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-2 / 3, 0.0, 1 / 3, 1 / 3])


def test_without_negatives_there_is_nothing_to_learn() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    loss = sampled_softmax(
        logits, torch.zeros(2), torch.ones(1, 2, dtype=torch.bool), (torch.tensor([0]), torch.tensor([1]))
    )
    assert loss.item() == 0.0
