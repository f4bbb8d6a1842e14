"""Static int8: ranges of activations are measured once, on calibration feeds, and stored in the file.

Each product gets QuantizeLinear and DequantizeLinear at its operands, which runtimes fuse into integer
products: activations uint8, asymmetric, one range for all of them; weights int8, one scale for each column
(`graphbox.compress.dense.weight_codes`, whose codes are exact on processors without VNNI; for that,
``reduce_range`` of onnxruntime.quantization gives up one bit of every weight). The bias of a Gemm is int32 in
the step of its product, so that ONNX Runtime fuses the Gemm, its activation and the next quantization into
one node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import ConvertedOnnx, Rounding
from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.compress.dense.values import inner_values
from graphbox.compress.dense.weight_codes import weight_codes
from graphbox.errors import UnsupportedError, UsageError

__all__ = ["METHOD", "Int8Static"]

_LEVELS = 255
_OLDEST_OPSET = 13
_LARGEST_BIAS_CODE = 1 << 30
_SAMPLE_VALUES = 1 << 20


@dataclass(frozen=True)
class Int8Static:
    """Static int8 with the ranges of calibration feeds.

    Attributes:
        ranges: ``min_max`` covers all values seen; ``percentile`` leaves out the largest and smallest ones.
        percentile: share of the values in percent that a range covers at each of its ends.
    """

    ranges: Literal["min_max", "percentile"] = "min_max"
    percentile: float = 99.99

    name = "int8_static"
    user_name = "int8_static"
    needs_calibration = True
    default_on = frozenset({"openvino"})
    is_coarse = True

    def __post_init__(self) -> None:
        if not 50 < self.percentile <= 100:
            raise UsageError(f"expected a percentile above 50 and up to 100, received {self.percentile:g}")

    def convert(
        self, model: bytes, calibration: Calibration | None = None, layers: Collection[str] | None = None
    ) -> ConvertedOnnx:
        """Convert a model; see `graphbox.compress.dense.DenseMethod`."""
        graph = Graph(model)
        chosen, ranges = self._chosen(graph, model, calibration, layers)
        products = graph.products()
        rewriting = _Rewriting(graph, {product.node: product for product in chosen}, ranges)
        graph.replace_nodes(rewriting.nodes)
        converted = {product.node for product in chosen}
        kept = [product.weight for product in products if product.node not in converted]
        return graph.converted(self.name, rewriting.bytes_after, kept)

    def roundings(
        self, model: bytes, calibration: Calibration | None = None, layers: Collection[str] | None = None
    ) -> dict[str, Rounding]:
        """Return the rounding of each product; see `graphbox.compress.dense.DenseMethod`.

        Biases are rounded more finely than products, and are left out.
        """
        chosen, ranges = self._chosen(Graph(model), model, calibration, layers)

        def rounding(x: str) -> Rounding:
            step, zero = _step_and_zero(*ranges[x])
            return Rounding(
                lambda matrix: weight_codes(matrix).values(),
                lambda values: ((values / step).round().clamp(-zero, _LEVELS - zero)) * step,
            )

        return {product.output: rounding(product.x) for product in chosen}

    def _chosen(
        self, graph: Graph, model: bytes, calibration: Calibration | None, layers: Collection[str] | None
    ) -> tuple[list[Product], dict[str, tuple[float, float]]]:
        """Return the products to convert, and the ranges of their left operands."""
        if calibration is None:
            raise UsageError(
                f"expected calibration feeds for {self.name}, received none",
                hint="use `Calibration.of_model`, or choose `int8`, which needs none",
            )
        if graph.opset < _OLDEST_OPSET:
            raise UnsupportedError(
                f"expected a model of opset {_OLDEST_OPSET} or later, received {graph.opset}",
                hint="convert it with onnx.version_converter first",
            )
        chosen = graph.selected(self.name, [each for each in graph.products() if each.is_plain], layers)
        return chosen, self._measured(model, sorted({product.x for product in chosen}), calibration)

    def _measured(
        self, model: bytes, names: Sequence[str], calibration: Calibration
    ) -> dict[str, tuple[float, float]]:
        seen: dict[str, list[npt.NDArray[np.float32]]] = {name: [] for name in names}
        for values in inner_values(model, names, calibration):
            for name in names:
                seen[name].append(self._extremes(values[name], len(calibration.feeds)))
        return {name: self._range(np.concatenate(parts)) for name, parts in seen.items()}

    def _extremes(self, values: npt.NDArray[np.float32], feeds: int) -> npt.NDArray[np.float32]:
        """Return the values of one feed that decide the range: all of them, thinned out, for percentiles."""
        flat = values.ravel()
        if self.ranges == "percentile":
            return flat[:: 1 + flat.size * feeds // _SAMPLE_VALUES]
        return np.array([flat.min(initial=0), flat.max(initial=0)], np.float32)

    def _range(self, values: npt.NDArray[np.float32]) -> tuple[float, float]:
        """Return the range; 0.0 is always in it."""
        if self.ranges == "percentile" and values.size:
            low, high = np.percentile(values, [100 - self.percentile, self.percentile])
        else:
            low, high = values.min(initial=0), values.max(initial=0)
        return min(0.0, float(low)), max(0.0, float(high))


def _step_and_zero(low: float, high: float) -> tuple[float, int]:
    """Return the step of codes that cover a range, and the code of 0.0."""
    step = float(np.float32((high - low) / _LEVELS)) or 1.0
    return step, int(np.clip(np.rint(-low / step), 0, _LEVELS))


@dataclass
class _Rewriting:
    """The nodes of a graph with quantization at the operands of its products."""

    graph: Graph
    products: dict[int, Product]
    ranges: dict[str, tuple[float, float]]
    nodes: list[Any] = field(default_factory=list)
    bytes_after: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._activations: dict[str, tuple[str, float]] = {}
        self._weights: dict[tuple[str, str, float], tuple[str, npt.NDArray[np.float32]]] = {}
        for number, node in enumerate(self.graph.nodes):
            if number in self.products:
                self._add_product(self.products[number], node)
            else:
                self.nodes.append(node)

    def _add_product(self, product: Product, node: Any) -> None:
        x, step = self._activation(product.x)
        bias = self.graph.array(product.bias) if product.bias else None
        vector = bias.reshape(-1) if bias is not None and bias.size == product.columns else None
        weight, scale = self._weight(product, step, vector)
        if vector is not None:
            inputs = [x, weight, self._bias(product, vector, step * scale)]
            self.nodes.append(self.graph.node("Gemm", inputs, product.output))
        elif product.bias:
            self.nodes.append(self.graph.node("Gemm", [x, weight, product.bias], product.output))
        else:
            self.nodes.append(self.graph.node(product.operator, [x, weight], product.output))
        self.nodes[-1].name = node.name

    def _activation(self, x: str) -> tuple[str, float]:
        """Return the name of the dequantized left operand, and its step."""
        if x not in self._activations:
            step, zero = _step_and_zero(*self.ranges[x])
            names = [
                self.graph.add_constant(f"{x}_step", np.float32(step)),
                self.graph.add_constant(f"{x}_zero", np.uint8(zero)),
            ]
            codes = self._add("QuantizeLinear", [x, *names], f"{x}_codes")
            floats = self._add("DequantizeLinear", [codes, *names], f"{x}_floats")
            self._activations[x] = floats, step
        return self._activations[x]

    def _weight(
        self, product: Product, step: float, bias: npt.NDArray[Any] | None
    ) -> tuple[str, npt.NDArray[np.float32]]:
        """Return the name of the dequantized weight, and its scales, coarse enough for an int32 bias."""
        key = (product.weight, product.bias if bias is not None else "", step)
        if key not in self._weights:
            smallest = 0.0 if bias is None else np.abs(bias) / (step * _LARGEST_BIAS_CODE)
            codes = weight_codes(self.graph.matrix(product), smallest)
            name = f"{product.weight}_{len(self._weights)}"
            names = [
                self.graph.add_constant(f"{name}_codes", codes.codes),
                self.graph.add_constant(f"{name}_scale", codes.scale),
                self._zeros(np.int8, product.columns),
            ]
            written = codes.codes.nbytes + codes.scale.nbytes
            self.bytes_after[product.weight] = self.bytes_after.get(product.weight, 0) + written
            floats = self._add("DequantizeLinear", names, f"{name}_floats", axis=1)
            self._weights[key] = floats, codes.scale
        return self._weights[key]

    def _bias(self, product: Product, bias: npt.NDArray[Any], scale: npt.NDArray[np.float32]) -> str:
        scale = scale.astype(np.float32)
        codes = np.rint(bias / scale.astype(np.float64)).astype(np.int32)
        name = f"{product.output}_bias"
        names = [
            self.graph.add_constant(f"{name}_codes", codes),
            self.graph.add_constant(f"{name}_scale", scale),
            self._zeros(np.int32, product.columns),
        ]
        return self._add("DequantizeLinear", names, f"{name}_floats", axis=0)

    def _zeros(self, dtype: type[np.integer[Any]], count: int) -> str:
        """Return the name of the zero points, without which ONNX Runtime fuses nothing."""
        return self.graph.add_constant(f"zeros_{dtype.__name__}_{count}", np.zeros(count, dtype))

    def _add(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        output = self.graph.fresh(name)
        self.nodes.append(self.graph.node(operator, inputs, output, **attributes))
        return output


METHOD = Int8Static()
