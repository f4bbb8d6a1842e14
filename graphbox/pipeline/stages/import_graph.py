"""Stage `import`: the run file's tables become a graph in the workspace; a stored graph is taken as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphbox.config import GraphConfig, RunConfig
from graphbox.errors import GraphboxError
from graphbox.pipeline.data_digest import identity_of_file
from graphbox.pipeline.run_graph import is_changed, open_run_graph
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.words import counted
from graphbox.workspace import IMPORTED, TABLES_DIGITS, GraphRecord, Workspace

if TYPE_CHECKING:
    from graphbox.graph import Graph, GraphSource
    from graphbox.graph.ingest import ImportReport


@dataclass(frozen=True)
class Imported:
    """Result of an import.

    Attributes:
        record: the graph in the workspace.
        report: rows read and skipped; None when the graph was stored already.
        version: the version of the graph that is kept for the run, if one asked for it.
    """

    record: GraphRecord
    report: ImportReport | None
    version: str | None = None

    @property
    def summary(self) -> str:
        """One line about it."""
        counts = _counts(self.record)
        name = self.record.name
        if self.report is None:
            changed = " (with what was appended and removed since)" if is_changed(self.record) else ""
            return f"graph `{name}` is already there: {counts}{changed}"
        skipped = sum(each.rows - each.edges for each in self.report.edges)
        note = (
            f", {counted(skipped, 'edge')} skipped (`graphbox describe {name}` tells which)"
            if skipped
            else ""
        )
        return f"graph `{name}`: {counts}{note}"


def _run(context: StageContext) -> StageResult:
    def tell(what: str, done: int, total: int) -> None:
        context.stop.check()
        context.progress.step(what, done, total, "B")

    graph, workspace = context.config.graph, context.workspace
    if graph.is_stored:
        imported = _stored(graph.name, workspace, context.run_id)
    else:
        imported = import_config(
            graph, workspace, threads=context.config.threads, progress=tell, keep_for=context.run_id
        )
    record = imported.record
    outputs = {"graph": record.name, "fingerprint": record.fingerprint, "version": imported.version}
    return StageResult(imported.summary, outputs)


def _stored(name: str, workspace: Workspace, keep_for: str) -> Imported:
    """Return a stored graph as it is now, and keep its version for a run.

    Raises:
        NotFoundError: there is no such graph.
        ConflictError: another process is writing it.
    """
    from graphbox.graph.versions import keep_version

    path = workspace.graph(name).path  # before a lock file is made for a graph that is not there
    with workspace.graph_lock(name):
        version = keep_version(path, keep_for)
        return Imported(workspace.graph(name), None, version)


def import_config(
    config: GraphConfig,
    workspace: Workspace,
    *,
    again: bool = False,
    threads: int | None = None,
    progress: Any = None,
    keep_for: str | None = None,
) -> Imported:
    """Import the section ``graph`` of a run file into ``workspace``; what is there unchanged is kept.

    What is there but does not open, as it is damaged, is imported anew.
    A graph that was changed since by appending or removing is kept too while its tables are as they were.

    Args:
        config: the section ``graph``.
        workspace: where the graph goes.
        again: import even if nothing has changed.
        threads: threads to use; all CPUs of the process when absent.
        progress: see `graphbox.graph.ingest.import_graph`.
        keep_for: id of the run for which the version of the graph is kept.
    """
    from graphbox.graph.ingest import import_graph
    from graphbox.graph.versions import keep_version

    path = workspace.graph_path(config.name)
    fingerprint = graph_fingerprint(config)
    # Asked under the lock: another process may just have imported it.
    with workspace.writing_graph(config.name, IMPORTED, fingerprint=fingerprint):
        known = {record.name: record for record in workspace.graphs()}
        there = known.get(config.name)
        if not again and there is not None and _same_tables(there, fingerprint) and _opens(there):
            return Imported(there, None, None if keep_for is None else keep_version(path, keep_for))
        report = import_graph(
            graph_source(config),
            path,
            progress,
            strict=config.strict,
            memory_bytes=config.memory,
            threads=threads,
        )
        version = None if keep_for is None else keep_version(path, keep_for)
    return Imported(workspace.graph(config.name), report, version)


def _same_tables(record: GraphRecord, fingerprint: str) -> bool:
    return record.fingerprint[:TABLES_DIGITS] == fingerprint[:TABLES_DIGITS]


def _opens(record: GraphRecord) -> bool:
    from graphbox.graph import Graph

    try:
        Graph.open(record.path)
    except GraphboxError:
        return False
    return True


def open_graph(context: StageContext) -> Graph:
    """Return the graph of a run: the version that it imported.

    Raises:
        ConflictError: the version is gone.
    """
    context.output("import", "graph")  # which checks that the import has finished
    return open_run_graph(context.workspace, context.run_id, context.finished["import"])


def graph_fingerprint(config: GraphConfig) -> str:
    """Return a SHA-256 (hex) of the import's settings and of its files' names, sizes and times of change.

    A folder or a pattern stands for the files it names now. Of a URL only the text counts.
    """
    paths = [*(n.path for n in config.nodes.values() if n.path is not None), *(e.path for e in config.edges)]
    files = [identity_of_file(location) for path in paths for location in config.files(path)]
    settings = config.model_dump(mode="json", exclude={"memory"})
    for table in (*settings["nodes"].values(), *settings["edges"]):
        if table["list_separator"] is None:
            del table["list_separator"]  # keeps the fingerprints of graphs imported before this key existed
    return hashlib.sha256(json.dumps([settings, files], sort_keys=True).encode()).hexdigest()


def _still_valid(config: RunConfig, workspace: Workspace, outputs: Mapping[str, Any]) -> bool:
    """Return whether the graph is still the one that was taken, and its files have not changed since."""
    try:
        record = workspace.graph(outputs["graph"])
    except GraphboxError:
        return False
    unchanged = bool(record.fingerprint == outputs["fingerprint"])
    return unchanged and (config.graph.is_stored or _same_tables(record, graph_fingerprint(config.graph)))


def graph_source(config: GraphConfig) -> GraphSource:
    """Return the section ``graph`` as what `graphbox.graph.ingest.import_graph` reads."""
    from graphbox.graph import EdgeSource, GraphSource, NodeSource

    return GraphSource(
        name=config.name,
        nodes={
            name: NodeSource(
                None if n.path is None else config.locate(n.path),
                id=n.id,
                features=n.features,
                id_type=n.id_type,
                format=n.format,
                has_header=n.columns is None,
                names=n.columns,
                list_separator=n.list_separator,
            )
            for name, n in config.nodes.items()
        },
        edges=tuple(
            EdgeSource(
                type=e.type,
                data=config.locate(e.path),
                source=e.source,
                target=e.target,
                weight=e.weight,
                timestamp=e.timestamp,
                features=e.features,
                reverse=e.reverse,
                keep_duplicates=e.keep_duplicates,
                csr=e.csr,
                format=e.format,
                has_header=e.columns is None,
                names=e.columns,
                list_separator=e.list_separator,
            )
            for e in config.edges
        ),
    )


def _counts(record: GraphRecord) -> str:
    nodes = sum(record.node_types.values())
    edges = sum(each.edges for each in record.edge_types)
    return f"{counted(nodes, 'node')}, {counted(edges, 'edge')}"


STAGE = Stage("import", _run, still_valid=_still_valid)
