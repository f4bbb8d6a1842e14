"""A bare model whose outputs differ between its versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from graphbox.artifact import Artifact, ArtifactWriter, TensorsForm, TensorSpec
from tests.server.sample_models import DIM


def write_affine(path: Path, *, name: str = "affine", version: int = 1, inputs: str = "x") -> Artifact:
    """A bare ONNX model: ``y = x * version``, and ``top``, its three largest columns."""
    factor = helper.make_tensor("factor", TensorProto.FLOAT, [DIM], np.arange(1, DIM + 1) * float(version))
    three = helper.make_tensor("three", TensorProto.INT64, [1], [3])
    nodes = [
        helper.make_node("Constant", [], ["factor"], value=factor),
        helper.make_node("Constant", [], ["three"], value=three),
        helper.make_node("Mul", [inputs, "factor"], ["y"]),
        helper.make_node("TopK", ["y", "three"], ["largest", "top"]),
    ]
    specs = [TensorSpec(name=inputs, datatype="FP32", shape=(-1, DIM))]
    outputs = [
        TensorSpec(name="y", datatype="FP32", shape=(-1, DIM)),
        TensorSpec(name="top", datatype="INT64", shape=(-1, 3)),
    ]
    graph = helper.make_graph(
        nodes,
        "affine",
        [helper.make_tensor_value_info(inputs, TensorProto.FLOAT, ["n", DIM])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", DIM]),
            helper.make_tensor_value_info("top", TensorProto.INT64, ["n", 3]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    with ArtifactWriter(path) as writer:
        writer.set_onnx(
            model.SerializeToString(), opset=20, precision="float32", inputs=specs, outputs=outputs
        )
        writer.set_preprocess(TensorsForm(join_calls=True))
        example = np.linspace(-1, 1, DIM).tolist()
        writer.set_example([{"name": inputs, "datatype": "FP32", "shape": [1, DIM], "data": example}])
        return writer.commit(name=name, version=version, kind="tensors", task=None, dim=1, targets={})


def affine(x: npt.NDArray[np.float32], version: int) -> npt.NDArray[np.float32]:
    """Return the output ``y`` of `write_affine`."""
    return x * (np.arange(1, DIM + 1) * version).astype(np.float32)
