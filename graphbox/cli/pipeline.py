"""Running a pipeline with progress on standard error; used by the commands that run stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.cli.progress import ShownProgress
from graphbox.cli.promotion import print_promotions, server_documents
from graphbox.cli.results import print_results
from graphbox.cli.session import Session
from graphbox.errors import GraphboxError, NotFoundError, UsageError

if TYPE_CHECKING:
    from graphbox.config import PromotionRule, RunConfig
    from graphbox.pipeline import RunReport
    from graphbox.pipeline.compression_search import Watch


def run_file(
    session: Session, file: Path, overrides: list[str], *, fresh: bool, resume: bool, until: str | None = None
) -> RunReport:
    """Run the stages of a run file up to ``until``.

    Raises:
        UsageError: both ``fresh`` and ``resume``.
        NotFoundError: ``resume``, and there is no earlier attempt.
        GraphboxError: a stage failed; one that names a key says where the run file has it.
    """
    from graphbox.config import load_config, place_in_file
    from graphbox.pipeline.engine import same_training
    from graphbox.pipeline.table_check import table_mistakes

    if fresh and resume:
        raise UsageError(
            "expected --fresh or --resume, received both",
            hint="without either, the command resumes an earlier attempt or starts a new one",
        )
    config = load_config(file, overrides, check_tables=table_mistakes, stored_schema=session.stored_schema())
    if resume:
        with session.workspace() as workspace:
            if same_training(config, workspace) is None:
                raise NotFoundError(
                    "there is no earlier run of this run file with these overrides",
                    where=str(file),
                    hint="leave --resume out to start one; `graphbox runs` lists what there is",
                )
    try:
        return run_shown(session, config, fresh=fresh, until=until)
    except GraphboxError as error:
        if error.where is not None:
            error.where = place_in_file(file, overrides, error.where) or error.where
        raise


def run_shown(
    session: Session, config: RunConfig, *, fresh: bool = False, until: str | None = None
) -> RunReport:
    """Run the stages of ``config`` up to ``until``; show progress and stop on signals."""
    from graphbox.pipeline import run_pipeline

    with session.workspace(create=True) as workspace:
        return _watched(
            session, lambda **watch: run_pipeline(config, workspace, fresh=fresh, until=until, **watch)
        )


def continue_shown(
    session: Session,
    run_id: str,
    *,
    until: str | None = None,
    again: bool = False,
    overrides: Sequence[str] = (),
) -> RunReport:
    """Resume a run, and print its report."""
    from graphbox.pipeline import continue_run

    with session.workspace() as workspace:
        report = _watched(
            session,
            lambda **watch: continue_run(
                run_id, workspace, until=until, again=again, overrides=overrides, **watch
            ),
        )
    answer_report(session, report)
    return report


def make_versions(session: Session, run_id: str, stage: str, rule: PromotionRule | None) -> None:
    """Run the stage `export` or `compress` of a run again, promote what it made, and print the report.

    Args:
        session: this call of the command line.
        run_id: the run.
        stage: the stage.
        rule: whether to promote, instead of what the run file says.
    """
    from graphbox.pipeline import continue_run
    from graphbox.pipeline.promotion import promote_stage

    with session.workspace() as workspace:
        report = _watched(
            session, lambda **watch: continue_run(run_id, workspace, until=stage, again=True, **watch)
        )
        session.note("measuring the new versions beside the active ones ...")
        promotions = promote_stage(workspace, report.run, stage, rule)
    answer_report(
        session, replace(report, promotion={name: each.as_dict() for name, each in promotions.items()})
    )


def answer_report(session: Session, report: RunReport) -> None:
    """Print the report of a run, which versions are active now, and who serves them."""
    from graphbox.pipeline.promotion import promotion_now

    with session.workspace() as workspace:
        now = {name: promotion_now(workspace, name, noted) for name, noted in report.promotion.items()}
        servers = workspace.running_servers()
    promotions = {name: each for name, each in now.items() if each is not None}
    document = {**report.document(), "promotion": promotions}
    if promotions:
        document["servers"] = server_documents(servers)

    def show(console: Any) -> None:
        print_results(document, console)
        print_promotions(promotions, servers, console)
        console.print(f"run {report.run} in {report.path}", markup=False, soft_wrap=True)

    session.answer(document, show)


def watch_search(session: Session, work: Callable[[Watch], dict[str, Any]]) -> dict[str, Any]:
    """Run a search for compressed models with progress; a signal ends it after the trial that runs."""
    from graphbox.pipeline import stop_on_signals
    from graphbox.pipeline.compression_search import Watch

    with (
        ShownProgress(session.err(), quiet=session.quiet) as progress,
        stop_on_signals(progress.note, last_work="measuring a model") as stop,
    ):

        def step(line: str, done: int, most: int) -> None:
            progress.note(f"{done} of at most {most}: {line}")

        return work(Watch(step, stop.check))


def _watched(session: Session, work: Callable[..., RunReport]) -> RunReport:
    from graphbox.pipeline import stop_on_signals

    with (
        ShownProgress(session.err(), quiet=session.quiet) as progress,
        stop_on_signals(progress.note) as stop,
    ):
        return work(progress=progress, stop=stop)
