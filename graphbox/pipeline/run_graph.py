"""The graph of a run: the version that it was trained on, kept while the run exists."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from graphbox.errors import ConflictError, FormatError, NotFoundError, TimeLimitError
from graphbox.workspace import GraphRecord, RunRecord, Workspace

if TYPE_CHECKING:
    from graphbox.config.graph_schema import SchemaOf
    from graphbox.graph import Graph


def open_run_graph(workspace: Workspace, run_id: str, imported: Mapping[str, Any]) -> Graph:
    """Open the version of a graph that a run was trained on.

    Args:
        workspace: where the run is.
        run_id: its id.
        imported: outputs of its import.

    Raises:
        NotFoundError: there is no such graph.
        ConflictError: the version is gone.
    """
    from graphbox.graph import Graph
    from graphbox.graph.versions import has_version

    record = workspace.graph(imported["graph"])
    version = imported.get("version")
    if version is not None and has_version(record.path, version):
        return Graph.open(record.path, version=version)
    # Importing the same tables again gives the same graph, but a changed one may have been compacted since:
    # its edges have other ids then. Runs of earlier releases know no version.
    is_same = record.fingerprint == imported["fingerprint"] and (version is None or not is_changed(record))
    if not is_same:
        raise _gone(record.name, run_id)
    return Graph.open(record.path)


def is_changed(record: GraphRecord) -> bool:
    """Return whether a graph was changed since its import."""
    return "+" in record.fingerprint


def _gone(graph: str, run_id: str) -> ConflictError:
    return ConflictError(
        f"the version of the graph `{graph}` that the run was trained on is gone: nodes or edges were "
        "removed since, or the graph was imported again",
        where=f"run {run_id}",
        hint="run the run file again; `graphbox embed` still reads the vectors of the run, and with "
        f"`--graph {graph}` models of kind gnn embed the graph as it is now",
    )


def schema_of_run(workspace: Workspace, run: RunRecord) -> SchemaOf | None:
    """Return what looks up the types of a run's graph; None where it is gone, see :func:`check_graph`."""
    from graphbox.pipeline.stored_graph import schema_of_graph

    for stage in run.stages:
        if stage.name == "import" and stage.state == "finished":
            with suppress(NotFoundError, ConflictError):
                schema = schema_of_graph(
                    open_run_graph(workspace, run.id, stage.outputs), f"the graph of {run.id}"
                )
                return lambda _: schema
    return None


def check_graph(workspace: Workspace, run: RunRecord) -> None:
    """Check that the graph of a run can be opened, if it was imported.

    Raises:
        NotFoundError: the graph was removed.
        ConflictError: the version is gone.
    """
    for stage in run.stages:
        if stage.name == "import" and stage.state == "finished" and "graph" in stage.outputs:
            open_run_graph(workspace, run.id, stage.outputs)


def remove_run(workspace: Workspace, run_id: str) -> int:
    """Remove a run, its files, and the graph versions that it alone needed; return the bytes freed.

    Raises:
        NotFoundError: there is no such run.
        ConflictError: it is running.
    """
    record = workspace.run(run_id)
    freed = workspace.remove_run(record.id)
    for stage in record.stages:
        if "version" in stage.outputs:
            freed += release_unused_versions(workspace, stage.outputs["graph"])
    return freed


def release_unused_versions(workspace: Workspace, graph: str) -> int:
    """Release the versions of a graph that no run needs; return the bytes freed.

    Nothing is released where the graph is gone, does not open, or another process is writing it: the next
    compaction does it.
    """
    from graphbox.graph.versions import kept_versions, release_versions

    path = workspace.graph_path(graph)
    try:
        before = kept_versions(path)
        runs = {run.id for run in workspace.runs()}
        if all(runs.issuperset(each.holders) for each in before.versions):
            return 0
        release_versions(path, runs)
        return before.size_bytes - kept_versions(path).size_bytes
    except (NotFoundError, FormatError, TimeLimitError):
        return 0
