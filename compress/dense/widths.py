"""Widths by layer: which hidden layers become how narrow, where one number says how small a model is to be.

Each layer alone is made narrower first, which shows the error that it makes in the outputs. Layers are then
narrowed bit by bit, each time the one with the least predicted error for the bytes that it saves, until the
model has as many as with the same share of every layer. The prediction is for what fine-tuning leaves of the
error: later layers learn to make do with what they get, but what the first ones leave out is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.chains import Chain, kept_count, required_chains
from graphbox.compress.dense.onnx_graph import Graph
from graphbox.compress.dense.prune import MULTIPLE, moments_of, without_neurons
from graphbox.compress.dense.values import Values, compare, open_on_cpu, outputs_of

__all__ = ["HiddenLayers", "measure_hidden_layers"]

_MEASURED: Final = (0.75, 0.5, 0.25, 0.125, 0.0625)
"""Shares of a layer whose error is measured; in between it is interpolated."""
_LEFT_BY_TRAINING: Final = 0.5
"""Part of the error that training leaves, for each hidden layer before. Of 29 choices of widths of two models
the errors after training were in proportion to the predicted ones."""
_STEPS: Final = 64
"""Steps in which the widest layer is narrowed."""


@dataclass(frozen=True)
class HiddenLayers:
    """The hidden layers of a model, in the order of computation, and the errors that they make when narrower.

    Attributes:
        neurons: by the weight that computes the layer.
        errors: relative error of the outputs when a layer alone keeps a share, by layer and share.
        depths: number of hidden layers that a layer comes after.
        products: hidden layers whose neurons are rows and columns of each product of the model, with the
            numbers for those that are none: (rows, columns) as names or numbers.
    """

    neurons: Mapping[str, int]
    errors: Mapping[str, Mapping[float, float]]
    depths: Mapping[str, int]
    products: tuple[tuple[str | int, str | int], ...]

    def weights(self, counts: Mapping[str, int]) -> int:
        """Return how many numbers the products multiply with, where layers have so many neurons."""

        def width(side: str | int) -> int:
            return side if isinstance(side, int) else counts[side]

        return sum(width(rows) * width(columns) for rows, columns in self.products)

    def predicted(self, counts: Mapping[str, int]) -> float:
        """Return the squared error to expect after fine-tuning, on the scale of `errors`."""
        return sum(self._part(name, count) for name, count in counts.items())

    def shares(self, share: float, *, multiple: int = MULTIPLE) -> dict[str, float]:
        """Return the share of each layer, in a model with no more weights than with one share of all.

        Args:
            share: in (0, 1].
            multiple: number that neurons are rounded up to a multiple of.
        """
        uniform = {name: kept_count(width, share, multiple) for name, width in self.neurons.items()}
        by_layer = self._narrowed(self.weights(uniform), multiple)
        best = min(uniform, by_layer, key=self.predicted)
        return {name: count / self.neurons[name] for name, count in best.items()}

    def _narrowed(self, most: int, multiple: int) -> dict[str, int]:
        """Return counts for at most so many weights: the cheapest layer is narrowed again and again."""
        counts = dict(self.neurons)
        least = {name: kept_count(width, _MEASURED[-1], multiple) for name, width in counts.items()}
        step = multiple * max(1, round(max(counts.values()) / _STEPS / multiple))
        while (weights := self.weights(counts)) > most:
            smaller = {
                name: max(least[name], count - step) for name, count in counts.items() if count > least[name]
            }
            if not smaller:
                break
            costs = {
                name: (self._part(name, count) - self._part(name, counts[name]))
                / (weights - self.weights({**counts, name: count}))
                for name, count in smaller.items()
            }
            cheapest = min(costs, key=lambda name: costs[name])
            counts[cheapest] = smaller[cheapest]
        return self._widened(counts, most, multiple)

    def _widened(self, counts: dict[str, int], most: int, multiple: int) -> dict[str, int]:
        """Return counts with what the last step left of the weights."""
        while True:
            larger = [
                {**counts, name: min(self.neurons[name], count + multiple)} for name, count in counts.items()
            ]
            within = [each for each in larger if each != counts and self.weights(each) <= most]
            if not within:
                return counts
            counts = min(within, key=self.predicted)

    def _part(self, name: str, count: int) -> float:
        """Return the squared error of one layer."""
        errors = self.errors[name]
        shares = np.log(np.array([*sorted(errors), 1.0]))
        values = np.array([*(errors[share] for share in sorted(errors)), 0.0])
        error = np.interp(
            np.log(count / self.neurons[name]), shares, np.maximum.accumulate(values[::-1])[::-1]
        )
        return float(_LEFT_BY_TRAINING ** self.depths[name] * error) ** 2


def measure_hidden_layers(model: bytes, calibration: Calibration) -> HiddenLayers:
    """Return the hidden layers of a model with the errors that each makes when it alone is narrower.

    Args:
        model: a float32 ONNX file's content.
        calibration: feeds of real requests; some times as many rows as a layer has neurons are wanted.

    Raises:
        UnsupportedError: the model has no hidden layer that can be narrower.
        DataError: a weight is not finite.
        UsageError: the feeds are not those of the model.
    """
    graph = Graph(model)
    chains = required_chains(graph)
    with open_on_cpu(model) as program:
        expected = outputs_of(program, calibration)
    errors: dict[str, dict[float, float]] = {}
    for chain in chains:
        counts = [kept_count(chain.neurons, share, 1) for share in _MEASURED]
        models = without_neurons(model, chain.name, moments_of(model, chain, calibration), counts)
        errors[chain.name] = {
            share: _error(narrower, expected, calibration)
            for share, narrower in zip(_MEASURED, models, strict=True)
        }
    computing = {chain.first.node: chain.name for chain in chains}
    reading = {product.node: chain.name for chain in chains for product in chain.following}
    products = tuple(
        (reading.get(each.node, each.rows), computing.get(each.node, each.columns))
        for each in graph.products()
    )
    neurons = {chain.name: chain.neurons for chain in chains}
    return HiddenLayers(neurons, errors, _depths(chains), products)


def _error(model: bytes, expected: list[Values], calibration: Calibration) -> float:
    with open_on_cpu(model) as program:
        return compare(expected, outputs_of(program, calibration), calibration.rows).rms_relative


def _depths(chains: list[Chain]) -> dict[str, int]:
    """Return how many hidden layers each one comes after, on the longest way."""
    depths: dict[str, int] = {}
    for chain in chains:
        before = [
            depths[each.name]
            for each in chains
            if each.name in depths and chain.first.node in {product.node for product in each.following}
        ]
        depths[chain.name] = 1 + max(before, default=-1)
    return depths
