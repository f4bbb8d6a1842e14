"""Recipes whose tables differ, and whose lists are shorter: the least loss for a number of bytes.

The loss of the metric is predicted from trials of the ladder: from those of each table alone in its smallest
codec, by the square of a codec's error, and from those of bounds of neighbours alone. Losses are added up.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from graphbox.artifact import TableSpec
from graphbox.compress.budget import BudgetedTable, choose_codecs
from graphbox.compress.recipe import Recipe
from graphbox.compress.search.space import Choice, Space, first_method, neighbor_probes, probes
from graphbox.compress.search.trials import Trial
from graphbox.compress.tables import CODEC_OF_PRECISION, suited_precision

__all__ = ["suggestions"]

_TABLES_TO_DIVIDE = 2
_MOST_RECIPES = 8
_STEPS, _STEPS_TO_A_LIMIT = 2, 4
"""Budgets from one codec of all tables to the next."""
_LEAST_SHARE, _LEAST_ERROR = 0.05, 1e-6


@dataclass(frozen=True)
class _Bound:
    """Effect of a bound of neighbours alone.

    Attributes:
        values: those of the space.
        saved_bytes: of the version.
        lost: of the metric; of a smaller bound at least what a larger one loses.
    """

    values: Mapping[str, Choice]
    saved_bytes: int = 0
    lost: float = 0.0


def suggestions(
    specs: Mapping[str, TableSpec],
    space: Space,
    errors: Mapping[str, Mapping[str, float]],
    trials: Sequence[Trial],
    metric: str,
    least: float | None = None,
) -> list[Recipe]:
    """Return recipes to try after the ladder: at most 8.

    Bytes of neighbours that are left out are spent on the tables, where that costs less. With a limit of the
    metric and known losses those come first that are predicted to be closest to the limit; else the smallest.

    Args:
        specs: of the tables, by name.
        space: methods for each part.
        errors: relative error of each table by precision; tables with one codec have that.
        trials: of the ladder.
        metric: the one that decides.
        least: value that the metric must have; None: it is not limited.
    """
    errors = {name: found for name, found in errors.items() if len(space.tables[name]) > 1}
    if len(errors) < _TABLES_TO_DIVIDE:
        return []
    measured = {trial.recipe.key: trial for trial in trials if trial.state == "measured"}
    weights = _weights(space, errors, measured, metric)
    bounds = _bounds(space, measured, metric) if weights else [_Bound({})]
    tables = [
        BudgetedTable(
            name,
            specs[name].rows,
            specs[name].dim,
            {CODEC_OF_PRECISION[each].name: found[each] for each in space.tables[name] if each in found},
            weights.get(name),
        )
        for name, found in errors.items()
    ]
    whole = measured.get(space.recipe(first_method(space)).key)
    allowed = None if not weights or whole is None or least is None else whole.metrics[metric] - least
    precision_of = {codec.name: precision for precision, codec in CODEC_OF_PRECISION.items()}
    found: dict[str, tuple[float, Recipe]] = {}
    in_use = {precision for known in errors.values() for precision in known}
    for budget in _budgets(tables, in_use, _STEPS if allowed is None else _STEPS_TO_A_LIMIT):
        divided = ((choose_codecs(tables, budget + bound.saved_bytes), bound) for bound in bounds)
        chosen, bound = min(divided, key=lambda pair: pair[0].error + pair[1].lost)
        codecs = {f"table.{name}": precision_of[codec.name] for name, codec in chosen.codecs.items()}
        recipe = space.recipe({**first_method(space), **bound.values, **codecs})
        found.setdefault(recipe.key, (chosen.error + bound.lost, recipe))
    ordered = list(found.values())
    if allowed is not None:
        ordered.sort(key=lambda pair: abs(pair[0] - allowed))
    return [recipe for _, recipe in ordered[:_MOST_RECIPES]]


def _budgets(tables: Sequence[BudgetedTable], in_use: AbstractSet[str], steps: int) -> list[int]:
    """Return bytes of all tables, ascending: of each precision in use, with steps in between."""
    totals = sorted(_uniform_bytes(precision, tables) for precision in in_use)
    pairs = itertools.pairwise(totals)
    return [low + (high - low) * step // steps for low, high in pairs for step in range(1, steps + 1)]


def _uniform_bytes(precision: str, tables: Sequence[BudgetedTable]) -> int:
    """Return the bytes of tables in one precision, as far as it suits them."""
    return sum(
        CODEC_OF_PRECISION[suited_precision(precision, each.rows, each.dim)].bytes_of(each.rows, each.dim)
        for each in tables
    )


def _bounds(space: Space, measured: Mapping[str, Trial], metric: str) -> list[_Bound]:
    """Return the bounds of neighbours that were measured, the one that leaves nothing out first."""
    found = [_Bound({})]
    whole = measured[space.recipe(first_method(space)).key]
    for most, recipe in neighbor_probes(space).items():
        if (trial := measured.get(recipe.key)) is not None:
            lost = max(found[-1].lost, whole.metrics[metric] - trial.metrics[metric])
            found.append(_Bound({"max_neighbors": most}, whole.size_bytes - trial.size_bytes, lost))
    return found


def _weights(
    space: Space, errors: Mapping[str, Mapping[str, float]], measured: Mapping[str, Trial], metric: str
) -> dict[str, float]:
    """Return by table what the metric lost for a squared relative error; empty: it was not measured."""
    whole = space.recipe(first_method(space))
    alone = {name: recipe for name, recipe in probes(space).items() if name in errors}
    if whole.key not in measured or any(recipe.key not in measured for recipe in alone.values()):
        return {}
    value = measured[whole.key].metrics[metric]
    lost = {name: value - measured[recipe.key].metrics[metric] for name, recipe in alone.items()}
    # Losses of the metric are noisy: a table with none still has a small weight.
    least = _LEAST_SHARE * max(lost.values(), default=0.0)
    if least <= 0:
        return {}
    return {
        name: max(each, least) / max(errors[name][space.tables[name][-1]], _LEAST_ERROR) ** 2
        for name, each in lost.items()
    }
