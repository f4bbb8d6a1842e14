"""Two-tower GraphSAGE against loops, and its padded form against its training form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.graph import FeatureSpec
from graphbox.models import FeatureSizes, NeighborBlock, NodeFeatures, TwoTowerSAGE

DIM, FAN = 8, 5
RELATIONS = [("item", "likes", "item"), ("tag", "tags", "item"), ("item", "needs", "item")]


@pytest.fixture
def model() -> TwoTowerSAGE:
    torch.manual_seed(0)
    return TwoTowerSAGE("item", RELATIONS, DIM, {"item": FeatureSizes((4, 3), 2)}).eval()


def tables(seeds: int, nodes: int, seed: int) -> dict[tuple[str, str, str], NDArray[np.int32]]:
    """Return neighbour tables with empty, partial and full rows."""
    generator = np.random.default_rng(seed)
    found = {}
    for relation in RELATIONS:
        table = np.full((seeds, FAN), -1, np.int32)
        for row in range(seeds):
            count = int(generator.integers(0, FAN + 1))
            table[row, :count] = generator.choice(nodes, count, replace=False)
        table[0] = -1
        found[relation] = table
    return found


def block(table: NDArray[np.int32]) -> NeighborBlock:
    present = table >= 0
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    return NeighborBlock(torch.from_numpy(table[present].astype(np.int64)), torch.from_numpy(offsets))


def encode_by_loop(
    model: TwoTowerSAGE,
    inputs: dict[str, torch.Tensor],
    seeds: list[int],
    around: dict[tuple[str, str, str], NDArray[np.int32]],
) -> NDArray[np.float64]:
    weight = model.query.combine.weight.detach().numpy().astype(np.float64)
    bias = model.query.combine.bias.detach().numpy().astype(np.float64)
    rows = {name: tensor.detach().numpy().astype(np.float64) for name, tensor in inputs.items()}
    vectors = []
    for place, seed in enumerate(seeds):
        parts = [rows["item"][seed]]
        for relation in RELATIONS:
            neighbors = [node for node in around[relation][place].tolist() if node >= 0]
            total = sum((rows[relation[0]][node] for node in neighbors), np.zeros(DIM))
            parts.append(total / np.sqrt(max(len(neighbors), 1)))
        combined = weight @ np.concatenate(parts) + bias
        vectors.append(combined / np.linalg.norm(combined))
    return np.array(vectors)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("seeds", [1, 3, 20])
def test_equals_the_definition(model: TwoTowerSAGE, seeds: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = {name: torch.randn(30, DIM, generator=generator) for name in ("item", "tag")}
    positions = torch.randperm(30, generator=generator)[:seeds]
    around = tables(seeds, 30, seed)
    expected = encode_by_loop(model, inputs, positions.tolist(), around)
    blocks = {relation: block(table) for relation, table in around.items()}
    with torch.no_grad():
        trained = model.query(inputs["item"][positions], model.aggregate(inputs, blocks))
    np.testing.assert_allclose(trained.numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(trained.numpy(), axis=1), 1.0, atol=1e-6)


def test_towers_differ_and_share_inputs(model: TwoTowerSAGE) -> None:
    inputs = {"item": torch.randn(6, DIM), "tag": torch.randn(6, DIM)}
    blocks = {relation: block(table) for relation, table in tables(4, 6, 0).items()}
    own, aggregated = inputs["item"][:4], model.aggregate(inputs, blocks)
    query, target = model.query(own, aggregated), model.target(own, aggregated)
    assert not torch.allclose(query, target)
    logits = model.logits(query, target)
    torch.testing.assert_close(logits, model.log_scale.exp() * (query @ target.T))


class TestFeatures:
    def test_are_added_to_the_rows(self, model: TwoTowerSAGE) -> None:
        rows = torch.randn(3, DIM)
        codes, numbers = torch.tensor([[0, 2], [3, 1], [1, 0]]), torch.randn(3, 2)
        parameters = {name: value.detach() for name, value in model.features["item"].named_parameters()}
        expected = (
            rows
            + parameters["categories.0.weight"][codes[:, 0]]
            + parameters["categories.1.weight"][codes[:, 1]]
            + numbers @ parameters["numbers.weight"].T
        )
        torch.testing.assert_close(model.input_rows("item", rows, codes, numbers), expected)
        torch.testing.assert_close(model.input_rows("tag", rows, codes, numbers), rows)

    def test_missing_values_are_a_code_and_the_mean(self) -> None:
        table = NodeFeatures.build(
            {
                "kind": (FeatureSpec("categorical", ("a", "b")), np.array([1, -1, 0], np.int32)),
                "size": (FeatureSpec("number"), np.array([1.0, np.nan, 100.0], np.float32)),
                "flag": (FeatureSpec("boolean"), np.array([True, True, True])),
            },
            3,
        )
        assert table.codes.tolist() == [[2], [0], [1]]
        assert table.sizes == FeatureSizes((3,), 2)
        assert table.numbers[:, 0].tolist() == pytest.approx([-1.0, 0.0, 1.0])
        assert table.numbers[:, 1].tolist() == [0.0, 0.0, 0.0]

    def test_other_kinds_are_refused(self) -> None:
        with pytest.raises(UsageError, match=r"received `v` \(vector\)"):
            NodeFeatures.build({"v": (FeatureSpec("vector", dim=2), np.zeros((3, 2), np.float32))}, 3)
