"""Search for compressed versions of a model of the workspace: what is kept of it, and what it writes."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.artifact import Artifact
from graphbox.config import (
    OTHER_TABLES,
    BenchConfig,
    CompressConfig,
    LatencyLimit,
    SearchConfig,
    parse_latency_limit,
    parse_max_drop,
    precisions_by_table,
)
from graphbox.durable import NO_ROOM, write_atomically
from graphbox.errors import DoesNotFitError, GateError
from graphbox.pipeline.artifacts import MeasuredBy, register
from graphbox.workspace import ModelRecord, Workspace
from graphbox.workspace.models import SEARCH_MODELS
from graphbox.workspace.searches import PROGRESS_FILE, REPORT_FILE

if TYPE_CHECKING:
    from graphbox.compress import Evaluate
    from graphbox.compress.dense import Queries
    from graphbox.compress.limits import Limits, Violation
    from graphbox.compress.recipe import Recipe
    from graphbox.compress.search import CodecCost, Found, RecipeTrialLog, Setting, Space, Trial, Workbench
    from graphbox.deploy import DeployedModel

_FORMAT = 2
_NEURONS = (1.0, 0.75, 0.5, 0.25, 0.125)


@dataclass(frozen=True)
class Quality:
    """Metric that compares models of a search.

    Attributes:
        evaluate: returns the metrics of an open model on a part; None: agreement with the original.
        metric: the deciding metric.
        measured_on: digest of the data that it is measured on; None: not known.
        queries: returns real queries of an open model, to measure ranges and to learn from; None: those that
            the model has itself.
    """

    evaluate: Evaluate | None = None
    metric: str = "agreement"
    measured_on: str | None = None
    queries: Callable[[DeployedModel], Queries] | None = None


@dataclass(frozen=True)
class Watch:
    """Callbacks of a search for its progress and for requests to stop.

    Attributes:
        step: called with a line about each trial, trials done, and trials at most.
        check: raises to stop.
    """

    step: Callable[[str, int, int], None] = field(default=lambda *_: None)
    check: Callable[[], None] = field(default=lambda: None)


def search_version(
    workspace: Workspace,
    parent: ModelRecord,
    settings: CompressConfig,
    bench: BenchConfig,
    quality: Quality,
    watch: Watch,
) -> dict[str, Any]:
    """Search for models within limits and write those of the Pareto set as versions of the model.

    Finished trials are kept in the workspace: a search that was killed continues, and one with other limits
    begins with what is known.

    Args:
        workspace: where the model is.
        parent: the version to compress.
        settings: limits, and methods that are not searched.
        bench: target and threads.
        quality: how good a model is.
        watch: progress.

    Returns:
        The report of a compression, of the chosen version, with the document of the search under ``search``.

    Raises:
        GateError: no model is within the limits; nothing is written.
        ConflictError: another process searches for versions of this one.
        UnsupportedError: the model itself cannot be measured.
    """
    from graphbox.compress.agreement import Agreement
    from graphbox.compress.parts import given_tables
    from graphbox.compress.search import Target, Workbench

    wanted = settings.search or SearchConfig()
    artifact = Artifact.open(parent.path)
    is_given = "tables" in settings.model_fields_set
    given = given_tables(artifact, precisions_by_table(settings.tables)) if is_given else {}
    target = Target(bench.target, bench.threads, wanted.batch)
    evaluate = quality.evaluate or _late(lambda: Agreement(workbench.original))
    folder = workspace.search_folder(parent.name)
    workbench = Workbench(
        artifact,
        folder / f"{SEARCH_MODELS}{parent.version}",
        target,
        evaluate,
        quality.metric,
        quality.queries,
    )
    with workspace.searching(parent.name, parent.version), workbench:
        environment = _environment(workbench.original, target.batch)
        key = _key(artifact, quality, target, environment)
        kept = folder / f"{parent.version}-{key}"
        kept.mkdir(parents=True, exist_ok=True)
        layer_errors, table_errors = workbench.layer_errors(), workbench.table_errors()
        setting = _setting(parent, settings, quality, environment, layer_errors, table_errors)
        space = _space(settings, given, workbench, setting)
        setting, space = _with_trained_codecs(settings, given, workbench, setting, space, watch)
        progress = _Progress(kept, setting)
        try:
            found = _search(workbench, settings, setting, space, progress, watch)
            versions, metrics_test = _write_points(
                workspace, parent, workbench, found, quality, setting.limits, key
            )
        except GateError as error:
            progress.note(failure=error.message)
            raise
        return _report(setting, found, versions, metrics_test, progress)


class _Progress:
    """Trials of a search and, until it ends, its report so far, which the page shows."""

    def __init__(self, kept: Path, setting: Setting) -> None:
        from graphbox.compress.search import RecipeTrialLog

        self.kept = kept
        self.log: RecipeTrialLog = RecipeTrialLog(kept / "trials.jsonl")
        self._setting = setting

    def note(self, failure: str | None = None) -> None:
        """Write the report so far.

        Args:
            failure: why the search ends without an outcome.
        """
        from graphbox.compress.recipe import Recipe
        from graphbox.compress.search import progress_document

        original = self.log.find(Recipe())
        if original is not None:
            document = progress_document(original, list(self.log), self._setting, failure)
            _write_document(self.kept / PROGRESS_FILE, document)

    def end(self) -> None:
        """Remove the report so far: there is a whole one."""
        (self.kept / PROGRESS_FILE).unlink(missing_ok=True)


def _search(
    workbench: Workbench,
    settings: CompressConfig,
    setting: Setting,
    space: Space,
    progress: _Progress,
    watch: Watch,
) -> Found:
    from graphbox.compress.search import Budget, search, suggestions

    wanted = settings.search or SearchConfig()
    seconds = None if wanted.minutes is None else 60 * wanted.minutes

    def report(trial: Trial, done: int, most: int) -> None:
        progress.note()
        watch.step(_line(trial, setting), done, most)

    def suggest(original: Trial, trials: Sequence[Trial]) -> Sequence[Recipe]:
        metric, specs = setting.metric, workbench.parts.artifact.manifest.tables
        least = setting.limits.least(metric, original.metrics[metric])
        return suggestions(specs, space, setting.table_errors, trials, metric, least)

    return search(
        workbench,
        space,
        setting.limits,
        setting.metric,
        progress.log,
        Budget(wanted.trials, seconds, wanted.seed),
        report,
        watch.check,
        suggest,
    )


def limits_of(settings: CompressConfig) -> Limits:
    """Return the limits of a section `compress`; its `max_drop` holds as well."""
    from graphbox.compress.limits import Limits

    wanted = settings.search or SearchConfig()
    return Limits(
        max_size_bytes=wanted.max_size,
        max_p50=_latency_limit(wanted.max_p50_ms, "--max-p50"),
        max_p99=_latency_limit(wanted.max_p99_ms, "--max-p99"),
        minimums=wanted.min,
        max_drop=parse_max_drop(settings.max_drop),
    )


def _latency_limit(given: float | str | None, option: str) -> LatencyLimit | None:
    return None if given is None else parse_latency_limit(given, option)


def _space(
    settings: CompressConfig, given: Mapping[str, str], workbench: Workbench, setting: Setting
) -> Space:
    """Return the methods to combine; of a part for which the settings name one, that alone."""
    from graphbox.compress.neighbors import neighbor_choices
    from graphbox.compress.parts import dense_choices
    from graphbox.compress.search import Space

    is_given, original = "dense" in settings.model_fields_set, workbench.parts
    bounds = neighbor_choices(original.artifact, settings.max_neighbors)
    if settings.max_neighbors is None:
        bounds = workbench.neighbor_bounds(bounds)
    return Space(
        tables=_codecs_to_try(original.artifact, given, setting),
        costs=_table_costs(original.artifact, setting),
        dense=dense_choices(original, settings.dense if is_given else None),
        layers=tuple(setting.layer_errors),
        kept_neurons=_NEURONS if not is_given and workbench.can_prune else (1.0,),
        max_neighbors=bounds,
        can_tune=workbench.can_tune,
    )


def _codecs_to_try(
    artifact: Artifact, given: Mapping[str, str], setting: Setting
) -> dict[str, tuple[str, ...]]:
    """Return the codecs of each table; of one that is given its codec, that alone."""
    from graphbox.compress.parts import table_choices
    from graphbox.compress.tables import TRAINED_PRECISIONS, worth_trying

    tables = {}
    for name, spec in artifact.manifest.tables.items():
        choices, errors = table_choices(artifact, name, given.get(name)), setting.table_errors.get(name, {})
        if name not in given:
            choices += tuple(each for each in TRAINED_PRECISIONS if each in errors)
        is_limited = bool(setting.limits.of_latency)
        tables[name] = worth_trying(choices, spec.rows, spec.dim, errors, is_latency_limited=is_limited)
    return tables


def _table_costs(artifact: Artifact, setting: Setting) -> dict[str, dict[str, CodecCost]]:
    """Return bytes and errors of codecs where latency is limited: not each codec is tried alone there."""
    from graphbox.compress.search import CodecCost
    from graphbox.compress.tables import CODEC_OF_PRECISION

    if not setting.limits.of_latency:
        return {}
    specs = artifact.manifest.tables
    return {
        name: {
            each: CodecCost(CODEC_OF_PRECISION[each].bytes_of(specs[name].rows, specs[name].dim), error)
            for each, error in errors.items()
        }
        for name, errors in setting.table_errors.items()
    }


def _with_trained_codecs(
    settings: CompressConfig,
    given: Mapping[str, str],
    workbench: Workbench,
    setting: Setting,
    space: Space,
    watch: Watch,
) -> tuple[Setting, Space]:
    """Add codecs that are trained, and their errors, where others leave the model above `--max-size`.

    Training takes tens of seconds for each table.
    """
    from graphbox.compress.search import smallest_uniform
    from graphbox.row_codecs import can_train_codebooks

    most, artifact = setting.limits.max_size_bytes, workbench.parts.artifact
    searched = [name for name in artifact.manifest.tables if name not in given]
    if most is None or not searched or not can_train_codebooks():
        return setting, space
    if workbench.fits(smallest_uniform(space), most):
        return setting, space
    watch.check()
    trials = (settings.search or SearchConfig()).trials
    watch.step("training codebooks, which takes tens of seconds for each table", 0, trials)
    errors = {name: dict(known) for name, known in setting.table_errors.items()}
    for name, trained in workbench.trained_errors(searched).items():
        errors.setdefault(name, {}).update(trained)
    setting = replace(setting, table_errors=errors)
    tables, costs = _codecs_to_try(artifact, given, setting), _table_costs(artifact, setting)
    return setting, replace(space, tables=tables, costs=costs)


def _write_points(
    workspace: Workspace,
    parent: ModelRecord,
    workbench: Workbench,
    found: Found,
    quality: Quality,
    limits: Limits,
    key: str,
) -> tuple[dict[str, int], dict[str, float]]:
    """Write the points as versions, the chosen one last, and measure that one on the test part.

    Versions that an earlier search with the key wrote are not written again.

    Returns:
        Version numbers by key of the recipe, and the metrics on the test part.
    """
    from graphbox.compress.recipe import Recipe

    original = found.original.metrics[quality.metric]
    versions: dict[str, int] = {}
    metrics_test: dict[str, float] = {}
    for trial in sorted(found.points, key=lambda each: each.recipe == found.chosen.recipe):
        if trial.recipe == Recipe():  # the original, which is a version already
            versions[trial.recipe.key] = parent.version
            continue
        is_chosen = trial.recipe == found.chosen.recipe
        step = f"{trial.recipe.step}, search {key}"
        written = _written(workspace, parent, step, needs_test=is_chosen and quality.evaluate is not None)
        if written is not None:
            versions[trial.recipe.key] = written.version
            if is_chosen and parent.task is not None:
                metrics_test.update(written.metrics.get(parent.task, {}))
            continue
        version, path = workspace.new_model_path(parent.name)

        def judge(
            built: Artifact, trial: Trial = trial, is_chosen: bool = is_chosen
        ) -> Mapping[str, Mapping[str, float]]:
            with workbench.open(built.path) as model:
                figures = replace(trial.figures, metrics=workbench.measured(model))
                _check_limits(limits.violations(figures, quality.metric, original))
                if is_chosen and quality.evaluate is not None:
                    metrics_test.update(quality.evaluate(model, "test"))
            task = built.manifest.task
            return {} if task is None or not is_chosen else {task: metrics_test}

        artifact = workbench.write(trial.recipe, path, version, judge, step)
        register_compressed(workspace, artifact, parent)
        versions[trial.recipe.key] = version
    return versions, metrics_test


def _written(workspace: Workspace, parent: ModelRecord, step: str, *, needs_test: bool) -> ModelRecord | None:
    """Return the version that an earlier search, or one that was killed, wrote of a recipe.

    Args:
        workspace: where to look.
        parent: the version that was compressed.
        step: last one of its lineage: recipe and search.
        needs_test: whether the version has to have metrics of the test part.
    """
    for record in workspace.models(parent.name):
        if record.parent != parent.version or (needs_test and not record.metrics):
            continue
        if Artifact.open(record.path, verify=False).manifest.lineage.steps[-1:] == (step,):
            return record
    return None


def register_compressed(workspace: Workspace, artifact: Artifact, parent: ModelRecord) -> None:
    """Make a compressed version known: it was measured as its parent was."""
    measured = None
    if parent.deciding_metric is not None and parent.measured_on is not None:
        measured = MeasuredBy(parent.deciding_metric, parent.measured_on)
    register(workspace, artifact, run_id=parent.run_id, measured=measured, parent=parent.version)


def _check_limits(violations: Sequence[Violation]) -> None:
    """Refuse a version that is beyond a limit: it is checked on what is written, not on its trial alone.

    Raises:
        GateError: it is.
    """
    for each in violations:
        raise GateError(
            f"expected the version as written to be within the limits, it exceeds {each}",
            hint="it was not written; its trial was within: search again, or leave more room",
        )


def _setting(
    parent: ModelRecord,
    settings: CompressConfig,
    quality: Quality,
    environment: Mapping[str, Any],
    layer_errors: Mapping[str, float],
    table_errors: Mapping[str, Mapping[str, float]],
) -> Setting:
    from graphbox.compress.search import Setting

    limits = limits_of(settings)
    return Setting(
        model=parent.name,
        parent=parent.version,
        metric=quality.metric,
        limits=limits,
        command=_command(parent, settings, environment, limits),
        environment=", ".join(f"{name} {value}" for name, value in environment.items()),
        layer_errors=layer_errors,
        table_errors=table_errors,
    )


def _report(
    setting: Setting,
    found: Found,
    versions: Mapping[str, int],
    metrics_test: Mapping[str, float],
    progress: _Progress,
) -> dict[str, Any]:
    from graphbox.compress.report import BeforeAfter, MetricDrop
    from graphbox.compress.search import report_document, report_page

    document = report_document(found, setting, versions, metrics_test)
    page = progress.kept / "report.html"
    _write(page, report_page(document))
    _write_document(progress.kept / REPORT_FILE, document)
    progress.end()
    original, chosen, limits = found.original, found.chosen, setting.limits
    before, after = original.metrics[setting.metric], chosen.metrics[setting.metric]
    floor = before if limits.max_drop is None else limits.max_drop.floor(before)
    parts = {
        part: vars(BeforeAfter(size, chosen.parts_bytes[part])) for part, size in original.parts_bytes.items()
    }
    return {
        "version": versions[chosen.recipe.key],
        "parent": setting.parent,
        "metric": vars(MetricDrop(setting.metric, before, after, before - after, before - floor)),
        "metrics_before": dict(original.metrics),
        "metrics_after": dict(chosen.metrics),
        "metrics_test": dict(metrics_test),
        "size_bytes": vars(BeforeAfter(original.size_bytes, chosen.size_bytes)),
        "parts_bytes": parts,
        "dense": None,
        "tables": {},
        "search": {**document, "report": str(page)},
    }


def _write_document(path: Path, document: Mapping[str, Any]) -> None:
    _write(path, json.dumps(document, indent=1))


def _write(path: Path, text: str) -> None:
    try:
        with write_atomically(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DoesNotFitError(
            f"there is no room for the report of a search: {error.strerror}",
            where=str(path),
            hint="free some space; the same command continues",
        ) from None


def _command(
    parent: ModelRecord, settings: CompressConfig, environment: Mapping[str, Any], limits: Limits
) -> str:
    from graphbox.compress.search.report import limit_texts

    wanted = settings.search or SearchConfig()
    options = [*limit_texts(limits), f"--trials {wanted.trials}", f"--target {environment['target']}"]
    options += [f"--{name} {environment[name]}" for name in ("threads", "batch")]
    options += [] if wanted.minutes is None else [f"--minutes {wanted.minutes:g}"]
    given = settings.model_fields_set
    options += [f"--dense {settings.dense}"] if "dense" in given else []
    options += _table_options(settings) if "tables" in given else []
    options += [f"--max-neighbors {settings.max_neighbors}"] if "max_neighbors" in given else []
    return f"graphbox compress {shlex.quote(parent.name)} --version {parent.version} {' '.join(options)}"


def _table_options(settings: CompressConfig) -> list[str]:
    precisions = precisions_by_table(settings.tables)
    names = sorted(precisions, key=lambda name: name != OTHER_TABLES)
    return [
        f"--tables {precisions[name] if name == OTHER_TABLES else shlex.quote(f'{name}={precisions[name]}')}"
        for name in names
    ]


def _environment(model: DeployedModel, batch: int) -> dict[str, Any]:
    """Return what latencies depend on besides the model."""
    from graphbox.deploy.select import targets

    effective = model.effective
    found = next(
        (
            each.device
            for each in targets(effective["adapter"])
            if each.device is not None and each.device.name == effective["device"]
        ),
        None,
    )
    return {
        "target": f"{effective['adapter']}/{effective['device']}",
        "device": "" if found is None else found.description,
        "runtime": effective["runtime"],
        "threads": effective["threads"],
        "batch": batch,
        "machine": platform.machine(),
    }


def _key(artifact: Artifact, quality: Quality, target: Any, environment: Mapping[str, Any]) -> str:
    """Return the digest of all that figures of trials depend on; limits and methods are no part of it."""
    files = {name: record.sha256 for name, record in artifact.manifest.files.items()}
    values = [_FORMAT, files, quality.metric, quality.measured_on, vars(target), dict(environment)]
    if quality.queries is not None:
        values.append("training queries")
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def _line(trial: Trial, setting: Setting) -> str:
    if trial.state == "refused":
        return f"{trial.recipe}: refused"
    metric, latency = setting.metric, trial.latency
    text = f"{trial.recipe}: {trial.size_bytes / 1e6:.2f} MB, {metric} {trial.metrics[metric]:.4f}"
    if latency is not None:
        for percentile, limit in setting.limits.of_latency.items():
            ratio, time_ms = latency.ratio(percentile), latency.milliseconds(percentile)
            shown = f"{100 * ratio:.0f} % of the original's" if limit.relative else f"{time_ms:.3g} ms"
            text += f", {percentile} {shown}"
    return text


def _late(make: Callable[[], Evaluate]) -> Evaluate:
    """Return an evaluation that is made when it is first called."""
    made: list[Evaluate] = []

    def evaluate(model: DeployedModel, part: Any) -> Mapping[str, float]:
        if not made:
            made.append(make())
        return made[0](model, part)

    return evaluate
