"""The models of the conformance kit: one for each operator our exports use, with its answer in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy.onnx_writer import Node, write_onnx

__all__ = ["OPERATORS", "OperatorCase", "gather_model", "sum_model"]

Array = npt.NDArray[Any]
Tail = tuple[type[Any], tuple[int, ...]]


@dataclass(frozen=True)
class OperatorCase:
    """A model of one operator.

    Attributes:
        name: the operator, with a variant where there are several.
        inputs: by name, the dtype and the shape after the batch dimension.
        answer: the result for feeds, in NumPy.
        constants: further inputs of the node, held by the model.
        attributes: of the node.
        positions: names of int64 inputs that point into the batch of the first input.
        positive: names of inputs that are greater than 0.
        operator: when it is not the name.
        outputs: of the node; ``result`` is compared.
        nodes: in place of one node of the operator.
    """

    name: str
    inputs: Mapping[str, Tail]
    answer: Callable[[Mapping[str, Array]], Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    positions: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    operator: str | None = None
    outputs: tuple[str, ...] = ("result",)
    nodes: tuple[Node, ...] = ()

    def model(self) -> bytes:
        """Return the ONNX file's content."""
        operator, inputs = self.operator or self.name, [*self.inputs, *self.constants]
        nodes = self.nodes or (Node(operator, inputs, self.outputs, self.attributes),)
        result = self.answer(self.feeds(np.random.default_rng(0), 2))
        return _model(nodes, self.inputs, result.dtype, result.shape[1:], self.constants)

    def feeds(self, random: np.random.Generator, batch: int) -> dict[str, Array]:
        """Return random feeds with ``batch`` rows."""
        feeds: dict[str, Array] = {}
        for name, (dtype, tail) in self.inputs.items():
            if name in self.positions:
                feeds[name] = random.integers(0, max(batch, 1), (batch, *tail)).astype(dtype)
            else:
                values = random.standard_normal((batch, *tail)) * 3
                # Negative numbers as unsigned ones differ between processors.
                if name in self.positive:
                    values = np.abs(values) + 0.1
                feeds[name] = (np.abs(values) if np.dtype(dtype).kind == "u" else values).astype(dtype)
        return feeds


def sum_model(operator: str = "Add") -> bytes:
    """Return the model ``result = x + x`` for x float32 [n, 3], with another operator if asked."""
    return _model([Node(operator, ["x", "x"], ["result"])], {"x": _float(3)}, np.float32, (3,))


def gather_model(dtype: npt.DTypeLike = np.int64) -> bytes:
    """Return ``result = rows[positions]`` for rows float32 [n, 2]; the positions go through a Cast.

    Args:
        dtype: of the positions, int64 or int32.
    """
    nodes = [
        Node("Cast", ["positions"], ["cast"], {"to": 7}),
        Node("Gather", ["rows", "cast"], ["result"], {"axis": 0}),
    ]
    return _model(nodes, {"rows": _float(2), "positions": (np.dtype(dtype).type, ())}, np.float32, (2,))


def reshape_model() -> bytes:
    """Return ``result = reshape(x, shape)`` for x float32 [n, 3] and a shape of two sizes, int64 [2]."""
    return write_onnx(
        [Node("Reshape", ["x", "shape"], ["result"])],
        {"x": (np.float32, ["n", 3]), "shape": (np.int64, [2])},
        {"result": (np.float32, ["rows", "columns"])},
    )


def _model(
    nodes: Sequence[Node],
    inputs: Mapping[str, Tail],
    result_dtype: npt.DTypeLike,
    result_tail: tuple[int, ...],
    constants: Mapping[str, Array] | None = None,
) -> bytes:
    """Return a model whose every input and whose ``result`` have a first dimension of any size."""
    return write_onnx(
        nodes,
        {name: (dtype, [f"n_{name}", *tail]) for name, (dtype, tail) in inputs.items()},
        {"result": (result_dtype, ["n_result", *result_tail])},
        constants,
    )


def _float(*tail: int) -> Tail:
    return (np.float32, tail)


