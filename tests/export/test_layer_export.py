"""Every kind of layer as ONNX in padded-block form against the layer over an edge list, at many sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from graphbox.artifact import inspect_onnx
from graphbox.compress.dense import convert_dense, dense_method
from graphbox.deploy.conformance_models import OPERATORS
from graphbox.deploy.onnx_runtime import load_onnxruntime
from graphbox.export.onnx import ExportedOnnx, TensorInput, export_onnx
from graphbox.models.graph_layers import PaddedLayerInputs
from graphbox.models.layer_kinds import LAYER_KINDS
from graphbox.models.padded_layers import PaddedNeighbors
from tests.models.padded_cases import DIM, PaddedCase, relations_of

BATCHES = (0, 1, 2, 31, 256)
# Options under which other operators are exported than without.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    **{key: {} for key in LAYER_KINDS},
    "sage": {"aggr": "pool"},
    "gat": {"heads": 2},
    "gatv2": {"heads": 2},
    "transformer": {"heads": 2, "beta": True},
    "hgt": {"heads": 2},
}


class LayerOfTensors(nn.Module):
    """A layer whose inputs are lists of tensors, as the exporter takes them."""

    def __init__(self, case: PaddedCase) -> None:
        super().__init__()
        self.layer = case.layer
        self._types, self._relations = case.types, case.relations

    def forward(
        self,
        below: list[Tensor],
        first: list[Tensor],
        own: list[Tensor],
        index: list[Tensor],
        weight: list[Tensor],
    ) -> Tensor:
        tables = [
            PaddedNeighbors(each, weight[number] if weight else None) for number, each in enumerate(index)
        ]
        of_types = (dict(zip(self._types, each, strict=True)) for each in (below, own, first))
        vectors, places, before = of_types
        inputs = PaddedLayerInputs(vectors, dict(zip(self._relations, tables, strict=True)), places, before)
        found = self.layer.padded(inputs)
        return torch.cat([found[name] for name in self._types])


def tensors_of(case: PaddedCase) -> list[list[tuple[str, Tensor, dict[int, str]]]]:
    """Return the layer's inputs in order: name, value, and names of the dimensions of any size."""
    given, tables = case.inputs(), list(case.inputs().neighbors.items())
    weighted = [(each, table) for each, table in tables if table.weight is not None]
    return [
        [(f"below_{name}", given.below[name], {0: f"below_{name}"}) for name in case.types],
        [(f"first_{name}", given.first[name], {0: f"batch_{name}"}) for name in case.types],
        [(f"own_{name}", given.own[name], {0: f"batch_{name}"}) for name in case.types],
        [
            (f"index_{number}", table.index, {0: f"batch_{each[2]}", 1: f"slots_{number}"})
            for number, (each, table) in enumerate(tables)
        ],
        [
            (f"weight_{number}", table.weight, {0: f"batch_{each[2]}", 1: f"slots_{number}"})
            for number, (each, table) in enumerate(weighted)
            if table.weight is not None
        ],
    ]


def exported(name: str) -> ExportedOnnx:
    case = PaddedCase(name, relations_of(name), OPTIONS[name], nodes=9, batch=3, weighted=_weighted(name))
    arguments: list[TensorInput | list[TensorInput]] = [
        [TensorInput(*each) for each in group] for group in tensors_of(case)
    ]
    return export_onnx(LayerOfTensors(case).eval(), arguments)


def _weighted(name: str) -> bool:
    return LAYER_KINDS[name].takes_weights


def feeds_of(case: PaddedCase, names: set[str]) -> dict[str, Any]:
    found = {key: value.numpy() for group in tensors_of(case) for key, value, _ in group}
    return {key: value for key, value in found.items() if key in names}


@pytest.mark.parametrize("name", sorted(LAYER_KINDS))
def test_the_exported_layer_is_the_layer_at_every_size(name: str) -> None:
    """At three sizes of graph and five of batches: empty lists, repeats, parallel edges, loops and a hub."""
    model = exported(name)
    session = load_onnxruntime().InferenceSession(model.model, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    for nodes in (9, 40, 300):
        for batch in BATCHES:
            case = PaddedCase(
                name, relations_of(name), OPTIONS[name], nodes=nodes, batch=batch, weighted=_weighted(name)
            )
            (found,) = session.run(["embedding"], feeds_of(case, names))
            expected = case.expected().numpy()
            assert found.shape == expected.shape == (len(case.types) * batch, DIM)
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            assert float(np.abs(found - expected).max(initial=0)) <= 1e-4 * scale


def test_the_conformance_kit_has_every_exported_operator() -> None:
    operators = {name for kind in LAYER_KINDS for name in inspect_onnx(exported(kind).model, kind).operators}
    tested = {name for case in OPERATORS for name in inspect_onnx(case.model(), case.name).operators}
    assert operators <= tested


def test_absent_neighbours_point_to_a_row_and_never_below_it() -> None:
    """Gather takes -1 for the last row, without an error."""
    for name in LAYER_KINDS:
        for table in PaddedCase(name, relations_of(name), {}).inputs().neighbors.values():
            assert int(table.index.min()) == 0


@pytest.mark.parametrize("name", ["gcn", "gat", "hgt"])
def test_an_exported_layer_can_be_quantized(name: str) -> None:
    model = exported(name)
    quantized = convert_dense(dense_method("int8"), model.model)
    session = load_onnxruntime().InferenceSession(quantized.model, providers=["CPUExecutionProvider"])
    case = PaddedCase(name, relations_of(name), OPTIONS[name], batch=31, weighted=_weighted(name))
    (found,) = session.run(None, feeds_of(case, {each.name for each in session.get_inputs()}))
    expected = case.expected().numpy()
    assert float(np.abs(found - expected).mean()) < 0.05 * float(np.abs(expected).max())


def test_self_loops_are_a_slot_of_the_table() -> None:
    """PyTorch Geometric finds the loops that there are with NonZero, whose shape depends on the data."""
    operators = {node.op_type for node in onnx.load_model_from_string(exported("gat").model).graph.node}
    assert "NonZero" not in operators
