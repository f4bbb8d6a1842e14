"""Structured pruning: removes hidden neurons of MLP chains in an ONNX model by least squares.

Neurons leave the weights on both sides (`graphbox.compress.dense.chains`), so that the pruned model is an
ordinary smaller one, which every runtime runs faster and which the other methods convert further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.chains import Chain, chains_of, kept_count, required_chains
from graphbox.compress.dense.conversion import MAX_RMS_ERROR, output_error
from graphbox.compress.dense.method import OutputError
from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.compress.dense.refit import Moments, Refit, keep_each
from graphbox.compress.dense.values import inner_values
from graphbox.errors import GateError, UsageError

__all__ = ["MULTIPLE", "PruneReport", "PrunedOnnx", "moments_of", "prune_neurons", "without_neurons"]

MULTIPLE = 8
"""Kept neurons are rounded up to a multiple of it: registers are full."""


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


def prune_neurons(
    model: bytes, calibration: Calibration, keep: float | Mapping[str, float], *, multiple: int = MULTIPLE
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
    chains = required_chains(Graph(model))
    shares = _shares(keep, [chain.name for chain in chains], multiple)
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
    return bool(chains_of(Graph(model)))


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


def moments_of(model: bytes, chain: Chain, calibration: Calibration) -> Moments:
    """Return the sums of a hidden layer's activations that least squares needs.

    Raises:
        UsageError: the feeds have no rows of the layer.
    """
    value, moments = chain.following[0].x, Moments(chain.neurons)
    for values in inner_values(model, (value,), calibration):
        moments.add(values[value])
    if not moments.rows:
        raise UsageError(
            f"expected rows of the hidden layer `{chain.name}` in the calibration feeds, received none"
        )
    return moments


def without_neurons(model: bytes, name: str, moments: Moments, counts: Sequence[int]) -> list[bytes]:
    """Return models with fewer neurons in one layer, and what reads it fitted to the kept ones.

    Args:
        model: a float32 ONNX file's content.
        name: of the hidden layer.
        moments: of its activations, see `moments_of`.
        counts: neurons to keep in each of the models, descending.
    """
    graph = Graph(model)
    chain = next(each for each in chains_of(graph) if each.name == name)
    joined = np.concatenate([graph.matrix(product) for product in chain.following], axis=1)
    has_bias = all(_own_bias(graph, product) is not None for product in chain.following)
    models = []
    for refit in keep_each(moments, joined, counts, has_bias=has_bias):
        pruned = Graph(model)
        _replace(pruned, chain, refit, has_bias)
        models.append(pruned.finished())
    return models


def _pruned(
    model: bytes, name: str, calibration: Calibration, share: float, multiple: int
) -> tuple[bytes, tuple[int, int]]:
    """Return the model with fewer neurons in one layer, and their numbers before and after."""
    chain = next(each for each in chains_of(Graph(model)) if each.name == name)
    count = kept_count(chain.neurons, share, multiple)
    if count == chain.neurons:
        return model, (count, count)
    (pruned,) = without_neurons(model, name, moments_of(model, chain, calibration), (count,))
    return pruned, (chain.neurons, count)


def _own_bias(graph: Graph, product: Product) -> npt.NDArray[np.float32] | None:
    """Return the bias of a Gemm, if it has a number for each column."""
    bias = graph.array(product.bias) if product.bias else None
    return bias.reshape(-1) if bias is not None and bias.size == product.columns else None


def _replace(graph: Graph, chain: Chain, refit: Refit, has_bias: bool) -> None:
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