def _fixed(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def _unary(name: str, answer: Callable[[Array], Array]) -> OperatorCase:
    return OperatorCase(name, {"x": _float(5)}, lambda feeds: answer(feeds["x"]).astype(np.float32))


def _binary(name: str, answer: Callable[[Array, Array], Array]) -> OperatorCase:
    return OperatorCase(name, {"x": _float(5), "y": _float(5)}, lambda feeds: answer(feeds["x"], feeds["y"]))


def _reduced(name: str, answer: Callable[..., Array]) -> OperatorCase:
    return OperatorCase(
        name,
        {"x": _float(6)},
        lambda feeds: answer(feeds["x"], axis=1, keepdims=True),
        {"axes": np.array([1], np.int64)},
        {"keepdims": 1},
    )


def _square_root(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # NaN of a negative number is the right answer
        root: Array = np.sqrt(x)
    return root


def _softmax(x: Array) -> Array:
    shifted: Array = np.exp(x - x.max(axis=1, keepdims=True))
    total: Array = shifted.sum(axis=1, keepdims=True)
    return np.divide(shifted, total)


def _codes(x: Array, steps: Array, zeros: Array) -> Array:
    """Return QuantizeLinear to uint8: a step and a zero point for each row, or for all of them."""
    codes: Array = np.clip(np.rint(x / steps) + zeros, 0, 255).astype(np.uint8)
    return codes


def _dequantized(x: Array) -> Array:
    """Return DequantizeLinear of uint8 codes with scale 0.5 and zero point 128."""
    return ((x.astype(np.float32) - 128) * np.float32(0.5)).astype(np.float32)


_WEIGHT, _VECTOR = _fixed(5, 4), _fixed(4)
_BIAS = OperatorCase(
    "Add constant", {"x": _float(4)}, lambda f: f["x"] + _VECTOR, {"b": _VECTOR}, operator="Add"
)
_SLOPE = np.float32(0.2)
_CODES = np.arange(20, dtype=np.uint8).reshape(5, 4)

OPERATORS: tuple[OperatorCase, ...] = (
    _binary("Add", np.add),
    _binary("Sub", np.subtract),
    _binary("Mul", np.multiply),
    _binary("Div", np.divide),
    _binary("Min", np.minimum),
    _binary("Max", np.maximum),
    _BIAS,
    _unary("Abs", np.abs),
    _unary("Neg", np.negative),
    _unary("Exp", np.exp),
    _unary("Relu", lambda x: np.maximum(x, 0)),
    _unary("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    _unary("Tanh", np.tanh),
    _unary("Gelu", lambda x: x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))) / 2),
    OperatorCase(
        "LeakyRelu",
        {"x": _float(5)},
        lambda f: np.where(f["x"] < 0, _SLOPE * f["x"], f["x"]),
        attributes={"alpha": 0.2},
    ),
    _binary("Greater", np.greater),
    OperatorCase(
        "Where",
        {"x": _float(5), "y": _float(5)},
        lambda f: np.where(f["x"] > f["y"], f["x"], f["y"]),
        nodes=(Node("Greater", ["x", "y"], ["is_x"]), Node("Where", ["is_x", "x", "y"], ["result"])),
    ),
    OperatorCase(
        "Slice",
        {"x": _float(6)},
        lambda f: f["x"][:, 1:4],
        {name: np.array([number], np.int64) for name, number in (("from", 1), ("to", 4), ("axes", 1))},
    ),
    _unary("Identity", np.asarray),
    _unary("Sqrt", _square_root),
    OperatorCase("Softmax", {"x": _float(5)}, lambda f: _softmax(f["x"]), attributes={"axis": 1}),
    OperatorCase(
        "Clip",
        {"x": _float(5)},
        lambda f: np.clip(f["x"], np.float32(-1), np.float32(1)),
        {"lowest": np.array(-1, np.float32), "highest": np.array(1, np.float32)},
    ),
    OperatorCase(
        "Concat",
        {"x": _float(5), "y": _float(2)},
        lambda f: np.concatenate([f["x"], f["y"]], axis=1),
        attributes={"axis": 1},
    ),
    OperatorCase(
        "Gather",
        {"x": _float(5), "at": (np.int64, (3,))},
        lambda f: f["x"][f["at"]],
        positions=("at",),
    ),
    OperatorCase(
        "Gather int32",
        {"x": _float(5), "at": (np.int32, ())},
        lambda f: f["x"][f["at"]],
        positions=("at",),
        operator="Gather",
    ),
    OperatorCase(
        "Gemm", {"x": _float(5)}, lambda f: f["x"] @ _WEIGHT + _VECTOR, {"w": _WEIGHT, "b": _VECTOR}
    ),
    OperatorCase(
        "Gemm transposed",
        {"x": _float(5)},
        lambda f: f["x"] @ _WEIGHT + _VECTOR,
        {"w": np.ascontiguousarray(_WEIGHT.T), "b": _VECTOR},
        {"transB": 1},
        operator="Gemm",
    ),
    OperatorCase("MatMul", {"x": _float(5)}, lambda f: f["x"] @ _WEIGHT, {"w": _WEIGHT}),
    OperatorCase(
        "MatMul batched",
        {"w": _float(1, 6), "x": _float(6, 4)},
        lambda f: f["w"] @ f["x"],
        operator="MatMul",
    ),
    OperatorCase("Unsqueeze", {"x": _float(5)}, lambda f: f["x"][:, None], {"axes": np.array([1], np.int64)}),
    OperatorCase("Squeeze", {"x": _float(1, 5)}, lambda f: f["x"][:, 0], {"axes": np.array([1], np.int64)}),
    OperatorCase(
        "Reshape",
        {"x": _float(2, 3)},
        lambda f: f["x"].reshape(len(f["x"]), 6),
        {"shape": np.array([-1, 6], np.int64)},
        {"allowzero": 0},
    ),
    OperatorCase(
        "Transpose", {"x": _float(2, 3)}, lambda f: f["x"].transpose(0, 2, 1), attributes={"perm": [0, 2, 1]}
    ),
    OperatorCase(
        "ReduceSum",
        {"x": _float(6, 4)},
        lambda f: f["x"].sum(axis=1),
        {"axes": np.array([1], np.int64)},
        {"keepdims": 0},
    ),
    _reduced("ReduceMin", np.min),
    _reduced("ReduceMax", np.max),
    OperatorCase(
        "ReduceMean",
        {"x": _float(6, 4)},
        lambda f: f["x"].mean(axis=1),
        {"axes": np.array([1], np.int64)},
        {"keepdims": 0},
    ),
    OperatorCase(
        "ReduceL2",
        {"x": _float(6)},
        lambda f: np.sqrt((f["x"] ** 2).sum(axis=1, keepdims=True)),
        {"axes": np.array([1], np.int64)},
        {"keepdims": 1},
    ),
    OperatorCase("Cast", {"x": (np.int64, (3,))}, lambda f: f["x"].astype(np.float32), attributes={"to": 1}),
    OperatorCase(
        "Expand",
        {"x": _float(1), "y": _float(5)},
        lambda f: np.repeat(f["x"], 5, axis=1),
        nodes=(Node("Shape", ["y"], ["shape"]), Node("Expand", ["x", "shape"], ["result"])),
    ),
    OperatorCase(
        "Split",
        {"x": _float(5)},
        lambda f: f["x"][:, :2],
        {"sizes": np.array([2, 3], np.int64)},
        {"axis": 1},
        outputs=("result", "rest"),
    ),
    OperatorCase(
        "TopK",
        {"x": _float(6)},
        lambda f: -np.sort(-f["x"], axis=1)[:, :3],
        {"k": np.array([3], np.int64)},
        {"axis": 1},
        outputs=("result", "at"),
    ),
    OperatorCase(
        "QuantizeLinear",
        {"x": _float(5)},
        lambda f: _codes(f["x"], np.array(0.25, np.float32), np.array(128, np.uint8)),
        {"scale": np.array(0.25, np.float32), "zero": np.array(128, np.uint8)},
    ),
    OperatorCase(
        "QuantizeLinear rows",
        {"x": _float(5), "scale": _float(), "zero": (np.uint8, ())},
        lambda f: _codes(f["x"], f["scale"][:, None], f["zero"][:, None]),
        attributes={"axis": 0},
        positive=("scale",),
        operator="QuantizeLinear",
    ),
    OperatorCase(
        "DequantizeLinear",
        {"x": (np.uint8, (4,))},
        lambda f: _dequantized(f["x"]),
        {"scale": np.array(0.5, np.float32), "zero": np.array(128, np.uint8)},
    ),
    OperatorCase(
        "MatMulInteger",
        {"x": (np.uint8, (5,))},
        lambda f: f["x"].astype(np.int32) @ _CODES.astype(np.int32),
        {"w": _CODES},
    ),
)
