"""Layers that read features of edges against PyTorch Geometric's own, on random graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from graphbox.artifact.edge_features import CATEGORY_DIM
from graphbox.config import EDGE_FEATURE_LAYERS
from graphbox.graph.schema import EdgeType
from graphbox.models.edge_inputs import EdgeInputs, EdgeSizes
from graphbox.models.graph_layers import Edges, PerRelation
from graphbox.models.layer_kinds import LAYER_KINDS, LayerShape, make_layer

DIM, HEADS = 8, 2
RATED: EdgeType = ("user", "rated", "item")
NEAR: EdgeType = ("item", "near", "item")
SIZES = EdgeSizes((4, 3), 5)
NODES = {"user": 30, "item": 20}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))


def attention(kind: Any) -> Callable[[bool], nn.Module]:
    def make(within: bool) -> nn.Module:
        loops = {} if kind is pyg.TransformerConv else {"add_self_loops": within}
        sources = DIM if within else (DIM, DIM)
        made: nn.Module = kind(sources, DIM // HEADS, heads=HEADS, edge_dim=SIZES.width, **loops)
        return made

    return make


REFERENCES: dict[str, Callable[[bool], nn.Module]] = {
    "gat": attention(pyg.GATConv),
    "gatv2": attention(pyg.GATv2Conv),
    "transformer": attention(pyg.TransformerConv),
    "gine": lambda within: pyg.GINEConv(network(), edge_dim=SIZES.width),
}


def test_every_layer_that_reads_features_of_edges_has_a_reference() -> None:
    reading = {name for name, kind in LAYER_KINDS.items() if kind.reads_edges}
    assert set(REFERENCES) == reading == set(EDGE_FEATURE_LAYERS)


def edges_of(relation: EdgeType, seed: int) -> Edges:
    """Return random edges, parallel ones among them, with codes and numbers."""
    generator = np.random.default_rng([seed, len(relation[1])])
    ends = [generator.integers(0, NODES[name], 120) for name in (relation[0], relation[2])]
    ends[0][1], ends[1][1] = ends[0][0], ends[1][0]
    codes = [generator.integers(0, size, (120, 1)) for size in SIZES.categories]
    columns = np.concatenate([*codes, generator.normal(size=(120, SIZES.numbers))], axis=1)
    return Edges(torch.from_numpy(np.stack(ends)), None, torch.from_numpy(columns).float())


def attributes_of(inputs: EdgeInputs, columns: Tensor) -> Tensor:
    """Return what a convolution reads, edge by edge."""
    rows = []
    for row in columns:
        parts = [table[int(row[place])] for place, table in enumerate(inputs.categories)]
        rows.append(torch.cat([*parts, row[len(parts) :]]))
    return torch.stack(rows)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("relation", [RATED, NEAR], ids=["two types", "one type"])
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_a_layer_is_that_of_pytorch_geometric(name: str, relation: EdgeType, seed: int) -> None:
    types = list(dict.fromkeys((relation[0], relation[2])))
    options = {} if name == "gine" else {"heads": HEADS}
    shape = LayerShape(DIM, [relation], types, options, edge_sizes={relation: SIZES})
    torch.manual_seed(seed)
    layer = make_layer(name, LAYER_KINDS[name], shape).eval()
    assert isinstance(layer, PerRelation)
    text = "__".join(relation)
    reference = REFERENCES[name](len(types) == 1).eval()
    reference.load_state_dict(layer.convolutions[text].state_dict())
    vectors = {each: torch.randn(NODES[each], DIM) for each in types}
    edges, target = edges_of(relation, seed), relation[2]
    inputs = layer.edge_inputs[text]
    assert isinstance(inputs, EdgeInputs)
    given = vectors[target] if len(types) == 1 else (vectors[relation[0]], vectors[target])
    assert edges.features is not None
    with torch.no_grad():
        expected = reference(given, edges.index, edge_attr=attributes_of(inputs, edges.features))
        if target in layer.own:
            expected = expected + layer.own[target](vectors[target])
        found = layer(vectors, {relation: edges}, vectors)[target]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_gradients_reach_the_vectors_of_categories(name: str) -> None:
    shape = LayerShape(DIM, [NEAR], ["item"], {}, edge_sizes={NEAR: SIZES})
    torch.manual_seed(3)
    layer = make_layer(name, LAYER_KINDS[name], shape)
    vectors = {"item": torch.randn(NODES["item"], DIM)}
    layer(vectors, {NEAR: edges_of(NEAR, 3)}, vectors)["item"].square().sum().backward()
    assert isinstance(layer, PerRelation)
    tables = list(layer.edge_inputs.parameters())
    assert len(tables) == len(SIZES.categories)
    assert all(each.grad is not None and bool(each.grad.abs().sum() > 0) for each in tables)


def test_codes_and_numbers_become_one_vector() -> None:
    inputs = EdgeInputs(SIZES)
    columns = edges_of(RATED, 7).features
    assert columns is not None
    found = inputs(columns)
    assert found.shape == (120, SIZES.width) == (120, 2 * CATEGORY_DIM + 5)
    torch.testing.assert_close(found, attributes_of(inputs, columns), rtol=0, atol=0)
    torch.testing.assert_close(inputs(torch.cat([columns, columns], dim=1)), found, rtol=0, atol=0)
