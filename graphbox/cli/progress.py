"""Progress of a pipeline: a live line on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from graphbox.cli.text import byte_size, count, duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LINE_EVERY_S = 10.0
_BAR_WIDTH = 20
# A terminal shows Ctrl-C as ^C where the live line ends. On its last columns that would begin another line,
# and the live line could not be erased.
_ECHO_WIDTH = 4
# Spinner, stage, model, bar, share and time left.
_LIVE_LINE_WIDTH = _BAR_WIDTH + 42 + _ECHO_WIDTH


class ShownProgress:
    """Shows progress on ``console``; a context manager.

    Finished stages stay as one line each: what came out, time, peak memory.
    """

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._live = console.is_terminal and not quiet
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._what: str | None = None
        self._started = self._last_line = time.monotonic()
        self._first_done = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._bar = _bar(self._console)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._drop_task()
            self._bar.stop()

    def begin(self, stage: str, position: int, count: int) -> None:
        """Show that a stage starts."""
        self._stage = f"{position}/{count} {stage}"
        self._what = None
        self._last_line = time.monotonic()
        if self._bar is not None:
            self._drop_task()
            self._task = self._bar.add_task(self._stage, total=None, what="", rate="", values="")
        else:
            self._print(f"{self._stage} ...")

    def step(
        self,
        what: str,
        done: float,
        total: float | None,
        unit: str = "",
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Show how far a stage is."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._started, self._first_done = what, now, done
        elapsed = now - self._started
        rate = (done - self._first_done) / elapsed if elapsed > 0.5 else 0.0
        shown_rate = _rate(rate, unit)
        figures = [_figure(name, value) for name, value in (values or {}).items()]
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=done,
                total=total,
                what=what,
                rate=shown_rate,
                values=self._fitting(figures),
            )
        elif not self._quiet and now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            parts = [what]
            if total:
                parts.append(f"{100 * done / total:.0f} %")
            if shown_rate:
                parts.append(shown_rate)
            if total and rate > 0:
                parts.append(f"{duration((total - done) / rate)} left")
            self._print(f"{self._stage}: {', '.join([*parts, *figures])}")

    def end(self, stage: str, seconds: float, peak_bytes: int, summary: str) -> None:
        """Show that a stage has ended."""
        self._drop_task()
        position = self._stage.partition(" ")[0]
        line = f"{position} {stage:<9} {duration(seconds):>9} {byte_size(peak_bytes):>8}  {summary}"
        self._print(line)

    def note(self, text: str) -> None:
        """Show a remark."""
        self._print(text)

    def _fitting(self, figures: list[str]) -> str:
        """Return as many figures as the live line has room for beside the bar."""
        room = self._console.width - _LIVE_LINE_WIDTH
        shown = ""
        for figure in figures:
            longer = f"{shown}  {figure}" if shown else figure
            if len(longer) > room:
                break
            shown = longer
        return shown

    def _print(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _drop_task(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


def _figure(name: str, value: float) -> str:
    """Return a figure with its name; one whose name ends in ``_per_s`` as a rate."""
    if name.endswith("_per_s"):
        return f"{count(value)} {name.removesuffix('_per_s')}/s"
    return f"{name.replace('validation_', 'validation ')} {value:.3g}"


def _rate(rate: float, unit: str) -> str:
    if rate <= 0 or not unit:
        return ""
    return f"{byte_size(rate)}/s" if unit == "B" else f"{count(rate)} {unit}/s"


def _bar(console: Console) -> Bar:
    from rich.constrain import Constrain
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class OneLine(Progress):
        """Leaves the last columns of the terminal free."""

        def get_renderables(self) -> Iterator[Constrain]:
            yield Constrain(self.make_tasks_table(self.tasks), console.width - _ECHO_WIDTH)

    class Shortened(TextColumn):
        """Gives way to the other columns where the line is too long."""

        def render(self, task: Task) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    return OneLine(
        SpinnerColumn(),
        TextColumn("{task.description}", style="bold", markup=False),
        Shortened("{task.fields[what]}", markup=False, table_column=Column()),
        BarColumn(bar_width=_BAR_WIDTH),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}", style="green", markup=False),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[values]}", style="cyan", markup=False),
        console=console,
        transient=True,
    )
