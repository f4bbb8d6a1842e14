"""Dynamic int8: each row of a product's left operand is quantized over its own range, when it is known.

A product ``x @ W`` with a constant ``W`` becomes a MatMulInteger. ``W`` is stored as int8 with a scale for
each column (`graphbox.compress.dense.weight_codes`); the rows of ``x`` become uint8::

    x[r] = step[r] * (code[r] - zero)
    x @ W = step * ((code - zero) @ codes) * scale

One range for each row, not one for the batch as DynamicQuantizeLinear takes: so an answer does not depend on
other rows of the batch, and a row with large values does not cost the others their precision. On a trained
encoder that has such rows, the mean cosine to the float model's embeddings was 0.9914 with one range for a
batch of 256, and 0.9999 with one for each row.

Time goes into passes over the operands beside the product, so there are few of them: ``zero`` is one number,
0 where ``x`` cannot be negative (all 256 levels lie above it) and 128 elsewhere, instead of one for each row
that is subtracted afterwards; DequantizeLinear turns the integers into floats and multiplies by ``step`` in
one pass. The scales must not be multiplied with the steps first: ONNX Runtime would fuse that into
MatMulIntegerToFloat, which takes the first row's step for all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import ConvertedOnnx, Rounding
from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.compress.dense.weight_codes import weight_codes
from graphbox.errors import UnsupportedError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["METHOD", "Int8Dynamic"]

_LEVELS_ABOVE = {0: 255, 128: 127}
"""Levels above the code that stands for 0.0, by that code."""
_NARROW_COLUMNS = 16
"""Products with fewer columns are slower in int8: their operand costs more to quantize than they save."""
_OLDEST_OPSET = 18
# Keeps a row of zeros from a division by zero; far below any range that float32 data has.
_SMALLEST_RANGE = 1e-30
_NEVER_NEGATIVE = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"})
_MOVES = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


class Int8Dynamic:
    """Row-wise dynamic int8; for ONNX Runtime, and AOTInductor, which computes it without gain."""

    name = "int8_dynamic"
    user_name = "int8"
    needs_calibration = False
    default_on = frozenset({"aotinductor", "onnxruntime"})
    is_coarse = False

    def convert(
        self,
        model: bytes,
        calibration: Calibration | None = None,  # noqa: ARG002 - ranges are taken when a row is known
        layers: Collection[str] | None = None,
    ) -> ConvertedOnnx:
        """Convert a model; see `graphbox.compress.dense.DenseMethod`.

        Products of more than two dimensions stay float32; without ``layers`` also those with fewer than 16
        columns, where there are wider ones.
        """
        graph = Graph(model)
        chosen = self._chosen(graph, layers)
        products = graph.products()
        rewriting = _Rewriting(graph, {product.node: product for product in chosen})
        graph.replace_nodes(rewriting.nodes)
        converted = {product.node for product in chosen}
        kept = [product.weight for product in products if product.node not in converted]
        return graph.converted(self.name, rewriting.bytes_after, kept)

    def roundings(
        self,
        model: bytes,
        calibration: Calibration | None = None,  # noqa: ARG002 - as in `convert`
        layers: Collection[str] | None = None,
    ) -> dict[str, Rounding]:
        """Return the rounding of each product; see `graphbox.compress.dense.DenseMethod`."""
        graph = Graph(model)
        never_negative = _never_negative(graph.nodes)
        roundings = {
            zero: Rounding(lambda matrix: weight_codes(matrix).values(), partial(_rounded_rows, zero=zero))
            for zero in _LEVELS_ABOVE
        }
        return {
            product.output: roundings[0 if product.x in never_negative else 128]
            for product in self._chosen(graph, layers)
        }

    def _chosen(self, graph: Graph, layers: Collection[str] | None) -> list[Product]:
        if graph.opset < _OLDEST_OPSET:
            raise UnsupportedError(
                f"expected a model of opset {_OLDEST_OPSET} or later, received {graph.opset}",
                hint="convert it with onnx.version_converter first",
            )
        # QuantizeLinear wants the axis of rows counted from the front: only matrices are quantized.
        suited = [product for product in graph.products() if product.is_plain and product.rank == 2]
        if layers is None:
            suited = [each for each in suited if each.columns >= _NARROW_COLUMNS] or suited
        return graph.selected(self.name, suited, layers)


def _never_negative(nodes: Iterable[Any]) -> set[str]:
    """Return the names of the values that cannot be negative."""
    found: set[str] = set()
    for node in nodes:
        passes = node.op_type in _MOVES and node.input[0] in found
        if not node.domain and (node.op_type in _NEVER_NEGATIVE or passes):
            found.add(node.output[0])
    return found


def _rounded_rows(x: Tensor, zero: int) -> Tensor:
    """Return the values that the codes of rows [n, k] stand for."""
    largest = x.amax(1, keepdim=True)
    if zero:
        largest = largest.maximum(-x.amin(1, keepdim=True))
    step = largest.clamp(min=_SMALLEST_RANGE) * float(np.float32(1 / _LEVELS_ABOVE[zero]))
    return (x / step).round() * step


@dataclass
class _Rewriting:
    """The nodes of a graph with its products replaced."""

    graph: Graph
    products: dict[int, Product]
    nodes: list[Any] = field(default_factory=list)
    bytes_after: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._never_negative = _never_negative(self.graph.nodes)
        self._quantized: dict[str, tuple[str, str, int]] = {}
        for number, node in enumerate(self.graph.nodes):
            if number in self.products:
                self._add_product(self.products[number])
            else:
                self.nodes.append(node)

    def _add_product(self, product: Product) -> None:
        codes = weight_codes(self.graph.matrix(product))
        weight, output = product.weight, product.output
        names = [
            self.graph.add_constant(f"{weight}_codes", codes.codes),
            self.graph.add_constant(f"{weight}_scale", codes.scale),
        ]
        self.bytes_after[weight] = codes.codes.nbytes + codes.scale.nbytes
        steps, quantized, zero = self._row_codes(product.x)
        middle = [self.graph.add_constant("code_128", np.uint8(zero))] if zero else []
        integers = self._add_value("MatMulInteger", [quantized, names[0], *middle], f"{output}_integers")
        floats = self._add_value("DequantizeLinear", [integers, steps], f"{output}_floats", axis=0)
        scaled = self.graph.fresh(f"{output}_scaled") if product.bias else output
        self._add("Mul", [floats, names[1]], scaled)
        if product.bias:
            self._add("Add", [scaled, product.bias], output)

    def _row_codes(self, x: str) -> tuple[str, str, int]:
        """Return the names of the steps float32 [n] and codes uint8 [n, k] of ``x``, and the code of 0.0."""
        if x not in self._quantized:
            zero = 0 if x in self._never_negative else 128
            steps = self._add_steps(x, zero)
            points = [] if zero == 0 else [self._add_zero_points(x, steps)]
            codes = self._add_value("QuantizeLinear", [x, steps, *points], f"{x}_row_codes", axis=0)
            self._quantized[x] = steps, codes, zero
        return self._quantized[x]

    def _add_steps(self, x: str, zero: int) -> str:
        axis = self.graph.add_constant("row_axis", np.array([1]))
        ranges = [self.graph.add_constant("smallest_range", np.float32(_SMALLEST_RANGE))]
        ranges.append(self._add_value("ReduceMax", [x, axis], f"{x}_row_max", keepdims=0))
        if zero:
            lowest = self._add_value("ReduceMin", [x, axis], f"{x}_row_min", keepdims=0)
            ranges.append(self._add_value("Neg", [lowest], f"{x}_row_below"))
        largest = self._add_value("Max", ranges, f"{x}_row_range")
        levels = _LEVELS_ABOVE[zero]
        level = self.graph.add_constant(f"level_{levels}", np.float32(1 / levels))
        return self._add_value("Mul", [largest, level], f"{x}_row_steps")

    def _add_zero_points(self, x: str, steps: str) -> str:
        import onnx

        value = onnx.numpy_helper.from_array(np.array([128], np.uint8), "value")
        size = self._add_value("Shape", [steps], f"{x}_row_count")
        return self._add_value("ConstantOfShape", [size], f"{x}_row_zeros", value=value)

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.graph.node(operator, inputs, output, **attributes))
        return output

    def _add_value(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """Add a node and return the name of its result, ``name`` where that is not taken."""
        return self._add(operator, inputs, self.graph.fresh(name), **attributes)


METHOD = Int8Dynamic()
