"""Small ONNX models of random shapes for the dense conversions, with NumPy references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from graphbox.compress.dense import Calibration
from graphbox.deploy import Options, choose, compile_model

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Mlp:
    """Layers with ReLU between them: weights [rows, columns], biases [columns]."""

    weights: Sequence[Floats]
    biases: Sequence[Floats]

    def answer(self, x: Floats) -> Floats:
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if number + 1 < len(self.weights):
                x = np.maximum(x, 0)
        return x

    def onnx(self, operator: str = "Gemm", opset: int = 20) -> bytes:
        """Return the model: Gemm with transposed weights as torch exports it, or MatMul and Add."""
        nodes, constants, x = [], [], "x"
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            last = number + 1 == len(self.weights)
            output = "y" if last else f"h{number}"
            stored = np.ascontiguousarray(weight.T) if operator == "Gemm" else weight
            constants += [
                numpy_helper.from_array(stored, f"w{number}"),
                numpy_helper.from_array(bias, f"b{number}"),
            ]
            if operator == "Gemm":
                nodes.append(helper.make_node("Gemm", [x, f"w{number}", f"b{number}"], [output], transB=1))
            else:
                nodes.append(helper.make_node("MatMul", [x, f"w{number}"], [f"p{number}"]))
                nodes.append(helper.make_node("Add", [f"p{number}", f"b{number}"], [output]))
            if not last:
                nodes.append(helper.make_node("Relu", [output], [f"r{number}"]))
                x = f"r{number}"
        rows, columns = self.weights[0].shape[0], self.weights[-1].shape[1]
        return model_of(nodes, [info("x", "n", rows)], [info("y", "n", columns)], constants, opset)


def mlp(*widths: int, seed: int = 0) -> Mlp:
    random = np.random.default_rng(seed)
    pairs = list(pairwise(widths))
    return Mlp(
        [(random.standard_normal(pair) / np.sqrt(pair[0])).astype(np.float32) for pair in pairs],
        [0.1 * random.standard_normal(pair[1]).astype(np.float32) for pair in pairs],
    )


def info(name: str, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(nodes: Any, inputs: Any, outputs: Any, constants: Any, opset: int = 20) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(model.SerializeToString())


def rows(count: int, width: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def calibration(width: int, count: int = 128, seed: int = 2) -> Calibration:
    return Calibration.of_feeds([{"x": rows(count, width, seed)}])


def run(model: bytes, x: Floats, target: str = "onnxruntime") -> Floats:
    adapter, device = choose(target)
    with compile_model(adapter, model, device, Options()) as program:
        return program.run({"x": x})["y"]


def relative_error(received: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    return float(np.linalg.norm(received - expected) / np.linalg.norm(expected))
