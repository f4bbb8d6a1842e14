"""Proposals of a search: a tree-structured Parzen estimator over the space of a kind of model, by Optuna.

Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. A proposal is a function of the
seed and of the trials so far, so a search that was killed continues as if it had not been.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from graphbox.config import Choices, Interval
from graphbox.errors import missing_extra
from graphbox.train.choosing.trials import SettingsTrial, key_of

__all__ = ["propose"]

_RANDOM_TRIALS = 6
"""Trials, suggested ones included, after which the estimator proposes."""
_ATTEMPTS = 64
_DIGITS = 4
"""Of a proposed number: two that differ beyond these train alike."""


def propose(
    space: Mapping[str, Choices],
    trials: Sequence[SettingsTrial],
    defaults: Mapping[str, Any],
    seed: int,
) -> dict[str, Any] | None:
    """Return settings that were not tried; None: hardly any are left.

    Args:
        space: settings to search, and their values.
        trials: finished ones, in order.
        defaults: values of the settings that a trial does not name.
        seed: of the search.

    Raises:
        BackendMissingError: the package optuna is missing.
    """
    optuna = _optuna()
    distributions = {name: _distribution(optuna, choices) for name, choices in space.items()}
    tried = {trial.key for trial in trials}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed + len(trials), n_startup_trials=_RANDOM_TRIALS, multivariate=True
        )
        study = optuna.create_study(direction="minimize", sampler=sampler)
        for trial in trials:
            values = _within(space, {**defaults, **trial.settings})
            if trial.cost is not None and values is not None:
                study.add_trial(
                    optuna.trial.create_trial(
                        params=values, distributions=distributions, **_result(optuna, trial)
                    )
                )
        for _ in range(_ATTEMPTS):
            asked = study.ask(distributions)
            settings = {name: _rounded(value) for name, value in asked.params.items()}
            if key_of(settings) not in tried:
                return settings
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
    return None


def _distribution(optuna: Any, choices: Choices) -> Any:
    if isinstance(choices, Interval):
        return optuna.distributions.FloatDistribution(choices.low, choices.high, log=choices.logarithmic)
    return optuna.distributions.CategoricalDistribution(choices)


def _result(optuna: Any, trial: SettingsTrial) -> dict[str, Any]:
    """Return what came of a trial; to the estimator pruned ones are worse than those that ended."""
    if trial.state == "measured":
        return {"value": trial.cost}
    return {
        "state": optuna.trial.TrialState.PRUNED,
        "intermediate_values": {trial.epochs: trial.cost},
    }


def _within(space: Mapping[str, Choices], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of a space's settings, the nearest of an interval; None: one is not in it."""
    found = {}
    for name, choices in space.items():
        value = values[name]
        if isinstance(choices, Interval) and value is not None:
            value = min(max(float(value), choices.low), choices.high)
        elif isinstance(choices, Interval) or value not in choices:
            return None
        found[name] = value
    return found


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("optuna", "train") from error
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
