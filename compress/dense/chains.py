"""Hidden layers of an ONNX model: chains of a product, elementwise operators, and the products that read it.

A chain is a product with a constant, elementwise operators on its result, and the products with constants
that read it; nothing else may see the hidden values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.errors import UnsupportedError

__all__ = ["Chain", "chains_of", "kept_count", "required_chains"]

_UNARY = frozenset(
    {
        *("Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity"),
        *("LeakyRelu", "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
    }
)
_BINARY = frozenset({"Add", "Div", "Mul", "PRelu", "Pow", "Sub"})


@dataclass(frozen=True)
class Chain:
    """A hidden layer: the product that computes it, the constants on it, the products that read it."""

    first: Product
    constants: tuple[str, ...]
    following: tuple[Product, ...]

    @property
    def name(self) -> str:
        """Name of the weight that computes the layer."""
        return self.first.weight

    @property
    def neurons(self) -> int:
        """Width of the layer."""
        return self.first.columns


def chains_of(graph: Graph) -> list[Chain]:
    """Return the hidden layers that can be made smaller, in the order of computation."""
    products = graph.products()
    found = [_chain(graph, product, products) for product in products]
    return [chain for chain in found if chain is not None and _is_private(graph, chain)]


def required_chains(graph: Graph) -> list[Chain]:
    """Return the hidden layers of a model that has some.

    Raises:
        UnsupportedError: it has none.
    """
    chains = chains_of(graph)
    if not chains:
        raise UnsupportedError(
            "expected a model with a hidden layer between two products with constants, received none",
            hint="only values between elementwise operators can be pruned; outputs and inputs stay",
        )
    return chains


def _chain(graph: Graph, first: Product, products: list[Product]) -> Chain | None:
    """Return the chain that a product begins; None: something else reads the hidden values."""
    by_node = {product.node: product for product in products}
    hidden, constants, following = {first.output}, [], []
    if first.bias:
        constants.append(first.bias)
    for number, node in enumerate(graph.nodes):
        if not hidden & set(graph.names_read(node)) or number == first.node:
            continue
        product = by_node.get(number)
        if product is not None and product.x in hidden and product.bias not in hidden:
            following.append(product)
            continue
        added = _elementwise(graph, node, hidden, first.columns)
        if added is None:
            return None
        constants += added
        hidden.update(node.output)
    is_seen = bool(hidden & set(graph.outputs()))
    plain = first.is_plain and all(each.is_plain and each.rows == first.columns for each in following)
    same_value = len({product.x for product in following}) == 1
    sliced = all(_is_vector(graph, name, first.columns) is not None for name in constants)
    if is_seen or not plain or not same_value or not sliced:
        return None
    return Chain(first, tuple(constants), tuple(following))


def _elementwise(graph: Graph, node: Any, hidden: set[str], neurons: int) -> list[str] | None:
    """Return the constants of an elementwise node on hidden values; None: it is something else."""
    if node.domain or len(node.output) != 1:
        return None
    if node.op_type in _UNARY:
        return []  # further inputs, of Clip, are scalars
    if node.op_type not in _BINARY:
        return None
    others = [name for name in node.input if name not in hidden]
    return others if all(_is_vector(graph, name, neurons) is not None for name in others) else None


def _is_vector(graph: Graph, name: str, neurons: int) -> bool | None:
    """Return True for a constant with a number for each neuron, False for one number, None for others."""
    array = graph.array(name)
    if array is None:
        return None
    if array.size == 1:
        return False
    return True if array.shape[-1:] == (neurons,) and array.size == neurons else None


def _is_private(graph: Graph, chain: Chain) -> bool:
    """Return whether the weights that would change belong to this chain alone."""
    weights = [chain.first.weight, *(product.weight for product in chain.following)]
    return all(graph.readers(name) == 1 for name in weights)


def kept_count(neurons: int, share: float, multiple: int) -> int:
    """Return how many neurons a share is, rounded up to a multiple."""
    return min(neurons, -(-max(1, round(share * neurons)) // multiple) * multiple)
