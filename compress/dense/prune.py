"""Structured pruning: removes hidden neurons of MLP chains in an ONNX model by least squares.

A chain is a product with a constant, elementwise operators on its result, and the products with constants
that read it; nothing else may see the hidden values. Neurons leave both weights, so that the pruned model is
an ordinary smaller one, which every runtime runs faster and which the other methods convert further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.conversion import MAX_RMS_ERROR, output_error
from graphbox.compress.dense.method import OutputError
from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.compress.dense.refit import Moments, Refit, keep_neurons
from graphbox.compress.dense.values import inner_values
from graphbox.errors import GateError, UnsupportedError, UsageError

__all__ = ["PruneReport", "PrunedOnnx", "prune_neurons"]

_UNARY = frozenset(
    {
        *("Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity"),
        *("LeakyRelu", "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
    }
)
_BINARY = frozenset({"Add", "Div", "Mul", "PRelu", "Pow", "Sub"})


@dataclass(frozen=True)
class PruneReport:
    """Outcome of a pruning.

    Attributes:
        neurons: hidden neurons before and after, by the weight that computes them.
        file_bytes_before: of the ONNX file.
        file_bytes_after: of the pruned ONNX file.
        error: difference of the outputs on the calibration feeds.
    """

    neurons: Mapping[str, tuple[int, int]]
    file_bytes_before: int
    file_bytes_after: int
    error: OutputError


@dataclass(frozen=True)
class PrunedOnnx:
    """A pruned ONNX file and its report."""

    model: bytes
    report: PruneReport


@dataclass(frozen=True)
class _Chain:
    """A hidden layer: the product that computes it, the constants on it, the products that read it."""

    first: Product
    constants: tuple[str, ...]
    following: tuple[Product, ...]


def prune_neurons(
    model: bytes, calibration: Calibration, keep: float | Mapping[str, float], *, multiple: int = 8
) -> PrunedOnnx:
    """Remove hidden neurons and fit the following weights to the kept ones.

    Layers are pruned in the order of computation, each on the activations of the model as pruned so far.

    Args:
        model: a float32 ONNX file's content.
        calibration: feeds of real requests; some times as many rows as a layer has neurons are wanted.
        keep: share of the neurons to keep, in (0, 1]; by name of the weight that computes a hidden layer,
            where layers differ: those that are not named stay whole.
        multiple: number that the kept neurons are rounded up to a multiple of.

    Raises:
        UsageError: a share is not in (0, 1], or a layer is unknown.
        UnsupportedError: the model has no chain.
        GateError: outputs of the pruned model are not finite, or have nothing in common with the original's.
        DataError: a weight or an output of the original is not finite.
    """
    chains = _chains(Graph(model))
    if not chains:
        raise UnsupportedError(
            "expected a model with a hidden layer between two products with constants, received none",
            hint="only values between elementwise operators can be pruned; outputs and inputs stay",
        )
    shares = _shares(keep, [chain.first.weight for chain in chains], multiple)
    neurons: dict[str, tuple[int, int]] = {}
    pruned = model
    for name, share in shares.items():
        pruned, neurons[name] = _pruned(pruned, name, calibration, share, multiple)
    error = output_error(model, pruned, calibration)
    if not error.rms_relative < MAX_RMS_ERROR:
        raise GateError(
            f"expected outputs like those of the original model, pruning to {neurons} gives outputs with a "
            f"relative error of {error.rms_relative:g}",
            hint="keep more neurons",
        )
    return PrunedOnnx(pruned, PruneReport(neurons, len(model), len(pruned), error))


def has_hidden_neurons(model: bytes) -> bool:
    """Return whether a model has a hidden layer that `prune_neurons` can prune."""
    return bool(_chains(Graph(model)))


def _shares(keep: float | Mapping[str, float], names: list[str], multiple: int) -> dict[str, float]:
    shares = dict(keep) if isinstance(keep, Mapping) else dict.fromkeys(names, keep)
    unknown = sorted(set(shares) - set(names))
    if unknown:
        raise UsageError(f"expected hidden layers among {names}, received {', '.join(unknown)}")
    wrong = [share for share in shares.values() if not 0 < share <= 1]
    if wrong or multiple < 1 or not shares:
        raise UsageError(
            "expected a share in (0, 1] for at least one layer and a multiple of at least 1, "
            f"received {wrong or shares} and {multiple}"
        )
    return {name: shares[name] for name in names if name in shares}


def _chains(graph: Graph) -> list[_Chain]:
    """Return the hidden layers that can be pruned, in the order of computation."""
    products = graph.products()
    found = [_chain(graph, product, products) for product in products]
    return [chain for chain in found if chain is not None and _is_private(graph, chain)]


def _chain(graph: Graph, first: Product, products: list[Product]) -> _Chain | None:
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
    return _Chain(first, tuple(constants), tuple(following))


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


def _is_private(graph: Graph, chain: _Chain) -> bool:
    """Return whether the weights that would change belong to this chain alone."""
    weights = [chain.first.weight, *(product.weight for product in chain.following)]
    return all(graph.readers(name) == 1 for name in weights)


def _pruned(
    model: bytes, name: str, calibration: Calibration, share: float, multiple: int
) -> tuple[bytes, tuple[int, int]]:
    """Return the model with fewer neurons in one layer, and their numbers before and after."""
    graph = Graph(model)
    chain = next(each for each in _chains(graph) if each.first.weight == name)
    neurons = chain.first.columns
    count = min(neurons, -(-max(1, round(share * neurons)) // multiple) * multiple)
    if count == neurons:
        return model, (neurons, neurons)
    value = chain.following[0].x
    moments = Moments(neurons)
    for values in inner_values(model, (value,), calibration):
        moments.add(values[value])
    if not moments.rows:
        raise UsageError(
            f"expected rows of the hidden layer `{name}` in the calibration feeds, received none"
        )
    joined = np.concatenate([graph.matrix(product) for product in chain.following], axis=1)
    has_bias = all(_own_bias(graph, product) is not None for product in chain.following)
    refit = keep_neurons(moments, joined, count, has_bias=has_bias)
    _replace(graph, chain, refit, has_bias)
    return graph.finished(), (neurons, count)


def _own_bias(graph: Graph, product: Product) -> npt.NDArray[np.float32] | None:
    """Return the bias of a Gemm, if it has a number for each column."""
    bias = graph.array(product.bias) if product.bias else None
    return bias.reshape(-1) if bias is not None and bias.size == product.columns else None


def _replace(graph: Graph, chain: _Chain, refit: Refit, has_bias: bool) -> None:
    """Write the weights and constants of the kept neurons under new names or the old one of a weight."""
    nodes = graph.nodes
    first = graph.matrix(chain.first)[:, refit.kept]
    graph.replace_constant(chain.first.weight, first.T if chain.first.is_transposed else first)
    sliced = {
        name: graph.add_constant(f"{name}_kept_{chain.first.weight}", array[..., refit.kept])
        for name in dict.fromkeys(chain.constants)
        if (array := graph.array(name)) is not None and array.size > 1
    }
    hidden_nodes = graph.between(chain.first, chain.following)
    for node in hidden_nodes:
        for place, name in enumerate(node.input):
            if name in sliced:
                node.input[place] = sliced[name]
    start = 0
    for product in chain.following:
        columns = slice(start, start + product.columns)
        start += product.columns
        weight = refit.weight[:, columns].astype(np.float32)
        graph.replace_constant(product.weight, weight.T if product.is_transposed else weight)
        bias = _own_bias(graph, product)
        if has_bias and bias is not None:
            added = (bias + refit.bias[columns]).astype(np.float32)
            nodes[product.node].input[2] = graph.add_constant(f"{product.output}_refitted", added)
