"""The exported two-tower model against the trained one and against plain NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from graphbox.deploy import DeployedEncoder
from graphbox.errors import ConflictError, GateError
from graphbox.export import (
    ExportResult,
    NewVersion,
    PaddedBlockEncoder,
    ParityBounds,
    export_encoder,
    group_relations,
)
from tests.export.conftest import COUNTS, DIM, RELATIONS, RandomEncoder, make_encoder, make_ids


def _plain(trained: RandomEncoder, node: int) -> Any:
    """Return the query vector of one node, written out in float64."""
    parts = [trained.inputs["package"][node].astype(np.float64)]
    for relation in RELATIONS:
        around = [neighbor for neighbor in trained.neighbors[relation][node] if neighbor >= 0]
        total = np.zeros(DIM)
        for neighbor in around:
            total += trained.inputs[relation[0]][neighbor] / np.sqrt(len(around))
        parts.append(total)
    linear = trained.model.query.combine
    vector = linear.weight.detach().numpy().astype(np.float64) @ np.concatenate(parts)
    vector += linear.bias.detach().numpy()
    return vector / np.linalg.norm(vector)


def test_the_served_model_computes_what_is_written_in_the_paper(
    trained: RandomEncoder, deployed: DeployedEncoder
) -> None:
    nodes = [0, 3, *range(5, 60), COUNTS["package"] - 1]
    vectors = deployed.encode([f"package-{node}" for node in nodes])
    np.testing.assert_allclose(vectors, np.stack([_plain(trained, node) for node in nodes]), atol=1e-6)


def test_parity_is_measured_on_real_inputs_and_reported(exported: ExportResult) -> None:
    parity = exported.parity
    assert parity is not None
    assert parity.rows >= 1000
    assert parity.max_absolute_error < 1e-6
    assert parity.max_relative_error < 1e-5
    assert set(parity.cases) == {
        "batches",
        "one node",
        "empty batch",
        "nodes without neighbours",
        "nodes with the most neighbours",
        "the same node twice",
    }
    assert parity.as_dict()["bound_absolute"] == 1e-4


def test_the_artifact_says_what_it_is(exported: ExportResult) -> None:
    manifest = exported.artifact.manifest
    assert (manifest.kind, manifest.task, manifest.dim) == ("encoder", "companion", DIM)
    assert manifest.metrics == {"companion": {"recall@20": 0.4}}
    assert set(manifest.tables) == {"package", "source", "tag", "target"}
    assert manifest.onnx is not None
    assert (manifest.onnx.opset, manifest.onnx.precision) == (20, "float32")
    groups = [
        [relation for relation in RELATIONS if relation[0] == source]
        for source in ("package", "source", "tag")
    ]
    layers = exported.artifact.preprocess.model_dump()["layers"]
    assert [list(group["edge_types"]) for group in layers[0]["groups"]] == groups


def test_neighbours_are_ranked_by_the_target_tower(trained: RandomEncoder, deployed: DeployedEncoder) -> None:
    index, score = deployed.neighbors(["package-9"], 5)
    scores = trained.target @ _plain(trained, 9)
    scores[9] = -np.inf
    assert index[0].tolist() == np.argsort(-scores)[:5].tolist()
    np.testing.assert_allclose(score[0], scores[index[0]], atol=1e-5)


def test_the_graph_has_one_gemm_and_nothing_that_serves_badly(exported: ExportResult) -> None:
    proto = onnx.load_model_from_string(exported.artifact.onnx_bytes())
    operators = [node.op_type for node in proto.graph.node]
    assert operators.count("Gemm") == 1
    assert not [
        name for name in operators if name.startswith(("Scatter", "Loop", "If", "NonZero", "Sequence"))
    ]
    assert "GatherND" not in operators
    assert {opset.domain: opset.version for opset in proto.opset_import} == {"": 20}
    assert [value.name for value in proto.graph.output] == ["embedding"]


def test_batch_unique_nodes_and_slots_are_dynamic(exported: ExportResult) -> None:
    assert exported.artifact.manifest.onnx is not None
    shapes = {tensor.name: tensor.shape for tensor in exported.artifact.manifest.onnx.inputs}
    assert shapes["rows_0"] == (-1, DIM)
    assert shapes["own"] == (-1,)
    assert shapes["neighbors_0"] == shapes["weights_0"] == (-1, 6, -1)
    assert shapes["neighbors_1"] == (-1, 1, -1)


def test_the_file_tells_nothing_of_the_machine_that_wrote_it(exported: ExportResult) -> None:
    content = exported.artifact.onnx_bytes()
    proto = onnx.load_model_from_string(content)
    assert b".py" not in content
    assert str(Path.cwd()).encode() not in content
    graph = proto.graph
    parts: tuple[Any, ...] = (proto, graph, *graph.node, *graph.input, *graph.value_info)
    assert not [part for part in parts if part.doc_string or part.metadata_props]


def test_weights_are_in_the_file_once(exported: ExportResult) -> None:
    proto = onnx.load_model_from_string(exported.artifact.onnx_bytes())
    weights = sum(onnx.numpy_helper.to_array(t).nbytes for t in proto.graph.initializer)
    expected = 4 * (DIM * DIM * (1 + len(RELATIONS)) + DIM)
    assert expected <= weights < expected + 500


def test_a_model_that_computes_something_else_is_refused_and_not_written(
    trained: RandomEncoder, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swap two relations' columns on the way to ONNX, an error that keeps every shape."""
    plain = PaddedBlockEncoder.__init__

    def swapped(self: PaddedBlockEncoder, *arguments: Any) -> None:
        plain(self, *arguments)
        with torch.no_grad():
            weight = self.combine.weight.clone()
            self.combine.weight[:, DIM : 2 * DIM] = weight[:, 2 * DIM : 3 * DIM]
            self.combine.weight[:, 2 * DIM : 3 * DIM] = weight[:, DIM : 2 * DIM]

    monkeypatch.setattr(PaddedBlockEncoder, "__init__", swapped)
    with pytest.raises(GateError, match=r"expected the exported model within 0\.0001 absolute"):
        export_encoder(trained, make_ids(), NewVersion(models / "1", "m", 1, "t"))
    assert list(models.iterdir()) == []


