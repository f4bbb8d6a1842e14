"""The embedding table in plain Python: rows in a dictionary, one row and one float64 number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.table.arguments import Optimizer, is_used

Array = npt.NDArray[np.float64]
Step = Callable[[Array, dict[str, Any], Array], Array]
"""New values of a row, or of several, from values, state and the gradient; changes the state."""

INITIALIZATION_STREAM = 4
OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl")
SETTINGS: dict[str, Any] = {
    "lr": 0.1,
    "initial_accumulator": 0.25,
    "betas": (0.8, 0.95),
    "l1": 0.02,
    "l2": 0.5,
    "init_scale": 1.0,
}


def settings_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return those of an optimizer below, as :class:`graphbox.table.EmbeddingTable` takes them."""
    return {name: value for name, value in SETTINGS.items() if is_used(name, optimizer)}


def row_mean(values: Array) -> Array:
    """Return the mean of a row, or those of several."""
    mean: Array = values.mean(axis=-1, keepdims=True)
    return mean


def sgd(values: Array, _: dict[str, Any], gradient: Array) -> Array:
    return values - 0.1 * gradient


def adagrad(values: Array, state: dict[str, Any], gradient: Array) -> Array:
    state["sum"] = state.get("sum", 0.25) + gradient**2
    root: Array = np.sqrt(state["sum"]) + 1e-8
    return values - 0.1 * gradient / root


def rowwise_adagrad(values: Array, state: dict[str, Any], gradient: Array) -> Array:
    state["sum"] = state.get("sum", 0.25) + row_mean(gradient**2)
    root: Array = np.sqrt(state["sum"]) + 1e-8
    return values - 0.1 * gradient / root


def adam_step(values: Array, state: dict[str, Any], gradient: Array, square: Array) -> Array:
    state["steps"] = state.get("steps", 0) + 1
    state["first"] = 0.8 * state.get("first", 0) + 0.2 * gradient
    state["second"] = 0.95 * state.get("second", 0) + 0.05 * square
    first: Array = state["first"] / (1 - 0.8 ** state["steps"])
    second = state["second"] / (1 - 0.95 ** state["steps"])
    root: Array = np.sqrt(second) + 1e-8
    return values - 0.1 * first / root


def adam(values: Array, state: dict[str, Any], gradient: Array) -> Array:
    return adam_step(values, state, gradient, gradient**2)


def rowwise_adam(values: Array, state: dict[str, Any], gradient: Array) -> Array:
    return adam_step(values, state, gradient, row_mean(gradient**2))


def ftrl(values: Array, state: dict[str, Any], gradient: Array) -> Array:
    """McMahan et al., KDD 2013, algorithm 1, with the z whose value is the initial one."""
    lr, beta, l1, l2 = 0.1, 1.0, 0.02, 0.5
    n = state.get("n", np.full(len(values), 0.25))
    z = state.get("z", -values * ((beta + np.sqrt(n)) / lr + l2) - np.sign(values) * l1)
    sigma = (np.sqrt(n + gradient**2) - np.sqrt(n)) / lr
    state["z"], state["n"] = z + gradient - sigma * values, n + gradient**2
    z, n = state["z"], state["n"]
    weights: Array = -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / lr + l2)
    return np.where(np.abs(z) <= l1, 0.0, weights)


REFERENCES: dict[Optimizer, Step] = {
    "sgd": sgd,
    "adagrad": adagrad,
    "rowwise_adagrad": rowwise_adagrad,
    "adam": adam,
    "rowwise_adam": rowwise_adam,
    "ftrl": ftrl,
}


def initial_row(key: int, dim: int, scale: float, seed: int) -> npt.NDArray[np.float32]:
    """Uniform values from the Philox words at the position of the key."""
    position = key % 2**64
    blocks = -(-dim // 4)
    counters = np.zeros((blocks, 4), dtype=np.uint32)
    counters[:, 0] = np.arange(blocks)
    counters[:, 2:] = position & 0xFFFFFFFF, position >> 32
    words = _core.philox(counters, _core.philox_key(INITIALIZATION_STREAM, seed, 0, 0)).ravel()[:dim]
    unit = (words >> 8).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return unit * np.float32(scale)


class PlainTable:
    """A table with :data:`SETTINGS`."""

    def __init__(self, dim: int, optimizer: Optimizer, seed: int) -> None:
        self.dim, self.seed = dim, seed
        self.rows: dict[int, Array] = {}
        self._state: dict[int, dict[str, Any]] = {}
        self._step = REFERENCES[optimizer]

    def pull(self, keys: Iterable[int], create: bool = True) -> Array:
        rows = []
        for key in keys:
            row = self.rows.get(key)
            if row is None:
                row = initial_row(key, self.dim, SETTINGS["init_scale"], self.seed).astype(np.float64)
                if create:
                    self.rows[key], self._state[key] = row, {}
            rows.append(row)
        return np.array(rows).reshape(len(rows), self.dim)

    def push(self, keys: Sequence[int], grads: npt.NDArray[np.float32]) -> None:
        self.pull(keys)
        sums: dict[int, Array] = {}
        for key, gradient in zip(keys, grads, strict=True):
            sums[key] = sums.get(key, np.zeros(self.dim)) + gradient
        for key, gradient in sums.items():
            self.rows[key] = self._step(self.rows[key], self._state[key], gradient)

    def erase(self, keys: Iterable[int]) -> int:
        present = [key for key in dict.fromkeys(keys) if key in self.rows]
        for key in present:
            del self.rows[key], self._state[key]
        return len(present)
