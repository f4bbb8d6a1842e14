"""The optimizers of the table against torch's, against their papers, and in what their options promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Optimizer
from tests.table.reference import OPTIMIZERS, REFERENCES, settings_of

DIM, KEYS = 17, 40


def make_table(optimizer: Optimizer, **settings: Any) -> EmbeddingTable:
    return EmbeddingTable(DIM, optimizer, **{**settings_of(optimizer), **settings})


def batches(count: int = 30) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    rng = np.random.default_rng(0)
    return [
        (rng.integers(0, KEYS, size), rng.normal(size=(size, DIM)).astype(np.float32))
        for size in rng.integers(0, 60, count)
    ]


@pytest.mark.parametrize("mean_gradient", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_agrees_with_its_paper(optimizer: Optimizer, weight_decay: float, mean_gradient: bool) -> None:
    table = make_table(optimizer, weight_decay=weight_decay, mean_gradient=mean_gradient)
    rows = table.pull(np.arange(KEYS)).astype(np.float64)
    states: list[dict[str, Any]] = [{} for _ in range(KEYS)]
    for keys, gradients in batches():
        table.push(keys, gradients)
        for key in np.unique(keys):
            own = gradients[keys == key].astype(np.float64)
            gradient = (own.mean(axis=0) if mean_gradient else own.sum(axis=0)) + weight_decay * rows[key]
            rows[key] = REFERENCES[optimizer](rows[key], states[key], gradient)
    np.testing.assert_allclose(table.pull(np.arange(KEYS)), rows, rtol=2e-5, atol=2e-6)


def torch_optimizer(
    name: Optimizer, parameters: list[torch.nn.Parameter], weight_decay: float
) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, weight_decay=weight_decay)
    if name == "adagrad":
        return torch.optim.Adagrad(
            parameters, lr=0.1, initial_accumulator_value=0.25, eps=1e-8, weight_decay=weight_decay
        )
    return torch.optim.Adam(parameters, lr=0.1, betas=(0.8, 0.95), weight_decay=weight_decay)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
def test_each_row_agrees_with_torch(name: Optimizer, weight_decay: float) -> None:
    table = make_table(name, weight_decay=weight_decay)
    parameters = [torch.nn.Parameter(row) for row in table.pull(torch.arange(KEYS))]
    each = [torch_optimizer(name, [parameter], weight_decay) for parameter in parameters]
    for keys, gradients in batches():
        table.push(keys, gradients)
        for key in np.unique(keys):
            parameters[key].grad = torch.from_numpy(gradients[keys == key]).sum(dim=0)
            each[key].step()
    expected = torch.stack([parameter.detach() for parameter in parameters])
    np.testing.assert_allclose(table.pull(np.arange(KEYS)), expected.numpy(), rtol=1e-6, atol=1e-6)


def test_adam_agrees_with_sparse_adam_where_all_rows_take_part() -> None:
    table = make_table("adam", eps=1e-15)  # which SparseAdam adds before the corrections, not after them
    embedding = torch.nn.Embedding(KEYS, DIM, sparse=True)
    embedding.weight.data.copy_(table.pull(torch.arange(KEYS)))
    other = torch.optim.SparseAdam(list(embedding.parameters()), lr=0.1, betas=(0.8, 0.95), eps=1e-15)
    rng = np.random.default_rng(1)
    for _ in range(50):
        keys = rng.permutation(KEYS)
        gradients = rng.normal(size=(len(keys), DIM)).astype(np.float32)
        other.zero_grad()
        embedding(torch.from_numpy(keys)).backward(torch.from_numpy(gradients))
        other.step()  # type: ignore[no-untyped-call]
        table.push(keys, gradients)
    expected = embedding.weight.detach().numpy()
    np.testing.assert_allclose(table.pull(np.arange(KEYS)), expected, rtol=1e-6, atol=1e-6)


def test_decoupled_weight_decay_agrees_with_adamw() -> None:
    table = make_table("adam", weight_decay=0.3, decoupled_weight_decay=True)
    weight = torch.nn.Parameter(table.pull(torch.arange(KEYS)))
    other = torch.optim.AdamW([weight], lr=0.1, betas=(0.8, 0.95), weight_decay=0.3)
    rng = np.random.default_rng(1)
    for _ in range(50):
        gradients = rng.normal(size=(KEYS, DIM)).astype(np.float32)
        weight.grad = torch.from_numpy(gradients)
        other.step()
        table.push(np.arange(KEYS), gradients)
    np.testing.assert_allclose(table.pull(np.arange(KEYS)), weight.detach().numpy(), rtol=1e-6, atol=1e-6)


def test_adam_still_counts_after_its_corrections_end() -> None:
    table = make_table("adam", betas=(0.5, 0.9))
    weight = torch.nn.Parameter(table.pull(torch.arange(2)))
    other = torch.optim.Adam([weight], lr=0.1, betas=(0.5, 0.9))
    rng = np.random.default_rng(1)
    for _ in range(400):  # 0.9^157 is below the precision of float32
        gradients = rng.normal(size=(2, DIM)).astype(np.float32)
        weight.grad = torch.from_numpy(gradients)
        other.step()
        table.push(np.arange(2), gradients)
    np.testing.assert_allclose(table.pull(np.arange(2)), weight.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_values_stay_within_bounds(optimizer: Optimizer) -> None:
    table = make_table(optimizer, bounds=(-0.4, 0.3), l1=0.0)
    for keys, gradients in batches():
        table.push(keys, gradients * 100)
        pushed = table.pull(np.unique(keys))
        assert pushed.size == 0 or (pushed.min() >= np.float32(-0.4) and pushed.max() <= np.float32(0.3))
    assert (table.pull(np.arange(KEYS)) == np.float32(0.3)).any()


def test_ftrl_without_penalties_is_adagrad() -> None:
    tables = [make_table("ftrl", l1=0.0, l2=0.0, beta=0.0), make_table("adagrad")]
    for keys, gradients in batches():
        for table in tables:
            table.push(keys, gradients)
    rows = [table.pull(np.arange(KEYS)) for table in tables]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-3, atol=1e-4)


def test_ftrl_makes_values_exactly_zero() -> None:
    table = make_table("ftrl", l1=50.0, init_scale=0.0)
    for keys, gradients in batches():
        table.push(keys, gradients)
    rows = table.pull(np.arange(KEYS))
    assert (rows == 0).mean() > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"betas": (0.9, 1.0)}, "betas: betas must be a finite number, 0.* and below 1.*, received 1"),
        ({"betas": 0.9}, "betas: expected two numbers, received 0.9"),
        ({"betas": (0.9, True)}, "betas: expected a number, received True"),
        ({"bounds": (1.0, 1.0)}, "bounds: bounds must be a number and a larger one, received 1.* and 1"),
        ({"bounds": (float("nan"), 1.0)}, "bounds: expected a number, received nan"),
        ({"weight_decay": -1.0}, "weight_decay: expected a finite number, 0 or more, received -1.0"),
        ({"optimizer": "ftrl", "l1": float("inf")}, "l1: expected a finite number"),
        ({"optimizer": "ftrl", "lr": 0.0}, "lr: ftrl divides by lr, which must be above 0"),
        (
            {"optimizer": "ftrl", "decoupled_weight_decay": True},
            "decoupled_weight_decay: ftrl has no decoupled weight decay",
        ),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EmbeddingTable(4, **{"optimizer": "adam", **settings})
