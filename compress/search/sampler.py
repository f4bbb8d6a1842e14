"""Proposals after the ladder: a tree-structured Parzen estimator over all parameters, by Optuna.

Objectives are the bytes, the latency where it is limited or wanted, and the deciding metric; limits are
constraints (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; Ozaki et al.,
"Multiobjective Tree-Structured Parzen Estimator", JAIR 2022). A proposal is a function of the seed and of the
trials so far, so a search that was killed continues as if it had not been.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphbox.compress.latency import latency_steps
from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search.space import Space
from graphbox.compress.search.trials import Trial
from graphbox.errors import missing_extra

__all__ = ["objectives", "propose"]

_ATTEMPTS = 64
_RANDOM_ATTEMPTS = 4096
"""After those of the estimator, which may repeat itself while most of the space is left."""


def objectives(trial: Trial, metric: str) -> list[float]:
    """Return the costs of a measured trial, smaller is better: bytes, latency, minus the metric.

    The latency is the median relative to that of the original in the same turns, on a logarithmic scale of
    steps of 5 %: smaller differences are noise, and would make every model the best in something.
    """
    latency = []
    if trial.latency is not None:
        latency = [float(latency_steps(trial.latency.ratio("p50")))]
    return [float(trial.size_bytes), *latency, -trial.metrics[metric]]


def propose(
    space: Space, trials: Sequence[Trial], limits: Limits, metric: str, original: float, seed: int
) -> Recipe | None:
    """Return a recipe that was not tried; None: hardly any is left.

    Args:
        space: parameters and values.
        trials: finished ones, in order.
        limits: on the model.
        metric: the one that decides.
        original: its value for the original model.
        seed: of the search.

    Raises:
        BackendMissingError: the package optuna is missing.
    """
    optuna = _optuna()
    parameters = space.parameters
    if not parameters:
        return None
    distributions = {
        name: optuna.distributions.CategoricalDistribution(values) for name, values in parameters.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed + len(trials), n_startup_trials=1, multivariate=True)
        measured = [trial for trial in trials if trial.state == "measured"]
        count = len(objectives(measured[0], metric)) if measured else 1
        study = optuna.create_study(directions=["minimize"] * count, sampler=sampler)
        for trial in measured:
            excess = sum(each.excess for each in limits.violations(trial.figures, metric, original))
            if trial.recipe not in space:
                continue
            study.add_trial(
                optuna.trial.create_trial(
                    params=space.values(trial.recipe),
                    distributions=distributions,
                    values=objectives(trial, metric),
                    constraints={"limits": excess},
                )
            )
        tried = {trial.recipe.key for trial in trials}
        for _ in range(_ATTEMPTS):
            asked = study.ask(distributions)
            recipe = space.recipe(asked.params)
            if recipe.key not in tried:
                return recipe
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
    return _untried(space, tried, seed + len(trials))


def _untried(space: Space, tried: Collection[str], seed: int) -> Recipe | None:
    """Return a random recipe that was not tried, None: hardly any is left."""
    random = np.random.default_rng(seed)
    for _ in range(_RANDOM_ATTEMPTS):
        values = {name: known[random.integers(len(known))] for name, known in space.parameters.items()}
        recipe = space.recipe(values)
        if recipe.key not in tried:
            return recipe
    return None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("optuna", "train") from error
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
