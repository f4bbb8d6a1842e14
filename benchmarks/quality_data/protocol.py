"""Definition of a data set of the quality benchmark: its files, its run file, its figures and protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import graphbox
from graphbox.pipeline import RunReport
from graphbox.pipeline.run_data import RunData
from graphbox.workspace import Workspace

__all__ = ["DataSet", "Figure", "Job", "Measured", "Prepare", "reported"]

_SOURCE = Path(__file__).parents[2]

Measured = Mapping[str, float]
"""Figures of one seed, by name."""

Prepare = Callable[[Path, Path], None]
"""Makes the tables of a run file, in the second folder, of published files, in the first."""


@dataclass(frozen=True)
class Figure:
    """A figure that is measured.

    Attributes:
        name: what it is called in the results.
        source: where it stands in the run's report: task, model or baseline, metric. None: what measures the
            data set finds it itself.
        published: what papers report.
        goal: what is wanted; None for a reference.
    """

    name: str
    source: tuple[str, str, str] | None = None
    published: str = ""
    goal: float | None = None


@dataclass(frozen=True)
class Job:
    """One seed of a data set.

    Attributes:
        data: the data set.
        seed: seed of the run.
        published: folder of the published files.
        tables: folder of the tables that the run file reads; that of the published files where nothing was
            to prepare.
        workspace: folder of the runs.
        threads: threads of a run; None: all CPUs.
        reports: those of the runs so far.
    """

    data: DataSet
    seed: int
    published: Path
    tables: Path
    workspace: Path
    threads: int | None
    reports: list[RunReport] = field(default_factory=list)

    def run(self, *overrides: str) -> RunReport:
        """Run the data set's run file, or go on with it."""
        settings = [f"seed={self.seed}", *self.data.overrides, *overrides]
        if self.data.files:  # what is bundled knows its place
            settings.append(f"graph.root={json.dumps(str(self.tables))}")
        if self.threads is not None:
            settings.append(f"threads={self.threads}")
        report = graphbox.run(_SOURCE / self.data.run_file, settings, self.workspace)
        self.reports.append(report)
        return report

    def open(self, report: RunReport) -> RunData:
        """Return a run's graph, splits and trained models, for an evaluation of one's own."""
        return RunData.open(Workspace(self.workspace), report.run)


def reported(job: Job) -> Measured:
    """Run the run file; return the figures that stand in its report."""
    return job.data.read(job.run())


@dataclass(frozen=True)
class DataSet:
    """A data set under its published protocol.

    Attributes:
        name: its name, and that of the folder of its published files.
        run_file: the example's, relative to the root of the source.
        files: published files that must be there; none: it is bundled.
        figures: what is measured.
        prepare: makes tables of the files; None: they are read as they are.
        overrides: further settings, ``key.path=value``.
        seeds: the seeds that make the mean.
        measure: runs one seed and returns its figures.
        remark: a sentence or two for the page of results: what differs from the published protocol, and how
            often the test part was looked at.
    """

    name: str
    run_file: str
    files: tuple[str, ...]
    figures: tuple[Figure, ...]
    prepare: Prepare | None = None
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    measure: Callable[[Job], Measured] = reported
    remark: str = ""

    def read(self, report: RunReport) -> dict[str, float]:
        """Return the figures that stand in a run's report."""
        found = {}
        for figure in self.figures:
            if figure.source is not None:
                task, model, metric = figure.source
                found[figure.name] = float(
                    ({**report.baselines[task], **report.metrics[task]})[model][metric]
                )
        return found
