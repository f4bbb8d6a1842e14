"""Figures of untried recipes, as if each method changed a figure by the same amount whatever the others are.

Bytes of parts add up exactly, losses of quality about: a handful of trials tells most of a space, where an
estimator that knows nothing of parts needs many. Coefficients are least squares with a small ridge (Hoerl and
Kennard, "Ridge Regression", Technometrics 1970); a value that was not tried yet changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search.space import Choice, Space
from graphbox.compress.search.trials import Trial

__all__ = ["best_guess"]

Float = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
"""Positions of the values of each parameter, int64 [recipes, parameters]."""

_RIDGE = 1e-3
_MOST_RECIPES = 1 << 16


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
    design, wanted = _design(parameters, places), _design(parameters, candidates)

    def guessed(figure: Callable[[Trial], float]) -> Float:
        return _predicted(design, np.array([figure(trial) for _, trial in known]), wanted)

    size = guessed(lambda trial: float(trial.size_bytes))
    quality = guessed(_metric(metric))
    excess = np.zeros(len(candidates))
    if limits.max_size_bytes is not None:
        excess += np.maximum(0.0, size / limits.max_size_bytes - 1)
    if limits.max_p99_ms is not None and all(trial.latency is not None for _, trial in known):
        p99_ms = np.exp(guessed(_log_p99))
        excess += np.maximum(0.0, p99_ms / limits.max_p99_ms - 1)
    least_values = dict(limits.minimums)
    if (least_quality := limits.least(metric, original)) is not None:
        least_values[metric] = least_quality
    for name, least in least_values.items():
        lost = least - guessed(_metric(name))
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


def _log_p99(trial: Trial) -> float:
    return 0.0 if trial.latency is None else math.log(trial.latency.p99_ms)


def _recipes(counts: Sequence[int], seed: int) -> Places:
    """Return all combinations of values, or random ones of too many."""
    if math.prod(counts) <= _MOST_RECIPES:
        return np.stack(np.unravel_index(np.arange(math.prod(counts)), counts), axis=1).astype(np.int64)
    return np.random.default_rng(seed).integers(0, counts, (_MOST_RECIPES, len(counts)), np.int64)


def _design(parameters: Mapping[str, Sequence[Choice]], places: Places) -> Float:
    """Return a column of ones, and for each value but the first of a parameter one that says where it is."""
    columns = [np.ones((len(places), 1))]
    for number, values in enumerate(parameters.values()):
        columns.append(places[:, number, None] == np.arange(1, len(values)))
    return np.concatenate(columns, axis=1, dtype=np.float64)


def _predicted(design: Float, figures: Float, wanted: Float) -> Float:
    """Return the fitted figures of the wanted rows; the constant is not drawn to zero."""
    ridge = _RIDGE * np.eye(design.shape[1])
    ridge[0, 0] = 0.0
    coefficients = np.linalg.solve(design.T @ design + ridge, design.T @ figures)
    return np.asarray(wanted @ coefficients)
