"""Interface of a stage: its context and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphbox.config import RunConfig
from graphbox.errors import GraphboxError
from graphbox.pipeline.progress import Progress, Stop
from graphbox.workspace import Workspace


@dataclass(frozen=True)
class StageContext:
    """Everything a stage works with.

    Attributes:
        config: the run file.
        workspace: where graphs and models are kept.
        run_id: id of the run.
        run_path: folder of the run.
        finished: outputs of the finished stages, by name.
        resumed: whether this stage was begun before and may go on from what it left.
        progress: whom to tell.
        stop: whether to stop.
    """

    config: RunConfig
    workspace: Workspace
    run_id: str
    run_path: Path
    finished: Mapping[str, Mapping[str, Any]]
    resumed: bool
    progress: Progress
    stop: Stop

    def output(self, stage: str, name: str) -> Any:
        """Return what the finished stage ``stage`` recorded under ``name``.

        Raises:
            GraphboxError: that stage has not finished.
        """
        if stage not in self.finished:
            raise GraphboxError(
                f"the stage `{stage}` has to finish first", where=self.run_id, hint="run the stages in order"
            )
        return self.finished[stage][name]


@dataclass(frozen=True)
class StageResult:
    """Result of a stage.

    Attributes:
        summary: one line for a person.
        outputs: plain values the later stages need; kept with the run.
        report: parts of the run's report.
    """

    summary: str
    outputs: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline.

    Attributes:
        name: its name.
        run: does it.
        wanted: whether a run file asks for it.
        section: section of the run file that asks for it, where that has another name.
        follows: whether it is one of a run that follows a stream; such a run has no other stages.
        last_work: what it does when asked to stop, for the user.
        reads: settings that its outputs depend on, as plain values, where a change of them makes this stage
            run again. None: a change of what it reads starts a new run.
        needs: stages whose outputs it reads; a change of these makes it run again.
        discard: removes what it kept in the folder of the run to resume from.
        still_valid: whether what it recorded holds (its inputs are as they were), asked before it is skipped.
    """

    name: str
    run: Callable[[StageContext], StageResult]
    wanted: Callable[[RunConfig], bool] = lambda _: True
    section: str | None = None
    follows: bool = False
    last_work: str = "ending the stage"
    reads: Callable[[RunConfig], Mapping[str, Any]] | None = None
    needs: tuple[str, ...] = ()
    discard: Callable[[Path], None] = lambda _: None
    still_valid: Callable[[RunConfig, Workspace, Mapping[str, Any]], bool] = lambda *_: True
