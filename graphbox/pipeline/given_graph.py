"""Graphs that a Python program gives to a run: stored in the workspace, once for the same data."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphbox.config.graph_schema import GraphSchema
from graphbox.errors import ConflictError, GraphboxError, UsageError
from graphbox.pipeline.data_digest import digest_of_graph, digest_of_source
from graphbox.pipeline.pyg_conventions import as_trained
from graphbox.pipeline.stored_graph import schema_of_graph, schema_of_source, stored_schema
from graphbox.words import counted
from graphbox.workspace import IMPORTED, TABLES_DIGITS, GraphRecord, Workspace

if TYPE_CHECKING:
    from graphbox.graph import Graph, GraphSource
    from graphbox.graph.ingest import ImportReport

StepProgress: TypeAlias = Callable[[str, int, int], None]
_ORIGIN = "the graph given"


@dataclass(frozen=True)
class GivenGraph:
    """A graph that a program gave, ready to be stored.

    Attributes:
        name: name it has, or is to have, in the workspace.
        data: what is to be stored: a graph, or tables; None: the workspace has the graph.
    """

    name: str
    data: Graph | GraphSource | None

    def schema(self, workspace: Workspace) -> GraphSchema:
        """Return its types.

        Raises:
            NotFoundError: it is named, and the workspace has no such graph.
        """
        from graphbox.graph import Graph

        if self.data is None:
            return stored_schema(workspace)(self.name)
        if isinstance(self.data, Graph):
            return schema_of_graph(self.data, _ORIGIN)
        return schema_of_source(self.data, _ORIGIN)

    def store(
        self, workspace: Workspace, *, threads: int | None = None, progress: StepProgress | None = None
    ) -> GraphRecord:
        """Write it into the workspace unless the same data is there, in place of other data of its name.

        Rows of tables that cannot be used are left out and counted in a warning.

        Raises:
            GraphboxError: it cannot be written; see `graphbox.graph.ingest.import_graph`.
        """
        if self.data is None:
            return workspace.graph(self.name)
        path, fingerprint = workspace.graph_path(self.name), _fingerprint(self.data)
        with workspace.writing_graph(self.name, IMPORTED, fingerprint=fingerprint):
            known = {record.name: record for record in workspace.graphs()}.get(self.name)
            if known is None or not _is_stored(known, fingerprint):
                report = _write(self.data, path, self.name, threads, progress)
                if report is not None:
                    _warn_of_skipped(report)
        return workspace.graph(self.name)


def given_graph(graph: Any, name: str | None, default_name: str, workspace: Workspace) -> GivenGraph:
    """Return what a program gave as the graph of a run.

    Args:
        graph: the name of a stored graph; a `Graph`; PyTorch Geometric's ``Data`` or ``HeteroData``; data
            frames by node type and edge type, see `graphbox.graph.source.frames`; or a `GraphSource`.
        name: name that the config gives the graph, if any.
        default_name: name for a graph that has none of its own.
        workspace: where it will be stored.

    Raises:
        UsageError: it is none of these.
        ConflictError: it is a graph of the workspace that was changed since it was opened.
    """
    from graphbox.graph import Graph, GraphSource
    from graphbox.graph.source.frames import source_of_frames

    if isinstance(graph, str):
        if name not in (None, graph):
            raise UsageError(
                f"expected one name of the graph, received `{graph}` and, in the config, `{name}`",
                where="graph.name",
                hint="leave one of them out",
            )
        return GivenGraph(graph, None)
    if isinstance(graph, GraphSource):
        own = name or graph.name
        return GivenGraph(own, replace(graph, name=own))
    if isinstance(graph, Mapping) and not hasattr(graph, "edge_index"):
        own = name or default_name
        return GivenGraph(own, source_of_frames(graph, own))
    if hasattr(graph, "edge_index") or (hasattr(graph, "edge_types") and hasattr(graph, "metadata")):
        graph = as_trained(Graph.from_pyg(graph, name=name or default_name))
    if not isinstance(graph, Graph):
        raise UsageError(
            "expected the name of a stored graph, a Graph, PyTorch Geometric's Data or HeteroData, or data "
            f"frames by node type and edge type, received {type(graph).__name__}",
            where="graph",
            hint='for example graph={"user": users, ("user", "buys", "item"): purchases}',
        )
    return _given(graph, name, default_name, workspace)


def _given(graph: Graph, name: str | None, default_name: str, workspace: Workspace) -> GivenGraph:
    """Return a graph as it is to be stored: one that was opened from this workspace is there already."""
    from graphbox.graph import Graph

    folder = None if graph.path is None else graph.path.resolve()
    if folder is None or folder.parent != (workspace.root / "graphs").resolve():
        return GivenGraph(name or default_name, graph)
    stored = Graph.open(folder)
    if name in (None, folder.name) and _version(graph) == stored.version:
        return GivenGraph(folder.name, None)
    if name in (None, folder.name):
        raise ConflictError(
            f"expected the stored graph `{folder.name}` as it is, received an earlier version or a view",
            where="graph",
            hint="open it again; or store what you have as another graph: `graph: {name: ...}` in the config",
        )
    return GivenGraph(name, graph)


def _version(graph: Graph) -> str | None:
    """Return the version of an opened graph that nothing was changed of; None for any other."""
    from graphbox.graph import Graph

    try:
        version = graph.version
    except UsageError:
        return None
    folder = graph.path
    if folder is None:
        return None
    # A view with reverse edges knows the folder, too.
    return version if graph.edge_types == Graph.open(folder, version=version).edge_types else None


def _is_stored(record: GraphRecord, fingerprint: str) -> bool:
    """Return whether a graph was made of the same data, and can be opened."""
    from graphbox.graph import Graph

    if record.fingerprint[:TABLES_DIGITS] != fingerprint[:TABLES_DIGITS]:
        return False
    try:
        Graph.open(record.path)
    except GraphboxError:
        return False
    return True


def _write(
    data: Graph | GraphSource, path: Path, name: str, threads: int | None, progress: StepProgress | None
) -> ImportReport | None:
    from graphbox.graph import GraphSource
    from graphbox.graph.ingest import import_graph

    if isinstance(data, GraphSource):
        return import_graph(data, path, progress, threads=threads)
    data.save(path, name=name)
    return None


def _fingerprint(data: Graph | GraphSource) -> str:
    """Return a SHA-256 (hex) of what is given; of an opened graph it is that of its version."""
    from graphbox.graph import GraphSource

    if isinstance(data, GraphSource):
        return digest_of_source(data)
    version = _version(data)
    return digest_of_graph(data) if version is None else hashlib.sha256(version.encode()).hexdigest()


def _warn_of_skipped(report: ImportReport) -> None:
    """Warn of rows that are not in the graph, with the first example of each kind."""
    lines = []
    for nodes in report.node_types:
        lines += [f"{nodes.type}: {_skipped(kind, count, nodes)}" for kind, count in nodes.skipped.items()]
    for edges in report.edge_types:
        kinds = dict(edges.skipped)
        kept = edges.rows - edges.edges - sum(kinds.values()) - edges.dangling_edges
        kinds |= {"dangling_edges": edges.dangling_edges, "duplicate_edges": kept}
        name = " ".join(edges.type)
        lines += [f"{name}: {_skipped(kind, count, edges)}" for kind, count in kinds.items() if count]
    if lines:
        warnings.warn(f"rows that are not in the graph: {'; '.join(lines)}", stacklevel=4)


def _skipped(kind: str, count: int, report: Any) -> str:
    examples = report.examples.get(kind, ())
    shown = f" (first: {examples[0]})" if examples else ""
    return f"{counted(count, 'row')}, {kind.replace('_', ' ')}{shown}"
