"""Small real models and a workspace that holds them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    LayerSpec,
    LookupForm,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
    TensorSpec,
)
from graphbox.artifact.links import links_table
from graphbox.workspace import BenchRecord, EdgeTypeCount, Workspace

DIM = 4
PACKAGES = ["nginx", "nginx-common", "nginx-extras", "curl", "python", "zsh", "caf\u00e9", "git"]
TAGS = ["python", "web", "shell"]
DEPENDS = ("package", "depends", "package")
NEIGHBORS = np.array(
    [[1, 2, -1], [-1, -1, -1], [1, 0, 3], [4, -1, -1], [5, 6, 7], [0, -1, -1], [2, 3, 4], [-1, -1, -1]],
    np.int32,
)
ROWS = np.random.default_rng(7).standard_normal((len(PACKAGES), DIM)).astype(np.float32)
TARGET = np.random.default_rng(8).standard_normal((len(PACKAGES), DIM)).astype(np.float32)


def expected_embeddings(packages: list[str]) -> npt.NDArray[np.float32]:
    """The encoder node by node: own row plus the mean of the neighbours' rows."""
    vectors = []
    for name in packages:
        node = PACKAGES.index(name)
        present = [neighbor for neighbor in NEIGHBORS[node] if neighbor >= 0]
        mean = np.mean([ROWS[neighbor] for neighbor in present], axis=0) if present else 0
        vectors.append(ROWS[node] + mean)
    return np.array(vectors, dtype=np.float32).reshape(-1, DIM)


