"""Figures of untried recipes, as if each method changed a figure by the same amount whatever the others are.

Bytes of parts add up exactly, losses of quality and logarithms of latencies about: a handful of trials tells
most of a space, where an estimator that knows nothing of parts needs many. Coefficients are least squares
with a small ridge (Hoerl and Kennard, "Ridge Regression", Technometrics 1970); a value that was not tried yet
changes nothing.

Where bytes and errors of codecs are known (`Space.costs`) they take the place of a coefficient for each
codec: a table has its bytes, and what it loses of quality is a multiple of the squared error of its rows. So
codecs are predicted that were not tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from graphbox.compress.latency import NOISE, Percentile
from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search.space import CodecCost, Space
from graphbox.compress.search.trials import Trial
from graphbox.config import LatencyLimit

__all__ = ["best_guess"]

Float = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
"""Positions of the values of each parameter, int64 [recipes, parameters]."""

_RIDGE = 1e-3
_MOST_RECIPES = 1 << 16


class _Columns(Enum):
    """Columns of tables whose costs are known."""

    VALUES = auto()
    ERRORS = auto()
    WITHOUT_COSTS = auto()


def best_guess(
    space: Space, trials: Sequence[Trial], limits: Limits, metric: str, original: float, seed: int
) -> Recipe | None:
    """Return the untried recipe that is the best one by what trials say of its methods.

    That is the smallest within the limits, or without a limit of quality the one with the highest metric;
    where none seems to be within, the nearest one.

    Args:
        space: parameters and values.
        trials: finished ones.
        limits: on the model.
        metric: the one that decides.
        original: its value for the original model.
        seed: of the recipes that are looked at where there are too many.

    Returns:
        None where nothing was measured of the space, or no recipe is left.
    """
    parameters = space.parameters
    known = [
        (space.values(trial.recipe), trial)
        for trial in trials
        if trial.state == "measured" and trial.recipe in space
    ]
    if not known or not parameters:
        return None
    places = np.array(
        [[parameters[name].index(values[name]) for name in parameters] for values, _ in known], np.int64
    )
    candidates = _recipes([len(each) for each in parameters.values()], seed)
    designs = {kind: [_design(space, each, kind) for each in (places, candidates)] for kind in _Columns}
    bytes_of_tables = [_known_bytes(space, each) for each in (places, candidates)]

    def figures(figure: Callable[[Trial], float]) -> Float:
        return np.array([figure(trial) for _, trial in known])

    def guessed(values: Float, kind: _Columns) -> Float:
        return _predicted(designs[kind][0], values, designs[kind][1])

    rest = figures(lambda trial: float(trial.size_bytes)) - bytes_of_tables[0]
    size = bytes_of_tables[1] + guessed(rest, _Columns.WITHOUT_COSTS)
    quality = guessed(figures(_metric(metric)), _Columns.ERRORS)
    excess = np.zeros(len(candidates))
    if limits.max_size_bytes is not None:
        excess += np.maximum(0.0, size / limits.max_size_bytes - 1)
    for percentile, limit in limits.of_latency.items():
        if all(trial.latency is not None for _, trial in known):
            latency = np.exp(guessed(figures(_log_latency(percentile, limit)), _Columns.VALUES))
            excess += np.maximum(0.0, latency / (limit.value * (NOISE if limit.relative else 1.0)) - 1)
    least_values = dict(limits.minimums)
    if (least_quality := limits.least(metric, original)) is not None:
        least_values[metric] = least_quality
    for name, least in least_values.items():
        lost = least - guessed(figures(_metric(name)), _Columns.ERRORS)
        excess += np.maximum(0.0, lost / (abs(least) or 1.0))
    order = np.lexsort((size, -quality, excess) if not limits.bounds_quality else (-quality, size, excess))
    tried = {trial.recipe.key for trial in trials}
    for place in order:
        chosen = zip(parameters.items(), candidates[place], strict=True)
        recipe = space.recipe({name: values[position] for (name, values), position in chosen})
        if recipe.key not in tried:
            return recipe
    return None


def _metric(name: str) -> Callable[[Trial], float]:
    return lambda trial: trial.metrics[name]


def _log_latency(percentile: Percentile, limit: LatencyLimit) -> Callable[[Trial], float]:
    """Return the figure of trials that a limit is about: a ratio to the original, or milliseconds."""

    def figure(trial: Trial) -> float:
        if trial.latency is None:
            return 0.0
        latency = trial.latency
        return math.log(latency.ratio(percentile) if limit.relative else latency.milliseconds(percentile))

    return figure


def _recipes(counts: Sequence[int], seed: int) -> Places:
    """Return all combinations of values, or random ones of too many."""
    if math.prod(counts) <= _MOST_RECIPES:
        return np.stack(np.unravel_index(np.arange(math.prod(counts)), counts), axis=1).astype(np.int64)
    return np.random.default_rng(seed).integers(0, counts, (_MOST_RECIPES, len(counts)), np.int64)


def _design(space: Space, places: Places, kind: _Columns) -> Float:
    """Return a column of ones, and for each value but the first of a parameter one that says where it is.

    A parameter whose costs are known has one column of squared errors instead, or none.
    """
    columns = [np.ones((len(places), 1))]
    for number, (name, values) in enumerate(space.parameters.items()):
        costs = None if kind is _Columns.VALUES else _costs(space, name)
        if costs is None:
            columns.append(places[:, number, None] == np.arange(1, len(values)))
        elif kind is _Columns.ERRORS:
            squares = np.array([cost.error**2 for cost in costs])
            columns.append((squares / (squares.max() or 1.0))[places[:, number], None])
    return np.concatenate(columns, axis=1, dtype=np.float64)


def _known_bytes(space: Space, places: Places) -> Float:
    """Return the bytes of tables whose costs are known, float64 [recipes]."""
    total = np.zeros(len(places))
    for number, name in enumerate(space.parameters):
        if (costs := _costs(space, name)) is not None:
            total += np.array([float(cost.nbytes) for cost in costs])[places[:, number]]
    return total


def _costs(space: Space, parameter: str) -> list[CodecCost] | None:
    """Return the costs of the values of a parameter; None: it is of no table, or they are not known."""
    known = space.costs.get(parameter.removeprefix("table."), {})
    values = [str(each) for each in space.parameters[parameter]]
    return [known[each] for each in values] if all(each in known for each in values) else None


def _predicted(design: Float, figures: Float, wanted: Float) -> Float:
    """Return the fitted figures of the wanted rows; the constant is not drawn to zero."""
    ridge = _RIDGE * np.eye(design.shape[1])
    ridge[0, 0] = 0.0
    coefficients = np.linalg.solve(design.T @ design + ridge, design.T @ figures)
    return np.asarray(wanted @ coefficients)
