"""An ONNX model as a torch module that computes with rounded operands and can be trained.

The forward pass takes the values that a converted model would compute with; the backward pass takes rounding
for the identity: the straight-through estimator (Bengio, Léonard and Courville, "Estimating or Propagating
Gradients Through Stochastic Neurons for Conditional Computation", 2013).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from graphbox.compress.dense.method import Rounding
from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.export.onnx_operators import Value, as_tensor
from graphbox.export.onnx_to_torch import OnnxModule

__all__ = ["RoundedModule", "straight_through"]


def straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    """Return ``rounded``, with the gradient of ``exact``."""
    return rounded.detach() + (exact - exact.detach())


class RoundedModule(OnnxModule):
    """An ONNX model with weights to train: the matrices of its products, and the biases added to these.

    Args:
        model: a float32 ONNX file's content.
        roundings: of products, by the names of their outputs; the others compute in float32.

    Attributes:
        weights: parameters by the names of the constants; a bias comes after the weight of its product.

    Raises:
        UnsupportedError: the model cannot be translated, see `OnnxModule`.
        DataError: a weight is not finite.
    """

    def __init__(self, model: bytes, roundings: Mapping[str, Rounding]) -> None:
        super().__init__(model)
        graph = Graph(model)
        products = graph.products()
        self._rounded = {
            product.output: (product, roundings[product.output])
            for product in products
            if product.output in roundings
        }
        self._model = model
        self.biases = _biases(graph, products)
        self.weights: dict[str, nn.Parameter] = {}
        for name in (*dict.fromkeys(each.weight for each in products), *self.biases):
            key = self.buffer_of(name)
            parameter = nn.Parameter(getattr(self, key))
            delattr(self, key)
            self.register_parameter(key, parameter)
            self.weights[name] = parameter

    def operands(self, output: str, values: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the values that a node reads, those of a rounded product rounded."""
        if output not in self._rounded:
            return values
        product, rounding = self._rounded[output]
        x, weight = as_tensor(values[product.x]), as_tensor(values[product.weight])
        with torch.no_grad():
            codes_of_x = rounding.activations(x)
            codes_of_weight = _rounded_weight(product, rounding, weight)
        return {
            **values,
            product.x: straight_through(x, codes_of_x),
            product.weight: straight_through(weight, codes_of_weight),
        }

    def onnx(self) -> bytes:
        """Return the model with the weights as they are now, in float32."""
        graph = Graph(self._model)
        for name, parameter in self.weights.items():
            graph.replace_constant(name, parameter.detach().numpy())
        return graph.finished()


def _rounded_weight(product: Product, rounding: Rounding, weight: Tensor) -> Tensor:
    matrix = (weight.T if product.is_transposed else weight).numpy()
    # A copy by torch: results of its products may depend on how memory is aligned.
    rounded = torch.tensor(np.ascontiguousarray(rounding.weight(matrix)))
    return rounded.T if product.is_transposed else rounded


def _biases(graph: Graph, products: Collection[Product]) -> dict[str, str]:
    """Return constant biases, of a Gemm or added to a product, each with the weight of its product.

    Constants that something else reads, too, are left out.
    """
    uses = [(product.bias, product) for product in products if product.bias]
    by_output = {product.output: product for product in products}
    for node in graph.nodes:
        if node.op_type == "Add" and not node.domain:
            first, second = node.input
            uses += [(second, by_output[first])] if first in by_output else []
            uses += [(first, by_output[second])] if second in by_output else []
    found: dict[str, str] = {}
    inputs = {value.name for value in graph.proto.graph.input}
    for name, product in uses:
        array = graph.array(name)
        if array is None or name in inputs or array.dtype != np.float32 or array.size != product.columns:
            continue
        if graph.readers(name) == sum(used == name for used, _ in uses):
            found.setdefault(name, product.weight)
    return found
