"""The search: a ladder of methods, proposals within the limits, the choice and its proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from graphbox.compress.latency import Latency, latency_steps
from graphbox.compress.limits import Limits
from graphbox.compress.recipe import Recipe
from graphbox.compress.search.additive import best_guess
from graphbox.compress.search.choice import choose, infeasible, refusal
from graphbox.compress.search.pareto import pareto_indices, spread_out
from graphbox.compress.search.sampler import objectives, propose
from graphbox.compress.search.space import Space, dense_alone, ladder, parts_alone, tables_alone
from graphbox.compress.search.trials import RecipeTrialLog, Trial
from graphbox.compress.search.workbench import Workbench
from graphbox.errors import UnsupportedError

__all__ = ["Budget", "Found", "search"]

_MOST_POINTS = 8
_FINAL_SECONDS = 2.0
_TRIALS_OF_ESTIMATOR = 3

Report = Callable[[Trial, int, int], None]
"""Called with each finished trial, the number of trials so far, and how many there will be at most."""

Suggest = Callable[[Trial, Sequence[Trial]], Sequence[Recipe]]
"""Returns recipes to try, given the original and other trials."""


@dataclass(frozen=True)
class Budget:
    """Bounds of a search.

    Attributes:
        trials: recipes that are tried at most, those of earlier searches included.
        seconds: after which none is begun; None: without a bound.
        seed: of the proposals.
    """

    trials: int = 20
    seconds: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """Outcome of a search.

    Attributes:
        original: measurements of the model itself.
        trials: all of them, in order, with the figures that points have.
        points: models of the Pareto set within the limits, measured together once more, the smallest first.
        chosen: one of the points.
        rejected: models that were within the limits only when they were measured first.
    """

    original: Trial
    trials: Sequence[Trial]
    points: Sequence[Trial]
    chosen: Trial
    rejected: Sequence[Trial]


def search(
    bench: Workbench,
    space: Space,
    limits: Limits,
    metric: str,
    log: RecipeTrialLog,
    budget: Budget,
    report: Report | None = None,
    check: Callable[[], None] | None = None,
    suggest: Suggest = lambda *_: (),
) -> Found:
    """Try recipes and return the models within the limits that none beats in size, latency and quality.

    Args:
        bench: builds and measures.
        space: methods for each part.
        limits: on the model; they guide the proposals and decide what is within.
        metric: the one that decides, higher is better.
        log: finished trials, of earlier searches too: they are not run again, and those with other methods
            than the space's are left out.
        budget: trials and time.
        report: called with each finished trial.
        check: called before each trial; raises to stop.
        suggest: returns recipes to try after the ladder, given the original and the ladder's trials; not used
            with a limit of latency.

    Raises:
        GateError: no model is within the limits; the message has the nearest one and the limit that binds.
        UnsupportedError: the original itself cannot be measured.
        UsageError: a limit is about a metric that is not measured.
    """
    original = _original(bench, log)
    limits.check_metrics(original.metrics)
    value = original.metrics[metric]
    began = time.monotonic()
    known_steps = _known_steps(space, log, limits, metric, original, suggest)
    steps = (step for step in known_steps if log.find(step[0]) is None)
    while len(_of_space(space, log)) < budget.trials and not (
        budget.seconds and time.monotonic() - began >= budget.seconds
    ):
        if check is not None:
            check()
        recipe, source = next(steps, (None, "sampler"))
        if recipe is None:
            recipe = _to_tune(space, log, limits, metric, value)
            source = "sampler" if recipe is None else "tuning"
        if recipe is None:
            recipe = _proposed(space, _of_space(space, log), limits, metric, value, budget.seed)
        if recipe is None:
            break
        if log.find(recipe) is not None:  # suggested twice
            continue
        trial = _tried(bench, log, recipe, source)
        if report is not None:
            report(trial, len(_of_space(space, log)), budget.trials)
    return _decide(bench, original, _of_space(space, log), limits, metric)


def _of_space(space: Space, log: RecipeTrialLog) -> list[Trial]:
    """Return the original and the trials of the space; others are of searches with other methods."""
    return [trial for trial in log if trial.recipe == Recipe() or trial.recipe in space]


def _known_steps(
    space: Space, log: RecipeTrialLog, limits: Limits, metric: str, original: Trial, suggest: Suggest
) -> Iterator[tuple[Recipe, str]]:
    """Give recipes to try before the proposals; the suggestions follow from trials of the ladder alone.

    With a limit of latency the methods of the ONNX part come first, and each other part is tried alone beside
    the fastest one. The proposals, which know latency, follow at once.
    """
    if limits.of_latency:
        methods = dense_alone(space)
        yield from ((recipe, "ladder") for recipe in methods.values())
        based = replace(space, base=_base(methods, log, limits, metric, original))
        yield from ((recipe, "ladder") for recipe in tables_alone(based))
        return
    first = list(ladder(space))
    yield from ((recipe, "ladder") for recipe in first)
    tried = [trial for recipe in first if (trial := log.find(recipe)) is not None]
    yield from ((recipe, "budget") for recipe in suggest(original, tried))
    yield from ((recipe, "ladder") for recipe in parts_alone(space))


def _base(
    methods: Mapping[str, Recipe], log: RecipeTrialLog, limits: Limits, metric: str, original: Trial
) -> str | None:
    """Return the method of the ONNX part that keeps the limits but that of size, and is the fastest.

    Of those with the same number of steps of latency it is the one that loses least of the metric.
    """
    value = original.metrics[metric]

    def cost(trial: Trial) -> tuple[float, int, float, float]:
        violations = limits.violations(trial.figures, metric, value)
        excess = sum(each.excess for each in violations if not each.is_of_size)
        ratio = 1.0 if trial.latency is None else trial.latency.ratio("p50")
        return excess, latency_steps(ratio), max(0.0, value - trial.metrics[metric]), ratio

    tried = {method: log.find(recipe) for method, recipe in methods.items()}
    measured = {method: trial for method, trial in tried.items() if trial and trial.state == "measured"}
    return min(measured, key=lambda method: cost(measured[method]), default=None)


def _to_tune(
    space: Space, log: RecipeTrialLog, limits: Limits, metric: str, original: float
) -> Recipe | None:
    """Return a recipe that misses only the limits of quality, with fine-tuning; None: there is none to try.

    The nearest to the limits comes first. An ONNX part is tried so once, whatever the tables beside it.
    """
    tried = {trial.recipe.dense_part.key for trial in log if trial.recipe.tuned}
    excess: dict[str, tuple[float, Recipe]] = {}
    for trial in log:
        tuned = space.tuned(trial.recipe) if trial.state == "measured" else None
        if tuned is None or tuned.dense_part.key in tried:
            continue
        violations = limits.violations(trial.figures, metric, original)
        if violations and all(each.is_of_quality for each in violations):
            excess[tuned.key] = sum(each.excess for each in violations), tuned
    return min(excess.values(), key=lambda each: each[0])[1] if excess else None


def _proposed(
    space: Space, trials: Sequence[Trial], limits: Limits, metric: str, original: float, seed: int
) -> Recipe | None:
    """Return a recipe that was not tried: by sums of what methods change, every third time by the estimator.

    Sums find the best combination of parts that do not depend on each other; where they do, the estimator
    learns what sums leave out.
    """
    guess = None
    if len(trials) % _TRIALS_OF_ESTIMATOR:
        guess = best_guess(space, trials, limits, metric, original, seed + len(trials))
    return guess or propose(space, trials, limits, metric, original, seed)


def _original(bench: Workbench, log: RecipeTrialLog) -> Trial:
    found = log.find(Recipe()) or bench.try_recipe(Recipe(), "ladder")
    if found.state == "refused":
        raise UnsupportedError(
            f"the model cannot be measured as it is: {found.reason}",
            hint="mend the model, or train it again; there is nothing to compare a compressed one with",
        )
    if log.find(Recipe()) is None:
        log.add(found)
    return found


def _tried(bench: Workbench, log: RecipeTrialLog, recipe: Recipe, source: str) -> Trial:
    """Return the finished trial of a recipe; it is run where it was not."""
    found = log.find(recipe)
    if found is None:
        found = bench.try_recipe(recipe, source)
        log.add(found)
    return found


def _decide(bench: Workbench, original: Trial, trials: Sequence[Trial], limits: Limits, metric: str) -> Found:
    """Measure the best models again, together, until all of them are within the limits, and choose one.

    Models whose latency may be within are measured again, too: a disturbance must not cost the best one.
    """
    value = original.metrics[metric]
    measured = [trial for trial in trials if trial.state == "measured"]
    within = [trial for trial in measured if limits.may_keep(trial.figures, metric, value)]
    rejected: list[Trial] = []
    while within:
        points = _points(within, limits, metric)
        again = _measured_again(bench, points)
        failed = [trial for trial in again if limits.violations(trial.figures, metric, value)]
        if not failed:
            chosen, points = choose(again, limits, metric), sorted(again, key=lambda each: each.size_bytes)
            return Found(original, _with_later(trials, again), points, chosen, rejected)
        rejected += failed
        keys = {trial.recipe.key for trial in failed}
        within = [trial for trial in within if trial.recipe.key not in keys]
    raise refusal(infeasible(_with_later(measured, rejected), limits, metric, value), len(trials))


def _with_later(trials: Sequence[Trial], later: Sequence[Trial]) -> list[Trial]:
    """Return trials with the figures of those that were measured again."""
    by_key = {trial.recipe.key: trial for trial in later}
    return [by_key.get(trial.recipe.key, trial) for trial in trials]


def _points(within: Sequence[Trial], limits: Limits, metric: str) -> list[Trial]:
    """Return the Pareto set, thinned to a few models that cover it; the best one is among them."""
    costs = np.array([objectives(trial, metric) for trial in within])
    front = pareto_indices(costs)
    chosen = choose(within, limits, metric)
    kept = [place for place in front if within[place].recipe == chosen.recipe]
    always = [front.index(place) for place in kept]
    return [within[front[place]] for place in spread_out(costs[front], _MOST_POINTS, always)]


def _measured_again(bench: Workbench, points: Sequence[Trial]) -> list[Trial]:
    """Return points with latencies that were measured in turns with each other."""
    with ExitStack() as stack:
        models = {}
        for trial in points:
            built = stack.enter_context(bench.built(trial.recipe, trial.recipe.key))
            models[trial.recipe.key] = stack.enter_context(bench.open(built.path))
        latencies: Mapping[str, Latency] = bench.latencies(models, _FINAL_SECONDS)
    return [replace(trial, latency=latencies[trial.recipe.key]) for trial in points]
