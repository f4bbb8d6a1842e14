"""Networks of clicks beside plain references: each formula as its paper writes it, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphbox.models.click_fields import FieldBatch
from graphbox.models.click_network import ClickNetwork, ClickShape
from graphbox.models.dcn import DCN, CrossLayer
from graphbox.models.deepfm import DeepFM, pairwise_products
from graphbox.models.mmoe import MMoE
from graphbox.models.wide_and_deep import WideAndDeep
from graphbox.table import EmbeddingTable

ROWS, FIELDS, DIM, NUMBERS = 5, 4, 3, 2
SHAPE = ClickShape(FIELDS, NUMBERS, DIM, hidden=(6, 4))


def batch(rows: int = ROWS) -> FieldBatch:
    """Return rows whose fields have 0 to 2 keys, and one cross."""
    generator = np.random.default_rng(3)
    lengths = generator.integers(0, 3, FIELDS * rows)
    keys = generator.integers(0, 9, lengths.sum()) + 100 * np.arange(FIELDS).repeat(rows).repeat(lengths)
    return FieldBatch(
        keys=torch.from_numpy(keys),
        offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])),
        weights=torch.from_numpy(generator.random(len(keys)).astype(np.float32)),
        crosses=torch.from_numpy(generator.integers(1000, 1003, (1, rows))),
        numbers=torch.from_numpy(generator.normal(size=(rows, NUMBERS)).astype(np.float32)),
    )


def tables(dims: dict[str, int]) -> dict[str, EmbeddingTable]:
    return {name: EmbeddingTable(dim, "sgd", 0.5, init_scale=0.5, seed=1) for name, dim in dims.items()}


def make(kind: type[ClickNetwork], shape: ClickShape = SHAPE, **options: object) -> ClickNetwork:
    torch.manual_seed(0)
    return kind(shape, tables(kind.table_dims(shape)), **options)


def sums(table: EmbeddingTable, given: FieldBatch) -> np.ndarray:
    """Return the weighted sums of the bags by a loop: [rows, fields, dim]."""
    found = np.zeros((len(given), FIELDS, table.dim))
    for field in range(FIELDS):
        for row in range(len(given)):
            bag = field * len(given) + row
            for place in range(int(given.offsets[bag]), int(given.offsets[bag + 1])):
                key = given.keys[place : place + 1].numpy()
                found[row, field] += float(given.weights[place]) * table.pull(key)[0]
    return found


def layers(network: torch.nn.Module, inputs: np.ndarray) -> np.ndarray:
    """Return what a network of linear layers and rectifiers gives."""
    found = inputs
    for layer in network.children():
        if isinstance(layer, torch.nn.Linear):
            found = found @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        elif isinstance(layer, torch.nn.ReLU):
            found = np.maximum(found, 0)
    return found


def logits(network: ClickNetwork, given: FieldBatch) -> np.ndarray:
    network.train()
    with torch.no_grad():
        network.bias.fill_(0.25)
    found: Tensor = network(network.fetch(given), given.numbers)
    assert found.shape == (len(given), 1)
    return found.detach().numpy()[:, 0]


def weight(layer: torch.nn.Module) -> np.ndarray:
    assert isinstance(layer, torch.nn.Linear)
    values: np.ndarray = layer.weight.detach().numpy()[0]
    return values


def test_products_of_pairs_are_those_of_a_double_loop() -> None:
    vectors = torch.randn(7, 5, 3, generator=torch.Generator().manual_seed(0))
    expected = [sum(float(row[i] @ row[j]) for i in range(5) for j in range(i + 1, 5)) for row in vectors]
    np.testing.assert_allclose(pairwise_products(vectors), expected, rtol=1e-5)


def test_deepfm_is_linear_part_pairs_and_network() -> None:
    network, given = make(DeepFM), batch()
    assert isinstance(network, DeepFM)
    assert network.linear is not None
    found = logits(network, given)
    rows = sums(network.tables()["fields"], given)
    weights, vectors = rows[..., 0], rows[..., 1:]
    pairs = [
        sum(vectors[row, i] @ vectors[row, j] for i in range(FIELDS) for j in range(i + 1, FIELDS))
        for row in range(ROWS)
    ]
    numbers = given.numbers.numpy()
    inputs = np.concatenate([vectors.reshape(ROWS, -1), numbers], axis=1)
    deep = layers(network.deep, inputs) @ weight(network.head)
    expected = 0.25 + weights.sum(axis=1) + numbers @ weight(network.linear) + pairs + deep
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_cross_layer_is_that_of_the_paper(rank: int | None) -> None:
    torch.manual_seed(1)
    layer = CrossLayer(4, rank)
    first, vectors = torch.randn(6, 4), torch.randn(6, 4)
    if rank is None:
        assert isinstance(layer.weight, torch.nn.Linear)
        matrix, bias = layer.weight.weight.detach().numpy(), layer.weight.bias.detach().numpy()
    else:
        assert isinstance(layer.weight, torch.nn.Sequential)
        thin, wide = layer.weight
        assert isinstance(wide, torch.nn.Linear)
        assert isinstance(thin, torch.nn.Linear)
        matrix, bias = (wide.weight @ thin.weight).detach().numpy(), wide.bias.detach().numpy()
    expected = [a * (matrix @ x + bias) + x for a, x in zip(first.numpy(), vectors.numpy(), strict=True)]
    np.testing.assert_allclose(layer(first, vectors).detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
def test_dcn_is_cross_layers_and_a_network(structure: str) -> None:
    network, given = make(DCN, cross_layers=2, structure=structure), batch()
    assert isinstance(network, DCN)
    found = logits(network, given)
    rows = sums(network.tables()["fields"], given)
    inputs = np.concatenate([rows.reshape(ROWS, -1), given.numbers.numpy()], axis=1)
    crossed = inputs
    for layer in network.crosses:
        crossed = inputs * layers(layer, crossed) + crossed
    if structure == "stacked":
        last = layers(network.deep, crossed)
    else:
        last = np.concatenate([crossed, layers(network.deep, inputs)], axis=1)
    np.testing.assert_allclose(found, 0.25 + last @ weight(network.head), rtol=1e-4, atol=1e-5)


def test_wide_and_deep_is_a_linear_model_with_crosses_and_a_network() -> None:
    network, given = make(WideAndDeep), batch()
    assert isinstance(network, WideAndDeep)
    assert network.linear is not None
    found = logits(network, given)
    held = network.tables()
    inputs = np.concatenate([sums(held["fields"], given).reshape(ROWS, -1), given.numbers.numpy()], axis=1)
    wide = sums(held["wide"], given).sum(axis=(1, 2)) + held["wide"].pull(given.crosses[0].numpy())[:, 0]
    deep = layers(network.deep, inputs) @ weight(network.head)
    numbers = given.numbers.numpy() @ weight(network.linear)
    np.testing.assert_allclose(found, 0.25 + wide + deep + numbers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [DeepFM, DCN, WideAndDeep, MMoE])
def test_values_that_were_never_learnt_count_as_nothing(kind: type[ClickNetwork]) -> None:
    network, given = make(kind), batch()
    logits(network, given)  # which gives every value a row
    sizes = {name: len(table) for name, table in network.tables().items()}
    unknown = FieldBatch(
        given.keys + 10_000, given.offsets, given.weights, given.crosses + 10_000, given.numbers
    )
    nothing = FieldBatch(
        given.keys[:0], torch.zeros_like(given.offsets), given.weights[:0], given.crosses[:0], given.numbers
    )
    network.eval()
    with torch.no_grad():
        found = network(network.fetch(unknown), unknown.numbers)
        torch.testing.assert_close(found, network(network.fetch(nothing), nothing.numbers))
    assert {name: len(table) for name, table in network.tables().items()} == sizes


def test_fields_are_left_out_in_training_alone() -> None:
    shape = ClickShape(FIELDS, NUMBERS, DIM, hidden=(4,), row_dropout=0.9)
    network, given = make(DCN, shape), batch()
    first, second = logits(network, given), logits(network, given)
    assert not np.array_equal(first, second)
    network.eval()
    found = [network(network.fetch(given), given.numbers).detach().numpy() for _ in range(2)]
    np.testing.assert_array_equal(found[0], found[1])
