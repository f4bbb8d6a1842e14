"""Stage `import`: the run file's tables become a graph in the workspace, unless it is there already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.config import GraphConfig, RunConfig
from graphbox.errors import ConflictError, GraphboxError
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.words import counted
from graphbox.workspace import IMPORTED, TABLES_DIGITS, GraphRecord, Workspace

if TYPE_CHECKING:
    from graphbox.graph import GraphSource
    from graphbox.graph.ingest import ImportReport

__all__ = [
    "STAGE",
    "Imported",
    "graph_fingerprint",
    "graph_source",
    "import_config",
    "is_changed",
    "open_graph",
]


@dataclass(frozen=True)
class Imported:
    """What became of an import.

    Attributes:
        record: the graph in the workspace.
        report: what was read and skipped; None when the graph was there already.
    """

    record: GraphRecord
    report: ImportReport | None

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

    imported = import_config(
        context.config.graph, context.workspace, threads=context.config.threads, progress=tell
    )
    record = imported.record
    return StageResult(imported.summary, {"graph": record.name, "fingerprint": record.fingerprint})


def import_config(
    config: GraphConfig,
    workspace: Workspace,
    *,
    again: bool = False,
    threads: int | None = None,
    progress: Any = None,
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
    """
    from graphbox.graph.ingest import import_graph

    fingerprint = graph_fingerprint(config)
    # Asked under the lock: another process may just have imported it.
    with workspace.writing_graph(config.name, IMPORTED, fingerprint=fingerprint):
        known = {record.name: record for record in workspace.graphs()}
        there = known.get(config.name)
        if not again and there is not None and _same_tables(there, fingerprint) and _opens(there):
            return Imported(there, None)
        report = import_graph(
            graph_source(config),
            workspace.graph_path(config.name),
            progress,
            strict=config.strict,
            memory_bytes=config.memory,
            threads=threads,
        )
    return Imported(workspace.graph(config.name), report)


def is_changed(record: GraphRecord) -> bool:
    """Return whether a graph was changed since its import."""
    return "+" in record.fingerprint


def _same_tables(record: GraphRecord, fingerprint: str) -> bool:
    return record.fingerprint[:TABLES_DIGITS] == fingerprint[:TABLES_DIGITS]


def _opens(record: GraphRecord) -> bool:
    from graphbox.graph import Graph

    try:
        Graph.open(record.path)
    except GraphboxError:
        return False
    return True


def open_graph(context: StageContext) -> Any:
    """Return the imported graph of a run, opened.

    Raises:
        ConflictError: another process has imported other data under that name since.
    """
    from graphbox.graph import Graph

    record = context.workspace.graph(context.output("import", "graph"))
    if record.fingerprint != context.output("import", "fingerprint"):
        raise ConflictError(
            f"the graph `{record.name}` was changed, or imported from other data, since the run began",
            where=f"run {context.run_id}",
            hint="run the run file again; give the other graph another `graph.name`",
        )
    return Graph.open(record.path)


def graph_fingerprint(config: GraphConfig) -> str:
    """Return a SHA-256 (hex) of the import's settings and of its files' names, sizes and times of change.

    A folder or a pattern stands for the files it names now. Of a URL only the text counts.
    """
    paths = [*(n.path for n in config.nodes.values() if n.path is not None), *(e.path for e in config.edges)]
    files = [_identity(location) for path in paths for location in config.files(path)]
    settings = config.model_dump(mode="json", exclude={"memory"})
    return hashlib.sha256(json.dumps([settings, files], sort_keys=True).encode()).hexdigest()


def _identity(location: str | Path) -> list[Any]:
    if isinstance(location, str):
        return [location]
    try:
        status = location.stat()
    except OSError:
        # The import itself says what is missing; here only sameness counts.
        return [str(location), None, None]
    return [str(location), status.st_size, status.st_mtime_ns]


def _still_valid(config: RunConfig, workspace: Workspace, outputs: Mapping[str, Any]) -> bool:
    """Return whether the graph is still the one that was imported, and its files have not changed since."""
    try:
        record = workspace.graph(outputs["graph"])
    except GraphboxError:
        return False
    unchanged = bool(record.fingerprint == outputs["fingerprint"])
    return unchanged and _same_tables(record, graph_fingerprint(config.graph))


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
            )
            for e in config.edges
        ),
    )


def _counts(record: GraphRecord) -> str:
    nodes = sum(record.node_types.values())
    edges = sum(each.edges for each in record.edge_types)
    return f"{counted(nodes, 'node')}, {counted(edges, 'edge')}"


STAGE = Stage("import", _run, still_valid=_still_valid)
