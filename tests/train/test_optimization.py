"""Steps of parameters and rows: schedules, clipping and averages beside plain loops, and going on exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.config.models.optimization import OptimizationSection
from graphbox.table import EmbeddingTable, TableEmbedding
from graphbox.train.optimization import Optimization, OptimizerSettings, learning_rate_share


@pytest.mark.parametrize(
    ("settings", "done", "share"),
    [
        ({}, 0.7, 1.0),
        ({"warmup": 0.2}, 0.0, 0.0),
        ({"warmup": 0.2}, 0.1, 0.5),
        ({"warmup": 0.2}, 0.2, 1.0),
        ({"schedule": "linear"}, 0.25, 0.75),
        ({"schedule": "linear", "final_learning_rate": 0.4}, 0.5, 0.7),
        ({"schedule": "linear", "warmup": 0.5}, 0.75, 0.5),
        ({"schedule": "cosine"}, 0.25, 0.5 + 0.5 * math.cos(math.pi / 4)),
        ({"schedule": "cosine", "final_learning_rate": 0.1}, 1.0, 0.1),
    ],
)
def test_schedules(settings: dict[str, Any], done: float, share: float) -> None:
    assert learning_rate_share(OptimizationSection(**settings), done) == pytest.approx(share)


class Model(nn.Module):
    """A parameter, and rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.rows = TableEmbedding(EmbeddingTable(2, "sgd", 0.1, init_scale=0.0, threads=1))

    def loss(self, pull: float) -> Tensor:
        rows: Tensor = self.rows(torch.arange(2))
        return (pull * self.weight * torch.tensor([1.0, 2.0, 3.0])).sum() + rows.sum()


STEPS, DECAY, CLIP, AVERAGE = 6, 0.1, 2.0, 0.8
CONFIG = OptimizationSection(
    learning_rate=0.05,
    table_learning_rate=0.3,
    schedule="linear",
    warmup=0.25,
    clip_norm=CLIP,
    average_decay=AVERAGE,
)


def made() -> tuple[Model, Optimization]:
    model = Model()
    return model, Optimization(model, OptimizerSettings.of(CONFIG), [([model.weight], DECAY)])


def learn(model: Model, optimization: Optimization, first: int, last: int) -> None:
    for step in range(first, last):
        optimization.backward(model.loss(step - 2.5))
        optimization.step(step / STEPS)


def by_loop() -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return the parameter, its average and a row's value after all steps, by the definitions of each."""
    weight = average = np.array([0.5, -1.0, 2.0])
    mean, square, row = np.zeros(3), np.zeros(3), 0.0
    for step in range(STEPS):
        gradient = (step - 2.5) * np.array([1.0, 2.0, 3.0])
        gradient = gradient * min(1.0, CLIP / float(np.linalg.norm(gradient)))
        gradient = gradient + DECAY * weight
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        share = step / STEPS / 0.25 if step / STEPS < 0.25 else (1 - step / STEPS) / 0.75
        corrected = np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8
        weight = weight - 0.05 * share * mean / (1 - 0.9 ** (step + 1)) / corrected
        average = weight if step == 0 else AVERAGE * average + (1 - AVERAGE) * weight
        row -= 0.3 * share
    return weight, average, row


def test_steps_are_their_definition() -> None:
    model, optimization = made()
    learn(model, optimization, 0, STEPS)
    weight, average, row = by_loop()
    np.testing.assert_allclose(model.weight.detach().numpy(), weight, rtol=1e-4)
    np.testing.assert_allclose(model.rows.table.pull(np.arange(2), create=False), row, rtol=1e-4)
    with optimization.averaged():
        np.testing.assert_allclose(model.weight.detach().numpy(), average, rtol=1e-4)
    np.testing.assert_allclose(model.weight.detach().numpy(), weight, rtol=1e-4)
    assert not np.allclose(weight, average, rtol=1e-3)


def test_goes_on_with_the_same_bits() -> None:
    model, optimization = made()
    learn(model, optimization, 0, 3)
    state = {name: value.clone() for name, value in optimization.tensors().items()}
    other, again = made()
    with torch.no_grad():
        other.weight.copy_(model.weight)
    again.restore(state)
    for each in ((model, optimization), (other, again)):
        learn(*each, 3, STEPS)
    assert torch.equal(model.weight, other.weight)
    with optimization.averaged(), again.averaged():
        assert torch.equal(model.weight, other.weight)


def test_parameters_are_the_same_for_any_number_of_threads() -> None:
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(1)
            weight = nn.Parameter(torch.randn(397, 301, generator=generator))  # in parts of several threads
            optimization = Optimization(nn.ParameterList([weight]), OptimizerSettings.of(CONFIG))
            for _ in range(3):
                optimization.backward((weight * torch.randn(weight.shape, generator=generator)).sum())
                optimization.step(0.5)
            found.append(weight.detach())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
