"""Runs the stages of a run file in order, records each, and resumes where an earlier attempt stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from graphbox.config import RunConfig, config_digest, dump_config, load_config, training_settings
from graphbox.config.processes import ONE_PROCESS_FOLLOWS
from graphbox.errors import ConfigError, GraphboxError, NotFoundError, UsageError
from graphbox.memory import PeakMemory
from graphbox.native import default_threads
from graphbox.pipeline.changes import changed_stages, check_overrides
from graphbox.pipeline.earlier_models import earlier_models
from graphbox.pipeline.failure import stage_failure
from graphbox.pipeline.progress import Progress, Silence, Stop
from graphbox.pipeline.report import RunReport
from graphbox.pipeline.run_graph import check_graph, schema_of_run
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages import STAGES
from graphbox.workspace import RunRecord, RunWriter, Workspace, folder_size

_log = logging.getLogger("graphbox.pipeline")


def run_pipeline(
    config: RunConfig,
    workspace: Workspace,
    *,
    fresh: bool = False,
    until: str | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
    stages: Sequence[Stage] = STAGES,
) -> RunReport:
    """Run those of ``stages`` that ``config`` wants, up to ``until`` (all without one).

    See :func:`graphbox.pipeline.run`, which reads run files and stores graphs.
    """
    wanted = _wanted(stages, config, until)
    progress, stop = progress or Silence(), stop or Stop()
    earlier = None if fresh else _earlier_run(config, workspace, wanted, progress)
    if earlier is not None:
        chosen = _up_to(wanted, until)
        changes = changed_stages(earlier, config, wanted)
        is_changed = any(stage.name in changes for stage in chosen)
        if _finished(earlier, chosen) and not is_changed and not _follows(config):
            progress.note(f"run {earlier.id} had finished: nothing was left to do; --fresh starts a new one")
            return RunReport.of(earlier)
        writer = workspace.resume_run(earlier.id)
        _reset_following(writer, config, wanted)
        _reconfigure(writer, config, wanted, changes, progress)
    else:
        names = [stage.name for stage in wanted]
        writer = workspace.start_run(config.name, dump_config(config), config_digest(config), names)
    with writer:
        _run_stages(writer, workspace, config, _up_to(wanted, until), progress, stop)
    return RunReport.of(workspace.run(writer.id))


def continue_run(
    run_id: str,
    workspace: Workspace,
    *,
    until: str | None = None,
    again: bool = False,
    overrides: Iterable[str] = (),
    progress: Progress | None = None,
    stop: Stop | None = None,
    stages: Sequence[Stage] = STAGES,
) -> RunReport:
    """Go on with the run ``run_id`` after its last finished stage, up to ``until``.

    Args:
        run_id: the run; ``last`` is the newest.
        workspace: where it is.
        until: last stage to run; all without one.
        again: run the stage ``until`` even if it has finished. The run keeps its earlier results until the
            new ones are complete: if it fails or is stopped then, it stays as it was.
        overrides: with ``again``, ``key.path=value`` texts that change settings of that stage.
        progress: receives what is going on.
        stop: asks to stop.
        stages: all there are.

    Raises:
        NotFoundError: there is no such run.
        UsageError: its run file does not ask for the stage, or an override is none of its settings.
        ConflictError: another process is running it.
    """
    record = workspace.run(run_id)
    before = load_config(record.path / "config.yaml", check_files=False)
    schema = schema_of_run(workspace, record) if overrides else None
    config = load_config(record.path / "config.yaml", overrides, check_files=False, stored_schema=schema)
    wanted = _wanted(stages, config, until)
    chosen = _up_to(wanted, until)
    if overrides:
        check_overrides(before, config, chosen[-1])
    progress, stop = progress or Silence(), stop or Stop()
    if _finished(record, chosen) and not again and not _follows(config):
        progress.note(f"run {record.id} had finished: nothing was left to do")
        return RunReport.of(record)
    check_graph(workspace, record)
    if again and _finished(record, chosen):
        with workspace.resume_run(record.id, keeps_record=True) as writer:
            _run_again(writer, workspace, config, chosen, progress, stop)
        return RunReport.of(workspace.run(record.id))
    with workspace.resume_run(record.id) as writer:
        _reset_following(writer, config, chosen)
        if overrides:
            _reconfigure(writer, config, wanted, {}, progress)
        _run_stages(writer, workspace, config, chosen, progress, stop)
    return RunReport.of(workspace.run(record.id))


def _run_again(
    writer: RunWriter,
    workspace: Workspace,
    config: RunConfig,
    stages: list[Stage],
    progress: Progress,
    stop: Stop,
) -> None:
    """Run the last of some finished stages again; the record changes when its new results are complete.

    Nothing has to be restored however it ends, be it by a signal that no process can handle. An attempt that
    was stopped leaves a mark: the next one resumes with what it kept.
    """
    stage = stages[-1]
    mark = writer.path / f"{stage.name}.again"
    changed = changed_stages(writer.record, config, [stage])
    if changed:
        progress.note(f"{stage.name}: runs again, {changed[stage.name]}")
    elif not mark.exists():
        stage.discard(writer.path)
        mark.touch()
    with _log_file(writer.path / "log.txt"):
        _check_device(config)
        _check_processes(config)
        progress.begin(stage.name, len(stages), len(stages))
        context = _context(stage, writer, workspace, config, progress, stop, resumed=False)
        attempt = _attempt(stage, context)
        if attempt.result is None:
            error = attempt.failure(stage, writer, keeps_results=True)
            _log.info("stage %s ended, the run keeps its earlier results: %s", stage.name, error)
            attempt.raise_as(error)
        writer.replace_results(
            stage.name,
            config=dump_config(config),
            config_digest=config_digest(config),
            report={**writer.record.report, **attempt.result.report},
            seconds=attempt.seconds,
            peak_bytes=attempt.peak_bytes,
            outputs=attempt.result.outputs,
            size_bytes=folder_size(writer.path),
        )
        mark.unlink(missing_ok=True)
        progress.end(stage.name, attempt.seconds, attempt.peak_bytes, attempt.result.summary)


def _reconfigure(
    writer: RunWriter,
    config: RunConfig,
    wanted: list[Stage],
    changes: Mapping[str, str | None],
    progress: Progress,
) -> None:
    """Give a run changed settings; stages in ``changes`` run again, for the reasons given there."""
    writer.reconfigure(
        dump_config(config), config_digest(config), [stage.name for stage in wanted], list(changes)
    )
    for name, reason in changes.items():
        if reason is not None:
            progress.note(f"{name}: runs again, {reason}")


def _earlier_run(
    config: RunConfig, workspace: Workspace, stages: list[Stage], progress: Progress
) -> RunRecord | None:
    """Return the newest run of this config that can be resumed or is finished."""
    record = same_training(config, workspace)
    if record is None:
        return None
    records = {stage.name: stage for stage in record.stages}
    for stage in stages:
        done = records.get(stage.name)
        if (
            done is not None
            and done.state == "finished"
            and not stage.still_valid(config, workspace, done.outputs)
        ):
            progress.note(
                f"what the stage `{stage.name}` of run {record.id} read has changed: starting a new run"
            )
            return None
    return record


def same_training(config: RunConfig, workspace: Workspace) -> RunRecord | None:
    """Return the newest run of this config, else the newest one with the same settings of training."""
    digest, training = config_digest(config), training_settings(config)
    records = [record for record in workspace.runs() if record.name == config.name and record.path.is_dir()]
    for record in records:
        if record.config_digest == digest:
            return record
    if _follows(config):
        return None
    return next((record for record in records if _training_settings(record) == training), None)


def _training_settings(record: RunRecord) -> dict[str, Any] | None:
    """Return the settings of a run that decide its models; None where this version cannot read them."""
    try:
        return training_settings(load_config(record.path / "config.yaml", check_files=False))
    except (ConfigError, NotFoundError):
        return None


def _wanted(stages: Sequence[Stage], config: RunConfig, until: str | None) -> list[Stage]:
    """Return the stages a run file asks for; ``until`` must be one of them."""
    wanted = [stage for stage in stages if stage.wanted(config) and stage.follows == _follows(config)]
    names = [stage.name for stage in wanted]
    if until is not None and until not in names:
        section = next((stage.section for stage in stages if stage.name == until), None) or until
        hint = f"its stages: {', '.join(names)}; the section `{section}` of the run file adds it"
        if _follows(config):
            hint = "the run follows a stream: `graphbox runs show` has what was measured of each chunk"
        raise UsageError(f"the run file does not ask for the stage `{until}`", where=until, hint=hint)
    return wanted


def _follows(config: RunConfig) -> bool:
    return config.stream.folder is not None


def _reset_following(writer: RunWriter, config: RunConfig, stages: list[Stage]) -> None:
    """Let the stages of a run that follows a stream run again: there may be new data."""
    if _follows(config):
        writer.reset_stages([stage.name for stage in stages if writer.outputs(stage.name) is not None])


def _up_to(stages: list[Stage], until: str | None) -> list[Stage]:
    names = [stage.name for stage in stages]
    return stages if until is None else stages[: names.index(until) + 1]


def _finished(record: RunRecord, stages: list[Stage]) -> bool:
    states = {stage.name: stage.state for stage in record.stages}
    return all(states.get(stage.name) == "finished" for stage in stages)


def _run_stages(
    writer: RunWriter,
    workspace: Workspace,
    config: RunConfig,
    stages: list[Stage],
    progress: Progress,
    stop: Stop,
) -> None:
    with _log_file(writer.path / "log.txt"):
        _check_device(config)
        _check_processes(config)
        if any(stage.name == "train" and writer.outputs(stage.name) is None for stage in stages):
            earlier_models(config, workspace, writer.id)  # refused before hours of import
        for position, stage in enumerate(stages, start=1):
            if writer.outputs(stage.name) is None:
                progress.begin(stage.name, position, len(stages))
                before = _outputs(writer, stage)
                _run_stage(stage, writer, workspace, config, progress, stop)
                if _outputs(writer, stage) != before:
                    _reset_dependents(stage, stages[position:], writer, progress)
        writer.finish(folder_size(writer.path))


def _outputs(writer: RunWriter, stage: Stage) -> Mapping[str, Any]:
    """Return the outputs of a stage, of an earlier time where it has to run again."""
    return next(record.outputs for record in writer.record.stages if record.name == stage.name)


def _reset_dependents(stage: Stage, later: list[Stage], writer: RunWriter, progress: Progress) -> None:
    """Let finished stages that read the outputs of ``stage`` run again."""
    for other in later:
        if stage.name in other.needs and writer.outputs(other.name) is not None:
            writer.reset_stages([other.name])
            progress.note(f"{other.name}: runs again, the stage `{stage.name}` has other results")


def _check_device(config: RunConfig) -> None:
    """Refuse a device that was asked for and is not there before hours of import."""
    if config.models and config.device not in ("auto", "cpu"):
        from graphbox.device import chosen_device

        chosen_device(config.device)


def _check_processes(config: RunConfig) -> None:
    """Refuse several processes for what only one can train, before hours of import."""
    if config.processes == 1 or not config.models:
        return
    if _follows(config):
        raise UsageError(
            f"{ONE_PROCESS_FOLLOWS}, received {config.processes}",
            where="processes",
            hint="leave `processes` out",
        )
    from graphbox.train.processes import check_processes

    for name, model in config.models.items():
        task = None if model.task is None else config.tasks[model.task]
        check_processes(config.processes, model, task, name, config.memory)


@dataclass(frozen=True)
class _Attempt:
    """Outcome of the work of a stage.

    Attributes:
        seconds: wall-clock time taken.
        peak_bytes: largest resident memory of the process meanwhile.
        result: result of the stage, or None where an error ended it.
        error: the error.
    """

    seconds: float
    peak_bytes: int
    result: StageResult | None = None
    error: BaseException | None = None

    def failure(self, stage: Stage, writer: RunWriter, *, keeps_results: bool = False) -> GraphboxError:
        """Return the error for the user."""
        assert self.error is not None  # noqa: S101 - for the type checker
        log_path = writer.path / "log.txt"
        return stage_failure(self.error, stage.name, writer.id, log_path, keeps_results=keeps_results)

    def raise_as(self, shown: GraphboxError) -> NoReturn:
        """Raise ``shown``, or what ended the process as it is."""
        if isinstance(self.error, KeyboardInterrupt | SystemExit):
            raise self.error
        raise shown from (None if shown is self.error else self.error)


def _context(
    stage: Stage,
    writer: RunWriter,
    workspace: Workspace,
    config: RunConfig,
    progress: Progress,
    stop: Stop,
    *,
    resumed: bool,
) -> StageContext:
    records = [each for each in writer.record.stages if each.state == "finished" and each.name != stage.name]
    return StageContext(
        config=config,
        workspace=workspace,
        run_id=writer.id,
        run_path=writer.path,
        finished={each.name: each.outputs for each in records},
        resumed=resumed,
        progress=progress,
        stop=stop,
    )


def _attempt(stage: Stage, context: StageContext) -> _Attempt:
    """Run a stage, with its time and memory measured."""
    context.stop.last_work = stage.last_work
    _log.info("stage %s starts", stage.name)
    started = time.monotonic()
    result, error = None, None
    with PeakMemory() as memory:
        try:
            context.stop.check()
            with default_threads(context.config.threads):
                result = stage.run(context)
        except BaseException as caught:  # noqa: BLE001 (raised again by the caller, once the run knows of it)
            error = caught
        seconds, peak_bytes = time.monotonic() - started, memory.bytes
    if result is not None:
        _log.info("stage %s finished in %.1f s: %s", stage.name, seconds, result.summary)
    return _Attempt(seconds, peak_bytes, result, error)


def _run_stage(
    stage: Stage, writer: RunWriter, workspace: Workspace, config: RunConfig, progress: Progress, stop: Stop
) -> None:
    before = next(record for record in writer.record.stages if record.name == stage.name)
    context = _context(stage, writer, workspace, config, progress, stop, resumed=before.state != "pending")
    writer.begin_stage(stage.name)
    attempt = _attempt(stage, context)
    seconds = (before.seconds or 0.0) + attempt.seconds
    peak_bytes = max(before.peak_bytes or 0, attempt.peak_bytes)
    if attempt.result is None:
        shown = attempt.failure(stage, writer)
        _record_failure(attempt.error, shown, stage.name, writer, seconds=seconds, peak_bytes=peak_bytes)
        attempt.raise_as(shown)
    writer.report({**writer.record.report, **attempt.result.report})
    writer.finish_stage(
        stage.name,
        seconds=seconds,
        peak_bytes=peak_bytes,
        outputs=attempt.result.outputs,
        size_bytes=folder_size(writer.path),
    )
    progress.end(stage.name, seconds, peak_bytes, attempt.result.summary)


def _record_failure(
    error: BaseException | None,
    shown: GraphboxError,
    stage: str,
    writer: RunWriter,
    *,
    seconds: float,
    peak_bytes: int,
) -> None:
    """Note with the run what ended a stage."""
    _log.info("stage %s ended: %s", stage, shown, exc_info=None if shown is error else error)
    try:
        writer.stop_stage(stage, shown, seconds=seconds, peak_bytes=peak_bytes)
    except GraphboxError as second:
        # A full disk, say, hits the database too; the first cause is the one to show.
        _log.warning("the end of the run could not be noted: %s", second)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Also write what graphbox logs, from INFO up, to ``path`` while the block runs."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("graphbox")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()
