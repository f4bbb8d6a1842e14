"""Models and requests of the serving benchmark."""

from __future__ import annotations

import itertools
import json
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import (
    ArtifactWriter,
    LayerSpec,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
    TensorSpec,
)
from graphbox.deploy.onnx_writer import Node, write_onnx

MLP, ENCODER, VECTORS = "mlp", "encoder", "vectors"
MLP_WIDTHS = (64, 128, 64, 1)
DIM, FAN_OUT, NODES = 64, 10, 20_000
VECTOR_ROWS = 100_000
_CENTRES, _INTRINSIC_DIMS, _NOISE = 2_000, 16, 0.1
Inputs = Mapping[str, npt.NDArray[Any] | Sequence[str]]
_DATATYPES = {"float32": "FP32", "int64": "INT64"}


@dataclass(frozen=True)
class Request:
    """One request as bytes: what a load generator repeats.

    Attributes:
        path: with the query string.
        body: empty for a GET.
        headers: besides Host and Content-Length.
    """

    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The whole request over HTTP/1.1."""
        lines = [f"{'POST' if self.body else 'GET'} {self.path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join((*lines, "", "")).encode() + self.body


def mlp_onnx() -> bytes:
    """Return the content of an ONNX file: Gemm 64-128-64-1 with ReLU, and a sigmoid at the end."""
    generator = np.random.default_rng(0)
    nodes: list[Node] = []
    constants: dict[str, npt.NDArray[Any]] = {}
    value = "input"
    layers = list(itertools.pairwise(MLP_WIDTHS))
    for number, (width, next_width) in enumerate(layers):
        constants[f"w{number}"] = (generator.standard_normal((width, next_width)) / np.sqrt(width)).astype(
            np.float32
        )
        constants[f"b{number}"] = generator.standard_normal(next_width).astype(np.float32)
        nodes.append(Node("Gemm", [value, f"w{number}", f"b{number}"], [f"gemm{number}"]))
        is_last = number == len(layers) - 1
        value = "output" if is_last else f"relu{number}"
        nodes.append(Node("Sigmoid" if is_last else "Relu", [f"gemm{number}"], [value]))
    inputs: dict[str, tuple[Any, list[int | str]]] = {"input": (np.float32, ["batch", MLP_WIDTHS[0]])}
    outputs: dict[str, tuple[Any, list[int | str]]] = {"output": (np.float32, ["batch", MLP_WIDTHS[-1]])}
    return write_onnx(nodes, inputs, outputs, constants)


def write_models(folder: Path) -> Path:
    """Write a workspace with the models of the benchmark.

    Returns:
        The workspace: `mlp` (bare tensors), `encoder` (graph encoder of one layer over 20,000 rows) and
        `vectors` (100,000 rows of 64 values, clustered, of unit length).
    """
    workspace = folder / "workspace"
    (folder / "mlp.onnx").write_bytes(mlp_onnx())
    generator = np.random.default_rng(1)
    centres = generator.standard_normal((_CENTRES, _INTRINSIC_DIMS)).astype(np.float32)
    basis = generator.standard_normal((_INTRINSIC_DIMS, DIM)).astype(np.float32)
    rows = centres[generator.integers(0, _CENTRES, VECTOR_ROWS)] @ basis
    rows += _NOISE * np.abs(rows).mean() * generator.standard_normal(rows.shape).astype(np.float32)
    np.save(folder / "vectors.npy", rows / np.linalg.norm(rows, axis=1, keepdims=True))
    add_model(workspace, MLP, folder / f"{MLP}.onnx")
    add_model(workspace, VECTORS, folder / f"{VECTORS}.npy")
    return workspace


def add_model(workspace: Path, name: str, file: Path) -> None:
    """Add a version to a workspace by the command line."""
    command = [sys.executable, "-m", "graphbox", "-C", str(workspace), "models", "add", name, str(file)]
    subprocess.run(command, check=True, capture_output=True)


def write_encoder(path: Path) -> Path:
    """Write a graph encoder of one layer over random rows."""
    generator = np.random.default_rng(0)
    specs = [
        TensorSpec(name="rows", datatype="FP32", shape=(-1, DIM)),
        TensorSpec(name="own", datatype="INT64", shape=(-1,)),
        TensorSpec(name="neighbors", datatype="INT64", shape=(-1, 1, -1)),
        TensorSpec(name="weights", datatype="FP32", shape=(-1, 1, -1)),
    ]
    output = TensorSpec(name="embedding", datatype="FP32", shape=(-1, DIM))
    group = RelationGroup(
        edge_types=(("package", "depends", "package"),),
        counts="neighbors/depends_counts.npy",
        neighbors="neighbors/depends.npy",
        neighbors_input="neighbors",
        weights_input="weights",
    )
    with ArtifactWriter(path) as writer:
        writer.add_ids("package", [f"package-{index}" for index in range(NODES)])
        writer.add_table("package", "package", generator.standard_normal((NODES, DIM), np.float32))
        writer.add_array("neighbors/depends.npy", generator.integers(0, NODES, NODES * FAN_OUT, np.int32))
        writer.add_array("neighbors/depends_counts.npy", np.full((NODES, 1), FAN_OUT, np.uint16))
        writer.set_onnx(_encoder_onnx(), opset=20, precision="float32", inputs=specs, outputs=[output])
        writer.set_preprocess(
            PaddedBlockForm(
                node_type="package",
                rows={"package": RowsSpec(input="rows", tables=("package",))},
                layers=(LayerSpec(groups=(group,), self_inputs={"package": "own"}),),
            )
        )
        targets = {"package": TargetSpec(table="package", score="inner_product")}
        writer.commit(name=ENCODER, version=1, kind="encoder", task="bench", dim=DIM, targets=targets)
    return path


def _encoder_onnx() -> bytes:
    dense = np.random.default_rng(2).standard_normal((2 * DIM, DIM)) / np.sqrt(2 * DIM)
    return write_onnx(
        [
            Node("Gather", ["rows", "own"], ["self"]),
            Node("Gather", ["rows", "neighbors"], ["gathered"]),
            Node("Unsqueeze", ["weights", "two"], ["wide"]),
            Node("MatMul", ["wide", "gathered"], ["product"]),
            Node("Squeeze", ["product", "axes"], ["mean"]),
            Node("Concat", ["self", "mean"], ["both"], {"axis": 1}),
            Node("MatMul", ["both", "dense"], ["embedding"]),
        ],
        {
            "rows": (np.float32, ["nodes", DIM]),
            "own": (np.int64, ["batch"]),
            "neighbors": (np.int64, ["batch", 1, "width"]),
            "weights": (np.float32, ["batch", 1, "width"]),
        },
        {"embedding": (np.float32, ["batch", DIM])},
        {
            "two": np.array([2], np.int64),
            "axes": np.array([1, 2], np.int64),
            "dense": dense.astype(np.float32),
        },
    )


def infer_request(
    model: str, encoding: str, inputs: Inputs, parameters: Mapping[str, Any] | None = None
) -> Request:
    """Return a KServe v2 infer request.

    Args:
        model: name of the model.
        encoding: ``json``, or ``binary`` for tensors of request and answer as binary data.
        inputs: arrays, or texts that become a BYTES tensor.
        parameters: of the request.
    """
    entries, tail = [], []
    for name, values in inputs.items():
        if isinstance(values, np.ndarray):
            datatype, shape, listed = (
                _DATATYPES[str(values.dtype)],
                list(values.shape),
                values.ravel().tolist(),
            )
            data = values.astype(values.dtype.newbyteorder("<")).tobytes()
        else:
            datatype, shape, listed = "BYTES", [len(values)], list(values)
            data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in values)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if encoding == "json":
            entry["data"] = listed
        else:
            entry["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        entries.append(entry)
    given = dict(parameters or {})
    message: dict[str, Any] = {"inputs": entries} | ({"parameters": given} if given else {})
    path = f"/v2/models/{model}/infer"
    if encoding == "json":
        return Request(path, json.dumps(message).encode(), {"Content-Type": "application/json"})
    header = json.dumps(message | {"parameters": {**given, "binary_data_output": True}}).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    return Request(path, header + b"".join(tail), headers)


def mlp_inputs(batch: int, seed: int = 0) -> Inputs:
    """Return random inputs of the MLP."""
    values = np.random.default_rng(seed).standard_normal((batch, MLP_WIDTHS[0])).astype(np.float32)
    return {"input": values.round(4)}
