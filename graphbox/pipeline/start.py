"""Runs from Python: a run file or its content, over its tables or over a graph that the program has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphbox.config import RunConfig, load_config
from graphbox.config.graph_schema import names_stored_graph
from graphbox.config.source import read_source, source_of
from graphbox.errors import UsageError
from graphbox.package_folder import keep_packages_in
from graphbox.pipeline.engine import run_pipeline
from graphbox.pipeline.given_graph import GivenGraph, StepProgress, given_graph
from graphbox.pipeline.progress import Progress
from graphbox.pipeline.report import RunReport
from graphbox.pipeline.stored_graph import stored_schema
from graphbox.workspace import Workspace


def run(
    config: str | Path | Mapping[str, Any] | RunConfig,
    overrides: Iterable[str] = (),
    workspace: str | Path | Workspace = "workspace",
    *,
    graph: Any = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> RunReport:
    """Run the pipeline of a run file, as ``graphbox run`` does.

    The last run with the same settings of graph, tasks and training is resumed after its last finished stage.
    Its stages that read other settings which changed, such as ``tasks.*.baselines`` or ``export``, run again.
    When all of its stages have finished, its report is returned at once. A graph that changed starts a new
    run.

    With ``graph`` the section `graph` of the run file is left out, or only has a ``name``. What is given is
    stored in the workspace under that name, else under its own or the run's, in place of other data of the
    name; the same data is not stored again.

    Args:
        config: the run file; or its content, as plain values or as a `RunConfig`.
        overrides: ``key.path=value`` texts, see `graphbox.config.load_config`.
        workspace: the workspace or its folder, made when it is not there.
        graph: the name of a stored graph; a `Graph`; PyTorch Geometric's ``Data`` or ``HeteroData``; data
            frames (pandas, Polars, Arrow, DuckDB, arrays by column) by node type and edge type, like
            ``{"user": users, ("user", "buys", "item"): purchases}``, see
            :func:`graphbox.graph.source.frames.source_of_frames`; or a `GraphSource`, which names columns.
        fresh: start a new run in any case.
        progress: receives what is going on.

    Raises:
        ConfigError: the run file has mistakes, or names what the graph does not have.
        UsageError: ``graph`` is none of these, or the run file has tables as well.
        GraphboxError: a stage failed; `graphbox.errors` lists the kinds.
    """
    values: str | Path | Mapping[str, Any]
    values = config.model_dump(mode="json", exclude_none=True) if isinstance(config, RunConfig) else config
    opened = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    keep_packages_in(opened.root)
    if graph is None:
        checked = load_config(values, overrides, stored_schema=stored_schema(opened))
    else:
        given, is_named = _given_graph(values, graph, opened)
        named = [*(() if is_named else (f"graph.name={given.name}",)), *overrides]
        schema = given.schema(opened)
        checked = load_config(values, named, stored_schema=lambda _: schema)
        _check_name(checked, given)
        given.store(opened, threads=checked.threads, progress=_shown(progress))
    report = run_pipeline(checked, opened, fresh=fresh, progress=progress)
    return replace(report, workspace=opened)


def _given_graph(
    values: str | Path | Mapping[str, Any], graph: Any, workspace: Workspace
) -> tuple[GivenGraph, bool]:
    """Return what is given beside a run file, and whether the run file names it.

    Raises:
        UsageError: the run file has tables.
    """
    source = source_of(values) if isinstance(values, Mapping) else read_source(Path(values))
    section = source.data.get("graph")
    if section is not None and not names_stored_graph(source.data):
        raise UsageError(
            "expected a graph from Python or the tables of the run file, received both",
            where=f"{source.path}: graph",
            hint="leave `graph` out of the run file, or only give it a `name`",
        )
    name = None if section is None else str(section["name"])
    return given_graph(graph, name, str(source.data.get("name", "graph")), workspace), name is not None


def _check_name(config: RunConfig, given: GivenGraph) -> None:
    if config.graph.name != given.name or not config.graph.is_stored:
        raise UsageError(
            "expected overrides of other sections beside a graph from Python, received some of `graph`",
            where="overrides",
            hint="`graph: {name: ...}` of the run file names the graph",
        )


def _shown(progress: Progress | None) -> StepProgress | None:
    if progress is None:
        return None
    return lambda what, done, total: progress.step(what, done, total, "B")