def encoder_onnx(dim: int = DIM, tag: float = 0.0) -> tuple[bytes, list[TensorSpec], list[TensorSpec]]:
    """One layer in padded-block form, which adds ``tag`` to each number."""
    inputs = [
        TensorSpec(name="rows", datatype="FP32", shape=(-1, dim)),
        TensorSpec(name="own", datatype="INT64", shape=(-1,)),
        TensorSpec(name="neighbors", datatype="INT64", shape=(-1, 1, -1)),
        TensorSpec(name="weights", datatype="FP32", shape=(-1, 1, -1)),
    ]
    outputs = [TensorSpec(name="embedding", datatype="FP32", shape=(-1, dim))]
    nodes = [
        helper.make_node(
            "Constant", [], ["two"], value=helper.make_tensor("two", TensorProto.INT64, [1], [2])
        ),
        helper.make_node(
            "Constant", [], ["axes"], value=helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])
        ),
        helper.make_node("Gather", ["rows", "own"], ["self"]),
        # As an exported model has it: positions pass through a Split before they are used.
        helper.make_node("Split", ["neighbors"], ["slots"], axis=1, num_outputs=1),
        helper.make_node("Gather", ["rows", "slots"], ["gathered"]),
        helper.make_node("Unsqueeze", ["weights", "two"], ["wide"]),
        helper.make_node("MatMul", ["wide", "gathered"], ["product"]),
        helper.make_node("Squeeze", ["product", "axes"], ["mean"]),
        helper.make_node("Add", ["self", "mean"], ["sum" if tag else "embedding"]),
    ]
    if tag:
        value = helper.make_tensor("tag", TensorProto.FLOAT, [1], [tag])
        nodes += [
            helper.make_node("Constant", [], ["tag"], value=value),
            helper.make_node("Add", ["sum", "tag"], ["embedding"]),
        ]

    def info(spec: TensorSpec) -> Any:
        kind = TensorProto.FLOAT if spec.datatype == "FP32" else TensorProto.INT64
        free = ("rows",) if spec.name == "rows" else ("batch", "", "slots")
        sizes = [free[axis] if size < 0 else size for axis, size in enumerate(spec.shape)]
        return helper.make_tensor_value_info(spec.name, kind, sizes)

    graph = helper.make_graph(
        nodes, "encoder", [info(spec) for spec in inputs], [info(spec) for spec in outputs]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(), inputs, outputs


def write_encoder(
    path: Path, *, name: str = "companion", version: int = 1, scale: float = 1.0, tag: float = 0.0
) -> Artifact:
    """An encoder whose rows are multiplied by ``scale``, and whose ONNX part adds ``tag``."""
    return _write_encoder(path, name, version, PACKAGES, ROWS * np.float32(scale), TARGET, NEIGHBORS, tag)


def write_wide_encoder(path: Path, *, name: str = "wide", version: int = 1) -> Artifact:
    """An encoder whose requests take long: 20,000 packages with 40 neighbours each."""
    generator = np.random.default_rng(9)
    rows = generator.standard_normal((20_000, 64)).astype(np.float32)
    neighbors = generator.integers(0, len(rows), (len(rows), 40)).astype(np.int32)
    packages = [f"p{number}" for number in range(len(rows))]
    return _write_encoder(path, name, version, packages, rows, rows, neighbors)


def _write_encoder(
    path: Path,
    name: str,
    version: int,
    packages: list[str],
    rows: npt.NDArray[np.float32],
    target_rows: npt.NDArray[np.float32],
    neighbors: npt.NDArray[np.int32],
    tag: float = 0.0,
) -> Artifact:
    dim = rows.shape[1]
    content, inputs, outputs = encoder_onnx(dim, tag)
    group = RelationGroup(
        edge_types=(DEPENDS,),
        counts="neighbors/depends_counts.npy",
        neighbors="neighbors/depends.npy",
        normalization="mean",
        neighbors_input="neighbors",
        weights_input="weights",
    )
    form = PaddedBlockForm(
        node_type="package",
        rows={"package": RowsSpec(input="rows", tables=("package",))},
        layers=(LayerSpec(groups=(group,), self_inputs={"package": "own"}),),
    )
    source, slot = np.nonzero(neighbors >= 0)
    target = neighbors[source, slot].astype(np.int64)
    with ArtifactWriter(path) as writer:
        writer.add_ids("package", packages)
        writer.add_table("package", "package", rows)
        writer.add_table("target", "package", target_rows)
        writer.add_array("neighbors/depends.npy", neighbors[neighbors >= 0])
        writer.add_array(
            "neighbors/depends_counts.npy", (neighbors >= 0).sum(1, keepdims=True).astype(np.uint16)
        )
        writer.set_onnx(content, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        writer.set_preprocess(form)
        writer.set_links(links_table(source, target, np.arange(len(source)) % 2 == 0, DEPENDS))
        return writer.commit(
            name=name,
            version=version,
            kind="encoder",
            task="companion",
            dim=dim,
            targets={"package": TargetSpec(table="target", score="inner_product")},
            metrics={"companion": {"recall@20": 0.5}},
        )


def write_vectors(path: Path, *, name: str = "section", version: int = 1) -> Artifact:
    """Rows only, of two node types that share the id `python`."""
    random = np.random.default_rng(9)
    with ArtifactWriter(path) as writer:
        for node_type, ids in (("package", PACKAGES), ("tag", TAGS)):
            writer.add_ids(node_type, ids)
            writer.add_table(node_type, node_type, random.standard_normal((len(ids), DIM)).astype(np.float32))
        writer.set_preprocess(LookupForm(node_type="package", tables={"package": "package", "tag": "tag"}))
        targets = {node_type: TargetSpec(table=node_type, score="cosine") for node_type in ("package", "tag")}
        return writer.commit(
            name=name, version=version, kind="embedding", task="section", dim=DIM, targets=targets
        )


def write_numbers(path: Path, *, name: str = "numbers", version: int = 1) -> Artifact:
    """Rows whose ids are integers, 0, negatives and beyond 2**53 among them."""
    ids = [0, -5, 2**53 + 1, 12, 123]
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", ids)
        writer.add_table("item", "item", np.eye(len(ids), DIM, dtype=np.float32))
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="inner_product")}
        return writer.commit(
            name=name, version=version, kind="embedding", task="items", dim=DIM, targets=targets
        )


def add_model(workspace: Workspace, name: str, write: Callable[..., Artifact], **options: Any) -> int:
    version, path = workspace.new_model_path(name)
    activate = options.pop("activate", True)
    artifact = write(path, name=name, version=version, **options)
    manifest = artifact.manifest
    workspace.add_model(
        name,
        version,
        kind=manifest.kind,
        task=manifest.task,
        precision="float32",
        metrics=manifest.metrics,
    )
    if activate:
        workspace.promote_model(name, version)
    return version


def build_workspace(root: Path) -> Workspace:
    """A workspace with a graph, a finished run and three models."""
    workspace = Workspace(root)
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    add_model(workspace, "numbers", write_numbers)
    measured = BenchRecord("onnxruntime", 32, 1, 0.5, 0.9, 64_000.0, datetime.now(UTC), "infer")
    workspace.add_benches("companion", 1, [measured])
    workspace.graph_path("debian").mkdir()
    workspace.add_graph(
        "debian",
        node_types={"package": 8, "tag": 3},
        edge_types=[EdgeTypeCount("package", "depends", "package", 14)],
        fingerprint="0" * 64,
    )
    return workspace