def test_a_bound_below_the_rounding_refuses(trained: RandomEncoder, models: Path) -> None:
    with pytest.raises(GateError, match="and 1e-12 relative"):
        export_encoder(
            trained,
            make_ids(),
            NewVersion(models / "1", "m", 1, "t"),
            ParityBounds(rows=40, relative=1e-12),
        )
    assert list(models.iterdir()) == []


def test_an_existing_version_is_left_alone(trained: RandomEncoder, exported: ExportResult) -> None:
    with pytest.raises(ConflictError, match="it exists already"):
        export_encoder(trained, make_ids(), NewVersion(exported.artifact.path, "sage", 1, "t"))


def test_nodes_without_any_neighbour_in_the_whole_graph(models: Path) -> None:
    trained = make_encoder(seed=2)
    empty = {relation: np.full_like(table, -1) for relation, table in trained.neighbors.items()}
    result = export_encoder(
        replace(trained, neighbors=empty),
        make_ids(),
        NewVersion(models / "1", "m", 1, "t"),
        ParityBounds(rows=50),
    )
    assert result.parity is not None
    assert result.parity.max_absolute_error < 1e-6


def test_groups_hold_the_same_neighbours_as_the_tables() -> None:
    trained = make_encoder(seed=1)
    for block in group_relations(RELATIONS, trained.neighbors):
        flat = iter(block.neighbors.tolist())
        for node in range(COUNTS["package"]):
            for position, relation in enumerate(block.edge_types):
                expected = [
                    neighbor for neighbor in trained.neighbors[relation][node].tolist() if neighbor >= 0
                ]
                assert [next(flat) for _ in range(block.counts[node, position])] == expected
        assert next(flat, None) is None
