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
        self._featured = set(case.edge_sizes)

    def forward(
        self,
        below: list[Tensor],
        first: list[Tensor],
        own: list[Tensor],
        index: list[Tensor],
        weight: list[Tensor],
        features: list[Tensor],
    ) -> Tensor:
        of_edges = iter(features)
        tables = [
            PaddedNeighbors(
                each,
                weight[number] if weight else None,
                next(of_edges) if relation in self._featured else None,
            )
            for number, (relation, each) in enumerate(zip(self._relations, index, strict=True))
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
        [
            (f"features_{number}", table.features, {0: f"batch_{each[2]}", 1: f"slots_{number}"})
            for number, (each, table) in enumerate(tables)
            if table.features is not None
        ],
    ]


def case_of(name: str, *, featured: bool = False, **sizes: int) -> PaddedCase:
    """Return a case with features of edges, or with weights where its layer takes them."""
    weighted = LAYER_KINDS[name].takes_weights and not featured
    return PaddedCase(name, relations_of(name), OPTIONS[name], weighted=weighted, featured=featured, **sizes)


def exported(name: str, *, featured: bool = False) -> ExportedOnnx:
    case = case_of(name, featured=featured, nodes=9, batch=3)
    arguments: list[TensorInput | list[TensorInput]] = [
        [TensorInput(*each) for each in group] for group in tensors_of(case)
    ]
    return export_onnx(LayerOfTensors(case).eval(), arguments)


def feeds_of(case: PaddedCase, names: set[str]) -> dict[str, Any]:
    found = {key: value.numpy() for group in tensors_of(case) for key, value, _ in group}
    return {key: value for key, value in found.items() if key in names}


FORMS = [(name, False) for name in sorted(LAYER_KINDS)]
FORMS += [(name, True) for name in sorted(LAYER_KINDS) if LAYER_KINDS[name].reads_edges]


@pytest.mark.parametrize(("name", "featured"), FORMS)
def test_the_exported_layer_is_the_layer_at_every_size(name: str, featured: bool) -> None:
    """At three sizes of graph and five of batches: empty lists, repeats, parallel edges, loops and a hub."""
    model = exported(name, featured=featured)
    session = load_onnxruntime().InferenceSession(model.model, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    for nodes in (9, 40, 300):
        for batch in BATCHES:
            case = case_of(name, featured=featured, nodes=nodes, batch=batch)
            (found,) = session.run(["embedding"], feeds_of(case, names))
            expected = case.expected().numpy()
            assert found.shape == expected.shape == (len(case.types) * batch, DIM)
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            assert float(np.abs(found - expected).max(initial=0)) <= 1e-4 * scale


def test_the_conformance_kit_has_every_exported_operator() -> None:
    models = [(name, exported(name, featured=featured)) for name, featured in FORMS]
    operators = {operator for name, each in models for operator in inspect_onnx(each.model, name).operators}
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
    case = case_of(name, batch=31)
    (found,) = session.run(None, feeds_of(case, {each.name for each in session.get_inputs()}))
    expected = case.expected().numpy()
    assert float(np.abs(found - expected).mean()) < 0.05 * float(np.abs(expected).max())


def test_self_loops_are_a_slot_of_the_table() -> None:
    """PyTorch Geometric finds the loops that there are with NonZero, whose shape depends on the data."""
    operators = {node.op_type for node in onnx.load_model_from_string(exported("gat").model).graph.node}
    assert "NonZero" not in operators
