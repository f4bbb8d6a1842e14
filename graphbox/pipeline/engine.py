"""Runs the stages of a run file in order, records each, and goes on where an earlier attempt stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from graphbox.config import RunConfig, config_digest, dump_config, load_config
from graphbox.config.processes import ONE_PROCESS_FOLLOWS
from graphbox.errors import GraphboxError, UsageError
from graphbox.memory import PeakMemory
from graphbox.native import default_threads
from graphbox.pipeline.failure import stage_failure
from graphbox.pipeline.progress import Progress, Silence, Stop
from graphbox.pipeline.report import RunReport
from graphbox.pipeline.stage import Stage, StageContext
from graphbox.pipeline.stages import STAGES
from graphbox.workspace import RunRecord, RunWriter, Workspace, folder_size

__all__ = ["continue_run", "run", "run_pipeline"]

_log = logging.getLogger("graphbox.pipeline")


def run(
    path: str | Path,
    overrides: Iterable[str] = (),
    workspace: str | Path | Workspace = "workspace",
    *,
    fresh: bool = False,
    progress: Progress | None = None,
) -> RunReport:
    """Run the pipeline of a run file, as ``graphbox run`` does.

    The last run of the same resolved config goes on after its last finished stage; when all of its
    stages have finished, its report is returned at once.

    Args:
        path: the run file.
        overrides: ``key.path=value`` texts, see `graphbox.config.load_config`.
        workspace: the workspace or its folder, made when it is not there.
        fresh: start a new run in any case.
        progress: receives what is going on.

    Raises:
        ConfigError: the run file has mistakes.
        GraphboxError: a stage failed; `graphbox.errors` lists the kinds.
    """
    config = load_config(path, overrides)
    opened = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    return run_pipeline(config, opened, fresh=fresh, progress=progress)


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
    """Run those of ``stages`` that ``config`` wants, up to ``until`` (all without one); see `run`."""
    wanted = _wanted(stages, config, until)
    progress, stop = progress or Silence(), stop or Stop()
    earlier = None if fresh else _earlier_run(config, workspace, wanted, progress)
    if earlier is not None:
        if _finished(earlier, _up_to(wanted, until)) and not _follows(config):
            progress.note(f"run {earlier.id} had finished: nothing was left to do; --fresh starts a new one")
            return RunReport.of(earlier)
        writer = workspace.resume_run(earlier.id)
        _reset_following(writer, config, wanted)
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
    progress: Progress | None = None,
    stop: Stop | None = None,
    stages: Sequence[Stage] = STAGES,
) -> RunReport:
    """Go on with the run ``run_id`` after its last finished stage, up to ``until``.

    Args:
        run_id: the run; ``last`` is the newest.
        workspace: where it is.
        until: last stage to run; all without one.
        again: run the stage ``until`` even if it has finished.
        progress: receives what is going on.
        stop: asks to stop.
        stages: all there are.

    Raises:
        NotFoundError: there is no such run.
        UsageError: its run file does not ask for the stage.
        ConflictError: another process is running it.
    """
    record = workspace.run(run_id)
    config = load_config(record.path / "config.yaml", check_files=False)
    chosen = _up_to(_wanted(stages, config, until), until)
    progress, stop = progress or Silence(), stop or Stop()
    if _finished(record, chosen) and not again and not _follows(config):
        progress.note(f"run {record.id} had finished: nothing was left to do")
        return RunReport.of(record)
    with workspace.resume_run(record.id) as writer:
        _reset_following(writer, config, chosen)
        if again and until is not None:
            writer.reset_stages([until])
        _run_stages(writer, workspace, config, chosen, progress, stop)
    return RunReport.of(workspace.run(record.id))


def _earlier_run(
    config: RunConfig, workspace: Workspace, stages: list[Stage], progress: Progress
) -> RunRecord | None:
    """Return the newest run of this config that can be gone on with, or that is done."""
    digest = config_digest(config)
    record = next((r for r in workspace.runs() if r.config_digest == digest), None)
    if record is None or not record.path.is_dir():
        return None
    records = {stage.name: stage for stage in record.stages}
    if set(records) != {stage.name for stage in stages}:
        return None
    for stage in stages:
        done = records[stage.name]
        if done.state == "finished" and not stage.still_valid(config, workspace, done.outputs):
            progress.note(
                f"what the stage `{stage.name}` of run {record.id} read has changed: starting a new run"
            )
            return None
    return record


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
    names = {stage.name for stage in stages}
    return all(stage.state == "finished" for stage in record.stages if stage.name in names)


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
        for position, stage in enumerate(stages, start=1):
            if writer.outputs(stage.name) is None:
                progress.begin(stage.name, position, len(stages))
                _run_stage(stage, writer, workspace, config, progress, stop)
        writer.finish(folder_size(writer.path))


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


def _run_stage(
    stage: Stage, writer: RunWriter, workspace: Workspace, config: RunConfig, progress: Progress, stop: Stop
) -> None:
    before = next(record for record in writer.record.stages if record.name == stage.name)
    context = StageContext(
        config=config,
        workspace=workspace,
        run_id=writer.id,
        run_path=writer.path,
        finished={s.name: s.outputs for s in writer.record.stages if s.state == "finished"},
        resumed=before.state != "pending",
        progress=progress,
        stop=stop,
    )
    writer.begin_stage(stage.name)
    _log.info("stage %s starts", stage.name)
    started = time.monotonic()
    with PeakMemory() as memory:
        error: BaseException | None = None
        try:
            stop.check()
            with default_threads(config.threads):
                result = stage.run(context)
        except BaseException as caught:  # noqa: BLE001 (raised again below, once the run knows of it)
            error = caught
        seconds = (before.seconds or 0.0) + time.monotonic() - started
        peak_bytes = max(before.peak_bytes or 0, memory.bytes)
    if error is not None:
        shown = _record_failure(error, stage.name, writer, seconds=seconds, peak_bytes=peak_bytes)
        if isinstance(error, KeyboardInterrupt | SystemExit) or shown is error:
            raise error
        raise shown from error
    writer.report({**writer.record.report, **result.report})
    writer.finish_stage(
        stage.name,
        seconds=seconds,
        peak_bytes=peak_bytes,
        outputs=result.outputs,
        size_bytes=folder_size(writer.path),
    )
    _log.info("stage %s finished in %.1f s: %s", stage.name, seconds, result.summary)
    progress.end(stage.name, seconds, peak_bytes, result.summary)


def _record_failure(
    error: BaseException, stage: str, writer: RunWriter, *, seconds: float, peak_bytes: int
) -> GraphboxError:
    """Note with the run what ended a stage, and return it as an error for the user."""
    shown = stage_failure(error, stage, writer.id, writer.path / "log.txt")
    _log.info("stage %s ended: %s", stage, shown, exc_info=None if shown is error else error)
    try:
        writer.stop_stage(stage, shown, seconds=seconds, peak_bytes=peak_bytes)
    except GraphboxError as second:
        # A full disk, say, hits the database too; the first cause is the one to show.
        _log.warning("the end of the run could not be noted: %s", second)
    return shown


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
