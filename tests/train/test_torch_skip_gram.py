"""Skip-gram's loss and the rows after one step, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphbox.table import EmbeddingTable
from tests.train.torch_skip_gram import SkipGram

CENTERS = [3, 9, 3]
CENTER_OF_PAIR = [0, 0, 1, 2, 2]
CONTEXTS = [5, 9, 3, 5, 11]
NEGATIVES = [1, 5, 7, 7]
WEIGHT = 2.0


def sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))


def table(seed: int) -> EmbeddingTable:
    return EmbeddingTable(6, "sgd", lr=0.5, seed=seed)


def test_loss_and_step_equal_the_definition() -> None:
    center, context = table(0), table(1)
    keys = np.arange(12)
    centers, contexts = center.pull(keys).astype(np.float64), context.pull(keys).astype(np.float64)
    model = SkipGram(center, context)
    loss = model(
        torch.tensor(CENTERS),
        torch.tensor(CENTER_OF_PAIR),
        torch.tensor(CONTEXTS),
        torch.tensor(NEGATIVES),
        WEIGHT,
    )
    loss.backward()

    expected, pairs = 0.0, len(CONTEXTS)
    center_step, context_step = np.zeros_like(centers), np.zeros_like(contexts)
    for number, other in zip(CENTER_OF_PAIR, CONTEXTS, strict=True):
        one = CENTERS[number]
        logit = centers[one] @ contexts[other]
        expected -= math.log(sigmoid(logit))
        slope = sigmoid(logit) - 1.0
        center_step[one] += slope * contexts[other]
        context_step[other] += slope * centers[one]
        for negative in NEGATIVES:
            logit = centers[one] @ contexts[negative]
            expected -= WEIGHT / len(NEGATIVES) * math.log(sigmoid(-logit))
            slope = WEIGHT / len(NEGATIVES) * sigmoid(logit)
            center_step[one] += slope * contexts[negative]
            context_step[negative] += slope * centers[one]
    assert loss.item() == pytest.approx(expected / pairs, rel=1e-5)
    np.testing.assert_allclose(center.pull(keys), centers - 0.5 * center_step / pairs, atol=1e-6)
    np.testing.assert_allclose(context.pull(keys), contexts - 0.5 * context_step / pairs, atol=1e-6)
