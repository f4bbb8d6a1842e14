"""Guesses of an additive model: exact on figures that add up, within limits, never a tried recipe."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphbox.compress.latency import Latency
from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search import CodecCost, Space
from graphbox.compress.search.additive import best_guess
from graphbox.compress.search.trials import Trial
from graphbox.config import LatencyLimit, parse_max_drop

SPACE = Space(
    tables={"user": ("float32", "int8", "int2"), "item": ("float32", "int8", "int2")},
    dense=("float32", "int8", "int4_weights"),
    kept_neurons=(1.0, 0.5),
)
SIZE = {"float32": 0, "int8": -300, "int2": -400, "int4_weights": -500}
LOSS = {"float32": 0.0, "int8": 0.001, "int2": 0.05, "int4_weights": 0.004}
METRIC = "recall@20"


def measured(recipe: Recipe) -> Trial:
    """Return a trial of which all figures are sums over the methods."""
    methods = [recipe.dense, *recipe.tables.values()]
    pruned = recipe.kept_neurons < 1
    lost = sum(LOSS[each] for each in methods) + 0.02 * pruned
    size = 2000 + sum(SIZE[each] for each in methods) - 150 * pruned
    factor = np.exp(-0.1 * (recipe.dense != "float32") - 0.2 * pruned)
    latency = Latency(factor, factor, factor, 2 * factor, 1.0, 2.0)
    return Trial(recipe, "ladder", "measured", size_bytes=size, metrics={METRIC: 0.5 - lost}, latency=latency)


def alone() -> list[Trial]:
    """Return the original, and each method of each part alone."""
    first = {name: values[0] for name, values in SPACE.parameters.items()}
    single = [{**first, name: value} for name, values in SPACE.parameters.items() for value in values[1:]]
    return [measured(SPACE.recipe(values)) for values in [first, *single]]


def everything() -> list[Trial]:
    parameters = SPACE.parameters
    found = {
        (recipe := SPACE.recipe(dict(zip(parameters, values, strict=True)))).key: recipe
        for values in itertools.product(*parameters.values())
    }
    return [measured(recipe) for recipe in found.values()]


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_drop=parse_max_drop("0.01")),
        Limits(max_drop=parse_max_drop("0.06")),
        Limits(minimums={METRIC: 0.4}),
        Limits(max_size_bytes=1000),
        Limits(max_p99=LatencyLimit(1.6), max_drop=parse_max_drop("0.03")),
        Limits(max_p50=LatencyLimit(0.92), max_drop=parse_max_drop("0.01")),
        Limits(max_p50=LatencyLimit(0.8, relative=True), max_drop=parse_max_drop("0.03")),
    ],
)
def test_the_best_combination_is_guessed_from_methods_alone(limits: Limits) -> None:
    trials = alone()
    guess = best_guess(SPACE, trials, limits, METRIC, 0.5, seed=0)
    within = [each for each in everything() if not limits.violations(each.figures, METRIC, 0.5)]
    if limits.bounds_quality:
        best = min(within, key=lambda each: (each.size_bytes, -each.metrics[METRIC]))
    else:
        tried = {trial.recipe.key for trial in trials}
        left = [each for each in within if each.recipe.key not in tried]
        best = min(left, key=lambda each: (-each.metrics[METRIC], each.size_bytes))
    assert guess is not None
    found = measured(guess)
    assert found.size_bytes == best.size_bytes
    assert found.metrics[METRIC] == pytest.approx(best.metrics[METRIC], abs=1e-9)


def test_every_recipe_is_guessed_once_and_then_none() -> None:
    trials, limits = alone(), Limits(max_drop=parse_max_drop("0.01"))
    while (guess := best_guess(SPACE, trials, limits, METRIC, 0.5, seed=0)) is not None:
        assert guess.key not in {trial.recipe.key for trial in trials}
        trials.append(measured(guess))
    assert len(trials) == len(everything())


def test_without_a_model_within_the_limits_the_nearest_is_guessed() -> None:
    limits = Limits(max_size_bytes=100, max_drop=parse_max_drop("0.2"))
    guess = best_guess(SPACE, alone(), limits, METRIC, 0.5, seed=0)
    smallest = min(everything(), key=lambda each: each.size_bytes)
    assert guess is not None
    assert guess.key == smallest.recipe.key


def test_trials_that_say_nothing_are_passed_over() -> None:
    limits = Limits(max_drop=parse_max_drop("0.01"))
    refused = Trial(Recipe(dense="int8"), "ladder", "refused", reason="unsupported")
    other_space = measured(Recipe(dense="int8", float_layers=("first",)))
    assert best_guess(SPACE, [refused], limits, METRIC, 0.5, seed=0) is None
    assert best_guess(SPACE, [other_space], limits, METRIC, 0.5, seed=0) is None
    guess = best_guess(SPACE, alone(), limits, METRIC, 0.5, seed=0)
    assert best_guess(SPACE, [*alone(), refused, other_space], limits, METRIC, 0.5, seed=0) == guess


def test_with_known_costs_codecs_are_guessed_that_were_not_tried() -> None:
    """Losses are multiples of squared errors: one trial for each table says all."""
    codecs = ("float32", "int8", "int4", "int3", "int2")
    errors = dict(zip(codecs, (0.0, 0.01, 0.1, 0.2, 0.4), strict=True))
    costs = {
        name: {codec: CodecCost(1000 - 200 * codecs.index(codec), errors[codec]) for codec in codecs}
        for name in ("user", "item")
    }
    space = Space(tables=dict.fromkeys(costs, codecs), dense=("float32", "int8"), costs=costs)
    weights = {"user": 0.1, "item": 1.0}

    def trial(recipe: Recipe) -> Trial:
        of = {name: recipe.tables.get(name, "float32") for name in costs}
        size = 500 * (recipe.dense == "float32") + sum(costs[name][each].nbytes for name, each in of.items())
        lost = sum(weights[name] * errors[each] ** 2 for name, each in of.items())
        factor = 1.1 if recipe.dense == "int8" else 1.0
        latency = Latency(factor, factor, factor, factor, 1.0, 1.0)
        return Trial(
            recipe, "ladder", "measured", size_bytes=size, metrics={METRIC: 0.5 - lost}, latency=latency
        )

    alone = [Recipe(), Recipe("int8"), *(Recipe(tables={name: "int2"}) for name in costs)]
    trials = [trial(recipe) for recipe in alone]
    limits = Limits(max_p50=LatencyLimit(1.0, relative=True), max_drop=parse_max_drop("0.0145"))
    everything = [
        trial(space.recipe({"dense": dense, "table.user": user, "table.item": item}))
        for dense, user, item in itertools.product(space.dense, codecs, codecs)
    ]
    within = [each for each in everything if not limits.violations(each.figures, METRIC, 0.5)]
    best = min(within, key=lambda each: (each.size_bytes, -each.metrics[METRIC]))
    assert best.recipe.tables == {"user": "int3", "item": "int4"}
    guess = best_guess(space, trials, limits, METRIC, 0.5, seed=0)
    assert guess == best.recipe


def test_of_very_many_recipes_random_ones_are_looked_at() -> None:
    tables = {f"table {number}": ("float32", "int8", "int2") for number in range(14)}
    space = Space(tables=tables)
    first = dict.fromkeys(space.parameters, "float32")
    trials = [measured(space.recipe(first))]
    trials += [measured(space.recipe({**first, name: "int8"})) for name in space.parameters]
    limits = Limits(max_drop=parse_max_drop("0.5"))
    guesses = [best_guess(space, trials, limits, METRIC, 0.5, seed) for seed in (0, 0, 1)]
    assert all(each is not None for each in guesses)
    assert guesses[0] == guesses[1]
