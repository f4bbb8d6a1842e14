"""MMoE beside the paper's equations, written expert by expert and row by row, with their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphbox.models.click_network import ClickShape
from graphbox.models.mmoe import MMoE
from tests.models.test_click_networks import DIM, FIELDS, NUMBERS, ROWS, batch, make

EXPERTS, HIDDEN, TOWER = 3, (6, 4), (5,)


def network(labels: int = 2) -> MMoE:
    shape = ClickShape(FIELDS, NUMBERS, DIM, HIDDEN, labels=labels)
    made = make(MMoE, shape, experts=EXPERTS, tower=TOWER)
    assert isinstance(made, MMoE)
    with torch.no_grad():
        made.bias.copy_(torch.linspace(-1, 1, labels))
    return made


def perceptron(layers: torch.nn.Module, inputs: Tensor) -> Tensor:
    """Return what linear layers give, each with a rectifier after it."""
    for layer in layers.children():
        if isinstance(layer, torch.nn.Linear):
            inputs = functional.relu(layer.weight @ inputs + layer.bias)
    return inputs


def reference(model: MMoE, inputs: Tensor) -> Tensor:
    """Return the logits of a row by equations 6 and 7 of the paper: [labels].

    f^k(x) = sum over i of g^k(x)_i f_i(x), where g^k(x) = softmax(W_k x); y_k = h^k(f^k(x)).
    """
    experts = [perceptron(expert, inputs) for expert in model.experts]
    logits = []
    for label, (gate, tower, head) in enumerate(zip(model.gates, model.towers, model.heads, strict=True)):
        assert isinstance(gate, torch.nn.Linear)
        assert isinstance(head, torch.nn.Linear)
        powers = torch.exp(gate.weight @ inputs)
        mixed = sum(
            (power / powers.sum() * expert for power, expert in zip(powers, experts, strict=True)),
            start=torch.zeros(HIDDEN[-1]),
        )
        logits.append(model.bias[label] + head.weight[0] @ perceptron(tower, mixed))
    return torch.stack(logits)


def inputs_of(model: MMoE) -> tuple[dict[str, Tensor], Tensor]:
    given = batch()
    return model.fetch(given), given.numbers


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_the_network_is_that_of_the_paper(labels: int) -> None:
    model = network(labels)
    vectors, numbers = inputs_of(model)
    found = model(vectors, numbers)
    assert found.shape == (ROWS, labels)
    rows = torch.cat([vectors["fields"].flatten(1), numbers], dim=1)
    expected = torch.stack([reference(model, row) for row in rows])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_gradients_are_those_of_the_paper_and_of_a_label_leave_the_other_alone() -> None:
    model = network()
    vectors, numbers = inputs_of(model)
    held = vectors["fields"].detach().requires_grad_()
    rows = torch.cat([held.flatten(1), numbers], dim=1)
    weights = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(1))
    found, expected = (
        torch.autograd.grad((weights * logits).sum(), [held, *model.parameters()])
        for logits in (
            model({"fields": held}, numbers),
            torch.stack([reference(model, row) for row in rows]),
        )
    )
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        assert mine.abs().sum() > 0
    model({"fields": held.detach()}, numbers)[:, 0].sum().backward()
    for name, parameter in model.named_parameters():
        of_second = name.startswith(("gates.1", "towers.1", "heads.1"))
        assert parameter.grad is not None
        assert bool(parameter.grad.any()) != of_second, name
    assert model.bias.grad is not None
    assert model.bias.grad.tolist() == [ROWS, 0]


def test_gates_mix_experts_otherwise_for_each_label_and_row() -> None:
    model = network()
    vectors, numbers = inputs_of(model)
    inputs = torch.cat([vectors["fields"].flatten(1), numbers], dim=1)
    first, second = (torch.softmax(gate(inputs), dim=1).detach().numpy() for gate in model.gates)
    np.testing.assert_allclose(first.sum(axis=1), 1, rtol=1e-6)
    assert (np.abs(first - second) > 1e-3).any()
    assert (np.abs(first - first[0]) > 1e-3).any()
