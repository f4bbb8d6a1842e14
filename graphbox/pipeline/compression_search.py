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
from graphbox.config import BenchConfig, CompressConfig, SearchConfig, parse_max_drop
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
    from graphbox.compress.search import Found, Setting, Space, Trial, TrialLog, Workbench
    from graphbox.deploy import DeployedModel

_FORMAT = 2
_NEURONS = (1.0, 0.75, 0.5, 0.25, 0.125)


@dataclass(frozen=True)
class Quality:
    """How good a model is.

    Attributes:
        evaluate: returns the metrics of an open model on a part; None: agreement with the original.
        metric: the one that decides.
        measured_on: digest of what it is measured on; None: not known.
        queries: finds real queries of an open model, to measure ranges on and to learn from; None: those that
            it knows itself.
    """

    evaluate: Evaluate | None = None
    metric: str = "agreement"
    measured_on: str | None = None
    queries: Callable[[DeployedModel], Queries] | None = None


@dataclass(frozen=True)
class Watch:
    """What a search reports to, and asks whether to stop.

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
    from graphbox.compress.search import Target, Workbench

    wanted = settings.search or SearchConfig()
    artifact = Artifact.open(parent.path)
    target = Target(bench.target, bench.threads, wanted.batch)
    evaluate = quality.evaluate or _late(lambda: Agreement(workbench.original))
    folder, limits = workspace.search_folder(parent.name), limits_of(settings)
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
        setting = _with_trained_codecs(settings, workbench, setting, watch)
        progress = _Progress(kept, setting)
        try:
            found = _search(workbench, settings, setting, progress, watch)
            versions, metrics_test = _write_points(workspace, parent, workbench, found, quality, limits)
        except GateError as error:
            progress.note(failure=error.message)
            raise
        return _report(setting, found, versions, metrics_test, progress)


class _Progress:
    """Trials of a search and, until it ends, its report so far, which the page shows."""

    def __init__(self, kept: Path, setting: Setting) -> None:
        from graphbox.compress.search import TrialLog

        self.kept = kept
        self.log: TrialLog = TrialLog(kept / "trials.jsonl")
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
    workbench: Workbench, settings: CompressConfig, setting: Setting, progress: _Progress, watch: Watch
) -> Found:
    from graphbox.compress.search import Budget, search, suggestions

    wanted = settings.search or SearchConfig()
    space = _space(settings, workbench, setting)
    is_fixed = "tables" in settings.model_fields_set
    seconds = None if wanted.minutes is None else 60 * wanted.minutes

    def report(trial: Trial, done: int, most: int) -> None:
        progress.note()
        watch.step(_line(trial, setting.metric), done, most)

    def suggest(original: Trial, trials: Sequence[Trial]) -> Sequence[Recipe]:
        if is_fixed:
            return []
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
        max_p99_ms=wanted.max_p99_ms,
        minimums=wanted.min,
        max_drop=parse_max_drop(settings.max_drop),
    )


def _space(settings: CompressConfig, workbench: Workbench, setting: Setting) -> Space:
    """Return the methods to combine; of a part for which the settings name one, that alone."""
    from graphbox.compress.neighbors import neighbor_choices
    from graphbox.compress.parts import dense_choices, table_choices
    from graphbox.compress.search import Space
    from graphbox.compress.tables import TRAINED_PRECISIONS, worth_trying

    given, original = settings.model_fields_set, workbench.parts
    rows = settings.tables if "tables" in given else None
    tables = {}
    for name, spec in original.artifact.manifest.tables.items():
        errors = setting.table_errors.get(name, {})
        trained = (each for each in TRAINED_PRECISIONS if each in errors)
        choices = (*table_choices(original.artifact, name, rows), *trained)
        tables[name] = worth_trying(choices, spec.rows, spec.dim, errors)
    dense = dense_choices(original, settings.dense if "dense" in given else None)
    bounds = neighbor_choices(original.artifact, settings.max_neighbors)
    if settings.max_neighbors is None:
        bounds = workbench.neighbor_bounds(bounds)
    kept = _NEURONS if "dense" not in given and workbench.can_prune else (1.0,)
    return Space(
        tables=tables,
        dense=dense,
        layers=tuple(setting.layer_errors),
        kept_neurons=kept,
        max_neighbors=bounds,
        can_tune=workbench.can_tune,
    )


def _with_trained_codecs(
    settings: CompressConfig, workbench: Workbench, setting: Setting, watch: Watch
) -> Setting:
    """Add errors of codecs that are trained, where every other one leaves the model above `--max-size`.

    Tables with such an error can be written so in trials. Training takes tens of seconds for each.
    """
    from graphbox.compress.search import smallest_uniform
    from graphbox.row_codecs import can_train_codebooks

    most = setting.limits.max_size_bytes
    if most is None or "tables" in settings.model_fields_set or not can_train_codebooks():
        return setting
    if workbench.fits(smallest_uniform(_space(settings, workbench, setting)), most):
        return setting
    watch.check()
    trials = (settings.search or SearchConfig()).trials
    watch.step("training codebooks, which takes tens of seconds for each table", 0, trials)
    errors = {name: dict(known) for name, known in setting.table_errors.items()}
    for name, trained in workbench.trained_errors().items():
        errors.setdefault(name, {}).update(trained)
    return replace(setting, table_errors=errors)


def _write_points(
    workspace: Workspace,
    parent: ModelRecord,
    workbench: Workbench,
    found: Found,
    quality: Quality,
    limits: Limits,
) -> tuple[dict[str, int], dict[str, float]]:
    """Write the points as versions, the chosen one last, and measure that one on the test part.

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
        written = _written(workspace, parent, trial, needs_test=is_chosen and quality.evaluate is not None)
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

        artifact = workbench.write(trial.recipe, path, version, judge)
        register_compressed(workspace, artifact, parent)
        versions[trial.recipe.key] = version
    return versions, metrics_test


def _written(
    workspace: Workspace, parent: ModelRecord, trial: Trial, *, needs_test: bool
) -> ModelRecord | None:
    """Return the version that an earlier search, or one that was killed, wrote of a recipe.

    Args:
        workspace: where to look.
        parent: the version that was compressed.
        trial: the recipe.
        needs_test: whether the version has to have metrics of the test part.
    """
    for record in workspace.models(parent.name):
        if record.parent != parent.version or (needs_test and not record.metrics):
            continue
        if Artifact.open(record.path, verify=False).manifest.lineage.steps[-1:] == (trial.recipe.step,):
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
            f"expected {each.limit} {each.allowed:g} of the version as written, received {each.received:g}",
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
    fixed = [name for name in ("dense", "tables", "max_neighbors") if name in given]
    options += [f"--{name.replace('_', '-')} {getattr(settings, name)}" for name in fixed]
    return f"graphbox compress {shlex.quote(parent.name)} --version {parent.version} {' '.join(options)}"


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


def _line(trial: Trial, metric: str) -> str:
    if trial.state == "refused":
        return f"{trial.recipe}: refused"
    return f"{trial.recipe}: {trial.size_bytes / 1e6:.2f} MB, {metric} {trial.metrics[metric]:.4f}"


def _late(make: Callable[[], Evaluate]) -> Evaluate:
    """Return an evaluation that is made when it is first called."""
    made: list[Evaluate] = []

    def evaluate(model: DeployedModel, part: Any) -> Mapping[str, float]:
        if not made:
            made.append(make())
        return made[0](model, part)

    return evaluate
