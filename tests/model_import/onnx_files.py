"""ONNX files as other programs write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = np.random.default_rng(0).standard_normal((8, 300)).astype(np.float32)


def value(name: str, sizes: list[int | str | None] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, sizes)


def model_of(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], *, ir_version: int = 9, **parts: Any
) -> onnx.ModelProto:
    opsets = parts.pop("opsets", [helper.make_opsetid("", 18)])
    functions = parts.pop("functions", [])
    graph = helper.make_graph(nodes, "g", inputs, outputs, **parts)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, functions=functions)


def linear(**parts: Any) -> onnx.ModelProto:
    """A layer with 300 outputs."""
    inputs = parts.pop("inputs", [value("x", ["batch", 8])])
    outputs = parts.pop("outputs", [value("y", ["batch", 300])])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model_of(nodes, inputs, outputs, initializer=[numpy_helper.from_array(WEIGHTS, "w")], **parts)


def linear_with_external_data(folder: Path, location: str = "weights.bin") -> Path:
    path = folder / "model.onnx"
    onnx.save(linear(), path, save_as_external_data=True, location="weights.bin", size_threshold=10)
    if location != "weights.bin":
        model = onnx.load(path, load_external_data=False)
        (entry,) = [each for each in model.graph.initializer[0].external_data if each.key == "location"]
        entry.value = location
        path.write_bytes(model.SerializeToString())
    return path
