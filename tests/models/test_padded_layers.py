"""Every kind of layer over padded neighbour tables against the same layer over an edge list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graphbox.errors import UsageError
from graphbox.models.graph_layers import PaddedLayerInputs
from graphbox.models.layer_kinds import LAYER_KINDS, LayerKind, LayerShape, layer_kind, make_layer
from tests.models.padded_cases import DIM, ONE, VARIANTS, PaddedCase, relations_of

CASES = [
    (name, options, several, weighted)
    for name, variants in VARIANTS.items()
    for options in variants
    for several in (True, False)
    for weighted in (True, False)
    if LAYER_KINDS[name].takes_weights or not weighted
    if several or "num_blocks" not in options
]


def test_no_kind_of_layer_is_left_out() -> None:
    assert set(VARIANTS) == set(LAYER_KINDS)


@pytest.mark.parametrize(("name", "options", "several", "weighted"), CASES)
def test_a_layer_over_padded_tables_is_the_layer(
    name: str, options: Mapping[str, Any], several: bool, weighted: bool
) -> None:
    relations = relations_of(name) if several else ONE
    for nodes, batch in ((9, 1), (40, 31), (25, 0)):
        case = PaddedCase(name, relations, options, nodes=nodes, batch=batch, weighted=weighted)
        found, expected = case.padded(), case.expected()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name in VARIANTS if LAYER_KINDS[name].reads_edges for options in VARIANTS[name]],
)
def test_features_of_edges_are_read_of_padded_tables(
    name: str, options: Mapping[str, Any], several: bool
) -> None:
    relations = relations_of(name) if several else ONE
    for nodes, batch in ((9, 1), (40, 31), (25, 0)):
        case = PaddedCase(name, relations, options, nodes=nodes, batch=batch, featured=True)
        found, expected = case.padded(), case.expected()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", sorted(LAYER_KINDS))
def test_a_layer_reads_its_own_vectors_where_it_says_so(name: str) -> None:
    case = PaddedCase(name, relations_of(name), {}, batch=12)
    full = case.inputs()
    own = {each: nodes for each, nodes in full.own.items() if case.layer.reads_own(each)}
    first = {each: full.first[each] for each in own}
    with torch.no_grad():
        found = case.layer.padded(PaddedLayerInputs(full.below, full.neighbors, own, first))
    joined = torch.cat([found[each] for each in case.targets])
    np.testing.assert_array_equal(joined.numpy(), case.padded().numpy())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sage", {"aggr": "std"}, "expected one of the aggregations mean, sum, max and min"),
        ("gat", {"fill_value": "max"}, "expected the `fill_value` mean or a number, received 'max'"),
    ],
)
def test_options_without_a_padded_form_are_refused(
    name: str, options: Mapping[str, Any], message: str
) -> None:
    weighted = LAYER_KINDS[name].takes_weights
    case = PaddedCase(name, ONE, options, weighted=weighted)
    with pytest.raises(UsageError, match=message):
        case.padded()


class OwnConvolution(nn.Module):
    """Somebody's own layer."""

    def __init__(self, _: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, vectors: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(vectors).index_add(0, index[1], self.linear(vectors[index[0]]))


def test_a_layer_of_ones_own_has_no_padded_form() -> None:
    kind: LayerKind = layer_kind("own:OwnConvolution", OwnConvolution)
    layer = make_layer("own:OwnConvolution", kind, LayerShape(DIM, ONE, ["item"], {}))
    inputs = PaddedCase("sage", ONE, {}).inputs()
    with pytest.raises(
        UsageError, match=r"expected a layer with a padded-block form, received `.*OwnConvolution`"
    ):
        layer.padded(inputs)
