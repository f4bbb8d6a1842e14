"""Document of a search: what was tried, the points that were written, errors of parts, how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphbox.compress.limits import Limits
from graphbox.compress.search.choice import standard_error
from graphbox.compress.search.search import Found
from graphbox.compress.search.trials import Trial

__all__ = ["Setting", "limit_texts", "popularity_drift", "progress_document", "report_document"]

_BY_POPULARITY = "in_degree_"


@dataclass(frozen=True)
class Setting:
    """Facts about a search that its report repeats.

    Attributes:
        model: name of the model.
        parent: version that was compressed.
        metric: that decided.
        limits: that were given.
        command: that repeats the search.
        environment: target, device and versions, in words.
        layer_errors: relative error of the output when one layer alone is quantized, the largest first.
        table_errors: relative error of each table, by codec.
    """

    model: str
    parent: int
    metric: str
    limits: Limits
    command: str
    environment: str
    layer_errors: Mapping[str, float] = field(default_factory=dict)
    table_errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def report_document(
    found: Found, setting: Setting, versions: Mapping[str, int], metrics_test: Mapping[str, float]
) -> dict[str, Any]:
    """Return the report as plain values.

    Args:
        found: outcome of the search.
        setting: of the search.
        versions: version numbers of the points, by key of the recipe.
        metrics_test: of the chosen model on the test part; empty where there is none.
    """

    def described(trial: Trial) -> dict[str, Any]:
        return _described(trial, found.original, setting)

    return {
        **_facts(setting, found.original, found.trials),
        "points": [{**described(trial), "version": versions.get(trial.recipe.key)} for trial in found.points],
        "chosen": found.chosen.recipe.key,
        "metrics_test": dict(metrics_test),
        "drift": popularity_drift(found.original.metrics, found.chosen.metrics, setting.metric),
        "rejected": [described(trial) for trial in found.rejected],
    }


def progress_document(
    original: Trial, trials: Sequence[Trial], setting: Setting, failure: str | None = None
) -> dict[str, Any]:
    """Return the report of a search that has no outcome yet: it has no points.

    Args:
        original: the model itself.
        trials: those so far, in order.
        setting: of the search.
        failure: why it ended without an outcome; None: it is running, or was killed.
    """
    return {
        **_facts(setting, original, trials),
        "points": [],
        "chosen": None,
        "metrics_test": {},
        "drift": [],
        "rejected": [],
        "failure": failure,
    }


def _facts(setting: Setting, original: Trial, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return what is known of a search before its outcome."""
    return {
        "model": setting.model,
        "parent": setting.parent,
        "metric": setting.metric,
        "limits": limit_texts(setting.limits),
        "bounds": _bounds(setting.limits, setting.metric, original.metrics[setting.metric]),
        "original": _described(original, original, setting),
        "trials": [_described(trial, original, setting) for trial in trials],
        "layer_errors": dict(setting.layer_errors),
        "table_errors": {name: dict(errors) for name, errors in setting.table_errors.items()},
        "command": setting.command,
        "environment": setting.environment,
    }


def _described(trial: Trial, original: Trial, setting: Setting) -> dict[str, Any]:
    document = {**trial.as_dict(), "key": trial.recipe.key, "name": str(trial.recipe)}
    if trial.state == "measured":
        metric = setting.metric
        exceeded = setting.limits.violations(trial.figures, metric, original.metrics[metric])
        document["exceeds"] = [each.limit for each in exceeded]
        document["standard_error"] = standard_error(trial.metrics[metric], trial.metrics.get("queries", 0))
    return document


def _bounds(limits: Limits, metric: str, original: float) -> dict[str, float | None]:
    """Return the limits as numbers, those of the deciding metric as one: the least value it may have."""
    latency = (("p50", limits.max_p50), ("p99", limits.max_p99))
    return {
        "size_bytes": limits.max_size_bytes,
        **{f"{name}_ms": None if each is None or each.relative else each.value for name, each in latency},
        **{
            f"{name}_ratio": each.value if each is not None and each.relative else None
            for name, each in latency
        },
        "metric": limits.least(metric, original),
    }


def popularity_drift(
    original: Mapping[str, float], chosen: Mapping[str, float], metric: str
) -> list[dict[str, Any]]:
    """Return the metric of both models by how popular the targets are, the most popular first.

    Compression that spends its bits on popular rows may cost the others more than the metric shows.

    Args:
        original: metrics of the original on the validation part.
        chosen: those of the chosen model.
        metric: the one that decides.

    Returns:
        For each group ``group`` (of in-degrees in training), ``positives``, ``original`` and ``chosen``;
        nothing where the metric is not measured by popularity.
    """
    prefix = f"{metric}_{_BY_POPULARITY}"
    return [
        {
            "group": name.removeprefix(f"{metric}_"),
            "positives": int(original.get(f"positives_{name.removeprefix(f'{metric}_')}", 0)),
            "original": value,
            "chosen": chosen[name],
        }
        for name, value in original.items()
        if name.startswith(prefix) and name in chosen
    ]


def limit_texts(limits: Limits) -> Sequence[str]:
    """Return the limits as options of the command line."""
    texts: list[str] = [f"--min {name}={least:g}" for name, least in limits.minimums.items()]
    if limits.max_size_bytes is not None:
        texts.append(f"--max-size {limits.max_size_bytes}B")
    texts += [f"--max-{percentile} {limit}" for percentile, limit in limits.of_latency.items()]
    if limits.max_drop is not None:
        texts.append(f"--max-drop {limits.max_drop}")
    return texts
